//! R18: addresses, user agents, cookies and exact times are in no store, log, metric or release.

use std::{
    env, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::common::{Place, Running, contains, id, mechanism, one_hot, plain};
use incrowd_node::{LogFormat, Role, Roles};
use incrowd_protocol::MediaType;
use incrowd_transport::{Trust, client_config};
use reqwest::Method;
use tempfile::TempDir;

const ADDRESS: [u8; 4] = [127, 66, 77, 88];
const MARKERS: [&str; 6] = [
    "127.66.77.88",
    "marker-agent-9f3c",
    "marker-cookie-77aa",
    "203.0.113.77",
    "marker-referer-51be",
    "marker-path-c0de",
];

/// A client that can be recognised by everything that R18 names.
fn recognisable() -> reqwest::Client {
    let mut headers = reqwest::header::HeaderMap::new();
    headers.insert("cookie", "session=marker-cookie-77aa".parse().unwrap());
    headers.insert("x-forwarded-for", "203.0.113.77".parse().unwrap());
    headers.insert("forwarded", "for=203.0.113.77".parse().unwrap());
    headers.insert("referer", "https://marker-referer-51be.example/".parse().unwrap());
    reqwest::Client::builder()
        .tls_backend_preconfigured(client_config(&Trust::Nobody).unwrap())
        .user_agent("marker-agent-9f3c")
        .default_headers(headers)
        .local_address(IpAddr::from(ADDRESS))
        .build()
        .unwrap()
}

/// Successes, refusals and errors of every kind.
async fn use_it(node: &Running) {
    for number in 0..5 {
        assert_eq!(
            node.put(&one_hot(node.mechanism(), number / 2 + 1, number)).await.status(),
            204
        );
    }
    let more = [one_hot(node.mechanism(), 1, 7), one_hot(node.mechanism(), 3, 4)];
    assert_eq!(node.bulk(&more).await.0, 1);
    let bad =
        node.upload(id(9), MediaType::Report, b"marker-path-c0de".to_vec()).send().await.unwrap();
    assert_eq!(bad.status(), 422);
    let lost = node.ask(Method::GET, "/marker-path-c0de").send().await.unwrap();
    assert_eq!(lost.status(), 404);
    let wrong = node.ask(Method::GET, "/releases/1").bearer_auth("marker-cookie-77aa");
    assert_eq!(wrong.send().await.unwrap().status(), 401);
    for _ in 0..30 {
        node.put(&one_hot(node.mechanism(), 3, 4)).await;
    }
    node.model_of(2).await;
    let release = node.released(1).await;
    let text = String::from_utf8(release).unwrap();
    assert!(MARKERS.iter().all(|marker| !text.contains(marker)));
}

/// What the other process does: a node that logs as much as it can, into its own stderr.
async fn child(folder: &Path, format: LogFormat) {
    incrowd_node::init_log(format).unwrap();
    let mut place = Place::new(plain(mechanism(3, 0, &[(4, 2, 1)])));
    let data = folder.join("data");
    fs::rename(&place.config.data, &data).unwrap();
    place.config.data = data;
    // Limits by address must know addresses, but write none down.
    place.config.http.reports_per_second_per_peer = 20;
    let mut node = place.start(Roles::Both);
    let plain_client = std::mem::replace(&mut node.client, recognisable());
    use_it(&node).await;
    // A commit that fails is logged too.
    let lock = rusqlite::Connection::open(place.files().bandit_store).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.put(&one_hot(node.mechanism(), 3, 5)).await;
    let ready = node.client.get(format!("{}/readyz", node.admin)).send().await.unwrap();
    assert_eq!(ready.status(), 503);
    drop(lock);
    node.client = plain_client;
    fs::write(folder.join("metrics"), node.metrics().await).unwrap();
    // While it runs: what is in the write-ahead logs.
    let copy = folder.join("running");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&place.config.data).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    assert_eq!(node.token(Role::Admin), place.token(Role::Admin));
    node.close().await;
    node.stop().await;
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Whether a line has a time with seconds.
fn has_seconds(line: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit();
    line.as_bytes().windows(8).any(|w| {
        digit(w[0])
            && digit(w[1])
            && w[2] == b':'
            && digit(w[3])
            && digit(w[4])
            && w[5] == b':'
            && digit(w[6])
            && digit(w[7])
    })
}

fn nothing_is_found(test: &str) {
    let folder = TempDir::new().unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("INCROWD_TEST_FOLDER", folder.path())
        .env("RUST_LOG", "warn,incrowd_node=trace,incrowd=trace")
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    let mut places = vec![("the log".to_owned(), log.clone().into_bytes())];
    for path in files(folder.path()) {
        places.push((path.display().to_string(), fs::read(&path).unwrap()));
    }
    assert!(places.iter().any(|(name, _)| name.ends_with("running/shuffler.db")));
    let (_, metrics) = places.iter().find(|(name, _)| name.ends_with("metrics")).unwrap();
    assert!(contains(metrics, b"rate-limited"), "the limit by address was in use");
    for (name, bytes) in &places {
        for marker in MARKERS {
            assert!(!contains(bytes, marker.as_bytes()), "{marker} is in {name}");
        }
        if name.contains(".db") {
            assert!(!contains(bytes, &ADDRESS), "the address is in {name}");
        }
    }
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("task")).collect();
    for told in ["released", "absorbed, with a new model", "closed"] {
        let line = lines.iter().find(|line| line.contains(told) && line.contains("round"));
        assert!(line.is_some(), "a line says {told}, the task and the round: {log}");
    }
    for line in log.lines() {
        assert!(!has_seconds(line), "an exact time: {line}");
    }
    let year = time::OffsetDateTime::now_utc().year().to_string();
    assert!(lines.iter().all(|line| line.contains(&year)), "lines have their minute: {log}");
    assert!(has_seconds("2026-01-01T10:20:30Z"), "this test would see seconds");
    assert!(contains(b"a 127.66.77.88 b", MARKERS[0].as_bytes()), "and an address");
}

#[tokio::test(flavor = "multi_thread")]
async fn r18_nothing_about_a_sender_is_in_a_store_log_or_metric() {
    match env::var_os("INCROWD_TEST_FOLDER") {
        Some(folder) => child(Path::new(&folder), LogFormat::Text).await,
        None => nothing_is_found(
            "privacy_of_operation::r18_nothing_about_a_sender_is_in_a_store_log_or_metric",
        ),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r18_nor_in_a_log_of_json() {
    match env::var_os("INCROWD_TEST_FOLDER") {
        Some(folder) => child(Path::new(&folder), LogFormat::Json).await,
        None => nothing_is_found("privacy_of_operation::r18_nor_in_a_log_of_json"),
    }
}
