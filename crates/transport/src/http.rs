//! Requests without anything that tells one device from another: no cookies, no user agent, no
//! redirects.

use std::{sync::Arc, time::Duration};

use incrowd_envelope::Signed;
use incrowd_protocol::{EntityTag, MediaType, SIGNATURE_HEADER};
use reqwest::{
    Method,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, IF_NONE_MATCH,
        RETRY_AFTER,
    },
    redirect::Policy,
};

use crate::{
    Address, NetworkFailure, Refusal, TransportError, Trust, client_config, failure::SystemResolver,
};

const CONNECT: Duration = Duration::from_secs(10);
/// For an answer, on top of what it was asked to wait.
const ANSWER: Duration = Duration::from_secs(30);
/// Every answer may have this many bytes: a problem is shorter.
const SHORTEST_LIMIT: usize = 64 << 10;

/// Connections to servers with these certificates.
pub fn client(trust: &Trust) -> Result<reqwest::Client, TransportError> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(client_config(trust)?)
        .dns_resolver(Arc::new(SystemResolver))
        .redirect(Policy::none())
        .referer(false)
        // A proxy of the environment would get what is plain because it stays on this machine.
        .no_proxy()
        .connect_timeout(CONNECT)
        .timeout(ANSWER)
        .build()
        .map_err(|error| TransportError::Tls(error.without_url().to_string()))
}

/// What is asked of a server.
#[derive(Debug, Clone)]
pub struct Request {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
    wait: Duration,
    limit: usize,
}

impl Request {
    /// A request for a path below the server's address.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: HeaderMap::new(),
            body: Vec::new(),
            wait: Duration::ZERO,
            limit: SHORTEST_LIMIT,
        }
    }

    /// A request for what is at a path.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// The same, with a token.
    pub fn token(mut self, token: &str) -> Result<Self, TransportError> {
        let mut value =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| TransportError::Token)?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(self)
    }

    /// The same, with a body.
    #[must_use]
    pub fn body(mut self, kind: MediaType, body: Vec<u8>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind.as_str()));
        self.body = body;
        self
    }

    /// The same, for a document other than the one that is known, if there is one.
    #[must_use]
    pub fn unless(mut self, known: Option<&EntityTag>) -> Self {
        if let Some(tag) = known {
            let tag = HeaderValue::try_from(tag.to_string());
            self.headers.insert(IF_NONE_MATCH, tag.expect("invariant: hex digits in quotes"));
        }
        self
    }

    /// The same; the server was asked to wait this long.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The same, with an answer of at most this many bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes.max(SHORTEST_LIMIT);
        self
    }

    pub(crate) fn parts(&self) -> (&Method, &str, &HeaderMap, &[u8]) {
        (&self.method, &self.path, &self.headers, &self.body)
    }

    /// This request's patience and limit for another one that carries it; `more` bytes are for the
    /// wrapping.
    pub(crate) fn like(&self, other: Self, more: usize) -> Self {
        Self { wait: self.wait, limit: self.limit + more, ..other }
    }
}

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body, within the request's limit.
    pub body: Vec<u8>,
}

impl Answer {
    /// The text of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.header(RETRY_AFTER.as_str())?.trim().parse().ok().map(Duration::from_secs)
    }

    /// How long it is no use to ask again: what caches may keep it, or `retry-after`.
    pub fn fresh_for(&self) -> Duration {
        let directives = self.header(CACHE_CONTROL.as_str()).unwrap_or_default().split(',');
        let max_age = directives
            .filter_map(|directive| directive.trim().strip_prefix("max-age="))
            .find_map(|seconds| seconds.parse().ok())
            .map_or(Duration::ZERO, Duration::from_secs);
        max_age.max(self.retry_after().unwrap_or_default())
    }

    /// The problem, if it is one of incrowd's.
    pub fn problem(&self) -> Option<Refusal> {
        Refusal::read(self.status, &self.body)
    }

    /// The answer, if its status is one of success.
    pub fn success(self) -> Result<Self, TransportError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        Err(self.refusal())
    }

    /// The answer as an error: it is not the one that was asked for.
    pub(crate) fn refusal(&self) -> TransportError {
        let (status, problem, retry_after) = (self.status, self.problem(), self.retry_after());
        TransportError::Refused { status, problem, retry_after }
    }

    /// The signed document that it is, not verified yet.
    pub fn signed(self, what: &'static str) -> Result<Signed, TransportError> {
        self.success()?.with_signature(what)
    }

    /// The same, whatever its status.
    pub(crate) fn with_signature(self, what: &'static str) -> Result<Signed, TransportError> {
        let signature =
            self.header(SIGNATURE_HEADER).ok_or(TransportError::Unsigned(what))?.parse()?;
        Ok(Signed { body: self.body, signature })
    }
}

/// A pool of connections to one server.
#[derive(Debug, Clone)]
pub struct Http {
    client: reqwest::Client,
    address: Address,
}

impl Http {
    /// Connections to a server whose certificate this trust covers.
    pub fn new(address: Address, trust: &Trust) -> Result<Self, TransportError> {
        let trust = if address.is_https() { trust } else { &Trust::Nobody };
        Ok(Self { client: client(trust)?, address })
    }

    /// Sends a request; any status is an answer.
    pub async fn send(&self, request: Request) -> Result<Answer, TransportError> {
        self.send_within(request, |_| Ok(())).await
    }

    /// The same. `grow` is asked for the memory of each part of the answer before it is kept.
    pub async fn send_within<E: From<TransportError>>(
        &self,
        request: Request,
        mut grow: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Answer, E> {
        let failed = |error| TransportError::from(NetworkFailure::of(&error));
        let Request { method, path, headers, body, wait, limit } = request;
        let request = self
            .client
            .request(method, self.address.join(&path))
            .timeout(ANSWER + wait)
            .headers(headers)
            .body(body);
        let mut response = request.send().await.map_err(failed)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limit {
                return Err(TransportError::from(NetworkFailure::TooLong).into());
            }
            grow(chunk.len())?;
            body.extend_from_slice(&chunk);
        }
        let status = response.status().as_u16();
        Ok(Answer { status, headers: std::mem::take(response.headers_mut()), body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_long_it_is_good_for() {
        for (cache, after, seconds) in [
            (None, None, 0),
            (Some("public, max-age=60"), None, 60),
            (Some("public,max-age=60 , immutable"), Some("5"), 60),
            (Some("public, max-age=5"), Some("90"), 90),
            (Some("no-store"), Some("1"), 1),
            (Some("max-age=, s-maxage=9"), Some("Wed, 21 Oct 2015 07:28:00 GMT"), 0),
            (Some("max-age=-1"), None, 0),
        ] {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_static;
            cache.into_iter().for_each(|text| drop(headers.insert(CACHE_CONTROL, value(text))));
            after.into_iter().for_each(|text| drop(headers.insert(RETRY_AFTER, value(text))));
            let answer = Answer { status: 200, headers, body: Vec::new() };
            assert_eq!(answer.fresh_for(), Duration::from_secs(seconds), "{cache:?} {after:?}");
        }
    }
}
