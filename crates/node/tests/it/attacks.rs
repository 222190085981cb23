//! Clients that wait, stall, flood and lie: R29 (they keep nobody out) and R31 (a role acts only on
//! answers that it can verify).

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use incrowd_node::{Role, Roles};
use incrowd_protocol::{MediaType, ProblemDocument, ProblemKind, Report, paths};
use incrowd_transport::{Trust, client_config};
use reqwest::Method;

use crate::{
    common::{Place, Running, eventually, id, joined, mechanism, metric, one_hot, plain, problem},
    robustness::{answer, connect, head, is_problem, resident},
};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: node\r\n\r\n")
}

/// Whether the other side has closed a connection.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 1 << 12];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
}

async fn ready(node: &Running) -> u16 {
    let url = format!("{}/readyz", node.admin);
    node.client.get(url).send().await.unwrap().status().as_u16()
}

async fn refused(node: &Running, reason: &str) -> f64 {
    let name = "incrowd_http_requests_refused_total";
    let name = format!("{name}{{listener=\"devices\",reason=\"{reason}\"}}");
    metric(&node.metrics().await, &name)
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_waiting_requests_keep_no_upload_out() {
    const WAITS: usize = 4;
    let mut place = Place::new(plain(mechanism(4, 0, &[(2, 12, 1)])));
    place.config.http.concurrent_waits = WAITS;
    place.config.http.concurrent_requests = 4;
    let node = place.start(Roles::Both);
    // Of anonymous ones nobody waits, and of the bandit's only so many.
    let release = paths::release(&node.task.id(), 1, None, 60);
    let token = node.token(Role::Bandit);
    let bandit =
        format!("GET {release} HTTP/1.1\r\nhost: n\r\nauthorization: Bearer {token}\r\n\r\n");
    let mut waiting = Vec::new();
    for number in 0..60 {
        let stream = connect(node.node.address());
        let anonymous = get(&format!("{}?wait=60", paths::round(&node.task.id())));
        let request = if number % 2 == 0 { &bandit } else { &anonymous };
        (&stream).write_all(request.as_bytes()).unwrap();
        waiting.push(stream);
    }
    let gauge = "incrowd_http_waiting{listener=\"devices\"}";
    eventually("so many wait as may", async || {
        let text = node.metrics().await;
        (metric(&text, gauge) - WAITS as f64).abs() < 0.5 && refused(&node, "waits").await >= 26.0
    })
    .await;
    for number in 0..8 {
        let report = one_hot(node.mechanism(), 1, number);
        assert_eq!(node.put(&report).await.status(), 204, "upload {number}");
    }
    let notice = node.ask(Method::GET, "/config").send().await.unwrap();
    assert_eq!((notice.status().as_u16(), ready(&node).await), (200, 200));
    // One of those that wait goes, and its place is free.
    drop(waiting);
    eventually("nobody waits", async || metric(&node.metrics().await, gauge) < 0.5).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_slow_uploads_and_reads_have_places_of_their_own_and_readiness_tells() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 4, 1)])));
    place.config.http.concurrent_requests = 2;
    let node = place.start(Roles::Shuffler);
    assert_eq!(ready(&node).await, 200);
    let slow = [(); 2].map(|()| {
        let stream = connect(node.node.address());
        (&stream).write_all(head(&node, "content-length: 30\r\n\r\n").as_bytes()).unwrap();
        stream
    });
    let report = one_hot(node.mechanism(), 1, 0);
    eventually("the third is one too many", async || node.put(&report).await.status() == 503).await;
    let told = node.put(&report).await;
    assert_eq!(told.headers()["retry-after"], "1");
    assert_eq!(problem(told).await, (503, "unavailable".into()));
    assert_eq!(node.ask(Method::GET, "/config").send().await.unwrap().status(), 200);
    let told = node.client.get(format!("{}/readyz", node.admin)).send().await.unwrap();
    let detail = told.text().await.unwrap();
    assert!(detail.contains("http.concurrent_requests"), "{detail}");
    assert!(metric(&node.metrics().await, "incrowd_ready") < 0.5);
    assert!(refused(&node, "requests").await >= 1.0);
    drop(slow);
    eventually("there are places again", async || node.put(&report).await.status() == 204).await;
    eventually("and it is ready", async || ready(&node).await == 200).await;
    assert!(metric(&node.metrics().await, "incrowd_http_requests_total{status=\"503\"}") >= 1.0);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_connections_that_never_read_are_closed() {
    const MANY: usize = 6;
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 4, 1)])));
    place.config.http.write_seconds = 2;
    place.config.http.connections = MANY;
    let node = place.start(Roles::Shuffler);
    // More answers than the system keeps for a connection.
    let greedy = get("/openapi.json").repeat(2000);
    let open: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let stream = connect(node.node.address());
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            // The other side may have enough before it has all of them.
            let _ = (&stream).write_all(greedy.as_bytes());
            stream
        })
        .collect();
    let devices = |name: &str| format!("incrowd_http_connections{name}{{listener=\"devices\"");
    let late = connect(node.node.address());
    (&late).write_all(get("/openapi.json").as_bytes()).unwrap();
    // Not for as long as the others may stay.
    let closed = (0..50).any(|_| is_closed(&late));
    // The operator has a listener of their own.
    let text = node.metrics().await;
    assert!(closed || metric(&text, &devices("_stalled_total")) > 0.5, "one too many");
    eventually("those that never read are closed", async || {
        metric(&node.metrics().await, &devices("_stalled_total")) > MANY as f64 - 0.5
    })
    .await;
    eventually("others come in", async || {
        let stream = connect(node.node.address());
        (&stream).write_all(get("/nowhere").as_bytes()).unwrap();
        is_problem(&answer(&stream), 404, "not-found")
    })
    .await;
    drop(open);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_one_address_has_only_so_many_connections() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 4, 1)])));
    place.config.http.connections_per_peer = 3;
    let mut node = place.start(Roles::Shuffler);
    let held = [(); 3].map(|()| connect(node.node.address()));
    eventually("a fourth is closed at once", async || is_closed(&connect(node.node.address())))
        .await;
    let name = "incrowd_http_connections_refused_total{listener=\"devices\",reason=\"peer-limit\"}";
    node.client = reqwest::Client::builder()
        .tls_backend_preconfigured(client_config(&Trust::Nobody).unwrap())
        .local_address(std::net::IpAddr::from([127, 0, 0, 2]))
        .build()
        .unwrap();
    assert!(metric(&node.metrics().await, name) >= 1.0);
    let report = one_hot(node.mechanism(), 1, 0);
    assert_eq!(node.put(&report).await.status(), 204, "another address");
    drop(held);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_headers_are_bounded() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 4, 1)])));
    place.config.http.header_bytes = 8 << 10;
    let node = place.start(Roles::Shuffler);
    for address in [node.node.address(), node.node.admin_address()] {
        let stream = connect(address);
        let long = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(9 << 10));
        let _ = (&stream).write_all(long.as_bytes());
        assert!(answer(&stream).starts_with("HTTP/1.1 431 "));
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_large_uploads_that_wait_for_the_store_have_bounded_memory() {
    // 20,300 coordinates: a report has 2.6 kB, and 40 kB when it is decoded.
    let mut place = Place::new(plain(mechanism(200, 0, &[(2, 3000, 1)])));
    place.config.http.memory_bytes = 4 << 20;
    let node = Arc::new(place.start(Roles::Shuffler));
    let report = |number| one_hot(place.mechanism(), 1, number).encode(place.mechanism()).unwrap();
    let bulk = |first: u32| joined((first..first + 50).map(report));
    let lock = rusqlite::Connection::open(place.files().shuffler_store).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = resident();
    let uploads: Vec<_> = (0..30)
        .map(|number| {
            let (node, body) = (node.clone(), bulk(1000 + 50 * number));
            tokio::spawn(async move { node.post(MediaType::Reports, body).await.status().as_u16() })
        })
        .collect();
    eventually("there is no memory for all of them", async || {
        refused(&node, "memory").await >= 20.0
    })
    .await;
    // Decoded, all of them together have 60 MB.
    let grown = resident().saturating_sub(before);
    assert!(grown < 40 << 20, "{} MiB more", grown >> 20);
    assert!(metric(&node.metrics().await, "incrowd_http_memory_bytes") > 1e6);
    // A single report has memory of its own.
    let single = {
        let (node, report) = (node.clone(), one_hot(place.mechanism(), 1, 1));
        tokio::spawn(async move { node.put(&report).await.status().as_u16() })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    lock.execute_batch("ROLLBACK").unwrap();
    assert_eq!(single.await.unwrap(), 204);
    let mut accepted = 0;
    for upload in uploads {
        accepted += u32::from(upload.await.unwrap() == 200);
    }
    assert!((1..=10).contains(&accepted), "{accepted}");
    assert_eq!(node.filled().await, (Some(1), Some(50 * accepted + 1)), "nothing else counts");
    let text = node.metrics().await;
    assert!(metric(&text, "incrowd_http_memory_bytes") < 0.5, "all of it is given back");
    let counted =
        format!("incrowd_reports_total{{task=\"{}\",outcome=\"counted\"}}", node.task.id());
    let counted = metric(&text, &counted);
    assert!((counted - f64::from(50 * accepted + 1)).abs() < 0.5, "{counted}");
    Arc::into_inner(node).unwrap().stop().await;
}

/// A server that answers every request on a connection with what the test says, and counts them.
struct Liar {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// Head of the answers, and how many bytes of body follow for ever.
    says: Arc<Mutex<(Vec<u8>, bool)>>,
}

impl Liar {
    fn start(says: Vec<u8>, endless: bool) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, says) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new((says, endless))));
        let (count, told) = (asked.clone(), says.clone());
        // Ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (count, told) = (count.clone(), told.clone());
                thread::spawn(move || Self::lie(&stream, &count, &told));
            }
        });
        Self { address, asked, says }
    }

    fn lie(mut stream: &TcpStream, asked: &AtomicUsize, says: &Mutex<(Vec<u8>, bool)>) {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            request.extend_from_slice(&buffer[..read]);
            if !request.ends_with(b"\r\n\r\n") {
                continue;
            }
            request.clear();
            asked.fetch_add(1, Relaxed);
            let (answer, endless) = says.lock().unwrap().clone();
            if stream.write_all(&answer).is_err() {
                return;
            }
            if endless {
                while stream.write_all(&[b'x'; 1 << 13]).is_ok() {}
                return;
            }
        }
    }
}

fn gone() -> Vec<u8> {
    let body = ProblemDocument::new(ProblemKind::Finished, "closed");
    let body = serde_json::to_string(&body).unwrap();
    let (kind, length) = (MediaType::Problem, body.len());
    format!("HTTP/1.1 410 Gone\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

async fn why_not_ready(node: &Running) -> String {
    let answer = node.client.get(format!("{}/readyz", node.admin)).send().await.unwrap();
    if answer.status() == 200 { String::new() } else { answer.text().await.unwrap() }
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_an_unsigned_ending_does_not_end_the_collection() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let liar = Liar::start(gone(), false);
    let mut other = place.bandit_of(&shuffler);
    other.config.bandit.shuffler_url = format!("http://{}", liar.address);
    let bandit = other.start(Roles::Bandit);
    eventually("it is asked again and again", async || liar.asked.load(Relaxed) >= 3).await;
    eventually("readiness tells", async || why_not_ready(&bandit).await.contains("410")).await;
    let task = place.task.id();
    let up = format!("incrowd_collector_up{{task=\"{task}\"}}");
    assert!(metric(&bandit.metrics().await, &up) < 0.5);
    bandit.stop().await;

    // The signed one does.
    let bandit = place.bandit_of(&shuffler).start(Roles::Bandit);
    assert_eq!(shuffler.close().await, 204);
    let answer = shuffler.release(1).await;
    assert!(answer.headers().contains_key(incrowd_protocol::SIGNATURE_HEADER));
    assert_eq!(problem(answer).await, (410, "finished".into()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(why_not_ready(&bandit).await, "");
    let text = bandit.metrics().await;
    assert!(metric(&text, &up) > 0.5);
    assert!(metric(&text, &format!("incrowd_collector_failures_total{{task=\"{task}\"}}")) < 0.5);
    bandit.stop().await;
    shuffler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_a_shuffler_that_does_not_wait_is_not_asked_without_a_pause() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let accepted = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n";
    let liar = Liar::start(accepted.to_vec(), false);
    let mut other = place.bandit_of(&shuffler);
    other.config.bandit.shuffler_url = format!("http://{}", liar.address);
    let bandit = other.start(Roles::Bandit);
    eventually("it is asked", async || liar.asked.load(Relaxed) >= 1).await;
    let (began, before) = (Instant::now(), liar.asked.load(Relaxed));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = (liar.asked.load(Relaxed) - before) as f64;
    assert!(asked <= began.elapsed().as_secs_f64() + 1.0, "{asked} requests");
    *liar.says.lock().unwrap() =
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n".to_vec(), true);
    let before = resident();
    eventually("an endless answer is not read to its end", async || {
        why_not_ready(&bandit).await.contains("too long")
    })
    .await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    bandit.stop().await;
    shuffler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_whose_sender_left_are_counted_in_the_metrics_too() {
    let place = Place::new(plain(mechanism(4, 0, &[(2, 12, 1)])));
    let node = place.start(Roles::Shuffler);
    let lock = rusqlite::Connection::open(place.files().shuffler_store).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let report = |number| Report::encode(&one_hot(place.mechanism(), 1, number), place.mechanism());
    for number in 0..3 {
        let body = report(number).unwrap();
        let stream = connect(node.node.address());
        let head = head(&node, &format!("content-length: {}\r\n\r\n", body.len()));
        let head = head.replace(&id(0).to_string(), &id(number).to_string());
        (&stream).write_all(&[head.as_bytes(), &body].concat()).unwrap();
        let open = "incrowd_http_requests_open{listener=\"devices\"}";
        eventually("it waits for the store", async || metric(&node.metrics().await, open) > 0.5)
            .await;
        drop(stream);
        eventually("it is gone", async || metric(&node.metrics().await, open) < 0.5).await;
    }
    lock.execute_batch("ROLLBACK").unwrap();
    let counted =
        format!("incrowd_reports_total{{task=\"{}\",outcome=\"counted\"}}", node.task.id());
    eventually("all are counted", async || metric(&node.metrics().await, &counted) > 2.5).await;
    assert_eq!(node.filled().await, (Some(1), Some(3)));
    node.stop().await;
}
