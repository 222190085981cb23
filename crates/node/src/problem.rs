//! Errors as RFC 9457 problem details. `docs/problems.md` explains each type.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use incrowd_envelope::EnvelopeError;
pub use incrowd_protocol::ProblemKind as Kind;
use incrowd_protocol::{MediaType, ProblemDocument};
use incrowd_shuffler::Refusal;

/// A problem with what was wrong this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind.
    pub kind: Kind,
    /// The violated rule, without anything of the request's content.
    pub detail: String,
    retry_after: Option<u64>,
    max_age: Option<u64>,
}

impl Problem {
    /// A problem of a kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after =
            matches!(kind, Kind::Unavailable | Kind::RateLimited | Kind::NoModel | Kind::Early);
        Self { kind, detail: detail.into(), retry_after: retry_after.then_some(1), max_age: None }
    }

    /// The same, which caches may keep and nobody needs to ask about before.
    #[must_use]
    pub fn cacheable(mut self, seconds: u64) -> Self {
        self.max_age = Some(seconds);
        self.retry_after(seconds)
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
        let status = StatusCode::from_u16(self.kind.status())
            .expect("invariant: every kind has a valid status");
        let body = ProblemDocument::new(self.kind, self.detail);
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MediaType::Problem.as_str()));
        let cache = self.max_age.map_or_else(
            || HeaderValue::from_static("no-store"),
            |seconds| {
                HeaderValue::try_from(format!("public, max-age={seconds}"))
                    .expect("invariant: directives are ASCII")
            },
        );
        headers.insert(header::CACHE_CONTROL, cache);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The problem that a refusal is.
pub(crate) fn kind_of(refusal: &Refusal) -> Kind {
    match refusal {
        Refusal::Late { .. } => Kind::Late,
        Refusal::Early { .. } => Kind::Early,
        Refusal::OtherLaw { .. } => Kind::OtherLaw,
        Refusal::Finished => Kind::Finished,
        _ => Kind::InvalidReport,
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        Self::new(kind_of(refusal), refusal.to_string())
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
