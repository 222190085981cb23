//! The services against what the machine allows: a bare axum handler, HPKE opening alone, fixed
//! goals. `bench/README.md` has a run.
//!
//! Servers are processes of their own (this program again), peers take turns, figures are medians
//! of five. Load comes from prepared bytes over bare sockets: any HTTP client would be slower than
//! the server. What is not measured goes through `incrowd-transport`.

mod clients;
mod load;
mod nodes;
mod server;
mod soak;

use std::{env, hint::black_box, path::Path, sync::Arc, thread, time::Instant};

use incrowd_envelope::{OpeningKey, seal};
use incrowd_protocol::{KeyState, MediaType, ReportId, SealingKey, TaskId};

use load::{Requests, bulk, id_of, percentile, rate, reports};
use server::Server;

const CONNECTIONS: usize = 64;
const BULK: usize = 1000;
const RUNS: usize = 5;
const SECONDS: f64 = 2.0;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("bare") => server::bare(),
        Some("node") => server::node(Path::new(&arguments[2]), &arguments[3..]),
        Some("people") => clients::people(&arguments[2..]),
        Some("clients") => clients::run(number(&arguments, 2000)),
        Some("nodes") => nodes::compare(),
        Some("soak") => soak::soak(number(&arguments, 10_000_000)),
        _ => compare(),
    }
}

/// The number after a mode's name. Cargo appends arguments of its own.
fn number(arguments: &[String], default: usize) -> usize {
    arguments.get(2).and_then(|number| number.parse().ok()).unwrap_or(default)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
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
    let mut singles = || single_uploads(&server, &fresh(CONNECTIONS * 3000));
    for _ in 0..RUNS {
        let requests = singles();
        peer.push(rate(bare.address, &requests, true, 202));
        own.push(rate(server.address, &requests, false, 204));
    }
    let (own, peer) = (median(own), median(peer));
    line("single durable uploads", own, "bare axum handler", peer, "goal 0.5");
    for _ in 0..RUNS {
        slowest.push(percentile(server.address, &singles(), own / 2.0, SECONDS, 0.99));
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
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let reports = seal_all(&task, key, fresh(80 * BULK));
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
    let requests = Arc::new(vec![vec![server.model_request()]; CONNECTIONS]);
    for _ in 0..RUNS {
        peer.push(rate(bare.address, &requests, true, 202));
        own.push(rate(server.address, &requests, true, 200));
    }
    line("model fetches", median(own), "bare axum handler", median(peer), "goal 0.7");
}

/// The reports of round 1, sealed by two threads.
fn seal_all(task: &TaskId, key: &SealingKey, mut reports: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let seal_some = |reports: &[Vec<u8>]| -> Vec<Vec<u8>> {
        let one = |report: &Vec<u8>| seal(task, key, 1, id_of(report), report).unwrap();
        reports.iter().map(one).collect()
    };
    let others = reports.split_off(reports.len() / 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| seal_some(&reports));
        let second = seal_some(&others);
        [first.join().unwrap(), second].concat()
    })
}

/// A request for each report, the same number for each connection.
fn single_uploads(server: &Server, reports: &[Vec<u8>]) -> Arc<Requests> {
    let puts: Vec<_> = reports.iter().map(|report| server.put(report)).collect();
    Arc::new(puts.chunks(reports.len() / CONNECTIONS).map(<[_]>::to_vec).collect())
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
