//! Errors as RFC 9457 problem details. `docs/problems.md` explains each type.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use incrowd_envelope::EnvelopeError;
use incrowd_shuffler::Refusal;
use serde::Serialize;

/// What every problem is, as a content type.
const CONTENT: &str = "application/problem+json";
const BASE: &str = "https://github.com/incrowd/incrowd/blob/main/docs/problems.md#";

/// The kinds of problems: stable names, each with one status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
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
    /// The task takes no more reports.
    Finished,
    /// Too many reports at once.
    RateLimited,
    /// The store cannot take anything now, or the service is too busy.
    Unavailable,
    /// The gateway could not open the request.
    Gateway,
    /// The relay could not reach the gateway.
    BadGateway,
}

impl Kind {
    /// Every kind, for the documentation's test.
    pub const ALL: [Self; 22] = [
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
        Self::Finished,
        Self::RateLimited,
        Self::Unavailable,
        Self::Gateway,
        Self::BadGateway,
    ];

    /// The last part of the type's URI, and a metric's label.
    pub fn name(self) -> &'static str {
        self.parts().1
    }

    /// What every problem of the kind is called, for people.
    pub fn title(self) -> &'static str {
        self.parts().2
    }

    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        self.parts().0
    }

    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::BadRequest => {
                (S::BAD_REQUEST, "bad-request", "The request is not one of this API")
            }
            Self::Unauthorized => (S::UNAUTHORIZED, "unauthorized", "A valid token is needed"),
            Self::Forbidden => (S::FORBIDDEN, "forbidden", "The token is another role's"),
            Self::NotFound => (S::NOT_FOUND, "not-found", "There is nothing here"),
            Self::NoModel => (S::NOT_FOUND, "no-model-yet", "There is no model yet"),
            Self::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "method-not-allowed", "The path does not take this method")
            }
            Self::Timeout => (S::REQUEST_TIMEOUT, "timeout", "The request took too long"),
            Self::TooLarge => (S::PAYLOAD_TOO_LARGE, "too-large", "The body is too large"),
            Self::UnsupportedType => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-type",
                "The content type is not taken here",
            ),
            Self::SealedOnly => {
                (S::UNSUPPORTED_MEDIA_TYPE, "sealed-only", "The task takes sealed reports only")
            }
            Self::InvalidReport => {
                (S::UNPROCESSABLE_ENTITY, "invalid-report", "Not a report of this task")
            }
            Self::OtherId => {
                (S::UNPROCESSABLE_ENTITY, "other-id", "The report has another id or round")
            }
            Self::UnknownKey => {
                (S::UNPROCESSABLE_ENTITY, "unknown-key", "Sealed to an unknown key")
            }
            Self::CannotOpen => {
                (S::UNPROCESSABLE_ENTITY, "cannot-open", "The sealed report does not open")
            }
            Self::Late => (S::CONFLICT, "late", "The report's round is over"),
            Self::Early => (S::CONFLICT, "early", "The report's round has not begun"),
            Self::OtherLaw => {
                (S::CONFLICT, "other-law", "The report has another law than this round")
            }
            Self::Finished => (S::GONE, "finished", "The task takes no more reports"),
            Self::RateLimited => (S::TOO_MANY_REQUESTS, "rate-limited", "Too many reports at once"),
            Self::Unavailable => {
                (S::SERVICE_UNAVAILABLE, "unavailable", "Nothing can be stored now")
            }
            Self::Gateway => {
                (S::UNPROCESSABLE_ENTITY, "gateway", "The encapsulated request does not open")
            }
            Self::BadGateway => (S::BAD_GATEWAY, "bad-gateway", "The gateway does not answer"),
        }
    }

    /// The type's URI.
    pub fn uri(self) -> String {
        format!("{BASE}{}", self.name())
    }
}

/// A problem with what was wrong this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind.
    pub kind: Kind,
    /// The violated rule, without anything of the request's content.
    pub detail: String,
    retry_after: Option<u64>,
}

/// The JSON form of a problem.
#[derive(Serialize)]
struct ProblemBody {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: String,
}

impl Problem {
    /// A problem of a kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after = matches!(kind, Kind::Unavailable | Kind::RateLimited | Kind::NoModel);
        Self { kind, detail: detail.into(), retry_after: retry_after.then_some(1) }
    }

    /// The same, with when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, _, title) = self.kind.parts();
        let body = ProblemBody {
            r#type: self.kind.uri(),
            title,
            status: status.as_u16(),
            detail: self.detail,
        };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let kind = match refusal {
            Refusal::Late { .. } => Kind::Late,
            Refusal::Early { .. } => Kind::Early,
            Refusal::OtherLaw { .. } => Kind::OtherLaw,
            Refusal::Finished => Kind::Finished,
            _ => Kind::InvalidReport,
        };
        Self::new(kind, refusal.to_string())
    }
}

impl From<EnvelopeError> for Problem {
    fn from(error: EnvelopeError) -> Self {
        let kind = match error {
            EnvelopeError::UnknownKey(_) => Kind::UnknownKey,
            EnvelopeError::CannotOpen => Kind::CannotOpen,
            _ => Kind::InvalidReport,
        };
        Self::new(kind, error.to_string())
    }
}
