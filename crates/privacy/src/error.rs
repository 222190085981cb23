use thiserror::Error;

/// A rule for the numbers of a guarantee that is violated. There is no certificate then.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PrivacyError {
    /// `dimension` is out of range.
    #[error("dimension is {0}, must be from 1 to 1000")]
    Dimension(u32),
    /// `bits` is out of range.
    #[error("bits is {0}, must be from 1 to 4095")]
    Bits(u32),
    /// The keep probability c is not strictly between 0 and 1.
    #[error("keep is {0}, must be above 0 and below 1")]
    Keep(f64),
    /// The flip probability p is not strictly between 0 and 1.
    #[error("flip is {0}, must be above 0 and below 1")]
    Flip(f64),
    /// A batch of nobody.
    #[error("batch_size is {0}, must be at least 1")]
    BatchSize(u64),
    /// `delta` is no probability.
    #[error("delta is {0}, must be above 0 and below 1")]
    Delta(f64),
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
    /// Nobody takes part.
    #[error("participations is {0}, must be at least 1")]
    Participations(u32),
    /// The honest fraction is out of range.
    #[error("honest fraction is {0}, must be above 0 and at most 1")]
    HonestFraction(f64),
    /// The standard deviation of a Gaussian is out of range.
    #[error("noise_std is {0}, must be from 0.001 to 1e12")]
    NoiseStd(f64),
    /// A tree over nobody.
    #[error("leaf_size is {0}, must be at least 1")]
    LeafSize(u32),
    /// A tree that releases nothing.
    #[error("leaves is {0}, must be at least 2: nothing is released after the last leaf")]
    Leaves(u32),
    /// The steps of fixed-point rounding are out of range.
    #[error("levels is {0}, must be from 1 to 100000")]
    Levels(u32),
    /// Coins per person and coordinate are out of range.
    #[error("coins is {0}, must be from 1 to 4294967295")]
    Coins(f64),
    /// A central epsilon that no amount of noise within range is certified for.
    #[error("central epsilon {epsilon} cannot be certified for {rival}: {most} is not enough")]
    EpsilonCentralTooSmall {
        /// The epsilon asked for.
        epsilon: f64,
        /// The kind of mechanism.
        rival: &'static str,
        /// The largest amount of noise.
        most: &'static str,
    },
    /// A horizon shorter than a batch.
    #[error("horizon is {0}, must be at least the batch size {1}")]
    Horizon(u64, u64),
    /// A theorem is asked about numbers it says nothing about.
    #[error("{theorem} does not hold here: {condition}")]
    OutsideRegime {
        /// Which theorem.
        theorem: &'static str,
        /// The condition that is violated, with its numbers.
        condition: String,
    },
    /// An event that an accountant does not know.
    #[error("the accountant does not know the event {0}")]
    UnknownEvent(&'static str),
}
