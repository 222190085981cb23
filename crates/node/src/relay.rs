//! A minimal Oblivious HTTP relay: carries encapsulated requests to one gateway and tells it
//! nothing about who sent them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use incrowd_protocol::{MediaType, paths};
use incrowd_transport::{Address, Http, Method, Request, Trust};

use crate::{
    ConfigError, HttpLimits, Metrics, ServiceError, TlsConfig,
    http::{Content, ContentType},
    listener::BoundListener,
    problem::{Kind, Problem},
    role::{Later, Process, Role},
    signals::Signals,
    tls,
};

/// How long a request inside may wait for something to happen.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// More than any document that devices ask a shuffler for.
const LONGEST_ANSWER: usize = 8 << 20;

/// A relay in front of one gateway.
///
/// # Privacy
/// Sees addresses and encapsulated bytes; the gateway sees the relay's address and the requests.
/// Neither sees both, unless they collude.
pub struct Relay {
    gateway: Http,
    token: String,
}

impl Relay {
    /// A relay to the gateway of the shuffler at `gateway`, which knows this relay by `token`.
    pub fn new(gateway: &str, token: &str, ca: Option<&[u8]>) -> Result<Arc<Self>, ServiceError> {
        let address = Address::new(gateway, "gateway", true)?;
        let gateway = Http::new(address, &Trust::new(ca))?;
        Ok(Arc::new(Self { gateway, token: token.to_owned() }))
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
        let metrics = Metrics::default();
        let routes = self.clone().routes();
        let listener = BoundListener::bind("relay", address, limits, &metrics)?;
        let address = listener.address;
        let listener = listener.answer(routes, tls);
        let process = Process { roles: vec![self.clone()], listeners: vec![listener], watch: None };
        Ok(RunningRelay { process, address })
    }

    async fn forward(&self, request: Request, expected: MediaType) -> Result<Response, Problem> {
        let unreachable = |_| Problem::new(Kind::BadGateway, "the gateway does not answer");
        let request = request.wait(LONGEST_WAIT).limit(LONGEST_ANSWER);
        let request = request.token(&self.token).map_err(unreachable)?;
        let answer = self.gateway.send(request).await.map_err(unreachable)?;
        let kind = answer.header(header::CONTENT_TYPE.as_str());
        if !(200..300).contains(&answer.status) || kind != Some(expected.as_str()) {
            let detail = format!("the gateway answered with status {}", answer.status);
            return Err(Problem::new(Kind::BadGateway, detail));
        }
        Ok(([(header::CONTENT_TYPE, expected.as_str())], answer.body).into_response())
    }
}

impl Role for Relay {
    fn tags(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// `POST /` carries a request, `GET /ohttp-keys` gives the gateway's key configurations.
    fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route(paths::RELAY, post(carry))
            .route(paths::RELAY_KEYS, get(keys))
            .with_state(self)
    }

    fn ready(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn reload(&self) -> Result<(), ServiceError> {
        Ok(())
    }

    fn stop_waiting(&self) {}

    fn stop(&self) -> Later<'_, ()> {
        Box::pin(async {})
    }
}

/// A relay that listens.
pub struct RunningRelay {
    process: Process,
    address: SocketAddr,
}

impl RunningRelay {
    /// Where devices come.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs until SIGTERM or SIGINT, and ends gracefully.
    pub async fn run(self, signals: Signals) {
        self.process.run(signals).await;
    }

    /// Takes no new requests and lets the open ones end.
    pub async fn stop(self) {
        self.process.stop().await;
    }
}

/// Only the body goes on: no header of the sender does.
async fn carry(
    State(relay): State<Arc<Relay>>,
    kind: ContentType,
    Content { body, .. }: Content,
) -> Result<Response, Problem> {
    if !kind.is(MediaType::ObliviousRequest) {
        let rule = format!("the content type must be {}", MediaType::ObliviousRequest);
        return Err(Problem::new(Kind::UnsupportedType, rule));
    }
    let request =
        Request::new(Method::POST, paths::GATEWAY).body(MediaType::ObliviousRequest, body.to_vec());
    relay.forward(request, MediaType::ObliviousAnswer).await
}

async fn keys(State(relay): State<Arc<Relay>>) -> Result<Response, Problem> {
    relay.forward(Request::get(paths::GATEWAY_KEYS), MediaType::ObliviousKeys).await
}
