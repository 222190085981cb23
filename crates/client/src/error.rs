use std::{io, time::Duration};

use incrowd_device::{DeviceError, InputProblem};
use incrowd_envelope::EnvelopeError;
use incrowd_privacy::PrivacyError;
use incrowd_protocol::ProtocolError;
use thiserror::Error;

/// Why a client cannot do what it was asked.
///
/// # Privacy
/// No message holds a context, a reward, an address or an id.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Not an address.
    #[error("the {0} must be an http or https address with a host")]
    Url(&'static str),
    /// Plain http to another machine, which was not allowed by name.
    #[error("the {0} is plain http to another machine: use https, or allow plain http by name")]
    PlainHttp(&'static str),
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
    /// The system has no certificate authorities, or no usable TLS.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// The runtime of a blocking client cannot start.
    #[error("the client's runtime cannot start: {0}")]
    Runtime(io::ErrorKind),
    /// No answer.
    #[error("no answer from the server: {0}")]
    Network(NetworkFailure),
    /// An answer other than the one asked for.
    #[error("the server answered {status}{}", kind.as_deref().map(|kind| format!(" ({kind})")).unwrap_or_default())]
    Refused {
        /// HTTP status.
        status: u16,
        /// Last word of the problem's type, such as `unknown-key`.
        kind: Option<String>,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },

    /// A document without its signature.
    #[error("the {0} is not signed")]
    Unsigned(&'static str),
    /// Not what `docs/formats.md` says.
    #[error("the {0} cannot be read")]
    Document(&'static str),
    /// A bad signature or key.
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
    /// A notice of another task than the pinned one.
    #[error("the notice is of another task than the pinned one")]
    OtherTask,
    /// A notice whose id is not the hash of its mechanism and keys.
    #[error("the notice's mechanism and keys are not those of the pinned task")]
    TaskContent,
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
    /// A model of another mechanism.
    #[error("the model is of another mechanism")]
    ModelMechanism,
    /// A model of another dimension.
    #[error("the model has dimension {found}, must have {needed}")]
    ModelDimension {
        /// Of the model.
        found: usize,
        /// Of the task.
        needed: usize,
    },
    /// A model that is not newer than the newest accepted one, or another one with its version.
    #[error("the model has version {found}, must be above {newest}")]
    ModelRollback {
        /// Of the model.
        found: u64,
        /// The newest that was ever accepted.
        newest: u64,
    },
    /// A round before one that was seen.
    #[error("the round is {found}, must be at least {newest}")]
    RoundRollback {
        /// Of the notice.
        found: u32,
        /// The newest that was ever seen.
        newest: u32,
    },
    /// Plain reports were asked for, but the task takes sealed ones only.
    #[error("the task takes sealed reports only")]
    SealedOnly,
    /// Nothing to seal to.
    #[error("the notice has no active sealing key")]
    NoSealingKey,
    /// The relay's key configurations are not those that the shuffler signed: they could be for this device only.
    #[error("the relay's key configurations are not those of the signed notice")]
    GatewayKeys,
    /// A message that is not Oblivious HTTP.
    #[error("oblivious HTTP: {0} cannot be {1}")]
    Oblivious(&'static str, &'static str),

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
    /// The state of another task.
    #[error("the state file is of another task")]
    StateTask,
}

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetworkFailure {
    /// No connection.
    #[error("cannot connect")]
    Connect,
    /// Not in time.
    #[error("timed out")]
    Timeout,
    /// An answer that broke off or is no HTTP.
    #[error("the answer broke off")]
    Broken,
    /// An answer longer than any document is.
    #[error("the answer is too long")]
    TooLong,
}

impl ClientError {
    /// Whether the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Network(_) | Self::NoSealingKey => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }

    /// Whether the shuffler no longer has the key a report is sealed to.
    pub(crate) fn is_unknown_key(&self) -> bool {
        matches!(self, Self::Refused { status: 400..=499, kind: Some(kind), .. } if kind == "unknown-key")
    }

    /// How long the server asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
