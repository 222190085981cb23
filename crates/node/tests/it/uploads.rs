//! Reports over HTTP: R1 (full batches only), R2 (released once), R3 (once), R4 (window), R7
//! (order), R8 (valid only), R12 (lengths), and what each sender is told.

use std::{sync::Arc, time::Duration};

use crate::common::{
    Place, eventually, hot, id, joined, mechanism, metric, one_hot, outcomes, plain, problem, sums,
};
use incrowd_device::Device;
use incrowd_node::{Role, Roles};
use incrowd_protocol::{BULK_LIMIT, MediaType, Report, coordinates, paths};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use reqwest::{Method, StatusCode};

#[tokio::test(flavor = "multi_thread")]
async fn r1_a_batch_is_released_when_it_is_full_and_not_before() {
    let place = Place::new(plain(mechanism(3, 0, &[(2, 3, 1)])));
    let node = place.start(Roles::Shuffler);
    for number in 0..3 {
        let early = node.release(1).await;
        assert_eq!(early.status(), 202, "after {number} reports");
        assert_eq!(early.headers()["retry-after"], "1");
        assert!(early.bytes().await.unwrap().is_empty());
        assert_eq!(node.round().await, Some(1));
        assert_eq!(node.put(&one_hot(node.mechanism(), 1, number)).await.status(), 204);
    }
    assert_eq!(sums(&node.released(1).await), hot(node.mechanism(), 0..3));
    assert_eq!((node.round().await, node.filled().await), (Some(2), (Some(2), Some(0))));
    assert_eq!(problem(node.release(3).await).await, (404, "not-found".into()));
    assert_eq!(problem(node.release(0).await).await, (404, "not-found".into()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_r5_a_restart_releases_nothing_and_loses_nothing() {
    let place = Place::new(plain(mechanism(3, 0, &[(1, 3, 1)])));
    for number in 0..3 {
        let node = place.start(Roles::Shuffler);
        assert_eq!(node.filled().await, (Some(1), Some(number)), "what was acknowledged is there");
        assert_eq!(node.release(1).await.status(), 202, "never fewer, also after a shutdown");
        assert_eq!(node.put(&one_hot(node.mechanism(), 1, number)).await.status(), 204);
        node.stop().await;
    }
    let node = place.start(Roles::Shuffler);
    assert_eq!(sums(&node.released(1).await), hot(node.mechanism(), 0..3));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_closing_a_task_destroys_its_unfinished_batch_and_keeps_its_releases() {
    let place = Place::new(plain(mechanism(3, 0, &[(3, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    for number in 0..3 {
        assert_eq!(
            node.put(&one_hot(node.mechanism(), number / 2 + 1, number)).await.status(),
            204
        );
    }
    let first = node.released(1).await;
    let waiting = tokio::spawn({
        let request =
            node.ask(Method::GET, "/releases/2?wait=30").bearer_auth(node.token(Role::Bandit));
        async move { problem(request.send().await.unwrap()).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(node.close().await, StatusCode::NO_CONTENT);
    let told = tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    assert_eq!(told, (410, "finished".into()), "who waits is told at once");
    let late = node.put(&one_hot(node.mechanism(), 2, 3)).await;
    assert_eq!(problem(late).await, (410, "finished".into()));
    assert_eq!(node.round().await, None);
    assert_eq!(node.close().await, StatusCode::NO_CONTENT, "closing again is the same");
    node.stop().await;

    let node = place.start(Roles::Shuffler);
    let status = node.status().await;
    assert_eq!((status.closed, status.round, status.reports), (Some(true), None, Some(0)));
    assert_eq!(node.released(1).await, first);
    assert_eq!(problem(node.release(2).await).await, (410, "finished".into()));
    let late = node.put(&one_hot(node.mechanism(), 2, 3)).await;
    assert_eq!(problem(late).await, (410, "finished".into()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_everyone_gets_the_same_release_for_the_life_of_the_task() {
    let place = Place::new(plain(mechanism(3, 0, &[(5, 2, 1)])));
    let node = Arc::new(place.start(Roles::Shuffler));
    // Four rounds go by while nobody fetches one.
    for number in 0..8 {
        assert_eq!(
            node.put(&one_hot(node.mechanism(), number / 2 + 1, number)).await.status(),
            204
        );
    }
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..50 {
        let node = node.clone();
        readers.spawn(async move { (reader % 4, node.released(reader % 4 + 1).await) });
    }
    let all = readers.join_all().await;
    let of = |round: u32| all.iter().filter(move |(found, _)| *found == round);
    for round in 0..4 {
        let (_, first) = of(round).next().unwrap();
        assert!(of(round).all(|(_, bytes)| bytes == first));
        assert_eq!(sums(first), hot(node.mechanism(), [2 * round, 2 * round + 1]));
    }
    Arc::into_inner(node).unwrap().stop().await;
    let node = place.start(Roles::Shuffler);
    for (round, bytes) in &all {
        assert_eq!(&node.released(round + 1).await, bytes, "after a restart");
    }
    let release = node.release(1).await;
    let etag = release.headers()["etag"].clone();
    let again = node
        .ask(Method::GET, "/releases/1")
        .bearer_auth(node.token(Role::Bandit))
        .header("if-none-match", etag);
    assert_eq!(again.send().await.unwrap().status(), 304);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_the_same_report_at_the_same_time_from_everywhere_counts_once() {
    let place = Place::new(plain(mechanism(6, 0, &[(2, 4, 1)])));
    let node = Arc::new(place.start(Roles::Shuffler));
    for number in 0..3 {
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let node = node.clone();
            senders.spawn(async move {
                node.put(&one_hot(node.mechanism(), 1, number)).await.status().as_u16()
            });
        }
        assert_eq!(senders.join_all().await, vec![204; 32], "a duplicate looks like a success");
        assert_eq!(node.filled().await, (Some(1), Some(number + 1)));
    }
    assert_eq!(node.put(&one_hot(node.mechanism(), 1, 3)).await.status(), 204);
    assert_eq!(sums(&node.released(1).await), hot(node.mechanism(), 0..4));
    let text = node.metrics().await;
    let outcome = |name: &str| {
        let task = node.task.id();
        metric(&text, &format!("incrowd_reports_total{{task=\"{task}\",outcome=\"{name}\"}}"))
    };
    assert_eq!((outcome("counted"), outcome("duplicate")), (4.0, 93.0));
    Arc::into_inner(node).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_duplicates_count_once_within_a_request_and_across_restarts() {
    let place = Place::new(plain(mechanism(6, 1, &[(3, 4, 1)])));
    let node = place.start(Roles::Shuffler);
    let report = |round, number| one_hot(place.mechanism(), round, number);
    let twice = [report(1, 0), report(1, 1), report(1, 0), report(1, 1), report(1, 1)];
    assert_eq!(node.bulk(&twice).await, (5, vec![]));
    assert_eq!(node.filled().await, (Some(1), Some(2)));
    node.stop().await;
    let node = place.start(Roles::Shuffler);
    let more = [report(1, 0), report(1, 2), report(1, 3), report(1, 1)];
    assert_eq!(node.bulk(&more).await, (4, vec![]));
    assert_eq!(node.filled().await, (Some(2), Some(0)), "the window keeps the ids of round 1");
    node.stop().await;
    let node = place.start(Roles::Shuffler);
    // Same id, made for the round after: a second report with a known name is no new one.
    assert_eq!(node.bulk(&[report(1, 0), report(2, 3), report(2, 4)]).await, (3, vec![]));
    assert_eq!(node.filled().await, (Some(2), Some(1)));
    assert_eq!(sums(&node.released(1).await), hot(node.mechanism(), 0..4));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_a_report_counts_only_within_its_window_and_law() {
    // Rounds 1 to 3 with m = 1, round 4 with m = 2; grace 1.
    let place = Place::new(plain(mechanism(6, 1, &[(3, 2, 1), (1, 2, 2)])));
    let node = place.start(Roles::Shuffler);
    let send = async |round, number| {
        let answer = node.put(&one_hot(place.mechanism(), round, number)).await;
        if answer.status() == 204 { (204, String::new()) } else { problem(answer).await }
    };
    let ok = (204, String::new());
    assert_eq!(send(2, 0).await, (409, "early".into()));
    assert_eq!(send(1, 0).await, ok);
    assert_eq!(send(1, 1).await, ok);
    assert_eq!(send(1, 2).await, ok, "one round late");
    assert_eq!(send(1, 1).await, ok, "a retry within the window looks like the first success");
    assert_eq!(send(2, 3).await, ok);
    assert_eq!(send(1, 4).await, (409, "late".into()));
    assert_eq!(send(1, 0).await, (409, "late".into()), "its id is forgotten, its round is over");
    assert_eq!(send(3, 5).await, ok);
    assert_eq!(send(3, 6).await, ok);
    assert_eq!(send(3, 7).await, (409, "other-law".into()));
    assert_eq!(node.filled().await, (Some(4), Some(0)));
    for (round, numbers) in [(1, [0, 1]), (2, [2, 3]), (3, [5, 6])] {
        assert_eq!(sums(&node.released(round).await), hot(place.mechanism(), numbers));
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_a_shuffler_forgets_as_soon_as_nobody_is_in_the_way() {
    let place = Place::new(plain(mechanism(6, 0, &[(2, 9, 1)])));
    let node = place.start(Roles::Shuffler);
    let log = place.config.data.join("shuffler.db-wal");
    let size = || std::fs::metadata(&log).map_or(0, |file| file.len());
    let forgets = async || eventually("the log is empty", async || size() == 0).await;
    assert_eq!(node.put(&one_hot(node.mechanism(), 1, 0)).await.status(), 204);
    forgets().await;
    let reader = rusqlite::Connection::open(place.files().shuffler_store).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task;").unwrap();
    let began = std::time::Instant::now();
    for number in 1..5 {
        assert_eq!(node.put(&one_hot(node.mechanism(), 1, number)).await.status(), 204);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(4), "who reads keeps nobody waiting");
    assert!(size() > 0, "this test would see what is left");
    drop(reader);
    forgets().await;
    node.close().await;
    forgets().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_an_upload_that_is_open_when_the_service_stops_is_answered_and_durable() {
    use std::io::{Read, Write};
    let mut place = Place::new(plain(mechanism(6, 0, &[(2, 9, 1)])));
    place.config.http.shutdown_seconds = 5;
    let node = place.start(Roles::Shuffler);
    let report = one_hot(place.mechanism(), 1, 0);
    let body = report.encode(place.mechanism()).unwrap();
    let mut stream = std::net::TcpStream::connect(node.node.address()).unwrap();
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: node\r\nauthorization: Bearer {}\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
        paths::report(&place.task.id(), report.id()),
        place.token(Role::Device),
        MediaType::Report,
        body.len(),
    );
    stream.write_all(&[head.as_bytes(), &body[..5]].concat()).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let address = node.node.address();
    let stopping = tokio::spawn(node.stop());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(std::net::TcpStream::connect(address).is_err(), "no new connections");
    stream.write_all(&body[5..]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    stopping.await.unwrap();
    let node = place.start(Roles::Shuffler);
    assert_eq!(node.filled().await, (Some(1), Some(1)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r7_the_release_does_not_depend_on_the_order_of_arrival() {
    let task = plain(mechanism(3, 0, &[(1, 12, 3)]));
    let mut released = Vec::new();
    for order in [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [7, 3, 11, 0, 9, 1, 10, 5, 2, 8, 6, 4]] {
        let place = Place::new(task.clone());
        let node = place.start(Roles::Shuffler);
        let reports = order.map(|number| {
            let counts: Vec<u16> = (0..9u32).map(|j| ((number * 5 + j * 3) % 4) as u16).collect();
            Report::new(place.mechanism(), 1, id(number), counts).unwrap()
        });
        let (one, many) = reports.split_at(order[0] as usize % 5 + 1);
        for report in one {
            assert_eq!(node.put(report).await.status(), 204);
        }
        assert_eq!(node.bulk(many).await.0, many.len() as u64);
        released.push(node.released(1).await);
        node.stop().await;
    }
    assert_eq!(released[0], released[1], "byte for byte");
}

#[tokio::test(flavor = "multi_thread")]
async fn r8_what_is_no_report_of_the_task_counts_nowhere() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 2)])));
    let node = place.start(Roles::Shuffler);
    let good = one_hot(place.mechanism(), 1, 0);
    let bytes = good.encode(place.mechanism()).unwrap();
    let other = mechanism(2, 0, &[(2, 3, 2)]);
    let changed = |index: usize, to: u8| {
        let mut bytes = bytes.clone();
        bytes[index] = to;
        bytes
    };
    let bad = [
        ("another version", changed(0, 2)),
        ("another task", one_hot(&other, 1, 0).encode(&other).unwrap()),
        ("a round that does not exist", changed(12, 3)),
        ("round 0", changed(12, 0)),
        ("a count above m", changed(29, 0b11)),
        ("padding", changed(30, 0b1000_0000)),
        ("too short", bytes[..bytes.len() - 1].to_vec()),
        ("too long", [bytes.as_slice(), &[0]].concat()),
        ("nothing", Vec::new()),
    ];
    for (what, body) in &bad {
        let answer = node.upload(good.id(), MediaType::Report, body.clone()).send().await.unwrap();
        assert_eq!(problem(answer).await, (422, "invalid-report".into()), "{what}");
    }
    let elsewhere = node.upload(id(9), MediaType::Report, bytes.clone()).send().await.unwrap();
    assert_eq!(problem(elsewhere).await, (422, "other-id".into()));
    let answer = node.post(MediaType::Reports, joined(bad.iter().map(|(_, body)| body))).await;
    let (accepted, refused) = outcomes(answer).await;
    assert_eq!((accepted, refused.len()), (0, bad.len()));
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    assert_eq!(node.put(&good).await.status(), 204, "its id was not used up");
    assert_eq!(node.filled().await, (Some(1), Some(1)));
    for path in ["/reports/xyz", "/reports/A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5", "/reports/00"] {
        let answer = node.ask(Method::PUT, path).bearer_auth(node.token(Role::Device));
        let answer = answer.header("content-type", MediaType::Report.as_str()).body(bytes.clone());
        assert_eq!(problem(answer.send().await.unwrap()).await.0, 404, "{path}");
    }
    let typed = node.upload(good.id(), MediaType::Json, bytes).send().await.unwrap();
    assert_eq!(problem(typed).await, (415, "unsupported-type".into()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_says_which_reports_do_not_count_and_why() {
    let place = Place::new(plain(mechanism(6, 0, &[(2, 4, 1)])));
    let node = place.start(Roles::Shuffler);
    let report = |round, number| one_hot(place.mechanism(), round, number);
    let encode = |report: Report| report.encode(place.mechanism()).unwrap();
    let body = joined([
        encode(report(1, 0)),
        b"no report".to_vec(),
        encode(report(2, 1)),
        encode(report(1, 0)),
        encode(report(1, 2)),
        encode(report(1, 3)),
        encode(report(1, 4)),
        // The fourth fills round 1; now round 2 is current.
        encode(report(1, 5)),
        encode(report(2, 6)),
    ]);
    let (accepted, refused) = outcomes(node.post(MediaType::Reports, body).await).await;
    let names = [(1, "invalid-report"), (2, "early"), (7, "late")];
    assert_eq!(refused, names.map(|(index, name)| (index, name.to_owned())));
    assert_eq!(accepted, 6);
    assert_eq!(sums(&node.released(1).await), hot(node.mechanism(), [0, 2, 3, 4]));
    assert_eq!(node.filled().await, (Some(2), Some(1)));
    assert_eq!(outcomes(node.post(MediaType::Reports, Vec::new()).await).await, (0, vec![]));
    for broken in [vec![0, 0, 0], vec![0, 0, 0, 9, 1], vec![0xff; 8]] {
        let answer = node.post(MediaType::Reports, broken).await;
        assert_eq!(problem(answer).await, (400, "bad-request".into()));
    }
    let many = joined(vec![[0u8; 0]; BULK_LIMIT + 1]);
    assert_eq!(problem(node.post(MediaType::Reports, many).await).await, (413, "too-large".into()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_waited_for_comes_when_its_batch_is_full() {
    let place = Place::new(plain(mechanism(3, 0, &[(1, 2, 1)])));
    let node = Arc::new(place.start(Roles::Shuffler));
    let waiting = tokio::spawn({
        let node = node.clone();
        async move { node.released(1).await }
    });
    assert_eq!(node.put(&one_hot(node.mechanism(), 1, 0)).await.status(), 204);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    assert_eq!(node.put(&one_hot(node.mechanism(), 1, 1)).await.status(), 204);
    let bytes = tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    assert_eq!(sums(&bytes), hot(node.mechanism(), 0..2));
    for wait in ["61", "-1", "x"] {
        let path = format!("/releases/1?wait={wait}");
        let answer = node.ask(Method::GET, &path).bearer_auth(node.token(Role::Bandit));
        let answer = problem(answer.send().await.unwrap()).await;
        assert_eq!(answer, (400, "bad-request".into()), "wait={wait}");
    }
    Arc::into_inner(node).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_the_task_ends_with_its_last_round_for_everyone() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Both);
    for number in 0..4 {
        let answer = node.put(&one_hot(node.mechanism(), number / 2 + 1, number)).await;
        assert_eq!(answer.status(), 204);
    }
    assert_eq!(node.round().await, None, "the notice of the round says null");
    let late = node.put(&one_hot(node.mechanism(), 2, 4)).await;
    assert_eq!(problem(late).await, (410, "finished".into()));
    assert_eq!(
        node.bulk(&[one_hot(node.mechanism(), 2, 4)]).await,
        (0, vec![(0, "finished".into())])
    );
    eventually("the collector absorbed the last round", async || {
        node.status().await.absorbed == Some(2)
    })
    .await;
    let text = node.metrics().await;
    assert!(metric(&text, "incrowd_collector_failures") < 0.5, "and asks for no more");
    assert_eq!(sums(&node.released(2).await), hot(node.mechanism(), 2..4));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r12_reports_of_real_devices_have_one_length_and_make_the_release() {
    let place = Place::new(plain(mechanism(3, 0, &[(1, 40, 5)])));
    let node = place.start(Roles::Shuffler);
    let task = Arc::new(place.task.config().clone());
    let (mut lengths, mut expected) = (Vec::new(), vec![0i64; coordinates(3)]);
    for person in 0..40u8 {
        let rng = ChaCha20Rng::from_seed([person; 32]);
        let mut device = Device::simulated(task.clone(), rng);
        let context = [f64::from(person) / 40.0, 0.0, -0.3];
        let report = device.report(1, &context, f64::from(person % 2)).unwrap().report;
        lengths.push(report.encode(place.mechanism()).unwrap().len());
        expected
            .iter_mut()
            .zip(report.payload().counts().unwrap())
            .for_each(|(sum, &count)| *sum += i64::from(count));
        assert_eq!(node.put(&report).await.status(), 204);
    }
    lengths.dedup();
    assert_eq!(lengths, [29 + (9 * 3usize).div_ceil(8)]);
    assert_eq!(sums(&node.released(1).await), expected);
    node.stop().await;
}
