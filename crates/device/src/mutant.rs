/// Ways to break the real code on purpose. Without the feature `mutants` none can be chosen, and the compiler removes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code))]
pub enum Mutant {
    /// Noise too small: half of the flip probability.
    HalfFlip,
    /// The last coordinate is encoded but not randomized.
    LastCoordinateBare,
    /// Contexts and rewards are not brought into their range.
    NoClipping,
    /// Thresholds are cut to 8 bits: a coarser law than stated.
    CoarseThresholds,
    /// Ties of the first byte count as 0 without drawing the rest.
    TiesAreZero,
    /// The second report of a device in a window is allowed.
    NoParticipationLimit,
}

/// Whether `wanted` is the chosen mutant.
pub(crate) fn is(chosen: Option<Mutant>, wanted: Mutant) -> bool {
    cfg!(feature = "mutants") && chosen == Some(wanted)
}
