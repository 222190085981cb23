//! A relay in operation: what it refuses at its start, whether it is ready, what it shows (R22, R29,
//! R32).

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::IntoResponse,
    routing,
};
use incrowd_node::{ConfigError, GatewayError, Relay, Role, Roles, RunningRelay, ServiceError};
use incrowd_protocol::{MediaType, paths};
use reqwest::Client;
use serde_json::Value;

use crate::{
    common::{Place, eventually, mechanism, metric, plain, problem},
    gateway::relay_settings,
};

fn place() -> Place {
    Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])))
}

/// An operator's request to a relay: status and body.
async fn asked(client: &Client, relay: &RunningRelay, path: &str) -> (u16, String) {
    let url = format!("http://{}{path}", relay.admin_address());
    let answer = client.get(url).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_a_relay_does_not_start_with_a_token_that_the_gateway_refuses() {
    let mut place = place();
    let node = place.start(Roles::Shuffler);
    for (token, expected) in [("unknown", 401), (place.token(Role::Device), 403)] {
        let config = relay_settings(&node.base, place.folder.path(), token);
        match Relay::start(&config).await.err().unwrap() {
            ServiceError::RelayGateway(error @ GatewayError::Token { status, .. }) => {
                assert_eq!(status, expected);
                let said = error.to_string();
                assert!(said.contains("--token-file") && said.contains("--role relay"), "{said}");
                assert!(!said.contains("incrowd-device-"), "{said}");
            }
            other => panic!("{other}"),
        }
    }
    for unusable in ["", "two\nlines"] {
        let config = relay_settings(&node.base, place.folder.path(), unusable);
        match Relay::start(&config).await.err().unwrap() {
            ServiceError::NotAToken { role: "relay", .. } => {}
            other => panic!("{other}"),
        }
    }
    node.stop().await;
    place.config.shuffler.gateway = false;
    let node = place.start(Roles::Shuffler);
    let config = relay_settings(&node.base, place.folder.path(), place.token(Role::Relay));
    match Relay::start(&config).await.err().unwrap() {
        ServiceError::RelayGateway(error @ GatewayError::None { .. }) => {
            let said = error.to_string();
            assert!(said.contains("--gateway") && said.contains("shuffler.gateway"), "{said}");
        }
        other => panic!("{other}"),
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r32_a_relay_is_ready_while_the_gateway_takes_its_token() {
    let mut place = place();
    // An address where nobody is yet.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    place.config.listen = free;
    let (client, gateway) = (
        incrowd_transport::client(&incrowd_transport::Trust::Nobody).unwrap(),
        format!("http://{free}"),
    );
    let config = relay_settings(&gateway, place.folder.path(), place.token(Role::Relay));
    let relay = Relay::start(&config).await.unwrap();
    let (status, said) = asked(&client, &relay, "/readyz").await;
    assert!(status == 503 && said.contains("the gateway does not answer"), "{said}");
    assert!(asked(&client, &relay, "/metrics").await.1.contains("incrowd_ready 0"));
    assert_eq!(asked(&client, &relay, "/healthz").await.0, 200);
    let node = place.start(Roles::Shuffler);
    let ready = async || asked(&client, &relay, "/readyz").await.0 == 200;
    eventually("the gateway is there", ready).await;
    // A token that is not known any more, and the new one.
    let file = config.token_file.as_ref().unwrap();
    fs::write(file, "incrowd-relay-of-another").unwrap();
    relay.reload().unwrap();
    let refused = async || asked(&client, &relay, "/readyz").await.1.contains("refuses the token");
    eventually("the token is refused", refused).await;
    fs::write(file, "").unwrap();
    assert!(relay.reload().is_err());
    fs::write(file, place.token(Role::Relay)).unwrap();
    relay.reload().unwrap();
    eventually("the token is taken", ready).await;
    relay.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_a_relay_counts_and_limits_requests_and_tells_nobody_who_sent_them() {
    let place = place();
    let node = place.start(Roles::Shuffler);
    let mut config = relay_settings(&node.base, place.folder.path(), place.token(Role::Relay));
    config.http.reports_per_second_per_peer = 1;
    let relay = Relay::start(&config).await.unwrap();
    let from = |last: u8| {
        let trust = incrowd_transport::client_config(&incrowd_transport::Trust::Nobody).unwrap();
        let client = Client::builder().tls_backend_preconfigured(trust);
        client.local_address(std::net::IpAddr::from([127, 66, 77, last])).build().unwrap()
    };
    let url = format!("http://{}", relay.address());
    let (one, other) = (from(1), from(2));
    let keys = format!("{url}{}", paths::RELAY_KEYS);
    assert_eq!(one.get(&keys).send().await.unwrap().status(), 200);
    let post = one.post(&url).header("content-type", MediaType::ObliviousRequest.as_str());
    let limited = post.body("x").send().await.unwrap();
    assert!(limited.headers().contains_key("retry-after"));
    assert_eq!(problem(limited).await, (429, "rate-limited".into()));
    let post = other.post(&url).header("content-type", MediaType::ObliviousRequest.as_str());
    let failed = post.body("no encapsulated request").send().await.unwrap();
    assert_eq!(problem(failed).await, (502, "bad-gateway".into()));
    let (status, metrics) = asked(&one, &relay, "/metrics").await;
    assert_eq!(status, 200);
    for outcome in ["carried", "gateway-failed", "rate-limited"] {
        let line = format!("incrowd_relay_requests_total{{outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    for name in ["incrowd_http_connections{listener=\"relay\"}", "incrowd_build_info", "process_"] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    for absent in ["127.66", "incrowd_commit", "incrowd_store_failures"] {
        assert!(!metrics.contains(absent), "{absent}: {metrics}");
    }
    let described = async |address: SocketAddr| {
        let answer = one.get(format!("http://{address}/openapi.json")).send().await.unwrap();
        let api: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        api["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let mut paths = described(relay.address()).await;
    paths.extend(described(relay.admin_address()).await);
    paths.sort();
    assert_eq!(paths, ["/", "/healthz", "/metrics", "/ohttp-keys", "/readyz"]);
    relay.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn a_relay_refuses_a_limit_that_has_no_meaning_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = relay_settings("http://127.0.0.1:9", folder.path(), "token");
    config.http.reports_per_second_per_relay = 7;
    match Relay::start(&config).await.err() {
        Some(ServiceError::Config(ConfigError::Range { key, found, .. })) => {
            assert_eq!((key, found.as_str()), ("http.reports_per_second_per_relay", "7"));
        }
        other => panic!("{other:?}"),
    }
}

/// A gateway that is not ready, and answers requests that are carried to it with so many bytes.
async fn long_answers(bytes: usize) -> String {
    let post = move || async move {
        ([("content-type", MediaType::ObliviousAnswer.as_str())], vec![b'x'; bytes])
    };
    let absent = || async { StatusCode::SERVICE_UNAVAILABLE };
    let app = Router::new().route(paths::GATEWAY, routing::post(post)).fallback(absent);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_answers_of_a_gateway_are_within_the_memory_of_the_relay() {
    let folder = tempfile::tempdir().unwrap();
    let client = incrowd_transport::client(&incrowd_transport::Trust::Nobody).unwrap();
    for (bytes, memory, expected) in [
        (3 << 20, 4 << 20, Ok(())),
        (3 << 20, 2 << 20, Err((413, "too-large".to_owned()))),
        (9 << 20, 32 << 20, Err((502, "bad-gateway".to_owned()))),
    ] {
        let gateway = long_answers(bytes).await;
        let mut config = relay_settings(&gateway, folder.path(), "token");
        config.http.memory_bytes = memory;
        let relay = Relay::start(&config).await.unwrap();
        let post = client.post(format!("http://{}", relay.address())).body("request");
        let post = post.header("content-type", MediaType::ObliviousRequest.as_str());
        let answer = post.send().await.unwrap();
        let found = if answer.status() == 200 {
            assert_eq!(answer.bytes().await.unwrap().len(), bytes);
            Ok(())
        } else {
            Err(problem(answer).await)
        };
        assert_eq!(found, expected, "{bytes} bytes, {memory} bytes of memory");
        let metrics = asked(&client, &relay, "/metrics").await.1;
        let outcome = expected.map_or_else(
            |(status, _)| if status == 502 { "gateway-failed" } else { "no-memory" },
            |()| "carried",
        );
        let line = format!("incrowd_relay_requests_total{{outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{line}: {metrics}");
        eventually("the memory is given back", async || {
            let metrics = asked(&client, &relay, "/metrics").await.1;
            metric(&metrics, "incrowd_http_memory_bytes{listener=\"relay\"}") < 0.5
        })
        .await;
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_a_flood_for_the_keys_does_not_reach_the_gateway() {
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let keys = move || {
        count.fetch_add(1, Relaxed);
        async { ([("content-type", MediaType::ObliviousKeys.as_str())], "keys") }
    };
    // The relay finds that these are no keys when it looks whether this is a gateway.
    let absent = Arc::new(AtomicBool::new(true));
    let away = absent.clone();
    let guard = move |request: Request, next: Next| {
        let away = away.load(Relaxed);
        async move {
            if away {
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            } else {
                next.run(request).await
            }
        }
    };
    let refuse = || async { StatusCode::BAD_REQUEST };
    let app = Router::new()
        .route(paths::GATEWAY_KEYS, routing::get(keys))
        .route(paths::GATEWAY, routing::post(refuse))
        .layer(middleware::from_fn(guard));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(&relay_settings(&gateway, folder.path(), "token")).await.unwrap();
    let client = incrowd_transport::client(&incrowd_transport::Trust::Nobody).unwrap();
    let url = format!("http://{}", relay.address());
    let ask = || client.get(format!("{url}{}", paths::RELAY_KEYS)).send();
    assert_eq!(problem(ask().await.unwrap()).await, (502, "bad-gateway".into()));
    absent.store(false, Relaxed);
    eventually("the gateway is there", async || ask().await.unwrap().status() == 200).await;
    // The relay's own look at the gateway, every five seconds, comes on top.
    let (before, began) = (fetched.load(Relaxed), Instant::now());
    let asked = at_once(200, ask).await;
    assert!(asked.iter().all(|body| body == "keys"));
    let most = 2 + 2 * began.elapsed().as_secs() as usize;
    assert!(fetched.load(Relaxed) - before <= most, "{fetched:?} after {before}");
    // What the gateway refuses may be for keys that it had.
    for _ in 0..3 {
        let before = fetched.load(Relaxed);
        let post = client.post(&url).header("content-type", MediaType::ObliviousRequest.as_str());
        assert_eq!(problem(post.body("x").send().await.unwrap()).await.0, 502);
        ask().await.unwrap();
        assert!(fetched.load(Relaxed) > before);
    }
    relay.stop().await;
}

/// The bodies of so many answers, which are asked for at the same time.
async fn at_once<F>(number: usize, ask: impl Fn() -> F) -> Vec<String>
where
    F: Future<Output = reqwest::Result<reqwest::Response>> + Send + 'static,
{
    let asked: Vec<_> = (0..number).map(|_| tokio::spawn(ask())).collect();
    let mut bodies = Vec::new();
    for answer in asked {
        bodies.push(answer.await.unwrap().unwrap().text().await.unwrap());
    }
    bodies
}
