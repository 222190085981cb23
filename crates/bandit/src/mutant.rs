/// Ways to break the real code on purpose. Without the feature `mutants` none can be chosen, and the compiler removes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code))]
pub enum Mutant {
    /// The noise of the moment is left out of the width, and the ridge is a tenth.
    NarrowConfidence,
    /// Widths believe in twice the signal, so in half of the noise.
    DoubledKeep,
}

/// Whether `wanted` is the chosen mutant.
pub(crate) fn is(chosen: Option<Mutant>, wanted: Mutant) -> bool {
    cfg!(feature = "mutants") && chosen == Some(wanted)
}
