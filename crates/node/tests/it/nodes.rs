//! Several nodes on one PostgreSQL database: any of them answers any request (R1 to R5, R24, R26),
//! and what becomes of them when the database refuses or goes away (R25). In these tests the nodes
//! are in one process; `crates/cli/tests/it/crash/cluster.rs` kills real ones, and in `failover.rs`
//! another server takes over.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use aho_corasick::AhoCorasick;
use incrowd_envelope::Document;
use incrowd_node::{
    KeyRole, Keys, Node, NodeConfig, Roles, RoundKeysConfig, ServiceError, StoreError, StoreKind,
    Upload, store::Stores,
};
use incrowd_protocol::{Layout, MechanismConfig, Model, Task};
use incrowd_testdb::{Server, USER};
use reqwest::Method;

use crate::{
    common::{
        Place, Running, eventually, hot, id, is_padded, mechanism, memory_folder, metric, one_hot,
        orphan, plain, sums, timed,
    },
    database::{Database, data_of_server},
    shelf::Shelf,
    store::{Traces, wide},
};

pub const ROUNDS: u32 = 4;
pub const SIZE: u32 = 12;

/// A place with a task of [`ROUNDS`] rounds of [`SIZE`] reports, whose nodes use a database.
pub fn place(url: String) -> Place {
    place_with_grace(url, 1)
}

pub fn place_with_grace(url: String, grace: u32) -> Place {
    let mut place = Place::new(plain(mechanism(12, grace, &[(ROUNDS, SIZE, 1)])));
    place.config.store = StoreKind::Postgres(url);
    place
}

/// Nodes of the same operator.
pub fn nodes(place: &Place, number: usize, roles: Roles) -> Vec<(Place, Running)> {
    let start = |_| {
        let place = place.beside();
        let running = place.start(roles);
        (place, running)
    };
    (0..number).map(start).collect()
}

pub async fn stop(nodes: Vec<(Place, Running)>) {
    for (_place, node) in nodes {
        node.stop().await;
    }
}

/// Why a node is not ready; nothing if it is.
pub async fn unready(node: &Running) -> Option<String> {
    let answer = node.operate(Method::GET, "/readyz").send().await.unwrap();
    if answer.status() == 200 { None } else { Some(answer.text().await.unwrap()) }
}

pub async fn is_ready(node: &Running) -> bool {
    unready(node).await.is_none()
}

/// The reports of a round.
pub fn numbers(round: u32) -> std::ops::Range<u32> {
    (round - 1) * SIZE..round * SIZE
}

/// The version of the model that a node shows.
async fn version(node: &Running) -> u64 {
    let answer = node.model().await;
    if answer.status() == 404 {
        return 0;
    }
    let body = node.signed(answer, Document::Model).await;
    serde_json::from_slice::<Model>(&body).unwrap().version()
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_r2_r3_r24_any_node_answers_any_request_with_the_same_bytes() {
    let database = Database::take();
    let place = place(database.url.clone());
    let nodes = nodes(&place, 3, Roles::Both);
    let node = |index: usize| &nodes[index % 3].1;
    let mut newest = 0;
    for round in 1..=ROUNDS {
        let report = |number| one_hot(place.mechanism(), round, number);
        // No node has to learn first that the round before is released.
        for number in numbers(round) {
            let answer = node(number as usize).put(&report(number)).await;
            assert_eq!(answer.status(), 204, "round {round}, report {number}");
            let again = node(number as usize + 1).put(&report(number)).await;
            let over = number + 1 == ROUNDS * SIZE;
            let expected = if over { 410 } else { 204 };
            assert_eq!(again.status(), expected, "the same report at another node");
            // Whoever was told of a version by one node is told of no earlier one by another.
            let shown = version(node(number as usize + 2)).await;
            assert!(shown >= newest, "version {shown} after {newest}");
            newest = shown;
        }
        let release = node(0).released(round).await;
        assert_eq!(sums(&release), hot(place.mechanism(), numbers(round)));
        let model = node(0).model_of(round).await;
        for other in [1, 2] {
            assert_eq!(node(other).released(round).await, release, "R2");
            assert_eq!(node(other).model_of(round).await, model, "R24");
        }
    }
    for (_, node) in &nodes {
        assert_eq!(node.round().await, None, "the task is over for every node");
        assert_eq!(unready(node).await, None);
    }
    // The store has one history, which is that of a node alone.
    let releases = database.bandit().releases(&place.task.id()).unwrap();
    assert_eq!(releases.len(), ROUNDS as usize);
    assert_eq!(database.bandit().models(&place.task.id()).unwrap().len(), ROUNDS as usize);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_one_node_closes_is_closed_for_all() {
    let database = Database::take();
    let place = place(database.url.clone());
    let nodes = nodes(&place, 2, Roles::Shuffler);
    let report = |number| one_hot(place.mechanism(), 1, number);
    assert_eq!(nodes[0].1.put(&report(0)).await.status(), 204);
    assert_eq!(nodes[0].1.close().await, 204);
    let refused = nodes[1].1.put(&report(1)).await;
    assert_eq!(refused.status(), 410);
    eventually("the other node tells it", async || nodes[1].1.release(1).await.status() == 410)
        .await;
    // R27: also the keys that nodes had at hand.
    let Some(
        RoundKeysConfig::MemoryFile { path: Some(keys) }
        | RoundKeysConfig::File { path: Some(keys) },
    ) = &place.config.shuffler.round_keys
    else {
        panic!("another medium");
    };
    let of_rounds = format!("{}-", place.task.id());
    let left =
        || files(keys).iter().filter(|path| path.to_string_lossy().contains(&of_rounds)).count();
    eventually("its keys are destroyed", async || left() == 0).await;
    for (_, node) in &nodes {
        assert_eq!(node.put(&report(1)).await.status(), 410);
        assert_eq!(left(), 0);
    }
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_transactions_in_the_way_of_another_are_tried_again_a_few_times() {
    let database = Database::take();
    let place = place(database.url.clone());
    let [(_, node)] = &nodes(&place, 1, Roles::Shuffler)[..] else { panic!() };
    let report = |number| one_hot(place.mechanism(), 1, number);
    // The first so many appends fail as two transactions that need each other's rows would.
    let fail = |times: u32| {
        database.sql(&format!(
            "CREATE SEQUENCE IF NOT EXISTS tries;
             SELECT setval('tries', 1, false);
             CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval('tries') <= {times} THEN
                     RAISE EXCEPTION 'in the way' USING ERRCODE = '40001';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON incrowd_shuffler.entry
                 FOR EACH STATEMENT EXECUTE FUNCTION fail()"
        ))
    };
    let retries = async || metric(&node.metrics().await, "incrowd_store_retries_total");
    fail(3);
    assert_eq!(node.put(&report(0)).await.status(), 204);
    assert!((retries().await - 3.0).abs() < 0.5);
    fail(100);
    let refused = node.put(&report(1)).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!((retries().await - 6.0).abs() < 0.5, "bounded");
    database.sql("DROP TRIGGER fail ON incrowd_shuffler.entry; DROP FUNCTION fail");
    assert_eq!(node.put(&report(1)).await.status(), 204);
    assert_eq!(node.filled().await, (Some(1), Some(2)));
}

/// Why a node does not start.
pub fn refused(place: &Place, roles: Roles) -> StoreError {
    match Node::start(&place.config, roles).map(|_| "it started") {
        Err(ServiceError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_other_keys_than_the_first_one_are_refused() {
    let database = Database::take();
    let place = place(database.url.clone());
    let first = place.beside().start(Roles::Both);

    let mut other_medium = place.beside();
    let (_folder, setting) = memory_folder();
    other_medium.config.shuffler.round_keys = Some(setting);
    let error = refused(&other_medium, Roles::Shuffler);
    assert!(matches!(&error, StoreError::OtherNodes { .. }), "{error}");
    assert!(error.to_string().contains("shuffler.round_keys"), "{error}");

    // A node that publishes a key first would be the only one to open what is sealed to it.
    let rotated = place.beside();
    let mut keys = Keys::load(&rotated.files().shuffler_keys, KeyRole::Shuffler).unwrap();
    keys.add_pending().unwrap();
    let rotated_node = rotated.start(Roles::Shuffler);
    let error = refused(&place.beside(), Roles::Shuffler);
    assert!(error.to_string().contains("sealing keys"), "{error}");
    rotated_node.stop().await;

    // Another operator with a task of his own.
    let stranger = self::place(database.url.clone());
    let result = Node::start(&stranger.config, Roles::Both).map(|_| "it started");
    assert!(matches!(result, Err(ServiceError::Leftover { .. })), "{result:?}");
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_a_bandit_with_an_older_task_file_takes_over_the_actions_of_another() {
    let database = Database::take();
    let mut config = MechanismConfig::from(mechanism(3, 1, &[(3, 4, 1)]));
    config.layout = Layout::PerAction { slots: 2 };
    let older = plain(config.check().unwrap()).with_actions(vec!["a".into()]).unwrap();
    let newer = older.clone().with_actions(vec!["a".into(), "b".into()]).unwrap();
    let mut place = Place::new(older);
    place.config.store = StoreKind::Postgres(database.url.clone());
    let mut updated = place.beside();
    updated.config.tasks = vec![updated.folder.path().join("newer.toml")];
    let task = Task::new(newer, *place.task.keys());
    fs::write(&updated.config.tasks[0], toml::to_string(&task).unwrap()).unwrap();
    let report = |number: u32| one_hot(place.mechanism(), 1 + number / 4, number);
    let fill = async |node: &Running, round: u32| {
        for number in (round - 1) * 4..round * 4 {
            let answer = node.put(&report(number)).await;
            assert_eq!(answer.status(), 204, "{:?}", answer.text().await);
        }
    };
    let newest = |bytes: &[u8]| serde_json::from_slice::<Model>(bytes).unwrap();
    let second = |model: &Model| model.slots()[1].action.clone();
    let old = place.start(Roles::Both);
    fill(&old, 1).await;
    let model = newest(&old.model_of(1).await);
    assert_eq!((model.version(), second(&model)), (2, None));
    updated.start(Roles::Both).stop().await;
    // Only the node with the older file is left.
    for round in [2, 3] {
        fill(&old, round).await;
        let model = newest(&old.model_of(round).await);
        assert_eq!((model.version(), second(&model)), (2 + u64::from(round), Some("b".into())));
    }
    old.stop().await;
    updated.start(Roles::Both).stop().await;
    let versions: Vec<u64> =
        database.bandit().models(&place.task.id()).unwrap().iter().map(|m| m.version).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5], "one history");
}

#[tokio::test(flavor = "multi_thread")]
async fn r33_a_node_with_a_new_data_folder_starts_beside_a_task_that_is_over() {
    let database = Database::take();
    let first = place(database.url.clone());
    let node = first.start(Roles::Both);
    for number in 0..ROUNDS * SIZE {
        let report = one_hot(first.mechanism(), 1 + number / SIZE, number);
        assert_eq!(node.put(&report).await.status(), 204);
    }
    node.model_of(ROUNDS).await;
    node.stop().await;
    // Another task of the same service: its file takes the place of the first one's.
    let mut next = first.beside();
    let config = plain(mechanism(2, 1, &[(1, 2, 1)]));
    next.task = Task::new(config, *first.task.keys());
    next.config.tasks = vec![next.folder.path().join("next.toml")];
    fs::write(&next.config.tasks[0], toml::to_string(&next.task).unwrap()).unwrap();
    next.start(Roles::Both).stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r32_a_round_that_cannot_be_closed_is_told_although_nobody_uploads() {
    let database = Database::take();
    let opens =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut place = Place::new(plain(timed(3, opens, 300, 100, 10)));
    place.config.store = StoreKind::Postgres(database.url.clone());
    let node = place.start(Roles::Shuffler);
    assert_eq!(unready(&node).await, None);
    database.sql(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'no room' USING ERRCODE = '53100';
         END $$;
         CREATE TRIGGER no_room BEFORE INSERT ON incrowd_shuffler.release
             FOR EACH STATEMENT EXECUTE FUNCTION no_room()",
    );
    eventually("it is not ready", async || !is_ready(&node).await).await;
    let before = node.round().await.unwrap();
    database.sql("DROP TRIGGER no_room ON incrowd_shuffler.release; DROP FUNCTION no_room");
    eventually("it is ready again", async || is_ready(&node).await).await;
    assert!(is_padded(place.mechanism(), &node.released(before).await, &[]));
    node.stop().await;
}

#[test]
fn a_server_that_would_lose_what_it_acknowledged_is_refused() {
    let server = Server::start(&[]);
    let url = server.create("incrowd");
    let open = || {
        let store = StoreKind::Postgres(url.clone());
        let stores = Stores::of(&NodeConfig { store, ..NodeConfig::default() }).unwrap();
        stores.shuffler().map(|_| "it was opened").map_err(|error| error.to_string())
    };
    assert_eq!(open(), Ok("it was opened"));
    for setting in ["synchronous_commit", "fsync", "full_page_writes"] {
        server.set(setting, "off");
        let refused = (0..500).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            open().err()
        });
        let refused = refused.expect("it is opened all the same");
        assert!(refused.starts_with(&format!("{setting} is off")), "{refused}");
        server.set(setting, "on");
    }
    // A database without the durable settings, for this user only.
    let end = (0..500).find(|_| {
        thread::sleep(Duration::from_millis(10));
        open().is_ok()
    });
    assert!(end.is_some(), "it is not opened again");
    server.sql("postgres", &format!("ALTER ROLE {USER} SET synchronous_commit = off"));
    assert!(open().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_without_its_database_a_node_is_not_ready_and_works_again_by_itself() {
    let server = Server::start(&[]);
    let place = place(server.create("incrowd"));
    let nodes = nodes(&place, 2, Roles::Both);
    let report = |number| one_hot(place.mechanism(), 1, number);
    for number in 0..4 {
        assert_eq!(nodes[number as usize % 2].1.put(&report(number)).await.status(), 204);
    }
    server.stop();
    for (_, node) in &nodes {
        let refused = node.put(&report(4)).await;
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.headers()["retry-after"], "1");
        let refused = node.model().await;
        assert_eq!(refused.status(), 503, "a newer model may be known to others");
        eventually("it is not ready", async || !is_ready(node).await).await;
        let live = node.operate(Method::GET, "/healthz").send().await.unwrap();
        assert_eq!(live.status(), 200, "a restart would help nobody");
    }
    server.start_again();
    for (_, node) in &nodes {
        eventually("it is ready again", async || is_ready(node).await).await;
    }
    for number in 4..SIZE {
        let node = &nodes[number as usize % 2].1;
        eventually("it counts again", async || node.put(&report(number)).await.status() == 204)
            .await;
    }
    for (_, node) in &nodes {
        assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), numbers(1)));
        assert!(!node.model_of(1).await.is_empty());
    }
    stop(nodes).await;
}

/// A machine stopped in the middle of a message, with the task's row locked: the server's own limit
/// does not see that it says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn r25_a_session_that_stopped_inside_a_message_is_ended_by_whoever_waits_for_it() {
    let server = Server::start(&[]);
    let place = place(server.create("incrowd"));
    let node = place.start(Roles::Both);
    let report = |number| one_hot(place.mechanism(), 1, number);
    assert_eq!(node.put(&report(0)).await.status(), 204);
    let stopped =
        ["incrowd_shuffler", "incrowd_bandit"].map(|role| half_a_message(&server.address(), role));
    assert_eq!(node.put(&report(1)).await.status(), 503, "the row is locked");
    eventually("it counts again", async || node.put(&report(1)).await.status() == 204).await;
    assert_eq!(node.filled().await, (Some(1), Some(2)));
    for number in 2..SIZE {
        assert_eq!(node.put(&report(number)).await.status(), 204);
    }
    eventually("the bandit goes on", async || version(&node).await > 0).await;
    drop(stopped);
    node.stop().await;
}

/// Somebody keeps a task locked, and nobody uploads: its round cannot be closed.
#[tokio::test(flavor = "multi_thread")]
async fn r32_a_round_that_somebody_keeps_locked_is_told() {
    let database = Arc::new(Database::take());
    let opens =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut place = Place::new(plain(timed(3, opens, 300, 100, 10)));
    place.config.store = StoreKind::Postgres(database.url.clone());
    let node = place.start(Roles::Shuffler);
    let locked = database.clone();
    let lock = thread::spawn(move || {
        locked.sql("BEGIN; SELECT FROM incrowd_shuffler.task FOR UPDATE; SELECT pg_sleep(20)");
    });
    eventually("it tells", async || {
        unready(&node).await.is_some_and(|reason| reason.contains("should have been closed"))
    })
    .await;
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND query LIKE '%pg_sleep(20)' AND pid <> pg_backend_pid()",
    );
    lock.join().expect_err("its session ended");
    eventually("it is ready again", async || is_ready(&node).await).await;
    node.stop().await;
}

/// A session that locks all tasks of a role and then begins a message.
fn half_a_message(address: &str, role: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let with_length = |body: &[u8]| [&(body.len() as u32 + 4).to_be_bytes(), body].concat();
    // Version 3.0 of the protocol.
    let mut start = vec![0, 3, 0, 0];
    for text in ["user", USER, "database", "incrowd", "application_name", "incrowd", ""] {
        start.extend([text.as_bytes(), &[0]].concat());
    }
    stream.write_all(&with_length(&start)).unwrap();
    until_ready(&mut stream);
    let query = format!("BEGIN; SELECT FROM {role}.task FOR NO KEY UPDATE\0");
    stream.write_all(&[b"Q".as_slice(), &with_length(query.as_bytes())].concat()).unwrap();
    until_ready(&mut stream);
    stream.write_all(b"Q\0\0").unwrap();
    stream
}

/// Reads messages up to the one that says that the server waits.
fn until_ready(stream: &mut TcpStream) {
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        stream.read_exact(&mut vec![0; length - 4]).unwrap();
        match head[0] {
            b'Z' => return,
            b'E' => panic!("the server refuses"),
            _ => {}
        }
    }
}

/// Everything below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = |entry: fs::DirEntry| {
        let path = entry.path();
        if path.is_dir() { files(&path) } else { vec![path] }
    };
    entries.flat_map(below).collect()
}

/// Which of these a server's files have, as bytes or as hexadecimal text.
fn found(folder: &Path, secrets: &[Vec<u8>]) -> Vec<bool> {
    let texts = secrets.iter().map(|secret| hex::encode(secret).into_bytes());
    let search = AhoCorasick::new(secrets.iter().cloned().chain(texts)).unwrap();
    let mut found = vec![false; secrets.len()];
    for path in files(folder) {
        // One that the server has removed meanwhile is none.
        let Ok(mut bytes) = fs::read(&path) else { continue };
        if path.parent().is_some_and(|folder| folder.ends_with("pg_wal")) {
            bytes = without_page_headers(&bytes);
        }
        for place in search.find_overlapping_iter(&bytes) {
            found[place.pattern().as_usize() % secrets.len()] = true;
        }
    }
    found
}

/// A file of the write-ahead log without the headers of its pages, which split what was written.
fn without_page_headers(bytes: &[u8]) -> Vec<u8> {
    let header = |page| if page == 0 { 40 } else { 24 };
    let pages = bytes.chunks(8192).enumerate();
    pages.flat_map(|(page, bytes)| bytes.get(header(page)..).unwrap_or(&[])).copied().collect()
}

/// Transactions that append fail at their end.
const ABORT: &str = "CREATE FUNCTION abort() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'not now';
    END $$;
    CREATE CONSTRAINT TRIGGER abort AFTER INSERT ON incrowd_shuffler.entry
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION abort()";

#[test]
fn r27_a_database_that_forgets_nothing_has_no_report_no_sums_and_no_ids() {
    let task = orphan(plain(mechanism(6, 1, &[(2, 6, 255)])));
    let secrets = |shelf: &mut Shelf| {
        shelf.open(&task);
        let mut traces = Traces::default();
        (0..5).for_each(|number| traces.count(shelf, &task, 1, number));
        // What is not committed is in the write-ahead log all the same.
        shelf.sql(ABORT);
        let upload = Upload { task: task.id(), reports: vec![wide(&task, 1, 5)] };
        shelf.tasks.accept(&[upload]).expect_err("it is not committed");
        shelf.sql("DROP TRIGGER abort ON incrowd_shuffler.entry; DROP FUNCTION abort");
        shelf.switch();
        (5..8).for_each(|number| traces.count(shelf, &task, 1 + number / 6, number));
        let ids = (0..8).map(|number| id(number).0.to_vec());
        let all: Vec<Vec<u8>> =
            traces.states.into_iter().chain(traces.payloads).chain(ids).collect();
        assert_eq!(shelf.progress(&task).round, Some(2));
        all
    };
    let mut bare = Shelf::postgres();
    bare.unguard();
    let known = secrets(&mut bare);
    let server = data_of_server();
    let seen = found(&server, &known);
    // All but the report that fills a round, which is released at once, and what is only the sum of
    // several entries.
    let missed: Vec<usize> = (0..known.len()).filter(|index| !seen[*index]).collect();
    assert_eq!(missed, [1, 2, 3, 4, 5, 6, 7, 13], "this test would see them");
    drop(bare);

    // Another server: the log of this one keeps what was written into it.
    let server = Arc::new(Server::start(&[]));
    let mut shelf = Shelf::on(Arc::new(Database::on(server.clone(), "incrowd")));
    let known = secrets(&mut shelf);
    let backup = server.base_backup();
    for folder in [server.data(), backup.path().to_owned()] {
        let seen = found(&folder, &known);
        assert!(!seen.contains(&true), "{}: {seen:?}", folder.display());
    }
}
