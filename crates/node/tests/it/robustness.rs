//! What hostile and unlucky requests do: R21 (bounded sizes, times, memory), R23 (bounded
//! influence, limited floods), R25 (a store that is full or locked).

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{
    Place, Running, eventually, hot, id, mechanism, metric, one_hot, plain, problem, sums,
};
use incrowd_node::{
    Role, Roles, RoundKeysConfig,
    store::{BanditStore, ShufflerStore, SqliteBanditStore, SqliteShufflerStore},
};
use incrowd_protocol::{MediaType, Report, paths};
use incrowd_transport::{Trust, client_config};
use reqwest::Method;
use tempfile::TempDir;

/// The head of an upload, without the empty line.
pub fn head(node: &Running, more: &str) -> String {
    format!(
        "PUT {} HTTP/1.1\r\nhost: node\r\nauthorization: Bearer {}\r\ncontent-type: {}\r\n{more}",
        paths::report(&node.task.id(), id(0)),
        node.token(Role::Device),
        MediaType::Report,
    )
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// What comes back until the connection or the patience ends.
pub fn answer(mut stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..read]);
        // A problem is one JSON object at the end.
        if bytes.ends_with(b"}") {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn is_problem(answer: &str, status: u16, name: &str) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {status} "))
        && answer.contains(MediaType::Problem.as_str())
        && answer.contains(&format!("problems.md#{name}\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn r21_a_body_that_is_too_large_is_refused_before_it_is_read() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    place.config.http.body_bytes = 4096;
    let node = place.start(Roles::Shuffler);
    let declared = connect(node.node.address());
    (&declared).write_all(head(&node, "content-length: 4097\r\n\r\n").as_bytes()).unwrap();
    assert!(is_problem(&answer(&declared), 413, "too-large"), "declared");

    let chunked = connect(node.node.address());
    (&chunked).write_all(head(&node, "transfer-encoding: chunked\r\n\r\n").as_bytes()).unwrap();
    let mut sent = 0;
    // Until the other side has enough.
    while sent < 1 << 24 {
        let chunk = [b"400\r\n".as_slice(), &[0; 0x400], b"\r\n"].concat();
        if (&chunked).write_all(&chunk).is_err() {
            break;
        }
        sent += 0x400;
        if sent > 8 * 4096 {
            break;
        }
    }
    assert!(is_problem(&answer(&chunked), 413, "too-large"), "chunked");

    let fits = node.upload(id(0), MediaType::Report, vec![1; 4096]).send().await.unwrap();
    assert_eq!(problem(fits).await.0, 422, "exactly the limit is read");
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r21_a_slow_body_is_refused_and_slow_headers_are_cut_off() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    place.config.http.body_seconds = 1;
    place.config.http.header_seconds = 1;
    let node = place.start(Roles::Shuffler);
    for address in [node.node.address(), node.node.admin_address()] {
        let began = Instant::now();
        let starts = ["", "P", "PRI * HT", "GET / HTTP/1.1\r\nhost: node\r\nx-slow: "];
        let slow = starts.map(|start| {
            let stream = connect(address);
            (&stream).write_all(start.as_bytes()).unwrap();
            (start, stream)
        });
        for (start, mut stream) in slow {
            let mut rest = Vec::new();
            let read = stream.read_to_end(&mut rest);
            assert!(read.is_ok(), "not closed after {start:?}: {read:?}");
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }

    let silent = connect(node.node.address());
    (&silent).write_all(head(&node, "content-length: 30\r\n\r\n").as_bytes()).unwrap();
    let dripping = connect(node.node.address());
    (&dripping).write_all(head(&node, "content-length: 30\r\n\r\n").as_bytes()).unwrap();
    let began = Instant::now();
    for _ in 0..20 {
        if (&dripping).write_all(b"x").is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        if began.elapsed() > Duration::from_millis(1500) {
            break;
        }
    }
    assert!(is_problem(&answer(&silent), 408, "timeout"), "silent");
    assert!(is_problem(&answer(&dripping), 408, "timeout"), "a byte now and then does not help");
    assert_eq!(node.put(&one_hot(node.mechanism(), 1, 0)).await.status(), 204);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r21_what_is_no_http_or_no_path_gets_an_error_and_the_service_goes_on() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        head(&node, "content-length: x\r\n\r\n").into_bytes(),
        head(&node, "content-length: 3\r\ncontent-length: 4\r\n\r\nabcd").into_bytes(),
        format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200)).into_bytes(),
        [b"GET / HTTP/1.1\r\nx: ".as_slice(), &vec![b'y'; 1 << 20]].concat(),
    ] {
        let stream = connect(node.node.address());
        let _ = (&stream).write_all(&garbage);
        let _ = stream.shutdown(Shutdown::Write);
        let told = answer(&stream);
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 4"), "{told}");
    }
    for (base, path) in [
        (&node.base, "/"),
        (&node.base, "/v1/tasks"),
        (&node.base, "/v1/tasks/x/config"),
        (&node.base, "/metrics"),
        (&node.admin, "/v1/gateway"),
    ] {
        let answer = node.client.get(format!("{base}{path}")).send().await.unwrap();
        assert_eq!(problem(answer).await, (404, "not-found".into()), "{path}");
    }
    let method = node.ask(Method::DELETE, "/config").send().await.unwrap();
    let allow = method.headers()["allow"].clone();
    assert_eq!(problem(method).await, (405, "method-not-allowed".into()));
    assert!(allow.to_str().unwrap().contains("GET"), "{allow:?}");
    assert_eq!(node.put(&one_hot(node.mechanism(), 1, 0)).await.status(), 204);
    node.stop().await;
}

/// Bytes of memory that this process has in use.
pub fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn r21_memory_stays_bounded_while_many_announce_large_bodies_and_send_little() {
    const BODY: usize = 8 << 20;
    const MANY: usize = 200;
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    place.config.http.body_bytes = BODY;
    place.config.http.body_seconds = 5;
    let node = place.start(Roles::Shuffler);
    let before = resident();
    let slow: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let stream = connect(node.node.address());
            let head = head(&node, &format!("content-length: {BODY}\r\n\r\n"));
            (&stream).write_all(&[head.as_bytes(), &[0; 2048]].concat()).unwrap();
            stream
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(node.put(&one_hot(node.mechanism(), 1, 1)).await.status(), 204, "others go on");
    let grown = resident().saturating_sub(before);
    // What they announce is 1.6 GiB; what they sent and what a connection needs is far below this.
    assert!(grown < 128 << 20, "{} MiB more", grown >> 20);
    drop(slow);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r23_a_flood_is_limited_and_visible() {
    let mut place = Place::new(plain(mechanism(14, 0, &[(2, 60, 1)])));
    place.config.http.reports_per_second_per_peer = 5;
    let node = place.start(Roles::Shuffler);
    let reports: Vec<Report> = (0..40).map(|n| one_hot(place.mechanism(), 1, n)).collect();
    let (mut counted, mut limited) = (0, 0);
    for report in &reports {
        let answer = node.put(report).await;
        if answer.status() == 204 {
            counted += 1;
            continue;
        }
        let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=2).contains(&seconds));
        assert_eq!(problem(answer).await, (429, "rate-limited".into()));
        limited += 1;
    }
    assert!(counted >= 5 && limited > 10, "{counted} counted, {limited} limited");
    let bulk: Vec<Vec<u8>> =
        reports[..6].iter().map(|report| report.encode(place.mechanism()).unwrap()).collect();
    let answer = node.post(MediaType::Reports, crate::common::joined(bulk)).await;
    assert_eq!(problem(answer).await, (429, "rate-limited".into()), "more at once than a second's");
    assert_eq!(node.filled().await, (Some(1), Some(counted)));
    let name =
        format!("incrowd_reports_total{{task=\"{}\",outcome=\"rate-limited\"}}", place.task.id());
    let seen = metric(&node.metrics().await, &name);
    assert!((seen - f64::from(limited + 6)).abs() < 0.5, "{seen}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r23_one_flooding_address_takes_nothing_from_the_others() {
    let mut place = Place::new(plain(mechanism(14, 0, &[(2, 119, 1)])));
    place.config.http.reports_per_second_per_peer = 5;
    let mut node = place.start(Roles::Shuffler);
    let from = |last: u8| {
        reqwest::Client::builder()
            .tls_backend_preconfigured(client_config(&Trust::Nobody).unwrap())
            .local_address(std::net::IpAddr::from([127, 0, 0, last]))
            .build()
    };
    node.client = from(2).unwrap();
    let mut limited = 0;
    for number in 0..60 {
        let status = node.put(&one_hot(place.mechanism(), 1, number)).await.status();
        limited += u32::from(status == 429);
    }
    assert!(limited > 30, "{limited} of 60");
    node.client = from(3).unwrap();
    for number in 60..64 {
        let status = node.put(&one_hot(place.mechanism(), 1, number)).await.status();
        assert_eq!(status, 204, "another address");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r23_one_malicious_report_moves_each_sum_by_at_most_m() {
    const M: u16 = 3;
    let config = plain(mechanism(2, 0, &[(1, 4, u32::from(M))]));
    let mut releases = Vec::new();
    for malicious in [[0; 5], [M; 5], [M, 0, M, 0, M]] {
        let place = Place::new(config.clone());
        let node = place.start(Roles::Shuffler);
        let report = Report::new(place.mechanism(), 1, id(3), malicious.to_vec()).unwrap();
        for _ in 0..5 {
            assert_eq!(node.put(&report).await.status(), 204, "as often as it likes");
        }
        for number in 0..3u32 {
            let counts: Vec<u16> = (0..5u32).map(|j| ((number + j) % 4) as u16).collect();
            let report = Report::new(place.mechanism(), 1, id(number), counts).unwrap();
            assert_eq!(node.put(&report).await.status(), 204);
        }
        releases.push(sums(&node.released(1).await));
        node.stop().await;
    }
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let moved = releases[a].iter().zip(&releases[b]).map(|(a, b)| a.abs_diff(*b));
        assert_eq!(moved.max(), Some(u64::from(M)));
    }
    let bound = 4 * i64::from(M);
    assert!(releases.iter().flatten().all(|sum| *sum <= bound));
}

/// A small file system of its own, if this user may make one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Result<Self, String> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(at)
            .output()
            .map_err(|error| error.to_string())?;
        if mount.status.success() {
            Ok(Self(at.to_owned()))
        } else {
            Err(String::from_utf8_lossy(&mount.stderr).into_owned())
        }
    }

    /// Leaves no byte free.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        let mut size = 1 << 16;
        while size > 0 {
            match file.write(&vec![1; size]) {
                Ok(1..) => {}
                _ => size /= 2,
            }
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Checks that nothing is taken now: 503 with when to come again, and not ready.
async fn takes_nothing(node: &Running, report: &Report) {
    let answer = node.put(report).await;
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(problem(answer).await, (503, "unavailable".into()));
    let ready = node.client.get(format!("{}/readyz", node.admin)).send().await.unwrap();
    assert_eq!(problem(ready).await, (503, "unavailable".into()));
    let health = node.client.get(format!("{}/healthz", node.admin)).send().await.unwrap();
    assert_eq!(health.status(), 200, "but the process answers");
}

async fn ready(node: &Running) -> u16 {
    let url = format!("{}/readyz", node.admin);
    node.client.get(url).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_a_full_disk_acknowledges_nothing_and_works_again_once_there_is_space() {
    let mut place = Place::new(plain(mechanism(6, 0, &[(3, 8, 1)])));
    let folder = TempDir::new().unwrap();
    let disk = match SmallDisk::mount(folder.path()) {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("not tested, a small file system cannot be mounted here: {why}");
            return;
        }
    };
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    for entry in fs::read_dir(&place.config.data).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            fs::copy(entry.path(), data.join(entry.file_name())).unwrap();
        }
    }
    place.config.data = data;
    let node = place.start(Roles::Shuffler);
    let report = |number: u32| one_hot(place.mechanism(), 1, number);
    let mut acknowledged = Vec::new();
    for number in 0..3 {
        assert_eq!(node.put(&report(number)).await.status(), 204);
        acknowledged.push(number);
    }
    // The log is cut when there is nothing to do; then there is no room left in it.
    tokio::time::sleep(Duration::from_millis(600)).await;
    disk.fill();
    takes_nothing(&node, &report(3)).await;
    takes_nothing(&node, &report(4)).await;
    assert_eq!(node.filled().await, (Some(1), Some(3)), "no partial batch");
    assert_eq!(node.put(&report(0)).await.status(), 204, "what counted before counted");
    assert!(metric(&node.metrics().await, "incrowd_store_failures_total") >= 2.0);

    disk.free();
    assert_eq!(node.put(&report(5)).await.status(), 204, "without a restart");
    acknowledged.push(5);
    eventually("it is ready again", async || ready(&node).await == 200).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    disk.fill();
    takes_nothing(&node, &report(6)).await;
    node.stop().await;
    disk.free();

    let node = place.start(Roles::Shuffler);
    assert_eq!(node.filled().await, (Some(1), Some(acknowledged.len() as u32)));
    for number in 7..11 {
        assert_eq!(node.put(&report(number)).await.status(), 204);
        acknowledged.push(number);
    }
    assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), acknowledged));
    node.stop().await;
    drop(disk);
}

#[test]
fn r25_on_a_full_disk_no_store_says_that_it_could_store_something() {
    let folder = TempDir::new().unwrap();
    let disk = match SmallDisk::mount(folder.path()) {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("not tested, a small file system cannot be mounted here: {why}");
            return;
        }
    };
    let shuffler = SqliteShufflerStore::open(&folder.path().join("shuffler.db")).unwrap();
    let bandit = SqliteBanditStore::open(&folder.path().join("bandit.db")).unwrap();
    let task = crate::common::orphan(plain(mechanism(2, 0, &[(2, 2, 1)])));
    shuffler.open(&task.id()).unwrap();
    bandit.open(&task).unwrap();
    let probe = || (shuffler.check_writable().is_ok(), bandit.check_writable().is_ok());
    assert_eq!(probe(), (true, true));
    for name in ["shuffler.db", "bandit.db"] {
        let file = rusqlite::Connection::open(folder.path().join(name)).unwrap();
        file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    disk.fill();
    assert_eq!(probe(), (false, false));
    disk.free();
    assert_eq!(probe(), (true, true));
    drop((shuffler, bandit, disk));
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_a_locked_store_acknowledges_nothing_and_works_again_once_it_is_free() {
    let place = Place::new(plain(mechanism(6, 0, &[(3, 3, 1)])));
    let node = place.start(Roles::Shuffler);
    let report = |number: u32| one_hot(place.mechanism(), 1, number);
    assert_eq!(node.put(&report(0)).await.status(), 204);
    let lock = rusqlite::Connection::open(place.files().shuffler_store).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    takes_nothing(&node, &report(1)).await;
    let closing = node.close().await;
    assert_eq!(closing, 503, "closing is not acknowledged either");
    assert_eq!(node.status().await.closed, Some(false));
    lock.execute_batch("ROLLBACK").unwrap();
    assert_eq!(node.filled().await, (Some(1), Some(1)));
    assert_eq!(node.put(&report(2)).await.status(), 204);
    eventually("it is ready again", async || ready(&node).await == 200).await;
    assert_eq!(node.put(&report(3)).await.status(), 204);
    assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), [0, 2, 3]));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_a_damaged_release_is_not_served_and_a_damaged_store_not_opened() {
    let place = Place::new(plain(mechanism(6, 0, &[(3, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    for number in 0..5 {
        assert_eq!(
            node.put(&one_hot(place.mechanism(), number / 2 + 1, number)).await.status(),
            204
        );
    }
    node.stop().await;
    let change = |sql: &str| {
        let file = rusqlite::Connection::open(place.files().shuffler_store).unwrap();
        assert_eq!(file.execute(sql, []).unwrap(), 1);
    };
    change(
        "UPDATE release SET bytes = CAST(replace(CAST(bytes AS TEXT), '\"1\"', '\"0\"') AS BLOB) WHERE round = 1",
    );
    let node = place.start(Roles::Shuffler);
    assert_eq!(problem(node.release(1).await).await, (503, "unavailable".into()));
    node.stop().await;
    // The last one is held against the heads at the start.
    change("UPDATE release SET bytes = zeroblob(length(bytes)) WHERE round = 2");
    let refused = incrowd_node::Node::start(&place.config, Roles::Shuffler).err().unwrap();
    assert!(refused.to_string().contains("damaged"), "{refused}");
    fs::remove_file(place.files().heads).unwrap();
    place.start(Roles::Shuffler).stop().await;
    change("UPDATE sums SET bytes = zeroblob(length(bytes))");
    let refused = incrowd_node::Node::start(&place.config, Roles::Shuffler).err().unwrap();
    assert!(refused.to_string().contains("damaged"), "{refused}");
}

/// Copies what a kill would leave at this moment: keys first, so that no noted commit is missing.
fn image(place: &Place, to: &Path) {
    let reader = rusqlite::Connection::open(place.files().shuffler_store).unwrap();
    // Keeps the write-ahead log from being cut meanwhile.
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).unwrap();
    for (from, to) in [
        (place.round_keys.path().join("keys"), to.join("keys")),
        (place.config.data.clone(), to.join("data")),
    ] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() {
                fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_a_log_that_lost_acknowledged_commits_is_told() {
    let place = Place::new(plain(mechanism(6, 0, &[(3, 9, 1)])));
    let node = place.start(Roles::Shuffler);
    for number in 0..4 {
        assert_eq!(node.put(&one_hot(place.mechanism(), 1, number)).await.status(), 204);
    }
    let [whole, damaged] = [(); 2].map(|()| {
        let folder = TempDir::new().unwrap();
        image(&place, folder.path());
        folder
    });
    node.stop().await;
    let log = fs::File::options().write(true).open(damaged.path().join("data/shuffler.db-wal"));
    let log = log.unwrap();
    log.set_len(log.metadata().unwrap().len() - 1).unwrap();
    for (folder, lost) in [(whole, false), (damaged, true)] {
        let mut config = place.config.clone();
        config.data = folder.path().join("data");
        config.shuffler.round_keys =
            Some(RoundKeysConfig::File { path: Some(folder.path().join("keys")) });
        let (task, tokens) = (place.task.clone(), place.tokens.clone());
        let other = Place { folder, round_keys: TempDir::new().unwrap(), config, task, tokens };
        let node = other.start(Roles::Shuffler);
        let name = format!("incrowd_lost_commits_total{{task=\"{}\"}}", place.task.id());
        let commits = metric(&node.metrics().await, &name);
        assert_eq!(commits > 0.5, lost, "{commits} commits lost");
        let (_, reports) = node.filled().await;
        assert!(reports == Some(4) || lost, "{reports:?}");
        node.stop().await;
    }
}
