//! A minimal Oblivious HTTP relay: carries encapsulated requests to one gateway and tells it nothing about who sent them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{FromRef, State},
    http::header,
    response::{IntoResponse, Response},
    routing::{get, post},
};

use crate::{
    ConfigError, HttpLimits, Metrics, ServiceError, TlsConfig,
    http::{Content, ContentType, finished},
    listener::Listener,
    problem::{Kind, Problem},
    shuffler::{OHTTP_ANSWER, OHTTP_KEYS, OHTTP_REQUEST},
    signals::{Signals, Told},
    tls,
};

/// A relay in front of one gateway.
///
/// # Privacy
/// Sees addresses and encapsulated bytes; the gateway sees the relay's address and the requests. Neither sees both, unless they collude.
pub struct Relay {
    client: reqwest::Client,
    gateway: String,
    token: String,
}

impl Relay {
    /// A relay to the gateway of the shuffler at `gateway`, which knows this relay by `token`.
    pub fn new(gateway: &str, token: &str, ca: Option<&[u8]>) -> Result<Arc<Self>, ServiceError> {
        let client = tls::client(ca, Duration::from_secs(90))?;
        let gateway = gateway.trim_end_matches('/').to_owned();
        Ok(Arc::new(Self { client, gateway, token: token.to_owned() }))
    }

    /// Begins to carry requests. Plain HTTP that others can reach must be allowed by name.
    pub fn listen(
        self: &Arc<Self>,
        address: SocketAddr,
        tls: Option<&TlsConfig>,
        allow_plain_http: bool,
    ) -> Result<RunningRelay, ServiceError> {
        if !address.ip().is_loopback() && tls.is_none() && !allow_plain_http {
            return Err(ConfigError::PlainHttp { key: "listen", address }.into());
        }
        let limits = HttpLimits::default();
        let tls = tls.map(tls::server).transpose()?;
        Ok(RunningRelay(Listener::start(address, self.router(limits), tls, limits)?))
    }

    /// `POST /` carries a request, `GET /ohttp-keys` gives the gateway's key configurations.
    fn router(self: &Arc<Self>, limits: HttpLimits) -> Router {
        let router = Router::new()
            .route("/", post(carry))
            .route("/ohttp-keys", get(keys))
            .with_state(self.clone());
        finished(router, limits, Arc::new(Metrics::default()))
    }

    async fn forward(
        &self,
        request: reqwest::RequestBuilder,
        expected: &'static str,
    ) -> Result<Response, Problem> {
        let unreachable = |_| Problem::new(Kind::BadGateway, "the gateway does not answer");
        let answer = request.bearer_auth(&self.token).send().await.map_err(unreachable)?;
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
        if !status.is_success() || kind.is_none_or(|kind| kind != expected) {
            let detail = format!("the gateway answered with status {}", status.as_u16());
            return Err(Problem::new(Kind::BadGateway, detail));
        }
        let body = answer.bytes().await.map_err(unreachable)?;
        Ok(([(header::CONTENT_TYPE, expected)], body).into_response())
    }
}

impl FromRef<Arc<Relay>> for HttpLimits {
    fn from_ref(_: &Arc<Relay>) -> Self {
        Self::default()
    }
}

/// A relay that listens.
pub struct RunningRelay(Listener);

impl RunningRelay {
    /// Where devices come.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Runs until SIGTERM or SIGINT, and ends gracefully.
    pub async fn run(self, mut signals: Signals) {
        // There is nothing to read again.
        while let Told::Reload = signals.next().await {}
        self.stop().await;
    }

    /// Takes no new requests and lets the open ones end.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

/// Only the body goes on: no header of the sender does.
async fn carry(
    State(relay): State<Arc<Relay>>,
    kind: ContentType,
    Content(body): Content,
) -> Result<Response, Problem> {
    if !kind.is(OHTTP_REQUEST) {
        let rule = format!("the content type must be {OHTTP_REQUEST}");
        return Err(Problem::new(Kind::UnsupportedType, rule));
    }
    let url = format!("{}/v1/gateway", relay.gateway);
    let request = relay.client.post(url).header(header::CONTENT_TYPE, OHTTP_REQUEST).body(body);
    relay.forward(request, OHTTP_ANSWER).await
}

async fn keys(State(relay): State<Arc<Relay>>) -> Result<Response, Problem> {
    let request = relay.client.get(format!("{}/v1/ohttp-keys", relay.gateway));
    relay.forward(request, OHTTP_KEYS).await
}
