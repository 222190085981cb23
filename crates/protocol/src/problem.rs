//! Errors over HTTP as problem details (RFC 9457). `docs/problems.md` explains each type.

use serde::{Deserialize, Serialize};

const BASE: &str = "https://github.com/incrowd/incrowd/blob/main/docs/problems.md#";

/// The kinds of problems: stable names, each with one status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// The request is not one of this API.
    BadRequest,
    /// No token, or none of ours.
    Unauthorized,
    /// A token of another role.
    Forbidden,
    /// No such path, task or round.
    NotFound,
    /// There is no model yet.
    NoModel,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The body did not arrive in time.
    Timeout,
    /// The body is larger than allowed.
    TooLarge,
    /// A content type that is not taken here.
    UnsupportedType,
    /// The task takes sealed reports only.
    SealedOnly,
    /// The bytes are no report of this task.
    InvalidReport,
    /// The report in the body has another id than the path.
    OtherId,
    /// Sealed to a key that is not there (any more).
    UnknownKey,
    /// Sealed, and does not open.
    CannotOpen,
    /// The report's round is over.
    Late,
    /// The report's round has not begun.
    Early,
    /// The report was made with another law than the current round's.
    OtherLaw,
    /// The bandit has absorbed another release than the shuffler's store has.
    OtherHistory,
    /// The task takes no more reports.
    Finished,
    /// Too many reports at once.
    RateLimited,
    /// The device has brought its reports of this round.
    OverQuota,
    /// The store cannot take anything now, or the service is too busy.
    Unavailable,
    /// The gateway could not open the request.
    Gateway,
    /// The relay could not reach the gateway.
    BadGateway,
}

impl ProblemKind {
    /// Every kind, for the documentation's test.
    pub const ALL: [Self; 24] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::NoModel,
        Self::MethodNotAllowed,
        Self::Timeout,
        Self::TooLarge,
        Self::UnsupportedType,
        Self::SealedOnly,
        Self::InvalidReport,
        Self::OtherId,
        Self::UnknownKey,
        Self::CannotOpen,
        Self::Late,
        Self::Early,
        Self::OtherLaw,
        Self::OtherHistory,
        Self::Finished,
        Self::RateLimited,
        Self::OverQuota,
        Self::Unavailable,
        Self::Gateway,
        Self::BadGateway,
    ];

    /// The last part of the type's URI, and a metric's label.
    pub const fn name(self) -> &'static str {
        self.parts().1
    }

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        self.parts().0
    }

    /// One sentence for people.
    pub const fn title(self) -> &'static str {
        self.parts().2
    }

    /// The type's URI.
    pub fn uri(self) -> String {
        format!("{BASE}{}", self.name())
    }

    /// The kind with this URI.
    pub fn of(uri: &str) -> Option<Self> {
        let name = uri.strip_prefix(BASE)?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it is the shuffler's last word on a report: it was refused, and a refused report is
    /// dropped.
    ///
    /// A device ends its retries on these and on nothing else: a missing task, a revoked token or a
    /// full store may come right, and a round that has not begun will.
    pub const fn is_final(self) -> bool {
        match self {
            Self::BadRequest
            | Self::TooLarge
            | Self::UnsupportedType
            | Self::SealedOnly
            | Self::InvalidReport
            | Self::OtherId
            | Self::UnknownKey
            | Self::CannotOpen
            | Self::Late
            | Self::OtherLaw
            | Self::Finished => true,
            Self::Unauthorized
            | Self::Forbidden
            | Self::NotFound
            | Self::NoModel
            | Self::OtherHistory
            | Self::MethodNotAllowed
            | Self::Early
            | Self::Timeout
            | Self::RateLimited
            | Self::OverQuota
            | Self::Unavailable
            | Self::Gateway
            | Self::BadGateway => false,
        }
    }

    const fn parts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BadRequest => (400, "bad-request", "The request is not one of this API"),
            Self::Unauthorized => (401, "unauthorized", "A valid token is needed"),
            Self::Forbidden => (403, "forbidden", "The token is another role's"),
            Self::NotFound => (404, "not-found", "There is nothing here"),
            Self::NoModel => (404, "no-model-yet", "There is no model yet"),
            Self::MethodNotAllowed => {
                (405, "method-not-allowed", "The path does not take this method")
            }
            Self::Timeout => (408, "timeout", "The request took too long"),
            Self::TooLarge => (413, "too-large", "The body is too large"),
            Self::UnsupportedType => {
                (415, "unsupported-type", "The content type is not taken here")
            }
            Self::SealedOnly => (415, "sealed-only", "The task takes sealed reports only"),
            Self::InvalidReport => (422, "invalid-report", "Not a report of this task"),
            Self::OtherId => (422, "other-id", "The report has another id or round"),
            Self::UnknownKey => (422, "unknown-key", "Sealed to an unknown key"),
            Self::CannotOpen => (422, "cannot-open", "The sealed report does not open"),
            Self::Late => (409, "late", "The report's round is over"),
            Self::Early => (409, "early", "The report's round has not begun"),
            Self::OtherLaw => (409, "other-law", "The report has another law than this round"),
            Self::OtherHistory => {
                (409, "other-history", "The shuffler's store has another history")
            }
            Self::Finished => (410, "finished", "The task takes no more reports"),
            Self::RateLimited => (429, "rate-limited", "Too many reports at once"),
            Self::OverQuota => {
                (429, "over-quota", "The device has brought its reports of this round")
            }
            Self::Unavailable => (503, "unavailable", "Nothing can be stored now"),
            Self::Gateway => (422, "gateway", "The encapsulated request does not open"),
            Self::BadGateway => (502, "bad-gateway", "The gateway does not answer"),
        }
    }
}

/// The JSON form of a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemDocument {
    /// Stable identifier of the kind: its [URI](ProblemKind::uri).
    pub r#type: String,
    /// One sentence for people, the same for all of a kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The violated rule, without anything of the request's content.
    pub detail: String,
}

impl ProblemDocument {
    /// A problem of a kind.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            r#type: kind.uri(),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
        }
    }

    /// Its kind, if it is one of incrowd's with the kind's status.
    pub fn kind(&self) -> Option<ProblemKind> {
        ProblemKind::of(&self.r#type).filter(|kind| kind.status() == self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_uri() {
        for kind in ProblemKind::ALL {
            assert_eq!(ProblemKind::of(&kind.uri()), Some(kind));
            let mut document = ProblemDocument::new(kind, "a rule");
            assert_eq!(document.kind(), Some(kind));
            document.status = 200;
            assert_eq!(document.kind(), None);
        }
        for other in ["", "late", "about:blank", "https://a.example/problems.md#late"] {
            assert_eq!(ProblemKind::of(other), None, "{other}");
        }
    }
}
