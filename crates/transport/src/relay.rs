//! Oblivious HTTP (RFC 9458): the relay sees who asks, the shuffler what is asked, neither both.

use std::io::Cursor;

use bhttp::{Message, Mode};
use incrowd_protocol::{MediaType, paths};
use ohttp::{
    ClientRequest, KeyConfig, SymmetricSuite,
    hpke::{Aead, Kdf},
};
use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use crate::{Address, Answer, Http, Request, TransportError, Trust};

/// Bytes that encapsulation and headers add to an answer.
const WRAPPING: usize = 16 << 10;

/// The relay in front of a shuffler's gateway.
#[derive(Debug)]
pub(crate) struct Relay {
    http: Http,
    /// The shuffler, as requests inside name it.
    target: Address,
}

impl Relay {
    pub(crate) fn new(
        relay: Address,
        target: Address,
        trust: &Trust,
    ) -> Result<Self, TransportError> {
        Ok(Self { http: Http::new(relay, trust)?, target })
    }

    /// The gateway's key configurations, as the relay has them. Nothing is believed yet.
    pub(crate) async fn keys(&self) -> Result<Vec<u8>, TransportError> {
        let answer = self.http.send(Request::get(paths::RELAY_KEYS)).await?;
        Ok(carried(answer)?.body)
    }

    /// Sends a request through relay and gateway.
    pub(crate) async fn send(
        &self,
        keys: &[u8],
        request: &Request,
    ) -> Result<Answer, TransportError> {
        let inside = self.encode(request)?;
        let (body, opener) = sender(keys)?
            .encapsulate(&inside)
            .map_err(|_| TransportError::Oblivious("the request", "sealed"))?;
        let outside = Request::new(Method::POST, paths::RELAY);
        let outside = request.like(outside.body(MediaType::ObliviousRequest, body), WRAPPING);
        let answer = carried(self.http.send(outside).await?)?;
        let inside = opener
            .decapsulate(&answer.body)
            .map_err(|_| TransportError::Oblivious("the answer", "opened"))?;
        decode(inside)
    }

    fn encode(&self, request: &Request) -> Result<Vec<u8>, TransportError> {
        let (method, path, headers, body) = request.parts();
        let mut message = Message::request(
            method.as_str().into(),
            self.target.scheme().into(),
            self.target.authority().into_bytes(),
            self.target.path(path).into_bytes(),
        );
        for (name, value) in headers {
            message.put_header(name.as_str(), value.as_bytes());
        }
        message.write_content(body);
        let mut bytes = Vec::new();
        message
            .write_bhttp(Mode::KnownLength, &mut bytes)
            .map_err(|_| TransportError::Oblivious("the request", "written"))?;
        Ok(bytes)
    }
}

/// An answer that relay and gateway carried. Their own problems are not the shuffler's word on what
/// is inside.
fn carried(answer: Answer) -> Result<Answer, TransportError> {
    answer.success().map_err(|error| match error {
        TransportError::Refused { status, problem, retry_after } => {
            TransportError::Relay { status, problem, retry_after }
        }
        other => other,
    })
}

/// A sender for the first usable key configuration, which the gateway prefers. One without a suite
/// that is known would make the library panic.
fn sender(keys: &[u8]) -> Result<ClientRequest, TransportError> {
    let unusable = || TransportError::Oblivious("key configurations", "used");
    let mut configurations = KeyConfig::decode_list(keys).map_err(|_| unusable())?;
    let suites = [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305]
        .map(|aead| SymmetricSuite::new(Kdf::HkdfSha256, aead));
    let usable = |config: &&mut KeyConfig| suites.iter().any(|&suite| config.select(suite).is_ok());
    let config = configurations.iter_mut().find(usable).ok_or_else(unusable)?;
    ClientRequest::from_config(config).map_err(|_| unusable())
}

fn decode(bytes: Vec<u8>) -> Result<Answer, TransportError> {
    let unreadable = || TransportError::Oblivious("the answer", "read");
    let message = Message::read_bhttp(&mut Cursor::new(bytes)).map_err(|_| unreadable())?;
    let status = message.control().status().ok_or_else(unreadable)?.code();
    let mut headers = HeaderMap::new();
    for field in message.header().iter() {
        let name = HeaderName::from_bytes(field.name()).map_err(|_| unreadable())?;
        let value = HeaderValue::from_bytes(field.value()).map_err(|_| unreadable())?;
        headers.append(name, value);
    }
    Ok(Answer { status, headers, body: message.content().to_vec() })
}
