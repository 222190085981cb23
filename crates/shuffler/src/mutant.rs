/// Ways to break the real code on purpose. Without the feature `mutants` none can be chosen, and the compiler removes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code))]
pub enum Mutant {
    /// A batch is released one report short.
    ShortBatch,
    /// A report is added twice.
    CountsTwice,
    /// Ids are not remembered.
    ForgetsIds,
    /// A late report counts whatever law it was made with, however late.
    NoWindow,
    /// Ids are dropped one round too early.
    ShortMemory,
}

/// Whether `wanted` is the chosen mutant.
pub(crate) fn is(chosen: Option<Mutant>, wanted: Mutant) -> bool {
    cfg!(feature = "mutants") && chosen == Some(wanted)
}
