//! R19: with a relay in front, the shuffler sees no device and the relay no report.

use std::{
    collections::BTreeSet,
    io::Cursor,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::common::{ACTIONS, Frozen, Server, Shape, serve, settle, until};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bhttp::{Message, Mode};
use incrowd_client::{ClientError, transport::TransportError};
use incrowd_protocol::{MediaType, paths};
use ohttp::{
    KeyConfig, SymmetricSuite,
    hpke::{Aead, Kdf, Kem},
};
use tokio::time::advance;

/// A relay with the gateway behind it in one: what came in, the keys it hands out, and where it
/// sends what it opens.
struct Relay {
    gateway: ohttp::Server,
    keys: Vec<u8>,
    target: String,
    seen: Vec<Vec<u8>>,
}

type Shared = State<Arc<Mutex<Relay>>>;

fn gateway() -> (ohttp::Server, Vec<u8>) {
    let suites = vec![SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305)];
    let config = KeyConfig::new(1, Kem::X25519Sha256, suites).unwrap();
    let keys = KeyConfig::encode_list(&[&config]).unwrap();
    (ohttp::Server::new(config).unwrap(), keys)
}

async fn forward(state: Shared, headers: HeaderMap, body: Bytes) -> Response {
    assert_eq!(headers["content-type"], MediaType::ObliviousRequest.as_str());
    assert!(!headers.contains_key("authorization") && !headers.contains_key("user-agent"));
    let (request, seal, target) = {
        let mut relay = state.0.lock().unwrap();
        relay.seen.push(body.to_vec());
        let Ok((request, seal)) = relay.gateway.decapsulate(&body) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        (request, seal, relay.target.clone())
    };
    let request = Message::read_bhttp(&mut Cursor::new(request)).unwrap();
    let control = request.control();
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    let method = text(control.method()).parse().unwrap();
    let url = format!("{target}{}", text(control.path()));
    let mut inner = reqwest::Client::new().request(method, url).body(request.content().to_vec());
    for field in request.header().iter() {
        inner = inner.header(field.name(), field.value());
    }
    let answer = inner.send().await.unwrap();
    let status = answer.status().as_u16();
    let mut message = Message::response(bhttp::StatusCode::try_from(status).unwrap());
    for (name, value) in answer.headers() {
        message.put_header(name.as_str(), value.as_bytes());
    }
    message.write_content(answer.bytes().await.unwrap());
    let mut bytes = Vec::new();
    message.write_bhttp(Mode::KnownLength, &mut bytes).unwrap();
    ([("content-type", MediaType::ObliviousAnswer.as_str())], seal.encapsulate(&bytes).unwrap())
        .into_response()
}

async fn start(server: &Server) -> (String, Arc<Mutex<Relay>>) {
    // Whoever uses the plain `reqwest::Client` in this test needs a provider for the process; the
    // client brings its own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (gateway_keys, keys) = gateway();
    server.world().gateway = Some((gateway_keys.clone(), keys.clone()));
    let target = server.url.clone();
    let relay = Arc::new(Mutex::new(Relay { gateway: gateway_keys, keys, target, seen: vec![] }));
    let app = Router::new()
        .route(
            paths::RELAY_KEYS,
            get(|state: Shared| async move { state.0.lock().unwrap().keys.clone() }),
        )
        .route(paths::RELAY, post(forward))
        .with_state(Arc::clone(&relay));
    (serve(app).await, relay)
}

#[tokio::test]
async fn r19_a_report_goes_through_the_relay_unread() {
    let server = Server::start(Shape::default()).await;
    let (url, relay) = start(&server).await;
    let client = server.client().relay(url).connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    assert_eq!(client.status().reports_sent, 1, "{:?}", client.status());
    let arrivals = server.arrivals();
    assert_eq!(arrivals.len(), 1);
    assert_eq!(arrivals[0].token.as_deref(), Some("Bearer device"));
    let id = hex::decode(&arrivals[0].path).unwrap();
    let seen = &relay.lock().unwrap().seen;
    assert!((3..=4).contains(&seen.len()), "notice, round, report, and perhaps the model");
    assert!(!seen.iter().any(|body| body.windows(16).any(|window| window == id)));
}

/// A device behind a relay connects to nobody else, whatever the notice says about models.
#[tokio::test]
async fn r19_nothing_is_asked_for_directly() {
    let server = Server::start(Shape { window: Some(3600), ..Shape::default() }).await;
    let (url, relay) = start(&server).await;
    let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let trap_url = format!("http://{}", trap.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while trap.accept().await.is_ok() {
            counter.fetch_add(1, Relaxed);
        }
    });
    server.world().model_url = Some(trap_url.clone());
    let parts = server.world().parts(1, [1.0, 0.0]);
    server.world().publish_parts(&parts);
    let behind = Server { url: trap_url, ..server.clone() };
    let client = behind.client().relay(url).connect().await.unwrap();
    until("a model", || client.status().model_version == Some(1)).await;
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    assert_eq!(client.refresh().await, Ok(false));
    assert_eq!(client.status().reports_sent, 1, "{:?}", client.status());
    let asked: BTreeSet<String> =
        server.world().asked.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(asked, ["config", "model", "round"].map(String::from).into());
    assert_eq!(connections.load(Relaxed), 0);
    // The relay sees neither the task nor what a device knows.
    let task = server.world().task.id().to_string();
    for body in &relay.lock().unwrap().seen {
        assert!(!body.windows(8).any(|window| window == &task.as_bytes()[..8]));
    }
}

#[tokio::test(start_paused = true)]
async fn r34_a_gateway_whose_keys_change_does_not_lose_a_report() {
    let _frozen = Frozen::new();
    for shape in [Shape::default(), Shape { window: Some(3600), ..Shape::default() }] {
        let server = Server::start(shape).await;
        let (url, relay) = start(&server).await;
        let client = server.client().relay(url).connect().await.unwrap();
        // The report cannot be stored at first; then the gateway has other keys, and a relay that
        // hands out the old ones for a while.
        server.world().failures = [(503, None)].into();
        let _ = client.rank_features(&ACTIONS).unwrap();
        until("an attempt", || server.arrivals().len() == 1).await;
        let (gateway, keys) = gateway();
        relay.lock().unwrap().gateway = gateway.clone();
        server.world().gateway = Some((gateway, keys.clone()));
        for step in 0..2000 {
            if step == 10 {
                relay.lock().unwrap().keys.clone_from(&keys);
            }
            if client.status().uploads == 0 {
                break;
            }
            settle(2).await;
            advance(Duration::from_secs(5)).await;
        }
        let arrivals = server.arrivals();
        assert_eq!(client.status().reports_sent, 1, "{:?}", client.status());
        assert!(arrivals.iter().all(|arrival| arrival.body == arrivals[0].body));
        assert_eq!(arrivals.last().unwrap().status, 204);
    }
}

#[tokio::test]
async fn r19_a_relay_with_keys_of_its_own_is_refused() {
    let server = Server::start(Shape::default()).await;
    let (url, relay) = start(&server).await;
    // It could tell this device from others, or read its requests.
    let (own, keys) = gateway();
    {
        let mut relay = relay.lock().unwrap();
        (relay.gateway, relay.keys) = (own, keys);
    }
    let refused = server.client().relay(&url).connect().await.map(drop);
    assert_eq!(refused, Err(ClientError::Transport(TransportError::GatewayKeys)));
    server.world().gateway = None;
    let refused = server.client().relay(&url).connect().await.map(drop);
    assert_eq!(refused, Err(ClientError::Transport(TransportError::GatewayKeys)));
    // A configuration without a suite that anyone knows is refused, not a panic.
    relay.lock().unwrap().keys[40] = 3;
    let refused = server.client().relay(&url).connect().await.map(drop);
    assert!(
        matches!(refused, Err(ClientError::Transport(TransportError::Oblivious(..)))),
        "{refused:?}"
    );
}
