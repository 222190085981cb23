use incrowd_device::Arm;
use incrowd_protocol::Blocks;

/// Calls `term` with every coordinate that an arm's report can have, in no particular order, for u
/// = x/L. Longer features are scaled to norm 1, as on the real device. All other coordinates are
/// zero.
pub(crate) fn for_each_coordinate(
    blocks: Blocks,
    arm: Arm<'_>,
    reward: f64,
    mut term: impl FnMut(usize, f64),
) {
    let x = arm.features;
    let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let scale = if norm > 1.0 { 1.0 / norm } else { 1.0 };
    let reward = reward.clamp(0.0, 1.0);
    let mut values = Vec::with_capacity(blocks.active_coordinates());
    values.extend(x.iter().map(|x| reward * scale * x));
    for (i, &a) in x.iter().enumerate() {
        values.extend(x[..=i].iter().map(|b| scale * scale * a * b));
    }
    blocks.for_each_active(arm.slot as usize, |place, own| term(place, values[own]));
}
