//! The values that a report is about.

/// v = (r u, lower triangle of u u' row by row), two entries at a time: `unit` and `values` have
/// one entry more than they need, and where a row has an odd length the next one overwrites what is
/// too much.
pub(crate) fn fill_values(unit: &[f64], reward: f64, values: &mut [f64]) {
    let d = unit.len() - 1;
    let (moment, gram) = values.split_at_mut(d);
    for (value, u) in moment.iter_mut().zip(unit) {
        *value = reward * u;
    }
    let pairs = unit.as_chunks::<2>().0;
    let mut start = 0;
    for (i, &u) in unit[..d].iter().enumerate() {
        let length = i / 2 + 1;
        let row = gram[start..start + 2 * length].as_chunks_mut::<2>().0;
        for (value, other) in row.iter_mut().zip(&pairs[..length]) {
            *value = [u * other[0], u * other[1]];
        }
        start += i + 1;
    }
}
