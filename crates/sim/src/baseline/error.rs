use incrowd_privacy::PrivacyError;
use incrowd_protocol::UnitError;
use thiserror::Error;

/// A rule for the numbers of a baseline that is violated. There is no certificate then.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// The standard deviation of a Gaussian is out of range.
    #[error("noise_std is {0}, must be from 0.001 to 1e12")]
    NoiseStd(f64),
    /// A tree over nobody.
    #[error("leaf_size is {0}, must be at least 1")]
    LeafSize(u32),
    /// A tree that releases nothing.
    #[error("leaves is {0}, must be at least 2: nothing is released after the last leaf")]
    Leaves(u32),
    /// Nothing is released, or too much to draw its noise.
    #[error("releases is {0}, must be from 1 to 16384")]
    Releases(u32),
    /// A schedule without batches.
    #[error("batches is empty, must have at least one")]
    NoBatches,
    /// The steps of fixed-point rounding are out of range.
    #[error("levels is {0}, must be from 1 to 100000")]
    Levels(u32),
    /// Coins per person and coordinate are out of range.
    #[error("coins is {0}, must be from 1 to 4294967295")]
    Coins(f64),
    /// A central epsilon that no amount of noise within range is certified for.
    #[error("central epsilon {epsilon} cannot be certified for {baseline}: {most} is not enough")]
    EpsilonCentralTooSmall {
        /// The epsilon asked for.
        epsilon: f64,
        /// The kind of mechanism.
        baseline: &'static str,
        /// The largest amount of noise.
        most: &'static str,
    },
    /// A side of a threshold that has no chance, or more than half.
    #[error("{what} is {value}, must be from 1e-290 to 0.5")]
    Side {
        /// Which chance.
        what: &'static str,
        /// Value found.
        value: f64,
    },
    /// A weight that leaves nothing for the moment or for the Gram matrix.
    #[error("moment_weight is {0}, must be from 1 to 255")]
    MomentWeight(u32),
    /// A quantity is outside of its range.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A rule that is not about baselines alone.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
}
