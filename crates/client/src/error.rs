use std::{io, time::Duration};

use incrowd_device::{DeviceError, InputProblem};
use incrowd_envelope::EnvelopeError;
use incrowd_privacy::PrivacyError;
use incrowd_protocol::{ProblemKind, ProtocolError};
use incrowd_transport::{TransportError, retry::Asks};
use thiserror::Error;

/// Why a client cannot do what it was asked.
///
/// # Privacy
/// No message holds a context, a reward, an address or an id.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A setting out of its range.
    #[error("{name} is {value}, must be {allowed}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
    /// The runtime of a blocking client cannot start.
    #[error("the client's runtime cannot start: {0}")]
    Runtime(io::ErrorKind),
    /// A server did not answer, refused, or gave something that is not believed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A report could not be sealed.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// A value that the protocol does not have.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// There is no certificate for the mechanism.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
    /// The device cannot choose or answer.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// One report costs more than the caller allows.
    #[error("the local epsilon of the task is {found}, must be at most {limit}")]
    EpsilonLocal {
        /// Of the certificate.
        found: f64,
        /// Of the caller.
        limit: f64,
    },
    /// The releases cost more than the caller allows.
    #[error("the central epsilon of the task is {found}, must be at most {limit}")]
    EpsilonCentral {
        /// Of the certificate.
        found: f64,
        /// Of the caller.
        limit: f64,
    },
    /// Another model with the version of the newest accepted one: not everyone gets the same.
    #[error("the bandit signed two models with version {version}")]
    ModelChanged {
        /// Of both.
        version: u64,
    },
    /// A round before one that was seen.
    #[error("the round is {found}, must be at least {newest}")]
    RoundRollback {
        /// Of the notice.
        found: u32,
        /// The newest that was ever seen.
        newest: u32,
    },
    /// Hold-outs without a state file: after a restart the device would draw another group, and
    /// report to both tasks.
    #[error("hold_out above 0 needs a state file")]
    HoldOutWithoutState,
    /// The task that hold-outs should report to is none that compares.
    #[error("the task to compare with must be a comparison task: see `incrowd plan --comparison`")]
    NotComparison,
    /// Plain reports were asked for, but the task takes sealed ones only.
    #[error("the task takes sealed reports only")]
    SealedOnly,
    /// Nothing to seal to.
    #[error("the notice has no active sealing key")]
    NoSealingKey,

    /// A feature map of another dimension or a larger norm than the task's.
    #[error("the feature map must have the task's dimension, and no larger norm than its contexts")]
    FeatureMap,
    /// Named fields without a feature map.
    #[error("ranking named fields needs a feature map")]
    NoFeatureMap,
    /// Nothing to choose from.
    #[error("there must be at least one action to rank")]
    NoActions,
    /// A reward after the window.
    #[error("the reward window of this decision is over")]
    WindowOver,
    /// A reward that was taken, but not as it was.
    #[error(transparent)]
    Input(#[from] InputProblem),

    /// The state file cannot be used.
    #[error("the state file cannot be {operation}: {kind}")]
    StateFile {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        kind: io::ErrorKind,
    },
    /// Two clients with one state would send two reports.
    #[error("the state file is in use by another client")]
    StateInUse,
    /// Not a state file. It is not replaced: that would forget the reports that were sent.
    #[error("the state file cannot be understood")]
    StateFormat,
    /// The state file of another version of this library. It is not replaced either.
    #[error("the state file has format {found}, must have {needed}")]
    StateVersion {
        /// Of the file.
        found: u32,
        /// Of this library.
        needed: u32,
    },
    /// The state of another task.
    #[error("the state file is of another task")]
    StateTask,
}

impl ClientError {
    /// Whether it says nothing about the task: there was no answer, or one that anybody on the way
    /// could give.
    pub(crate) fn is_hearsay(&self) -> bool {
        use TransportError as T;
        let Self::Transport(error) = self else { return false };
        matches!(
            error,
            T::Network(_)
                | T::Refused { .. }
                | T::Relay { .. }
                | T::Unsigned(_)
                | T::Document(_)
                | T::Oblivious(..)
        )
    }

    /// Whether it is the shuffler's last word on a report.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_final())
    }

    /// The kind of problem that the shuffler answered with.
    pub(crate) fn kind(&self) -> Option<ProblemKind> {
        match self {
            Self::Transport(error) => error.kind(),
            _ => None,
        }
    }
}

impl Asks for ClientError {
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transport(error) => error.retry_after(),
            _ => None,
        }
    }
}
