//! Sizes of batches that together take exactly the horizon.

/// Factor between the first batch sizes that a search tries.
pub const FIRST_STEP: f64 = 1.3;
/// Factors of growth that a search tries.
pub const GROWTHS: [f64; 5] = [1.25, 1.5, 2.0, 3.0, 5.0];

/// Rounds and reports in each of them.
pub type Sizes = Vec<(u32, u32)>;

/// As many batches as possible of at least `size`, as equal as possible.
pub fn equal(size: u32, horizon: u64) -> Option<Sizes> {
    let rounds = horizon / u64::from(size.max(1));
    split(horizon, rounds)
}

/// The same, or up to an eighth larger if all are equal then.
pub fn equal_or_so(size: u32, horizon: u64) -> Option<Sizes> {
    let most = horizon / u64::from(size.max(1));
    let divides = |&rounds: &u64| rounds > 0 && horizon.is_multiple_of(rounds);
    split(horizon, (most - most / 8..=most).rev().take(10_000).find(divides).unwrap_or(most))
}

/// Batches of `size`; what would be left for a smaller last one is added to the one before.
pub fn equal_but_last(size: u32, horizon: u64) -> Option<Sizes> {
    let rounds = horizon.checked_div(u64::from(size)).filter(|&rounds| rounds > 0)?;
    let last = horizon - (rounds - 1) * u64::from(size);
    let sizes = vec![(u32::try_from(rounds - 1).ok()?, size), (1, u32::try_from(last).ok()?)];
    Some(merged(sizes))
}

/// Batches that grow by the factor `growth`, above 1, from `first` to at most `largest`; the rest
/// is split evenly.
pub fn growing(first: u32, growth: f64, largest: u32, horizon: u64) -> Option<Sizes> {
    let mut sizes = Sizes::new();
    let mut wanted = f64::from(first);
    let mut left = horizon;
    while left > 0 {
        let size = (wanted.min(f64::from(largest)) as u64).min(left);
        let last = size == u64::from(largest) || left - size < size;
        if last {
            let rounds = left.div_ceil(u64::from(largest));
            sizes.extend(split(left, rounds)?);
            return Some(merged(sizes));
        }
        sizes.push((1, size as u32));
        left -= size;
        wanted *= growth;
    }
    Some(merged(sizes))
}

/// `rounds` batches that differ by at most one report.
fn split(horizon: u64, rounds: u64) -> Option<Sizes> {
    let (size, larger) = (horizon.checked_div(rounds)?, horizon.checked_rem(rounds)?);
    let mut sizes = vec![(u32::try_from(rounds - larger).ok()?, u32::try_from(size).ok()?)];
    if larger > 0 {
        sizes.push((u32::try_from(larger).ok()?, u32::try_from(size + 1).ok()?));
    }
    Some(sizes)
}

fn merged(sizes: Sizes) -> Sizes {
    let mut merged = Sizes::new();
    for (rounds, size) in sizes {
        match merged.last_mut() {
            Some(last) if last.1 == size => last.0 += rounds,
            _ if rounds == 0 => {}
            _ => merged.push((rounds, size)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(sizes: &Sizes) -> u64 {
        sizes.iter().map(|&(rounds, size)| u64::from(rounds) * u64::from(size)).sum()
    }

    #[test]
    fn everyone_is_in_exactly_one_batch() {
        for horizon in [1, 99, 100, 101, 12_345, 100_000, 1_000_003] {
            for size in [1, 7, 100, 300, 999].into_iter().filter(|&s| u64::from(s) <= horizon) {
                let sizes = equal(size, horizon).unwrap();
                assert_eq!(total(&sizes), horizon);
                assert!(sizes.iter().all(|&(_, s)| s >= size));
                for growth in [1.2, 2.0, 4.0] {
                    for largest in [size, 2 * size, 50_000] {
                        let sizes = growing(size, growth, largest, horizon).unwrap();
                        assert_eq!(total(&sizes), horizon, "{size} {growth} {largest}");
                        assert!(sizes.iter().all(|&(_, s)| s <= largest.max(2 * size)));
                    }
                }
            }
        }
        assert_eq!(equal(300, 100_000).unwrap(), [(233, 300), (100, 301)]);
        assert_eq!(growing(100, 2.0, 10_000, 1000).unwrap(), [(1, 100), (1, 200), (1, 700)]);
        assert_eq!(growing(300, 1.5, u32::MAX, 1000).unwrap(), [(1, 300), (1, 700)]);
        assert_eq!(equal(10, 5), None);
        assert_eq!(equal_but_last(300, 1000).unwrap(), [(2, 300), (1, 400)]);
        assert_eq!(equal_but_last(7, 7).unwrap(), [(1, 7)]);
        assert_eq!(equal_but_last(3, 4_000_000_001).unwrap(), [(1_333_333_332, 3), (1, 5)]);
        assert_eq!((equal_but_last(10, 5), equal_but_last(0, 5)), (None, None));
    }
}
