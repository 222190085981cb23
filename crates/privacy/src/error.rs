use incrowd_protocol::UnitError;
use thiserror::Error;

/// A rule for the numbers of a guarantee that is violated. There is no certificate then.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PrivacyError {
    /// A quantity is outside of its range.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// No probability strictly between 0 and 1.
    #[error("probability is {0}, must be above 0 and below 1")]
    Probability(f64),
    /// A delta that may be zero is no probability.
    #[error("delta is {0}, must be at least 0 and below 1")]
    DeltaOrZero(f64),
    /// The flip probability p is not strictly between 0 and 1.
    #[error("flip is {0}, must be above 0 and below 1")]
    Flip(f64),
    /// A local epsilon that is no positive number.
    #[error("local epsilon is {0}, must be above 0 and finite")]
    EpsilonLocal(f64),
    /// A local epsilon that no mechanism meets: the coins are made in steps of 2^-30.
    #[error(
        "local epsilon {epsilon:e} cannot be met at dimension {dimension}: the smallest possible is {smallest:e}"
    )]
    EpsilonLocalTooSmall {
        /// The epsilon asked for.
        epsilon: f64,
        /// Dimension of the contexts.
        dimension: u32,
        /// What the smallest possible signal has.
        smallest: f64,
    },
    /// A central epsilon that is no positive number.
    #[error("central epsilon is {0}, must be above 0 and finite")]
    EpsilonCentral(f64),
    /// A theorem is asked about numbers it says nothing about.
    #[error("{theorem} does not hold here: {condition}")]
    OutsideRegime {
        /// Which theorem.
        theorem: &'static str,
        /// The condition that is violated, with its numbers.
        condition: String,
    },
}
