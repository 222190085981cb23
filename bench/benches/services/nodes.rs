//! Several nodes on one PostgreSQL database against one node with its own file: reports a second,
//! and what each costs the nodes, the database and its write-ahead log.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use incrowd_protocol::MediaType;
use incrowd_testdb::Server as Postgres;

use crate::{
    BULK, CONNECTIONS, RUNS,
    load::{Requests, bulk, rate_of, reports},
    median, opening, seal_all,
    server::Server,
};

/// Connections that send reports in bulk.
const SENDERS: usize = 24;
/// Reports that each of them sends.
const EACH: usize = 50 * BULK;
const SINGLES: usize = CONNECTIONS * 1000;
/// As many connections that groups of single reports get large.
const MANY: usize = 8 * CONNECTIONS;
const SEALED: usize = 60 * BULK;

/// A million reports in these units.
const MILLION: f64 = 1e6;

/// What a run of reports took.
#[derive(Default)]
struct Costs {
    rates: Vec<f64>,
    /// Seconds of processor time for a million reports.
    nodes: Vec<f64>,
    database: Vec<f64>,
    /// Bytes of the write-ahead log for a report.
    log: Vec<f64>,
}

pub fn compare() {
    let folder = tempfile::tempdir().unwrap();
    let postgres = Postgres::start_in(
        folder.path(),
        &["shared_buffers = 512MB", "max_wal_size = 4GB", "checkpoint_timeout = 15min"],
    );
    let alone = Server::node(&folder.path().join("alone"), 1000, 100_000);
    let nodes = |number: usize, database: &str| -> Vec<Server> {
        let url = postgres.create(database);
        let keys = folder.path().join(format!("{database}-keys"));
        let first = folder.path().join(format!("{database}-0"));
        let mut nodes = vec![Server::node_on(&first, &url, &keys)];
        for number in 1..number {
            let data = folder.path().join(format!("{database}-{number}"));
            copy(&first, &data);
            nodes.push(Server::node_on(&data, &url, &keys));
        }
        nodes
    };
    let (one, three) = (nodes(1, "one"), nodes(3, "three"));
    let mut seed = 0;
    println!(
        "{:<44} {:>10} {:>12} {:>12} {:>10}",
        "", "reports/s", "nodes CPU", "database CPU", "WAL"
    );
    println!("{:<44} {:>10} {:>12} {:>12} {:>10}", "", "", "s/million", "s/million", "bytes each");
    let mut bulks = Vec::new();
    let sides: [(&str, &[Server], bool); 3] = [
        ("SQLite, 1 node", std::slice::from_ref(&alone), false),
        ("PostgreSQL, 1 node", &one, true),
        ("PostgreSQL, 3 nodes", &three, true),
    ];
    for (kind, connections) in [
        ("bulk of 1000", None),
        ("single, 64 connections", Some(CONNECTIONS)),
        ("single, 512 connections", Some(MANY)),
    ] {
        // Sides take turns.
        let mut costs = [const { None }; 3].map(|none: Option<Costs>| none.unwrap_or_default());
        for _ in 0..RUNS {
            for ((_, servers, shared), costs) in sides.iter().zip(&mut costs) {
                seed += 1;
                let ((requests, number), expected) = match connections {
                    Some(connections) => (singles(&servers[0], connections, seed), 204),
                    None => (in_bulk(&servers[0], seed), 200),
                };
                measure(servers, shared.then_some(&postgres), &requests, number, expected, costs);
            }
        }
        for ((name, ..), costs) in sides.iter().zip(costs) {
            let rate = show(&format!("{kind}, {name}"), costs);
            if connections.is_none() {
                bulks.push(rate);
            }
        }
    }
    let (mut costs, mut peer) = (Costs::default(), Vec::new());
    let notice = one[0].notice();
    let key = notice.sealing_key().unwrap();
    for _ in 0..RUNS {
        seed += 1;
        let plain = reports(notice.task.mechanism(), 1, SEALED, seed);
        let sealed = seal_all(&notice.id, key, plain);
        let bodies: Vec<Vec<u8>> = sealed
            .chunks(BULK)
            .map(|reports| one[0].post(&bulk(reports), MediaType::SealedReports))
            .collect();
        let requests = Arc::new(bodies.chunks(10).map(<[_]>::to_vec).collect::<Vec<_>>());
        measure(&one, Some(&postgres), &requests, SEALED, 200, &mut costs);
        peer.push(opening(&notice.id));
    }
    let sealed = show("sealed bulk of 1000, PostgreSQL, 1 node", costs);
    let line = |what: &str, ratio: f64, goal: &str| println!("{what:<60} {ratio:>6.2} {goal}");
    println!();
    line("1 node on PostgreSQL, of 150,000 reports a second", bulks[1] / 150_000.0, "goal 1");
    line("3 nodes, of 1 node", bulks[2] / bulks[1], "goal 0.5");
    line("1 node on PostgreSQL, of 1 node with SQLite", bulks[1] / bulks[0], "(for information)");
    line("sealed, of HPKE opening on two threads", sealed / median(peer), "goal 0.6");
    for (database, servers) in [("one", &one), ("three", &three)] {
        let size = "SELECT pg_total_relation_size('incrowd_shuffler.entry')";
        let bytes: f64 = postgres.sql(database, size).parse().unwrap();
        let ids = servers[0].metric("incrowd_remembered_ids", "");
        let [first, late] =
            ["0", "late"].map(|name| folder.path().join(format!("{database}-{name}")));
        copy(&first, &late);
        let (url, keys) = (postgres.url(database), folder.path().join(format!("{database}-keys")));
        let began = Instant::now();
        let node = Server::node_on(&late, &url, &keys);
        while node.metric("incrowd_remembered_ids", "") < ids {
            thread::sleep(Duration::from_millis(10));
        }
        println!(
            "database {database:<5} {ids:>9.0} ids: {:>4.1} bytes each in tables, {:>4.1} in a node, read in {:.1} s by a new one",
            bytes / ids,
            servers[0].memory().0 * 1_048_576.0 / ids,
            began.elapsed().as_secs_f64(),
        );
    }
}

/// Sends the requests to the nodes and adds what it took.
fn measure(
    servers: &[Server],
    postgres: Option<&Postgres>,
    requests: &Arc<Requests>,
    number: usize,
    expected: u16,
    costs: &mut Costs,
) {
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let processor = || servers.iter().map(Server::processor).sum::<f64>();
    let state = || postgres.map_or((0.0, 0.0), |postgres| (postgres.processor(), log(postgres)));
    let (nodes, database) = (processor(), state());
    let each = number as f64 / requests.iter().map(Vec::len).sum::<usize>() as f64;
    let began = Instant::now();
    let rate = rate_of(&addresses, requests, false, expected) * each;
    // All are sent, unless that took too long.
    let sent = (rate * began.elapsed().as_secs_f64()).min(number as f64);
    let after = state();
    costs.rates.push(rate);
    costs.nodes.push((processor() - nodes) * MILLION / sent);
    costs.database.push((after.0 - database.0) * MILLION / sent);
    costs.log.push((after.1 - database.1) / sent);
}

/// Bytes that the write-ahead log ever had.
fn log(postgres: &Postgres) -> f64 {
    postgres.sql("postgres", "SELECT pg_current_wal_lsn() - '0/0'").parse().unwrap()
}

fn show(what: &str, costs: Costs) -> f64 {
    let rate = median(costs.rates);
    let [nodes, database, log] = [costs.nodes, costs.database, costs.log].map(median);
    println!("{what:<44} {rate:>10.0} {nodes:>12.2} {database:>12.2} {log:>10.1}");
    rate
}

fn in_bulk(server: &Server, seed: u64) -> (Arc<Requests>, usize) {
    let reports = reports(server.notice().task.mechanism(), 1, SENDERS * EACH, seed);
    let bodies: Vec<Vec<u8>> = reports
        .chunks(BULK)
        .map(|reports| server.post(&bulk(reports), MediaType::Reports))
        .collect();
    (Arc::new(bodies.chunks(EACH / BULK).map(<[_]>::to_vec).collect()), reports.len())
}

fn singles(server: &Server, connections: usize, seed: u64) -> (Arc<Requests>, usize) {
    let reports = reports(server.notice().task.mechanism(), 1, SINGLES, seed);
    let puts: Vec<Vec<u8>> = reports.iter().map(|report| server.put(report)).collect();
    (Arc::new(puts.chunks(SINGLES / connections).map(<[_]>::to_vec).collect()), reports.len())
}

/// Keys, tokens and task of a node, for another one.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
