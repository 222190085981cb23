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
use incrowd_protocol::{MediaType, paths};
use ohttp::{
    KeyConfig, Server, SymmetricSuite,
    hpke::{Aead, Kdf, Kem},
};
use tower::ServiceExt;

use super::Shuffler;
use crate::{
    ServiceError,
    bounds::Bounds,
    http::{Content, ContentType, Guard, with_problems},
    problem::{Kind, Problem},
    rates::CarriedBy,
    tokens::Role,
};

/// Headers of an inner request that mean something here.
const PASSED: [HeaderName; 3] =
    [header::AUTHORIZATION, header::CONTENT_TYPE, header::IF_NONE_MATCH];

pub(super) struct Gateway {
    server: Server,
    key_configurations: Vec<u8>,
}

impl Gateway {
    pub fn new(seed: &[u8; 32]) -> Result<Self, ServiceError> {
        let suite = SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305);
        let failed = |_| ServiceError::Gateway;
        let config = KeyConfig::derive(1, Kem::X25519Sha256, vec![suite], seed).map_err(failed)?;
        let key_configurations = KeyConfig::encode_list(&[&config]).map_err(failed)?;
        Ok(Self { server: Server::new(config).map_err(failed)?, key_configurations })
    }

    pub fn key_configurations(&self) -> &[u8] {
        &self.key_configurations
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
    let tokens = &shuffler.tokens;
    let keys = Router::new().route(paths::GATEWAY_KEYS, get(ohttp_keys));
    let gateway = Router::new().route(paths::GATEWAY, post(gateway).get(token_of_a_relay));
    Guard::everyone(tokens)
        .protect(keys)
        .merge(Guard::only(Role::Relay, tokens).protect(gateway))
        .with_state(state)
}

/// The gateway's key configurations. The signed notice of each task has them too.
async fn ohttp_keys(State(inner): State<Inner>) -> Response {
    let keys = inner.shuffler.gateway.as_ref().map(|gateway| gateway.key_configurations.clone());
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
    Content { body, memory: _held }: Content,
) -> Result<Response, Problem> {
    if !kind.is(MediaType::ObliviousRequest) {
        return Err(Problem::new(
            Kind::UnsupportedType,
            format!("the content type must be {}", MediaType::ObliviousRequest),
        ));
    }
    let cannot =
        |_| Problem::new(Kind::Gateway, "the request is not encapsulated to this gateway's key");
    let gateway = inner.shuffler.gateway.as_ref();
    let gateway = gateway.ok_or_else(|| Problem::new(Kind::NotFound, "there is no gateway"))?;
    let (request, answer) = gateway.server.decapsulate(&body).map_err(cannot)?;
    let response = match inner_request(&request) {
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
    let encoded = inner_response(response).await?;
    let body = answer.encapsulate(&encoded).map_err(broken)?;
    Ok(([(header::CONTENT_TYPE, MediaType::ObliviousAnswer.as_str())], body).into_response())
}

/// The request inside, with only the headers that mean something.
fn inner_request(bytes: &[u8]) -> Result<Request<Body>, Problem> {
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

async fn inner_response(response: Response) -> Result<Vec<u8>, Problem> {
    let broken = || Problem::new(Kind::Unavailable, "the answer could not be encoded");
    let (parts, body) = response.into_parts();
    let body: Bytes = body.collect().await.map_err(|_| broken())?.to_bytes();
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
