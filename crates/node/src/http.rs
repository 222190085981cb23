//! What all routers share: bounded bodies, tokens, signed documents, errors as problems.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, MatchedPath, Path, Query, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use incrowd_envelope::{Document, SigningKey};
use incrowd_protocol::{EntityTag, MediaType, SIGNATURE_HEADER, TaskId};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::{
    HttpLimits, Metrics,
    access::Access,
    bounds::{Bounds, Memory, Purpose},
    problem::{Kind, Problem},
    tokens::{Role, Verdict},
};

/// Header with the signature of a document.
const SIGNATURE: HeaderName = HeaderName::from_static(SIGNATURE_HEADER);

/// The body of a request, within the limits of size and time, and the memory it takes.
pub(crate) struct Content {
    pub body: Bytes,
    pub memory: Memory,
}

impl<S: Send + Sync> FromRequest<S> for Content {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bounds = Bounds::of(request.extensions());
        let HttpLimits { body_bytes, body_seconds, .. } = *bounds.limits();
        let too_large = || {
            let rule = format!("the body must have at most {body_bytes} bytes");
            Problem::new(Kind::TooLarge, rule)
        };
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > body_bytes) {
            return Err(too_large());
        }
        // What is announced takes no memory, only what comes.
        let mut memory = bounds.memory();
        let mut frames = Limited::new(request.into_body(), body_bytes);
        let read = async {
            let mut body = Vec::new();
            while let Some(frame) = frames.frame().await {
                let frame = frame.map_err(|error| {
                    let broken = || Problem::new(Kind::BadRequest, "the body broke off");
                    if error.is::<LengthLimitError>() { too_large() } else { broken() }
                })?;
                if let Ok(data) = frame.into_data() {
                    memory.grow(data.len())?;
                    body.extend_from_slice(&data);
                }
            }
            Ok::<_, Problem>(Bytes::from(body))
        };
        match tokio::time::timeout(Duration::from_secs(body_seconds), read).await {
            Ok(body) => Ok(Self { body: body?, memory }),
            Err(_) => {
                let rule = format!("the body must arrive within {body_seconds} seconds");
                Err(Problem::new(Kind::Timeout, rule))
            }
        }
    }
}

/// The content type of a request, empty if there is none.
pub(crate) struct ContentType(Option<HeaderValue>);

impl ContentType {
    pub fn is(&self, kind: MediaType) -> bool {
        self.0.as_ref().is_some_and(|found| found == kind.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ContentType {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.headers.get(header::CONTENT_TYPE).cloned()))
    }
}

/// The parameters of the path.
pub(crate) struct PathOf<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(path)) => Ok(Self(path)),
            Err(_) => Err(Problem::new(Kind::NotFound, "there is no such path")),
        }
    }
}

/// The parameters of the query.
pub(crate) struct QueryOf<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(Problem::new(Kind::BadRequest, error.body_text())),
        }
    }
}

/// Parses the task of a path.
pub(crate) fn task_id(text: &str) -> Result<TaskId, Problem> {
    text.parse().map_err(|_| Problem::new(Kind::NotFound, "a task id has 64 lower-case hex digits"))
}

/// Longest time a request may wait for something to happen.
pub(crate) const LONGEST_WAIT: u64 = 60;

/// How long to wait for what is not there yet.
pub(crate) fn wait(seconds: Option<u64>) -> Result<Duration, Problem> {
    match seconds.unwrap_or(0) {
        seconds if seconds <= LONGEST_WAIT => Ok(Duration::from_secs(seconds)),
        found => {
            let rule = format!("wait is {found}, must be from 0 to {LONGEST_WAIT} seconds");
            Err(Problem::new(Kind::BadRequest, rule))
        }
    }
}

/// Ends the waiting of open requests: the process is told to stop, and they would hold it up.
#[derive(Default)]
pub(crate) struct Stopping(watch::Sender<bool>);

impl Stopping {
    pub fn now(&self) {
        self.0.send_replace(true);
    }

    /// Waits until something happens, the time is over, or the process is to stop. Which it was is
    /// for the caller to see.
    pub async fn or(&self, happened: impl Future, time: Duration) {
        let mut stopping = self.0.subscribe();
        tokio::select! {
            _ = tokio::time::timeout(time, happened) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
}

/// A signed document that everyone gets the same, ready to be answered with its name (`etag`).
#[derive(Debug, Clone)]
pub(crate) struct Signed {
    pub bytes: Bytes,
    signature: HeaderValue,
    etag: HeaderValue,
}

impl Signed {
    pub fn new(bytes: Vec<u8>, key: &SigningKey, document: Document, task: &TaskId) -> Self {
        incrowd_envelope::Signed::new(bytes, key, document, task).into()
    }

    /// The document with a status of its own, not to be kept.
    pub fn problem(&self, status: StatusCode) -> Response {
        let mut response = (status, Body::from(self.bytes.clone())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MediaType::Problem.as_str()));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(SIGNATURE, self.signature.clone());
        response
    }

    /// The document, or 304 if the caller has it.
    pub fn answer(&self, request: &HeaderMap, cache: &str) -> Response {
        let known = request.get_all(header::IF_NONE_MATCH).iter().any(|tags| {
            let tags = tags.to_str().unwrap_or_default();
            let own = self.etag.to_str().expect("invariant: an etag is hex digits in quotes");
            tags.split(',')
                .any(|tag| matches!(tag.trim(), "*") || tag.trim().trim_start_matches("W/") == own)
        });
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let mut response = Body::from(self.bytes.clone()).into_response();
            let json = HeaderValue::from_static(MediaType::Json.as_str());
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response.headers_mut().insert(SIGNATURE, self.signature.clone());
            response
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.etag.clone());
        let cache = HeaderValue::try_from(cache).expect("invariant: directives are ASCII");
        headers.insert(header::CACHE_CONTROL, cache);
        response
    }
}

impl From<incrowd_envelope::Signed> for Signed {
    fn from(incrowd_envelope::Signed { body, signature }: incrowd_envelope::Signed) -> Self {
        let etag = EntityTag::of(&body).to_string();
        let header = |text: String| {
            HeaderValue::try_from(text).expect("invariant: hex digits and quotes fit a header")
        };
        Self { bytes: body.into(), signature: header(signature.to_string()), etag: header(etag) }
    }
}

/// Who may pass.
#[derive(Clone)]
pub(crate) struct Guard {
    access: Arc<Access>,
    /// Only these roles, if there are any.
    roles: &'static [Role],
    /// Whether requests without a token pass.
    open: bool,
}

impl Guard {
    /// Everyone, but with no token or a valid one.
    pub fn everyone(access: &Arc<Access>) -> Self {
        Self { access: access.clone(), roles: &[], open: true }
    }

    /// These roles only.
    pub fn only(roles: &'static [Role], access: &Arc<Access>) -> Self {
        Self { access: access.clone(), roles, open: false }
    }

    /// These roles, or no token at all.
    pub fn preferably(roles: &'static [Role], access: &Arc<Access>) -> Self {
        Self { access: access.clone(), roles, open: true }
    }

    pub fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(token) = bearer_token(headers) else {
            return if self.open {
                Ok(())
            } else {
                Err(Problem::new(Kind::Unauthorized, "the header authorization is missing"))
            };
        };
        let role = match self.access.verdict(token) {
            Verdict::Unknown => {
                let rule = "the token is not one of this service's";
                return Err(Problem::new(Kind::Unauthorized, rule));
            }
            Verdict::Known(role) => Some(role),
            // It has no role: `Admission` checks it where reports are taken.
            Verdict::OneDevice(_) => None,
        };
        if self.roles.is_empty() || role.is_some_and(|role| self.roles.contains(&role)) {
            return Ok(());
        }
        let roles: Vec<_> = self.roles.iter().map(|role| role.name()).collect();
        let detail = format!("this needs a token of the role {}", roles.join(" or "));
        Err(Problem::new(Kind::Forbidden, detail))
    }

    /// Puts the guard before every route that `router` has so far.
    pub fn protect<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Router<S> {
        router.route_layer(middleware::from_fn_with_state(self, guarded))
    }
}

async fn guarded(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if let Err(problem) = guard.admit(request.headers()) {
        return problem.into_response();
    }
    // A GET may wait, so its token is checked again before the answer. Other methods have taken
    // effect.
    let asks = (request.method() == Method::GET).then(|| request.headers().clone());
    let response = next.run(request).await;
    match asks.map_or(Ok(()), |headers| guard.admit(&headers)) {
        Ok(()) => response,
        Err(problem) => problem.into_response(),
    }
}

/// The token of a request; empty if the header is none of ours.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?;
    Some(value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default())
}

/// The routes of roles with what every listener adds: bounds, problems for unknown paths, counted
/// answers. A listener does this itself; this is for tests that answer without one.
pub fn app(routes: Router, limits: HttpLimits, metrics: &Metrics) -> Router {
    with_middleware(routes, Bounds::new(limits, metrics.listener("devices")))
}

/// Adds what every listener has: bounds, problems for unknown paths, counted answers.
pub(crate) fn with_middleware(router: Router, bounds: Bounds) -> Router {
    with_problems(router).layer(middleware::from_fn_with_state(bounds, bound_and_count))
}

/// Answers what the router does not have with problems.
pub(crate) fn with_problems(router: Router) -> Router {
    router
        .fallback(async || Problem::new(Kind::NotFound, "there is no such path"))
        .method_not_allowed_fallback(async || {
            Problem::new(Kind::MethodNotAllowed, "the header allow names the methods of this path")
        })
}

async fn bound_and_count(
    State(bounds): State<Bounds>,
    path: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let (began, purpose) = (Instant::now(), Purpose::of(&request));
    request.extensions_mut().insert(bounds.clone());
    let response = match bounds.enter(purpose) {
        Ok(_place) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let route = path.as_ref().map_or("none", MatchedPath::as_str);
    // A request that waited says nothing about how quickly others are answered.
    let seconds = (purpose != Purpose::Wait).then(|| began.elapsed().as_secs_f64());
    bounds.metrics().answered(response.status().as_u16(), route, seconds);
    response
}
