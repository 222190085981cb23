//! Oblivious HTTP (RFC 9458): the relay sees who asks, the shuffler what is asked, neither both.

use std::io::Cursor;

use bhttp::{Message, Mode};
use ohttp::{
    ClientRequest, KeyConfig, SymmetricSuite,
    hpke::{Aead, Kdf},
};
use reqwest::Method;

use crate::{
    ClientError,
    http::{Address, Answer, Http, Request, seconds},
};

/// The relay in front of a shuffler's gateway.
pub(crate) struct Relay {
    http: Http,
    /// The shuffler, as requests inside name it.
    target: Address,
}

impl Relay {
    pub(crate) fn new(relay: Address, target: Address) -> Result<Self, ClientError> {
        Ok(Self { http: Http::new(relay)?, target })
    }

    /// The gateway's key configurations, as the relay has them. Nothing is believed yet.
    pub(crate) async fn keys(&self) -> Result<Vec<u8>, ClientError> {
        Ok(self.http.send(Request::get("/ohttp-keys".into())).await?.success()?.body)
    }

    /// Sends a request through relay and gateway.
    pub(crate) async fn send(&self, keys: &[u8], request: Request) -> Result<Answer, ClientError> {
        let wait = request.wait;
        let inside = self.encode(request)?;
        let (body, opener) = sender(keys)?
            .encapsulate(&inside)
            .map_err(|_| ClientError::Oblivious("the request", "sealed"))?;
        let headers = vec![("content-type", "message/ohttp-req".to_owned())];
        let outside = Request { method: Method::POST, path: "/".into(), headers, body, wait };
        let answer = self.http.send(outside).await?.success()?;
        let inside = opener
            .decapsulate(&answer.body)
            .map_err(|_| ClientError::Oblivious("the answer", "opened"))?;
        decode(inside)
    }

    fn encode(&self, request: Request) -> Result<Vec<u8>, ClientError> {
        let mut message = Message::request(
            request.method.as_str().into(),
            self.target.scheme().into(),
            self.target.authority().into_bytes(),
            self.target.path(&request.path).into_bytes(),
        );
        for (name, value) in request.headers {
            message.put_header(name, value);
        }
        message.write_content(&request.body);
        let mut bytes = Vec::new();
        message
            .write_bhttp(Mode::KnownLength, &mut bytes)
            .map_err(|_| ClientError::Oblivious("the request", "written"))?;
        Ok(bytes)
    }
}

/// A sender for the last usable key configuration. One without a suite that is known would make the library panic.
fn sender(keys: &[u8]) -> Result<ClientRequest, ClientError> {
    let unusable = || ClientError::Oblivious("key configurations", "used");
    let mut configurations = KeyConfig::decode_list(keys).map_err(|_| unusable())?;
    let suites = [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305]
        .map(|aead| SymmetricSuite::new(Kdf::HkdfSha256, aead));
    let usable = |config: &&mut KeyConfig| suites.iter().any(|&suite| config.select(suite).is_ok());
    let config = configurations.iter_mut().rfind(usable).ok_or_else(unusable)?;
    ClientRequest::from_config(config).map_err(|_| unusable())
}

fn decode(bytes: Vec<u8>) -> Result<Answer, ClientError> {
    let unreadable = ClientError::Oblivious("the answer", "read");
    let message = Message::read_bhttp(&mut Cursor::new(bytes)).map_err(|_| unreadable.clone())?;
    let status = message.control().status().ok_or(unreadable)?.code();
    let header = |name: &str| {
        let value = message.header().get(name.as_bytes())?;
        String::from_utf8(value.to_vec()).ok()
    };
    Ok(Answer {
        status,
        signature: header("incrowd-signature"),
        retry_after: header("retry-after").as_deref().and_then(seconds),
        body: message.content().to_vec(),
    })
}
