use incrowd_protocol::ProtocolError;
use thiserror::Error;

/// Why a device cannot choose or answer.
///
/// # Privacy
/// An error of [`Device::report`](crate::Device::report) never depends on a context or a reward.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A parameter or round that the protocol does not have.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The operating system gave no randomness.
    #[error("the operating system's random generator failed: {0}")]
    Randomness(getrandom::Error),
    /// A model of another task or dimension.
    #[error("the model is not of this task")]
    WrongModel,
    /// A choice among no arms.
    #[error("there must be at least one arm to choose from")]
    NoArms,
    /// An arm that cannot be scored. The application falls back on its default action and still
    /// reports with that action's features, which are clipped like any others.
    #[error("arm {index} must have {dimension} finite entries and a finite score")]
    Arm {
        /// Which arm.
        index: usize,
        /// Dimension of the task.
        dimension: usize,
    },
    /// A second report while the first may still be counted.
    #[error(
        "the last report was for round {last}: the next one is for round {next} or later, not {round}"
    )]
    TooSoon {
        /// Round asked for.
        round: u32,
        /// Round of the last report.
        last: u32,
        /// First round that is past the last report's grace window.
        next: u64,
    },
    /// All reports of this device are sent.
    #[error("this device has sent all of its {0} reports")]
    Spent(u32),
}
