//! The Oblivious HTTP gateway (RFC 9458): requests that a relay carries, so that the shuffler sees
//! the relay's address and no one else's.

use std::{io::Cursor, net::SocketAddr, sync::Arc};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, State},
    http::{HeaderName, HeaderValue, Method, Request, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bhttp::{Message, Mode};
use http_body_util::BodyExt;
use incrowd_protocol::{KeyState, MediaType, paths};
use ohttp::{
    KeyConfig, Server, ServerResponse, SymmetricSuite,
    hpke::{Aead, Kdf, Kem},
};
use tower::ServiceExt;

use super::Shuffler;
use crate::{
    Keys, ServiceError,
    bounds::{Bounds, Memory},
    http::{Content, ContentType, Guard, with_problems},
    problem::{Kind, Problem},
    rates::CarriedBy,
    tokens::Role,
};

/// Headers of an inner request that mean something here.
const PASSED: [HeaderName; 3] =
    [header::AUTHORIZATION, header::CONTENT_TYPE, header::IF_NONE_MATCH];

/// The keys that open requests.
pub(super) struct Gateway {
    /// By key id.
    servers: Vec<(u8, Server)>,
    key_configurations: Vec<u8>,
}

impl Gateway {
    /// Opens requests to every key that is not expired, and publishes those that are active, the
    /// newest first: that is the one that devices use.
    pub fn new(keys: &Keys) -> Result<Self, ServiceError> {
        let suite = SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305);
        let failed = |_| ServiceError::Gateway;
        let (mut servers, mut published) = (Vec::new(), Vec::new());
        for (id, state, seed) in keys.gateway_seeds() {
            let config = KeyConfig::derive(id, Kem::X25519Sha256, vec![suite], seed);
            let config = config.map_err(failed)?;
            if state == KeyState::Active {
                published.insert(0, config.clone());
            }
            servers.push((id, Server::new(config).map_err(failed)?));
        }
        let published: Vec<_> = published.iter().collect();
        let key_configurations = KeyConfig::encode_list(&published).map_err(failed)?;
        Ok(Self { servers, key_configurations })
    }

    pub fn key_configurations(&self) -> &[u8] {
        &self.key_configurations
    }

    /// Opens an encapsulated request, whose first byte is the id of its key.
    fn open(&self, body: &[u8]) -> Result<(Vec<u8>, ServerResponse), Problem> {
        let (_, server) = self
            .servers
            .iter()
            .find(|(id, _)| body.first() == Some(id))
            .ok_or_else(|| Problem::new(Kind::Gateway, "the gateway does not have this key"))?;
        let cannot =
            |_| Problem::new(Kind::Gateway, "the request does not open with the gateway's key");
        server.decapsulate(body).map_err(cannot)
    }
}

#[derive(Clone)]
struct Inner {
    shuffler: Arc<Shuffler>,
    /// Where the opened requests go.
    routes: Router,
}

pub(super) fn router(shuffler: &Arc<Shuffler>, routes: &Router) -> Router {
    let state = Inner { shuffler: shuffler.clone(), routes: with_problems(routes.clone()) };
    let access = &shuffler.access;
    let keys = Router::new().route(paths::GATEWAY_KEYS, get(ohttp_keys));
    let gateway = Router::new().route(paths::GATEWAY, post(gateway).get(token_of_a_relay));
    Guard::everyone(access)
        .protect(keys)
        .merge(Guard::only(&[Role::Relay], access).protect(gateway))
        .with_state(state)
}

/// The gateway's key configurations. The signed notice of each task has them too.
async fn ohttp_keys(State(inner): State<Inner>) -> Response {
    let keys = inner.shuffler.gateway().map(|gateway| gateway.key_configurations.clone());
    ([(header::CONTENT_TYPE, MediaType::ObliviousKeys.as_str())], keys.unwrap_or_default())
        .into_response()
}

/// Whoever gets here has a relay's token. A relay asks at its start and for its readiness.
async fn token_of_a_relay() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Opens an encapsulated request, answers it, and encapsulates the answer.
async fn gateway(
    State(inner): State<Inner>,
    Extension(bounds): Extension<Bounds>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    kind: ContentType,
    Content { body, mut memory }: Content,
) -> Result<Response, Problem> {
    if !kind.is(MediaType::ObliviousRequest) {
        return Err(Problem::new(
            Kind::UnsupportedType,
            format!("the content type must be {}", MediaType::ObliviousRequest),
        ));
    }
    let gateway = inner.shuffler.gateway();
    let gateway = gateway.ok_or_else(|| Problem::new(Kind::NotFound, "there is no gateway"))?;
    // At most three of its size at a time: opened, parsed, and the body of the request inside.
    memory.grow(2 * body.len())?;
    let (request, answer) = gateway.open(&body)?;
    drop(body);
    let response = match inner_request(request) {
        Ok(mut request) => {
            // The limits of the listener and of the relay hold for what is inside too.
            let extensions = request.extensions_mut();
            extensions.insert(bounds);
            if let Some(Extension(ConnectInfo(peer))) = peer {
                extensions.insert(CarriedBy(peer.ip()));
            }
            inner.routes.oneshot(request).await.into_response()
        }
        Err(problem) => problem.into_response(),
    };
    let broken = |_| Problem::new(Kind::Unavailable, "the answer could not be encapsulated");
    let encoded = inner_response(response, &mut memory).await?;
    let body = memory.hold(answer.encapsulate(&encoded).map_err(broken)?);
    Ok(([(header::CONTENT_TYPE, MediaType::ObliviousAnswer.as_str())], body).into_response())
}

/// The request inside, with only the headers that mean something.
fn inner_request(bytes: Vec<u8>) -> Result<Request<Body>, Problem> {
    let invalid =
        || Problem::new(Kind::BadRequest, "the encapsulated message is no binary HTTP request");
    let message = Message::read_bhttp(&mut Cursor::new(bytes)).map_err(|_| invalid())?;
    let control = message.control();
    let (Some(method), Some(path)) = (control.method(), control.path()) else {
        return Err(invalid());
    };
    let path = str::from_utf8(path).map_err(|_| invalid())?;
    let mut request = Request::builder()
        .method(Method::from_bytes(method).map_err(|_| invalid())?)
        .uri(path)
        .body(Body::from(message.content().to_vec()))
        .map_err(|_| invalid())?;
    for field in message.header().fields() {
        if let Some(name) = PASSED.into_iter().find(|name| name.as_str().as_bytes() == field.name())
        {
            let value = HeaderValue::from_bytes(field.value()).map_err(|_| invalid())?;
            request.headers_mut().insert(name, value);
        }
    }
    Ok(request)
}

/// The answer as a message, with memory for two of its size: as a message and encoded, then
/// encoded and encapsulated.
async fn inner_response(response: Response, memory: &mut Memory) -> Result<Vec<u8>, Problem> {
    let broken = || Problem::new(Kind::Unavailable, "the answer could not be encoded");
    let (parts, body) = response.into_parts();
    let body: Bytes = body.collect().await.map_err(|_| broken())?.to_bytes();
    memory.grow(2 * body.len())?;
    let status = bhttp::StatusCode::try_from(parts.status.as_u16()).map_err(|_| broken())?;
    let mut message = Message::response(status);
    for (name, value) in &parts.headers {
        message.put_header(name.as_str(), value.as_bytes());
    }
    if parts.status != StatusCode::NO_CONTENT {
        message.write_content(&body);
    }
    let mut bytes = Vec::new();
    message.write_bhttp(Mode::KnownLength, &mut bytes).map_err(|_| broken())?;
    Ok(bytes)
}
