//! The services against what the machine allows: a bare axum handler, HPKE opening alone, fixed
//! goals. `bench/README.md` has a run.
//!
//! Servers are processes of their own (this program again), peers take turns, figures are medians
//! of five. Load comes from prepared bytes over bare sockets: any HTTP client would be slower than
//! the server. What is not measured goes through `incrowd-transport`.

use std::{
    env, fs,
    hint::black_box,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use axum::{Router, http::StatusCode, routing::any};
use incrowd_envelope::{OpeningKey, seal};
use incrowd_node::{Limits, Node, NodeConfig, Roles, Signals};
use incrowd_protocol::{
    KeyState, Mechanism, MediaType, ReportId, SealingKey, Task, TaskId, TaskNotice, paths,
    push_report,
};
use incrowd_transport::{Address, BanditApi, Route, ShufflerApi, Trust};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

const CONNECTIONS: usize = 64;
const BULK: usize = 1000;
const RUNS: usize = 5;
const SECONDS: f64 = 2.0;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("bare") => bare(),
        Some("node") => node(Path::new(&arguments[2]), &arguments[3], &arguments[4]),
        // Cargo appends arguments of its own.
        Some("soak") => soak(arguments.get(2).and_then(|n| n.parse().ok()).unwrap_or(10_000_000)),
        _ => compare(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// The peer: an axum handler that reads the body and answers 202.
fn bare() {
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("listening on {}", listener.local_addr().unwrap());
        let handler = any(async |_: axum::body::Bytes| StatusCode::ACCEPTED);
        axum::serve(listener, Router::new().fallback_service(handler)).await.unwrap();
    });
}

/// Shuffler and bandit as they are run, with a task of d = 10 that takes plain reports too.
fn node(data: &Path, grace: &str, size: &str) {
    let task = format!(
        r#"
        [mechanism]
        dimension = 10
        context_bound = 1.0
        layout = "shared"
        closes = "count"
        grace = {grace}
        central_delta = 1e-6
        participations = 1
        honest_fraction = 1.0
        [[mechanism.schedule]]
        rounds = 1000000
        size = {size}
        encoding = "bits"
        bits = 1
        flip = "1/2"
        [policy]
        plain_reports = true
        "#
    );
    fs::create_dir_all(data).unwrap();
    let file = data.join("task.toml");
    fs::write(&file, task).unwrap();
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = Limits { epsilon_local: 100.0, ..Limits::default() };
    let config = NodeConfig {
        listen: free,
        admin_listen: free,
        data: data.to_owned(),
        tasks: vec![file],
        limits,
        ..NodeConfig::default()
    };
    runtime().block_on(async {
        let node = Node::start(&config, Roles::Both).unwrap();
        println!("listening on {}", node.address());
        println!("task {}", node.tasks().next().unwrap());
        println!("token {}", node.new_tokens()[0].1.as_str());
        node.run(Signals::listen().unwrap()).await;
    });
}

/// A server process and what it said about itself.
struct Server {
    child: Child,
    address: SocketAddr,
    /// None of the bare handler.
    task: Option<TaskId>,
    token: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = if arguments[0] == "node" { 3 } else { 1 };
        let said: Vec<String> = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .take(lines)
            .map(|line| line.unwrap().rsplit(' ').next().unwrap().to_owned())
            .collect();
        let text = |index: usize| said.get(index).cloned().unwrap_or_default();
        let task = text(1).parse().ok();
        Self { child, address: said[0].parse().unwrap(), task, token: text(2) }
    }

    fn node(data: &Path, grace: u32, size: u32) -> Self {
        let data = data.to_str().unwrap();
        Self::start(&["node", data, &grace.to_string(), &size.to_string()])
    }

    /// Seconds of processor time so far.
    fn processor(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }

    /// Resident and largest resident memory in MB.
    fn memory(&self) -> (f64, f64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    fn task(&self) -> TaskId {
        self.task.expect("invariant: only nodes are asked for a task")
    }

    fn base(&self) -> Address {
        Address::new(&format!("http://{}", self.address), "node", false).unwrap()
    }

    fn notice(&self) -> TaskNotice {
        let shuffler = ShufflerApi::new(Route::Direct(self.base()), None, &Trust::Nobody).unwrap();
        runtime().block_on(shuffler.notice(&self.task())).unwrap().1
    }

    /// Waits for the first model.
    fn wait_for_model(&self, task: &Task) {
        let bandit = BanditApi::new(self.base(), &Trust::Nobody).unwrap();
        while runtime().block_on(bandit.model(task, None)).unwrap().model.is_none() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The bytes of a request for a plain report.
    fn put(&self, report: &[u8]) -> Vec<u8> {
        let path = paths::report(&self.task(), id_of(report));
        self.request(&format!("PUT {path}"), MediaType::Report, report)
    }

    fn post(&self, reports: &[u8], kind: MediaType) -> Vec<u8> {
        self.request(&format!("POST {}", paths::reports(&self.task())), kind, reports)
    }

    fn request(&self, line: &str, kind: MediaType, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A kept connection that sends prepared bytes and reads whole answers.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::with_capacity(1 << 16) }
    }

    /// Status and body of the answer.
    async fn ask(&mut self, request: &[u8]) -> (u16, Vec<u8>) {
        self.stream.write_all(request).await.unwrap();
        self.buffer.clear();
        loop {
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed");
            let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..end]).unwrap();
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length: ")
                        .map(|n| n.parse().unwrap())
                })
                .unwrap_or(0usize);
            let status = head[9..12].parse().unwrap();
            while self.buffer.len() < end + 4 + length {
                assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed");
            }
            return (status, self.buffer[end + 4..].to_vec());
        }
    }
}

/// New reports of a round: any bits do, ids are random.
fn reports(mechanism: &Mechanism, round: u32, number: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..number)
        .map(|_| {
            let mut report = vec![0; 38];
            report[0] = 1;
            report[1..9].copy_from_slice(mechanism.hash().prefix());
            report[9..13].copy_from_slice(&round.to_be_bytes());
            rng.fill_bytes(&mut report[13..]);
            report[37] &= 1;
            report
        })
        .collect()
}

/// The id inside a plain report.
fn id_of(report: &[u8]) -> ReportId {
    ReportId(report[13..29].try_into().unwrap())
}

fn bulk(reports: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    reports.iter().for_each(|report| push_report(&mut body, report));
    body
}

/// Requests a second over all connections, each of which sends its own requests one after the
/// other, round and round if `again`.
fn rate(address: SocketAddr, requests: &Arc<Vec<Vec<Vec<u8>>>>, again: bool, expected: u16) -> f64 {
    runtime().block_on(async {
        let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut connections = JoinSet::new();
        let started = Instant::now();
        for number in 0..requests.len() {
            let (requests, done, stop) = (requests.clone(), done.clone(), stop.clone());
            connections.spawn(async move {
                let mut connection = Connection::open(address).await;
                loop {
                    for request in &requests[number] {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let (status, body) = connection.ask(request).await;
                        assert_eq!(status, expected, "{}", String::from_utf8_lossy(&body));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    if !again {
                        return;
                    }
                }
            });
        }
        let timer = tokio::spawn({
            let stop = stop.clone();
            async move {
                tokio::time::sleep(Duration::from_secs_f64(SECONDS)).await;
                stop.store(true, Ordering::Relaxed);
            }
        });
        while connections.join_next().await.is_some() {}
        timer.abort();
        done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
    })
}

/// The p-th percentile in milliseconds at a fixed rate, counted from when each request was due.
fn percentile(address: SocketAddr, requests: &Arc<Vec<Vec<Vec<u8>>>>, rate: f64, p: f64) -> f64 {
    runtime().block_on(async {
        let started = Instant::now();
        let pause = Duration::from_secs_f64(requests.len() as f64 / rate);
        let mut connections = JoinSet::new();
        for number in 0..requests.len() {
            let requests = requests.clone();
            connections.spawn(async move {
                let mut connection = Connection::open(address).await;
                let mut due = started + pause.mul_f64(number as f64 / requests.len() as f64);
                let mut times = Vec::new();
                for request in &requests[number] {
                    tokio::time::sleep_until(due.into()).await;
                    connection.ask(request).await;
                    times.push(due.elapsed().as_secs_f64() * 1e3);
                    due += pause;
                    if started.elapsed().as_secs_f64() > SECONDS {
                        break;
                    }
                }
                times
            });
        }
        let mut times = Vec::new();
        while let Some(more) = connections.join_next().await {
            times.extend(more.unwrap());
        }
        times.sort_by(f64::total_cmp);
        times[((times.len() - 1) as f64 * p) as usize]
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare() {
    let folder = tempfile::tempdir().unwrap();
    let bare = Server::start(&["bare"]);
    // Every report is for round 1, which the grace window keeps valid; every run has new ids.
    let server = Server::node(&folder.path().join("node"), 1000, 100_000);
    let notice = server.notice();
    let mechanism = notice.task.mechanism().clone();
    let mut seed = 0;
    let mut fresh = |number: usize| {
        seed += 1;
        reports(&mechanism, 1, number, seed)
    };
    println!("{:<46} {:>12} {:<30} {:>12} {:>7}", "what", "a second", "peer", "a second", "ratio");
    let line = |what: &str, own: f64, peer: &str, limit: f64, goal: &str| {
        println!("{what:<46} {own:>12.0} {peer:<30} {limit:>12.0} {:>7.2} {goal}", own / limit);
    };

    let (mut own, mut peer, mut slowest) = (Vec::new(), Vec::new(), Vec::new());
    let per_connection = 3000;
    let mut singles = || {
        let puts: Vec<Vec<u8>> =
            fresh(CONNECTIONS * per_connection).iter().map(|report| server.put(report)).collect();
        Arc::new(puts.chunks(per_connection).map(<[_]>::to_vec).collect::<Vec<_>>())
    };
    for _ in 0..RUNS {
        let requests = singles();
        peer.push(rate(bare.address, &requests, true, 202));
        own.push(rate(server.address, &requests, false, 204));
    }
    let (own, peer) = (median(own), median(peer));
    line("single durable uploads", own, "bare axum handler", peer, "goal 0.5");
    for _ in 0..RUNS {
        slowest.push(percentile(server.address, &singles(), own / 2.0, 0.99));
    }
    println!("p99 at half of that rate {:>28.2} ms, limit 50 ms", median(slowest));

    let (mut own, mut cores) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let bodies: Vec<Vec<u8>> = fresh(1200 * BULK)
            .chunks(BULK)
            .map(|reports| server.post(&bulk(reports), MediaType::Reports))
            .collect();
        let requests = Arc::new(bodies.chunks(1200 / 8).map(<[_]>::to_vec).collect::<Vec<_>>());
        let (before, started) = (server.processor(), Instant::now());
        own.push(rate(server.address, &requests, false, 200) * BULK as f64);
        cores.push((server.processor() - before) / started.elapsed().as_secs_f64());
    }
    line("bulk durable uploads, 1000 in a request", median(own), "goal of 300,000", 3e5, "goal 1");
    println!("    processors the server used {:>22.2}", median(cores));

    let key = notice.sealing_key().unwrap();
    let task = notice.id;
    let sealed = |reports: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        let half = reports.len() / 2;
        thread::scope(|scope| {
            let seal_all = |reports: &[Vec<u8>]| -> Vec<Vec<u8>> {
                let one = |report: &Vec<u8>| seal(&task, key, 1, id_of(report), report).unwrap();
                reports.iter().map(one).collect()
            };
            let first = scope.spawn({
                let reports = reports[..half].to_vec();
                move || seal_all(&reports)
            });
            let second = seal_all(&reports[half..]);
            [first.join().unwrap(), second].concat()
        })
    };
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let reports = sealed(fresh(80 * BULK));
        let bodies: Vec<Vec<u8>> = reports
            .chunks(BULK)
            .map(|reports| server.post(&bulk(reports), MediaType::SealedReports))
            .collect();
        let requests = Arc::new(bodies.chunks(10).map(<[_]>::to_vec).collect::<Vec<_>>());
        own.push(rate(server.address, &requests, false, 200) * BULK as f64);
        peer.push(opening(&task));
    }
    line(
        "sealed durable uploads, 1000 in a request",
        median(own),
        "HPKE opening, two threads",
        median(peer),
        "goal 0.6",
    );

    let (mut own, mut peer) = (Vec::new(), Vec::new());
    server.wait_for_model(&notice.task);
    let path = paths::model(&server.task());
    let get = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes();
    let requests = Arc::new(vec![vec![get]; CONNECTIONS]);
    for _ in 0..RUNS {
        peer.push(rate(bare.address, &requests, true, 202));
        own.push(rate(server.address, &requests, true, 200));
    }
    line("model fetches", median(own), "bare axum handler", median(peer), "goal 0.7");
}

/// Reports a second that two threads open, and nothing else.
fn opening(task: &TaskId) -> f64 {
    let secret = OpeningKey::generate().unwrap();
    let key = SealingKey { id: 1, key: secret.public(), state: KeyState::Active };
    let sealed = seal(task, &key, 1, ReportId([7; 16]), &[0; 38]).unwrap();
    let (number, started) = (10_000, Instant::now());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..number {
                    black_box(secret.open(task, black_box(&sealed)).unwrap());
                }
            });
        }
    });
    2.0 * f64::from(number) / started.elapsed().as_secs_f64()
}

/// Ten million reports in bulk: once with all ids in the grace window, once in batches that come
/// and go.
fn soak(total: usize) {
    let folder = tempfile::tempdir().unwrap();
    println!("every id in the grace window");
    println!(
        "{:>12} {:>10} {:>10} {:>14} {:>10} {:>10}",
        "reports", "MB", "MB at most", "bytes an id", "store MB", "p99 ms"
    );
    go(&folder.path().join("window"), 1000, 100_000, total);
    println!("batches of 10,000 that come and go");
    println!(
        "{:>12} {:>10} {:>10} {:>14} {:>10} {:>10}",
        "reports", "MB", "MB at most", "bytes an id", "store MB", "p99 ms"
    );
    go(&folder.path().join("flow"), 1, 10_000, total);
}

fn go(data: &Path, grace: u32, size: u32, total: usize) {
    let server = Server::node(data, grace, size);
    let notice = server.notice();
    let mechanism = notice.task.mechanism().clone();
    let base = server.memory().0;
    let runtime = runtime();
    let mut connection = runtime.block_on(Connection::open(server.address));
    let (mut times, mut last) = (Vec::new(), 0);
    for request in 0..total / BULK {
        let round = (request * BULK) as u32 / size + 1;
        let round = if grace > 1 { 1 } else { round };
        let body = server
            .post(&bulk(&reports(&mechanism, round, BULK, request as u64)), MediaType::Reports);
        let started = Instant::now();
        let (status, answer) = runtime.block_on(connection.ask(&body));
        times.push(started.elapsed().as_secs_f64() * 1e3);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(status == 200 && answer.starts_with("{\"accepted\":1000,"), "{status} {answer}");
        let sent = (request + 1) * BULK;
        if sent - last >= total / 10 {
            last = sent;
            times.sort_by(f64::total_cmp);
            let p99 = times[(times.len() - 1) * 99 / 100];
            times.clear();
            let (now, most) = server.memory();
            let ids = if grace > 1 { sent as f64 } else { f64::from(2 * size) };
            let store: u64 = ["shuffler.db", "shuffler.db-wal"]
                .iter()
                .map(|name| fs::metadata(data.join(name)).map_or(0, |file| file.len()))
                .sum();
            let bytes = (most - base).max(0.0) * 1_048_576.0 / ids;
            println!(
                "{sent:>12} {now:>10.1} {most:>10.1} {bytes:>14.1} {:>10.1} {p99:>10.2}",
                store as f64 / 1e6
            );
        }
    }
}
