//! Ten million reports, and what they take.

use std::{fs, path::Path, time::Instant};

use incrowd_protocol::MediaType;

use crate::{
    BULK,
    load::{Connection, bulk, reports},
    runtime,
    server::Server,
};

/// Ten million reports in bulk: once with all ids in the grace window, once in batches that come
/// and go.
pub fn soak(total: usize) {
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
