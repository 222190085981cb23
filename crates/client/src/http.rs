//! Requests without anything that tells one device from another: no cookies, no user agent, no redirects.

use std::{net::IpAddr, sync::Arc, time::Duration};

use reqwest::{
    Method, Url,
    header::{HeaderMap, RETRY_AFTER},
    redirect::Policy,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use serde::Deserialize;

use crate::{ClientError, NetworkFailure, documents::Signed};

const CONNECT: Duration = Duration::from_secs(10);
/// For an answer, on top of what it was asked to wait.
const ANSWER: Duration = Duration::from_secs(30);
/// A model of dimension 1000 has half a million numbers.
const LONGEST_ANSWER: usize = 32 << 20;

/// The base address of a server.
#[derive(Debug, Clone)]
pub(crate) struct Address(Url);

impl Address {
    /// An address that may be used: https, or http to this machine unless all http is allowed.
    pub(crate) fn new(
        text: &str,
        what: &'static str,
        plain_http: bool,
    ) -> Result<Self, ClientError> {
        let url = Url::parse(text).map_err(|_| ClientError::Url(what))?;
        let host = url.host_str().ok_or(ClientError::Url(what))?;
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let loopback = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
        match url.scheme() {
            "https" => Ok(Self(url)),
            "http" if plain_http || loopback => Ok(Self(url)),
            "http" => Err(ClientError::PlainHttp(what)),
            _ => Err(ClientError::Url(what)),
        }
    }

    pub(crate) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    pub(crate) fn scheme(&self) -> &str {
        self.0.scheme()
    }

    /// Host, and port if it is not the usual one.
    pub(crate) fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// The path of the base with `path` after it.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.0.path().trim_end_matches('/'))
    }

    fn join(&self, path: &str) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.path(path))
    }
}

/// What is asked of a server.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// How long the server was asked to wait.
    pub(crate) wait: Duration,
}

impl Request {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            headers: Vec::new(),
            body: Vec::new(),
            wait: Duration::ZERO,
        }
    }
}

/// What a server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) signature: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

#[derive(Deserialize)]
struct ProblemDocument {
    #[serde(rename = "type")]
    kind: String,
}

impl Answer {
    /// The answer, if its status is one of success.
    pub(crate) fn success(self) -> Result<Self, ClientError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let problem = serde_json::from_slice::<ProblemDocument>(&self.body).ok();
        // The last word of the type, if it is one: nothing else of a server's text is repeated.
        let word = problem.and_then(|problem| {
            let word = problem.kind.rsplit(['/', '#', ':']).next()?.to_owned();
            let plain = word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            (plain && (1..=40).contains(&word.len())).then_some(word)
        });
        let (status, retry_after) = (self.status, self.retry_after);
        Err(ClientError::Refused { status, kind: word, retry_after })
    }

    /// The signed document that it is.
    pub(crate) fn signed(self, what: &'static str) -> Result<Signed, ClientError> {
        let answer = self.success()?;
        let signature = answer.signature.ok_or(ClientError::Unsigned(what))?;
        let body = String::from_utf8(answer.body).map_err(|_| ClientError::Document(what))?;
        Ok(Signed { body, signature })
    }
}

/// Seconds to wait, as a server says it.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

/// A pool of connections to one server.
pub(crate) struct Http {
    client: reqwest::Client,
    address: Address,
}

impl Http {
    pub(crate) fn new(address: Address) -> Result<Self, ClientError> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(address.is_https())?)
            .redirect(Policy::none())
            .referer(false)
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| ClientError::Tls(error.without_url().to_string()))?;
        Ok(Self { client, address })
    }

    pub(crate) async fn send(&self, request: Request) -> Result<Answer, ClientError> {
        let url = self.address.join(&request.path);
        let mut builder = self.client.request(request.method, url).timeout(ANSWER + request.wait);
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        let mut response = builder.body(request.body).send().await.map_err(|e| failure(&e))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| failure(&e))? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(ClientError::Network(NetworkFailure::TooLong));
            }
            body.extend_from_slice(&chunk);
        }
        let header = |headers: &HeaderMap, name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let headers = response.headers();
        Ok(Answer {
            status: response.status().as_u16(),
            signature: header(headers, "incrowd-signature"),
            retry_after: header(headers, RETRY_AFTER.as_str()).as_deref().and_then(seconds),
            body,
        })
    }
}

/// TLS with its own provider, whatever else the process uses. An address that is not https needs no certificate authorities.
fn tls(https: bool) -> Result<ClientConfig, ClientError> {
    let problem = |error: rustls::Error| ClientError::Tls(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(problem)?;
    let builder = if https {
        builder.with_platform_verifier().map_err(problem)?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

fn failure(error: &reqwest::Error) -> ClientError {
    ClientError::Network(if error.is_timeout() {
        NetworkFailure::Timeout
    } else if error.is_connect() {
        NetworkFailure::Connect
    } else {
        NetworkFailure::Broken
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_unless_allowed() {
        for good in
            ["https://a.example", "http://127.0.0.1:80", "http://[::1]:9/x", "http://localhost"]
        {
            assert!(Address::new(good, "url", false).is_ok(), "{good}");
        }
        for plain in ["http://a.example", "http://10.0.0.1", "http://localhost.a.example"] {
            let refused = Address::new(plain, "url", false).unwrap_err();
            assert_eq!(refused, ClientError::PlainHttp("url"), "{plain}");
            assert!(Address::new(plain, "url", true).is_ok());
        }
        for bad in ["", "a.example", "ftp://a.example", "unix:/x"] {
            assert_eq!(Address::new(bad, "url", true).unwrap_err(), ClientError::Url("url"));
        }
    }

    #[test]
    fn a_base_may_have_a_path() {
        let address = Address::new("https://a.example:1/b/", "url", false).unwrap();
        assert_eq!(address.join("/v1?x=1"), "https://a.example:1/b/v1?x=1");
    }
}
