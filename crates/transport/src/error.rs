use std::time::Duration;

use incrowd_envelope::EnvelopeError;
use incrowd_protocol::{ProblemDocument, ProblemKind, ProtocolError};
use thiserror::Error;

use crate::NetworkFailure;

/// Characters of a server's text that are repeated.
const LONGEST_DETAIL: usize = 200;

/// Why a request gave no document or was refused.
///
/// # Privacy
/// No message holds a context, a reward, an address or an id.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Not an address.
    #[error("the {0} must be an http or https address with a host")]
    Url(&'static str),
    /// An address for something other than HTTP.
    #[error("the {0} must begin with http:// or https://")]
    Scheme(&'static str),
    /// Plain http to another machine, which was not allowed by name.
    #[error(
        "the {what} is {url}, plain http to another machine, where anybody on the way reads tokens: use https, or allow_plain_http by name if a private network protects it"
    )]
    PlainHttp {
        /// Which address.
        what: &'static str,
        /// Its scheme, host and port.
        url: String,
    },
    /// The system has no certificate authorities, or no usable TLS.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// Not PEM.
    #[error("the trusted certificates are no PEM")]
    Certificates,
    /// A token that cannot be in a header.
    #[error("the token has characters that no token has")]
    Token,
    /// No answer.
    #[error("no answer from the server: {0}")]
    Network(#[from] NetworkFailure),
    /// An answer other than the one asked for.
    #[error("the server answered {status}{}", explain(.problem.as_ref()))]
    Refused {
        /// HTTP status.
        status: u16,
        /// The problem, if the answer is one of incrowd's.
        problem: Option<Refusal>,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The relay, or the gateway behind it, did not carry the request.
    #[error("the relay answered {status}{}", explain(.problem.as_ref()))]
    Relay {
        /// HTTP status.
        status: u16,
        /// The problem, if the answer is one of incrowd's.
        problem: Option<Refusal>,
        /// How long the relay asks to wait.
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
    /// A notice of another task than the pinned one.
    #[error("the notice is of another task than the pinned one")]
    OtherTask,
    /// A notice whose id is not the hash of its mechanism and keys.
    #[error("the notice's mechanism and keys are not those of the pinned task")]
    TaskContent,
    /// A model of another mechanism.
    #[error("the model is of another mechanism")]
    ModelMechanism,
    /// A model of another layout.
    #[error("the model's features and slots are not those of the task")]
    ModelLayout,
    /// The relay's key configurations are not those that the shuffler signed: they could be for
    /// this device only.
    #[error("the relay's key configurations are not those of the signed notice")]
    GatewayKeys,
    /// A message that is not Oblivious HTTP.
    #[error("oblivious HTTP: {0} cannot be {1}")]
    Oblivious(&'static str, &'static str),
}

/// A problem that a server answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its kind.
    pub kind: ProblemKind,
    /// The violated rule, as one short line.
    pub detail: String,
}

impl Refusal {
    /// The problem of an answer with this status, if it is one of incrowd's.
    pub(crate) fn read(status: u16, body: &[u8]) -> Option<Self> {
        let document: ProblemDocument = serde_json::from_slice(body).ok()?;
        let kind = document.kind().filter(|kind| kind.status() == status)?;
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let detail = document.detail.chars().take(LONGEST_DETAIL).map(plain).collect();
        Some(Self { kind, detail })
    }
}

fn explain(problem: Option<&Refusal>) -> String {
    problem.map_or_else(String::new, |Refusal { kind, detail }| {
        format!(" ({}): {detail}", kind.name())
    })
}

impl TransportError {
    /// The kind of problem that the server asked answered with.
    pub fn kind(&self) -> Option<ProblemKind> {
        match self {
            Self::Refused { problem, .. } => problem.as_ref().map(|problem| problem.kind),
            _ => None,
        }
    }

    /// Whether the server may answer later: there was no answer, or it is busy.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Network(_) => true,
            Self::Refused { status, .. } | Self::Relay { status, .. } => {
                matches!(status, 408 | 429 | 500..=599)
            }
            _ => false,
        }
    }

    /// Whether it is the shuffler's last word on a report: only then a device gives it up. A
    /// proxy's error is not, nor a relay's.
    pub fn is_final(&self) -> bool {
        self.kind().is_some_and(ProblemKind::is_final)
    }

    /// Whether the way through relay and gateway failed: their keys may have changed.
    pub fn is_oblivious(&self) -> bool {
        matches!(self, Self::Relay { .. } | Self::Oblivious(..) | Self::GatewayKeys)
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } | Self::Relay { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
