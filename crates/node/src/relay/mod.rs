//! A minimal Oblivious HTTP relay: carries encapsulated requests to one gateway and tells it
//! nothing about who sent them.

mod config;
mod gateway;

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use incrowd_protocol::{MediaType, paths};
use incrowd_transport::{Method, Request, TransportError};

use crate::{
    HttpLimits, Metrics, ServiceError, admin,
    http::{Content, ContentType},
    layers::Settings,
    listener::BoundListener,
    node::{OPERATORS, limit_connections},
    openapi,
    problem::{Kind, Problem},
    rates::{Rates, Sender},
    readiness::{Probe, Readiness},
    role::{Later, Process, Reload, Role},
    signals::Signals,
    tls::Tls,
};
pub use config::RelayConfig;
use gateway::Gateway;
pub use gateway::GatewayError;

/// More than any document that devices ask a shuffler for.
const LONGEST_ANSWER: usize = 8 << 20;

/// A relay in front of one gateway.
///
/// # Privacy
/// Sees addresses and encapsulated bytes; the gateway sees the relay's address and the requests.
/// Neither sees both, unless they collude. No address is in a log or a metric.
pub struct Relay {
    gateway: Arc<Gateway>,
    rates: Rates,
    metrics: Arc<Metrics>,
    probe: Probe,
    /// The gateway's key configurations: anyone may ask for them, and few of them reach it.
    keys: Probe<Bytes>,
}

impl Relay {
    /// Checks everything, the gateway too, and begins to carry requests. A gateway that is away may
    /// come back: the relay starts and is not ready. One that refuses the token, or is none, is an
    /// error.
    pub async fn start(config: &RelayConfig) -> Result<RunningRelay, ServiceError> {
        let config = &config.clone().check()?;
        let gateway = Arc::new(Gateway::new(config)?);
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let metrics = Arc::new(Metrics::relay());
        tls.iter().for_each(|tls| tls.measure(&metrics));
        let http = limit_connections(config.http);
        let operator = HttpLimits { connections: OPERATORS, ..http };
        let devices = BoundListener::bind("relay", config.listen, http, &metrics)?;
        let admin = BoundListener::bind("admin", config.admin_listen, operator, &metrics)?;
        let (address, admin_address) = (devices.address, admin.address);
        match gateway.check().await {
            Ok(()) => tracing::info!("the gateway takes this relay's token"),
            Err(error @ GatewayError::Away { .. }) => {
                tracing::warn!(%error, "the relay starts, and is ready when the gateway answers");
            }
            Err(error) => return Err(error.into()),
        }
        let rates = Rates::new(&config.http);
        let (probe, keys) = (Probe::default(), Probe::default());
        let relay = Arc::new(Self { gateway, rates, metrics, probe, keys });
        let roles: Vec<Arc<dyn Role>> = vec![relay.clone()];
        let bounds = devices.bounds.clone();
        bounds.metrics().memory_limit.set(http.memory_bytes as i64);
        let readiness = Readiness::new(roles.clone(), bounds, relay.metrics.clone());
        let asked = admin::of_relay(readiness.clone(), relay.metrics.clone());
        let routes = relay.clone().routes().merge(openapi::open_router(&["relay"]));
        let mut files: Vec<Arc<dyn Reload>> = vec![relay.gateway.clone()];
        files.extend(tls.clone().map(|tls| tls as Arc<dyn Reload>));
        let listeners = vec![devices.answer(routes, tls), admin.answer(asked, None)];
        let watches = vec![tokio::spawn(readiness.watch())];
        let process = Process { roles, listeners, files, watches };
        Ok(RunningRelay { process, address, admin_address })
    }

    /// The body of the gateway's answer. `grow` is asked for its memory as it comes.
    async fn exchange(
        &self,
        request: Request,
        expected: MediaType,
        mut grow: impl FnMut(usize) -> Result<(), Problem>,
    ) -> Result<Vec<u8>, Problem> {
        let answer = self.gateway.send(request, |bytes| grow(bytes).map_err(Failed)).await;
        let answer = answer.map_err(|Failed(problem)| problem)?;
        let kind = answer.header(header::CONTENT_TYPE.as_str());
        if !(200..300).contains(&answer.status) || kind != Some(expected.as_str()) {
            let detail = format!("the gateway answered with status {}", answer.status);
            return Err(Problem::new(Kind::BadGateway, detail));
        }
        Ok(answer.body)
    }

    fn count<T>(&self, answer: &Result<T, Problem>) {
        self.metrics.relayed(match answer {
            Ok(_) => "carried",
            Err(problem) if problem.kind == Kind::BadGateway => "gateway-failed",
            Err(_) => "no-memory",
        });
    }

    /// Whether one more request may come from a sender now.
    fn admit(&self, sender: Sender) -> Result<(), Problem> {
        self.rates.admit(sender, NonZeroU32::MIN).map_err(|seconds| {
            self.metrics.relayed("rate-limited");
            Problem::new(Kind::RateLimited, "more requests a second than this relay carries")
                .retry_after(seconds)
        })
    }
}

/// Why there is no answer of the gateway.
struct Failed(Problem);

impl From<TransportError> for Failed {
    fn from(_: TransportError) -> Self {
        Self(Problem::new(Kind::BadGateway, "the gateway does not answer"))
    }
}

impl Role for Relay {
    fn tags(&self) -> Vec<&'static str> {
        vec!["relay"]
    }

    /// `POST /` carries a request, `GET /ohttp-keys` gives the gateway's key configurations.
    fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route(paths::RELAY, post(carry))
            .route(paths::RELAY_KEYS, get(keys))
            .with_state(self)
    }

    fn ready(&self) -> Later<'_, Result<(), String>> {
        let look = async { self.gateway.check().await.map_err(|error| error.to_string()) };
        Box::pin(self.probe.ask(look))
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
    admin_address: SocketAddr,
}

impl RunningRelay {
    /// Where devices come.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the operator comes.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Reads token and certificate again; none is taken into use if one is broken.
    pub fn reload(&self) -> Result<(), ServiceError> {
        self.process.reload()
    }

    /// Runs until SIGTERM or SIGINT; SIGHUP reads token and certificate again. Then ends
    /// gracefully.
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
    sender: Sender,
    kind: ContentType,
    Content { body, mut memory }: Content,
) -> Result<Response, Problem> {
    if !kind.is(MediaType::ObliviousRequest) {
        let rule = format!("the content type must be {}", MediaType::ObliviousRequest);
        return Err(Problem::new(Kind::UnsupportedType, rule));
    }
    relay.admit(sender)?;
    let request = Request::new(Method::POST, paths::GATEWAY)
        .body(MediaType::ObliviousRequest, body.into())
        .limit(LONGEST_ANSWER);
    let grow = |bytes| memory.grow(bytes);
    let answer = relay.exchange(request, MediaType::ObliviousAnswer, grow).await;
    relay.count(&answer);
    if answer.as_ref().is_err_and(|problem| problem.kind == Kind::BadGateway) {
        // It may be for keys that the gateway does not have any more.
        relay.keys.forget();
    }
    Ok(answered(MediaType::ObliviousAnswer, memory.hold(answer?)))
}

async fn keys(State(relay): State<Arc<Relay>>, sender: Sender) -> Result<Response, Problem> {
    relay.admit(sender)?;
    let look = async {
        let request = Request::get(paths::GATEWAY_KEYS);
        let keys = relay.exchange(request, MediaType::ObliviousKeys, |_| Ok(())).await;
        keys.map(Bytes::from).map_err(|problem| problem.detail)
    };
    let failed = |detail| Problem::new(Kind::BadGateway, detail);
    let keys = relay.keys.ask(look).await.map_err(failed);
    relay.count(&keys);
    Ok(answered(MediaType::ObliviousKeys, keys?))
}

fn answered(kind: MediaType, body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, kind.as_str())], body).into_response()
}
