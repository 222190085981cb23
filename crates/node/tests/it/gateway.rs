//! Oblivious HTTP from a device over a relay to the gateway, and TLS on the listeners (R18, R19,
//! R22).

use std::{
    fs,
    io::Cursor,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::common::{
    Place, Running, certificate, eventually, hot, mechanism, metric, one_hot, plain, private,
    problem, sums,
};
use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use bhttp::{Message, Mode};
use incrowd_node::{
    ConfigError, Relay, RelayConfig, Role, Roles, RunningRelay, ServiceError, TlsConfig,
};
use incrowd_protocol::{EntityTag, MediaType, ProblemKind, Report, paths};
use incrowd_transport::{Address, BanditApi, Route, ShufflerApi, Trust, client_config};
use ohttp::ClientRequest;
use reqwest::Client;

/// Settings of a relay with its token in a folder.
pub fn relay_settings(gateway: &str, folder: &Path, token: &str) -> RelayConfig {
    let token_file = folder.join("relay.token");
    private(&token_file, token);
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let (gateway, token_file) = (gateway.to_owned(), Some(token_file));
    RelayConfig { gateway, token_file, listen: free, admin_listen: free, ..Default::default() }
}

/// A relay that runs.
pub async fn relay(gateway: &str, token: &str) -> RunningRelay {
    let folder = tempfile::tempdir().unwrap();
    Relay::start(&relay_settings(gateway, folder.path(), token)).await.unwrap()
}

/// An inner request as a device makes it.
fn inner(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut message = Message::request(
        method.into(),
        b"https".to_vec(),
        b"shuffler.example".to_vec(),
        path.into(),
    );
    for (name, value) in headers {
        message.put_header(*name, *value);
    }
    message.write_content(body);
    let mut bytes = Vec::new();
    message.write_bhttp(Mode::KnownLength, &mut bytes).unwrap();
    bytes
}

/// Sends an inner request to a relay; the status and the message of the inner answer.
async fn carried(client: &Client, relay: &str, keys: &[u8], inner: &[u8]) -> (u16, Message) {
    let (request, answer) =
        ClientRequest::from_encoded_config_list(keys).unwrap().encapsulate(inner).unwrap();
    let post = client.post(relay).header("content-type", MediaType::ObliviousRequest.as_str());
    let outer = post.body(request).send().await.unwrap();
    assert_eq!(outer.status(), 200);
    assert_eq!(outer.headers()["content-type"], MediaType::ObliviousAnswer.as_str());
    let opened = answer.decapsulate(&outer.bytes().await.unwrap()).unwrap();
    let message = Message::read_bhttp(&mut Cursor::new(opened)).unwrap();
    (message.control().status().unwrap().code(), message)
}

/// The inner request of an upload.
async fn upload(node: &Running, report: &Report) -> Vec<u8> {
    let path = paths::report(&node.task.id(), report.id());
    let token = format!("Bearer {}", node.token(Role::Device));
    let headers =
        [("content-type", MediaType::SealedReport.as_str()), ("authorization", token.as_str())];
    inner("PUT", &path, &headers, &node.seal(report).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn r19_a_report_comes_over_relay_and_gateway_and_counts() {
    let mut place = Place::new(plain(mechanism(6, 0, &[(2, 12, 1)])));
    // One report a second for each address, and more through a relay.
    place.config.http.reports_per_second_per_peer = 1;
    place.config.http.reports_per_second_per_relay = 100;
    let node = place.start(Roles::Shuffler);
    let relay = self::relay(&node.base, place.token(Role::Relay)).await;
    let (client, url) = (node.client.clone(), format!("http://{}/", relay.address()));
    let keys = client
        .get(format!("{}{}", url.trim_end_matches('/'), paths::RELAY_KEYS))
        .send()
        .await
        .unwrap();
    assert_eq!(keys.headers()["content-type"], MediaType::ObliviousKeys.as_str());
    let keys = keys.bytes().await.unwrap();
    let own = client.get(format!("{}{}", node.base, paths::GATEWAY_KEYS)).send().await.unwrap();
    assert_eq!(own.bytes().await.unwrap(), keys);
    let signed = node.notice().await.gateway_keys.unwrap();
    assert_eq!(hex::decode(signed).unwrap(), keys, "and the signed notice has them");

    for number in 0..12 {
        let inner = upload(&node, &one_hot(place.mechanism(), 1, number)).await;
        let (status, message) = carried(&client, &url, &keys, &inner).await;
        assert_eq!(status, 204, "a relay has a limit of its own");
        assert!(message.content().is_empty());
    }
    assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), 0..12));
    let direct = [20, 21].map(|number| one_hot(place.mechanism(), 2, number));
    assert_eq!(node.put(&direct[0]).await.status(), 204);
    assert_eq!(node.put(&direct[1]).await.status(), 429, "outside, the limit is there");
    relay.stop().await;
    node.stop().await;
}

/// A device behind a relay.
async fn device(node: &Running, relay: &RunningRelay) -> ShufflerApi {
    let address = |url: &str| Address::new(url, "url", false).unwrap();
    let relay = address(&format!("http://{}", relay.address()));
    // Nobody is there: everything must go through the relay.
    let route = Route::Oblivious { relay, target: address("http://127.0.0.1:1") };
    let device = ShufflerApi::new(route, None, &Trust::Nobody).unwrap();
    device.notice(&node.task.id()).await.unwrap();
    device
}

#[tokio::test(flavor = "multi_thread")]
async fn r19_models_of_one_process_come_through_the_gateway() {
    let place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Both);
    let relay = self::relay(&node.base, place.token(Role::Relay)).await;
    let models = BanditApi::behind(&device(&node, &relay).await);
    let none = models.model(&node.task, None).await.unwrap();
    assert!(none.model.is_none() && none.fresh_for == Duration::from_secs(5));
    for number in 0..2 {
        assert_eq!(node.put(&one_hot(node.mechanism(), 1, number)).await.status(), 204);
    }
    let first = node.model_of(1).await;
    let found = models.model(&node.task, None).await.unwrap().model.unwrap().0;
    assert_eq!(found.body, first);
    let known = EntityTag::of(&first);
    assert!(models.model(&node.task, Some(&known)).await.unwrap().model.is_none());
    relay.stop().await;
    node.stop().await;
}

/// What stands between the shuffler and a bandit: where the bandit is, and how often it was asked.
#[derive(Default)]
struct Front {
    bandit: Mutex<Option<String>>,
    asked: AtomicUsize,
    headers: Mutex<Vec<HeaderMap>>,
}

async fn front(State(front): State<Arc<Front>>, request: Request) -> Response {
    front.asked.fetch_add(1, Relaxed);
    front.headers.lock().unwrap().push(request.headers().clone());
    let Some(bandit) = front.bandit.lock().unwrap().clone() else {
        // More than any model.
        return vec![b'x'; 8 << 20].into_response();
    };
    let url = format!("{bandit}{}", request.uri());
    let mut asked = incrowd_transport::client(&Trust::Nobody).unwrap().get(url);
    for (name, value) in request.headers().iter().filter(|(name, _)| *name != "host") {
        asked = asked.header(name, value);
    }
    let answer = asked.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    (status, headers, answer.bytes().await.unwrap()).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn r19_r31_models_of_another_process_are_fetched_once_for_all_devices() {
    let between = Arc::new(Front::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model_url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(front).with_state(between.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    place.config.shuffler.model_url = Some(model_url);
    let node = place.start(Roles::Shuffler);
    let relay = self::relay(&node.base, place.token(Role::Relay)).await;
    let device = device(&node, &relay).await;
    let models = BanditApi::behind(&device);

    // An answer that is too long is cut off, counted, and not asked for again at once.
    for _ in 0..5 {
        let refused = models.model(&node.task, None).await.unwrap_err();
        assert_eq!(refused.kind(), Some(ProblemKind::Unavailable), "{refused}");
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(5)));
    }
    assert_eq!(between.asked.load(Relaxed), 1);
    let failures = format!("incrowd_model_fetch_failures_total{{task=\"{}\"}}", node.task.id());
    let text = node.metrics().await;
    assert!(text.contains(&format!("{failures} 1\n")), "{text}");
    assert_eq!(node.model().await.status(), 404, "only behind the gateway");
    node.stop().await;
    relay.stop().await;

    let node = place.start(Roles::Shuffler);
    let relay = self::relay(&node.base, place.token(Role::Relay)).await;
    let at_bandit = place.bandit_of(&node);
    let bandit = at_bandit.start(Roles::Bandit);
    *between.bandit.lock().unwrap() = Some(bandit.base.clone());
    for number in 0..2 {
        assert_eq!(node.put(&one_hot(node.mechanism(), 1, number)).await.status(), 204);
    }
    let first = bandit.model_of(1).await;
    between.headers.lock().unwrap().clear();
    let device = self::device(&node, &relay).await;
    let mut devices = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (models, task) = (BanditApi::behind(&device), node.task.clone());
        devices
            .spawn(async move { models.model(&task, None).await.unwrap().model.unwrap().0.body });
    }
    assert!(devices.join_all().await.iter().all(|body| *body == first));
    let asked = between.headers.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "kept for its max-age");
    let allowed = ["accept", "host"];
    assert!(asked[0].keys().all(|name| allowed.contains(&name.as_str())), "{asked:?}");
    // Of a task that it does not have the shuffler asks nobody.
    let other = crate::common::orphan(plain(mechanism(3, 1, &[(2, 2, 1)])));
    let refused = BanditApi::behind(&device).model(&other, None).await.unwrap_err();
    assert_eq!(refused.kind(), Some(ProblemKind::NotFound));
    assert_eq!(between.headers.lock().unwrap().len(), 1);
    relay.stop().await;
    bandit.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r23_limits_hold_through_the_gateway() {
    let mut place = Place::new(plain(mechanism(14, 0, &[(2, 119, 1)])));
    place.config.http.reports_per_second_per_peer = 5;
    let node = place.start(Roles::Shuffler);
    let relay = self::relay(&node.base, place.token(Role::Relay)).await;
    let (client, url) = (node.client.clone(), format!("http://{}/", relay.address()));
    let keys = hex::decode(node.notice().await.gateway_keys.unwrap()).unwrap();
    let (began, mut passed) = (std::time::Instant::now(), 0);
    for number in 0..60 {
        let inner = upload(&node, &one_hot(place.mechanism(), 1, number)).await;
        let (status, _) = carried(&client, &url, &keys, &inner).await;
        assert!(matches!(status, 204 | 429), "{status}");
        passed += u32::from(status == 204);
    }
    let most = 5.0 * (began.elapsed().as_secs_f64() + 1.0);
    assert!(f64::from(passed) <= most && passed < 60, "{passed} passed");
    assert_eq!(node.filled().await, (Some(1), Some(passed)));
    relay.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r22_inner_requests_need_the_same_tokens_and_get_the_same_answers() {
    let place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let relay = self::relay(&node.base, place.token(Role::Relay)).await;
    let (client, url) = (node.client.clone(), format!("http://{}/", relay.address()));
    let keys = hex::decode(node.notice().await.gateway_keys.unwrap()).unwrap();
    let ask = async |method: &str, path: &str, role: Option<Role>, body: &[u8]| {
        let token = role.map(|role| format!("Bearer {}", place.token(role)));
        let mut headers = vec![("content-type", MediaType::Report.as_str())];
        headers.extend(token.as_deref().map(|token| ("authorization", token)));
        carried(&client, &url, &keys, &inner(method, path, &headers, body)).await
    };
    let notice = paths::notice(&place.task.id());
    let report = one_hot(place.mechanism(), 1, 0);
    let path = paths::report(&place.task.id(), report.id());
    let bytes = report.encode(place.mechanism()).unwrap();
    for (role, status) in
        [(None, 401), (Some(Role::Relay), 403), (Some(Role::Bandit), 403), (Some(Role::Admin), 403)]
    {
        assert_eq!(ask("PUT", &path, role, &bytes).await.0, status, "{role:?}");
    }
    assert_eq!(node.filled().await, (Some(1), Some(0)), "the relay's token is not the inner one");
    let (status, message) = ask("PUT", &path, Some(Role::Device), b"nonsense").await;
    assert_eq!(status, 422);
    assert_eq!(
        message.header().get(b"content-type").unwrap(),
        MediaType::Problem.as_str().as_bytes()
    );
    assert_eq!(ask("PUT", &path, Some(Role::Device), &bytes).await.0, 204);

    let (status, message) = ask("GET", &notice, None, b"").await;
    assert_eq!(status, 200);
    let outside = node.ask(reqwest::Method::GET, "/config").send().await.unwrap();
    assert_eq!(message.header().get(b"etag").unwrap(), outside.headers()["etag"].as_bytes());
    assert_eq!(message.content(), &outside.bytes().await.unwrap()[..]);
    for path in [paths::TASKS, paths::GATEWAY, "/metrics", paths::GATEWAY_KEYS] {
        let (status, message) = ask("GET", path, Some(Role::Admin), b"").await;
        assert_eq!(status, 404, "{path} is not reached from inside");
        let kind = message.header().get(b"content-type");
        assert_eq!(kind, Some(MediaType::Problem.as_str().as_bytes()), "{path}");
    }
    let (status, message) = ask("DELETE", &notice, None, b"").await;
    assert_eq!(status, 405);
    let kind = message.header().get(b"content-type");
    assert_eq!(kind, Some(MediaType::Problem.as_str().as_bytes()));
    relay.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_encapsulated_to_the_gateway_is_refused() {
    let place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let post = async |kind: &str, body: Vec<u8>| {
        let post = node.client.post(format!("{}{}", node.base, paths::GATEWAY));
        let post = post.bearer_auth(place.token(Role::Relay)).header("content-type", kind);
        post.body(body).send().await.unwrap()
    };
    let kind = MediaType::ObliviousRequest.as_str();
    let keys = hex::decode(node.notice().await.gateway_keys.unwrap()).unwrap();
    let good = upload(&node, &one_hot(place.mechanism(), 1, 0)).await;
    let encapsulate = |inner: &[u8]| {
        ClientRequest::from_encoded_config_list(&keys).unwrap().encapsulate(inner).unwrap()
    };
    let request = encapsulate(&good).0;
    assert_eq!(problem(post("text/plain", request.clone()).await).await.0, 415);
    for bit in (0..request.len() * 8).step_by(5) {
        let mut flipped = request.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let answer = problem(post(kind, flipped).await).await;
        assert_eq!(answer, (422, "gateway".into()), "bit {bit}");
    }
    for garbage in [vec![], vec![1, 2, 3], vec![0xff; 200], request[..request.len() - 1].to_vec()] {
        assert_eq!(problem(post(kind, garbage).await).await, (422, "gateway".into()));
    }
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    // Well encapsulated, but no request inside: the answer is for the device, inside too.
    for inside in [b"no binary http".to_vec(), Vec::new(), good[..good.len() / 2].to_vec()] {
        let (request, answer) = encapsulate(&inside);
        let outer = post(kind, request).await;
        assert_eq!(outer.status(), 200);
        let opened = answer.decapsulate(&outer.bytes().await.unwrap()).unwrap();
        let message = Message::read_bhttp(&mut Cursor::new(opened)).unwrap();
        let status = message.control().status().unwrap().code();
        assert!((400..500).contains(&status), "{status}");
    }
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    node.stop().await;

    let mut place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    place.config.shuffler.gateway = false;
    let node = place.start(Roles::Shuffler);
    assert_eq!(node.notice().await.gateway_keys, None);
    let keys =
        node.client.get(format!("{}{}", node.base, paths::GATEWAY_KEYS)).send().await.unwrap();
    assert_eq!(problem(keys).await.0, 404, "a gateway that is switched off");
    node.stop().await;
}

/// What a gateway sees of the requests that come to it.
type Seen = Arc<Mutex<Vec<(SocketAddr, Vec<(String, String)>)>>>;

async fn note(
    State(seen): State<Seen>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    if request.method() == reqwest::Method::GET {
        // The relay looks whether this is a gateway.
        return axum::http::StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()));
    seen.lock().unwrap().push((peer, headers.collect()));
    ([("content-type", MediaType::ObliviousAnswer.as_str()), ("x-of-the-gateway", "1")], "answer")
        .into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn r18_the_relay_tells_the_gateway_nothing_about_the_sender() {
    let seen = Seen::default();
    let app = Router::new().fallback(note).with_state(seen.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = format!("http://{}", listener.local_addr().unwrap());
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let running = tokio::spawn(async move { server.await });
    let relay = self::relay(&gateway, "the-relays-token").await;
    let url = format!("http://{}/", relay.address());
    let client = Client::builder()
        .tls_backend_preconfigured(client_config(&Trust::Nobody).unwrap())
        .user_agent("marker-agent")
        .local_address(std::net::IpAddr::from([127, 66, 77, 88]))
        .build()
        .unwrap();
    let answer = client
        .post(&url)
        .header("content-type", MediaType::ObliviousRequest.as_str())
        .header("cookie", "marker-cookie")
        .header("x-forwarded-for", "203.0.113.77")
        .header("forwarded", "for=203.0.113.77")
        .header("accept-language", "marker-language")
        .header("authorization", "Bearer marker-token")
        .header("incrowd-anything", "marker-header")
        .body("encapsulated")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().get("x-of-the-gateway").is_none(), "only the body comes back");
    assert_eq!(answer.text().await.unwrap(), "answer");
    let seen = seen.lock().unwrap().clone();
    let [(peer, headers)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_ne!(peer.ip().to_string(), "127.66.77.88");
    let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected = ["accept", "authorization", "content-length", "content-type", "host"];
    assert_eq!(names, expected);
    let text = format!("{headers:?}");
    assert!(!text.contains("marker") && !text.contains("203.0.113"), "{text}");
    assert!(text.contains("Bearer the-relays-token"));

    let wrong = client.post(&url).header("content-type", "text/plain").body("x").send().await;
    assert_eq!(problem(wrong.unwrap()).await, (415, "unsupported-type".into()));
    drop(stop);
    running.await.unwrap().unwrap();
    let gone = client
        .post(&url)
        .header("content-type", MediaType::ObliviousRequest.as_str())
        .body("x")
        .send()
        .await;
    assert_eq!(problem(gone.unwrap()).await, (502, "bad-gateway".into()));
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_carries_everything_from_device_to_model() {
    let mut place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    let tls = certificate(place.folder.path(), "127.0.0.1");
    place.config.tls = Some(tls.clone());
    let node = place.start(Roles::Both);
    assert!(node.base.starts_with("https://"));
    for number in 0..2 {
        assert_eq!(node.put_sealed(&one_hot(place.mechanism(), 1, number)).await.status(), 204);
    }
    node.model_of(1).await;
    assert_eq!(node.status().await.absorbed, Some(1));
    let strangers = incrowd_transport::client(&Trust::System).unwrap();
    assert!(strangers.get(format!("{}/openapi.json", node.base)).send().await.is_err());
    let plain = format!("http://{}/openapi.json", node.node.address());
    assert!(strangers.get(plain).send().await.is_err(), "no plain HTTP on a listener with TLS");

    let mut config = relay_settings(&node.base, place.folder.path(), place.token(Role::Relay));
    config.gateway_ca = Some(tls.certificate.clone());
    config.tls = Some(tls.clone());
    let relay = Relay::start(&config).await.unwrap();
    let keys = hex::decode(node.notice().await.gateway_keys.unwrap()).unwrap();
    let inner = upload(&node, &one_hot(place.mechanism(), 2, 2)).await;
    let url = format!("https://{}/", relay.address());
    assert_eq!(carried(&node.client, &url, &keys, &inner).await.0, 204);
    assert_eq!(node.filled().await, (Some(2), Some(1)));
    relay.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_that_others_can_reach_must_be_allowed_by_name() {
    let mut place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    let world: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let mut config = relay_settings("http://127.0.0.1:9", place.folder.path(), "token");
    config.listen = world;
    match Relay::start(&config).await.err() {
        Some(ServiceError::Config(ConfigError::PlainHttp { key: "listen", address })) => {
            assert_eq!(address, world);
        }
        other => panic!("{other:?}"),
    }
    config.allow_plain_http = true;
    Relay::start(&config).await.unwrap().stop().await;
    config.admin_listen = world;
    match Relay::start(&config).await.err() {
        Some(ServiceError::Config(ConfigError::NotLoopback { key: "admin_listen", .. })) => {}
        other => panic!("{other:?}"),
    }
    for key in ["listen", "admin_listen"] {
        let mut config = place.config.clone();
        if key == "listen" {
            config.listen = world;
        } else {
            config.admin_listen = world;
        }
        match config.clone().check() {
            Err(ConfigError::PlainHttp { key: found, .. }) => assert_eq!(found, key),
            other => panic!("{other:?}"),
        }
        assert!(incrowd_node::Node::start(&config, Roles::Shuffler).is_err(), "also in code");
        config.allow_plain_http = true;
        assert!(config.clone().check().is_ok());
        config.allow_plain_http = false;
        config.tls = Some(certificate(place.folder.path(), "127.0.0.1"));
        assert!(config.check().is_ok());
    }
    let key = place.files().tokens;
    place.config.tls = Some(TlsConfig { certificate: place.config.tasks[0].clone(), key });
    let refused = incrowd_node::Node::start(&place.config, Roles::Shuffler).err().unwrap();
    assert!(matches!(refused, ServiceError::Tls(_)), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_roles_learn_behind_a_certificate_that_is_not_for_their_address() {
    let mut place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    place.config.tls = Some(certificate(place.folder.path(), "shuffler.example"));
    let node = place.node(Roles::Both);
    let ca = fs::read(&place.config.tls.as_ref().unwrap().certificate).unwrap();
    let tls = client_config(&Trust::new(Some(&ca))).unwrap();
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .resolve("shuffler.example", node.address())
        .build()
        .unwrap();
    let base = format!("https://shuffler.example:{}", node.address().port());
    for number in 0..2 {
        let report = one_hot(place.mechanism(), 1, number);
        let url = format!("{base}{}", paths::report(&place.task.id(), report.id()));
        let body = report.encode(place.mechanism()).unwrap();
        let put = client.put(url).bearer_auth(place.token(Role::Device)).body(body);
        let put = put.header("content-type", MediaType::Report.as_str());
        assert_eq!(put.send().await.unwrap().status(), 204);
    }
    let model = format!("{base}{}", paths::model(&place.task.id()));
    eventually("a model", async || client.get(&model).send().await.unwrap().status() == 200).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_what_the_gateway_opens_is_within_the_memory_of_the_listener() {
    let mut place = Place::new(plain(mechanism(3, 0, &[(2, 2, 1)])));
    place.config.http.memory_bytes = 1 << 20;
    let node = place.start(Roles::Shuffler);
    // Nothing that opens: the key's id, then zeros.
    let post = async |bytes: usize| {
        let mut body = vec![0; bytes];
        body[0] = 1;
        let post = node.client.post(format!("{}{}", node.base, paths::GATEWAY));
        let post = post.header("content-type", MediaType::ObliviousRequest.as_str());
        problem(post.bearer_auth(place.token(Role::Relay)).body(body).send().await.unwrap()).await
    };
    assert_eq!(post(300 << 10).await, (422, "gateway".into()));
    // It fits once, but not together with what it opens to and its copies.
    assert_eq!(post(600 << 10).await, (413, "too-large".into()));
    assert!(metric(&node.metrics().await, "incrowd_http_memory_bytes") < 0.5);
    node.stop().await;
}
