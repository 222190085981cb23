//! Models over HTTP: R20 (the same signed bytes for everyone, versions only grow) and R24 (each
//! release once, and the same model however the bandit got there).

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::common::{Place, Running, eventually, id, mechanism, one_hot, plain, problem, timed};
use incrowd_bandit::Bandit;
use incrowd_envelope::{Document, Signature, verify};
use incrowd_node::{
    Roles,
    store::{BanditStore, SqliteBanditStore, StoredModel},
};
use incrowd_protocol::{Model, Release, Report, SIGNATURE_HEADER, Task, paths};
use reqwest::Method;

const SIZE: u32 = 6;
/// A time that does not come.
const FAR: u64 = 4_000_000_000_000;

/// Fills a round with reports that are different in every round.
async fn fill(node: &Running, round: u32) {
    let reports: Vec<Report> = (0..SIZE)
        .map(|number| {
            let counts = (0..5).map(|j| u16::from((round * 31 + number * 7 + j * j) % 5 < 3));
            let id = id(round * 1000 + number);
            Report::new(node.mechanism(), round, id, counts.collect::<Vec<_>>()).unwrap()
        })
        .collect();
    assert_eq!(node.bulk(&reports).await, (u64::from(SIZE), vec![]));
}

/// What the library makes of the releases.
fn models(task: &Task, releases: &[Vec<u8>]) -> Vec<StoredModel> {
    let mut bandit = Bandit::new(Arc::new(task.config().clone()));
    let absorb = |release: &Vec<u8>| {
        let release: Release = serde_json::from_slice(release).unwrap();
        let model = bandit.absorb(release.sums()).unwrap()?;
        Some(StoredModel { version: model.version(), bytes: serde_json::to_vec(&model).unwrap() })
    };
    releases.iter().filter_map(absorb).collect()
}

fn stored(place: &Place) -> Vec<StoredModel> {
    let store = SqliteBanditStore::inspect(&place.files().bandit_store).unwrap();
    store.models(&place.task.id()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn r20_everyone_gets_the_same_signed_bytes_of_a_version() {
    let place = Place::new(plain(mechanism(2, 0, &[(5, SIZE, 1)])));
    let node = Arc::new(place.start(Roles::Both));
    assert_eq!(problem(node.model().await).await, (404, "no-model-yet".into()));
    fill(&node, 1).await;
    let first = node.model_of(1).await;
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let node = node.clone();
        readers.spawn(async move { node.signed(node.model().await, Document::Model).await });
    }
    assert!(readers.join_all().await.iter().all(|bytes| *bytes == first));
    let model: Model = serde_json::from_slice(&first).unwrap();
    assert_eq!((model.version(), model.round()), (1, 1));
    assert_eq!(model.mechanism(), place.mechanism().hash());

    let answer = node.model().await;
    let (etag, signature) = (&answer.headers()["etag"], &answer.headers()[SIGNATURE_HEADER]);
    let signature: Signature = signature.to_str().unwrap().parse().unwrap();
    let (keys, task) = (place.task.keys(), place.task.id());
    assert!(verify(&keys.bandit, Document::Model, &task, &first, &signature).is_ok());
    assert!(verify(&keys.shuffler, Document::Model, &task, &first, &signature).is_err());
    assert!(verify(&keys.bandit, Document::Release, &task, &first, &signature).is_err());
    let known = async |tag: &str| {
        let request = node.ask(Method::GET, "/model").header("if-none-match", tag);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.bytes().await.unwrap().is_empty())
    };
    let etag = etag.to_str().unwrap();
    assert_eq!(known(etag).await, (304, true));
    assert_eq!(known(&format!("\"x\", W/{etag}")).await, (304, true));
    assert_eq!(known("\"x\"").await, (200, false));
    fill(&node, 2).await;
    node.model_of(2).await;
    assert_eq!(known(etag).await, (200, false), "the next version has another name");
    Arc::into_inner(node).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r20_versions_only_grow_over_restarts_too() {
    let place = Place::new(plain(mechanism(2, 0, &[(5, SIZE, 1)])));
    let node = place.start(Roles::Both);
    let mut last = 0;
    for round in 1..=5 {
        fill(&node, round).await;
        let bytes = node.model_of(round).await;
        let version = serde_json::from_slice::<Model>(&bytes).unwrap().version();
        assert!(version > last);
        last = version;
    }
    node.stop().await;
    let node = place.start(Roles::Both);
    let bytes = node.signed(node.model().await, Document::Model).await;
    let model: Model = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((model.version(), model.round()), (last, 5), "also over a restart");
    node.stop().await;
}

/// A cache in front gives a model out for a sixtieth of the shortest round.
#[tokio::test(flavor = "multi_thread")]
async fn r20_a_model_and_its_absence_can_be_cached_at_the_tasks_pace() {
    let windows = [(10_000, 1), (120_000, 2), (3_600_000, 60), (86_400_000, 300)];
    let timed = windows.map(|(window, seconds)| (timed(2, FAR, window, 5, SIZE), seconds));
    for (mechanism, seconds) in [(mechanism(2, 0, &[(5, SIZE, 1)]), 5)].into_iter().chain(timed) {
        let by_count = seconds == 5;
        let place = Place::new(plain(mechanism));
        let node = place.start(Roles::Both);
        let cache = format!("public, max-age={seconds}");
        let answer = node.model().await;
        assert_eq!(answer.headers()["cache-control"], cache);
        assert_eq!(answer.headers()["retry-after"], seconds.to_string());
        assert_eq!(problem(answer).await, (404, "no-model-yet".into()));
        // A task that is not there may be there in a moment: nobody keeps that.
        let missing = node.base.clone() + &paths::model(&"0".repeat(64).parse().unwrap());
        let answer = node.client.get(missing).send().await.unwrap();
        assert_eq!(answer.headers()["cache-control"], "no-store");
        assert_eq!(problem(answer).await, (404, "not-found".into()));
        if by_count {
            fill(&node, 1).await;
            node.model_of(1).await;
            let tag = node.model().await.headers()["etag"].clone();
            for (known, status) in [("\"x\"", 200), (tag.to_str().unwrap(), 304)] {
                let request = node.ask(Method::GET, "/model").header("if-none-match", known);
                let answer = request.send().await.unwrap();
                assert_eq!((answer.status().as_u16(), &answer.headers()["etag"]), (status, &tag));
                assert_eq!(answer.headers()["cache-control"], cache);
            }
        }
        node.stop().await;
    }
}

/// The attack of 5,000 long-polls that took every permit: what anyone may ask is answered at once.
#[tokio::test(flavor = "multi_thread")]
async fn r29_what_anyone_may_ask_never_waits_and_keeps_no_upload_out() {
    let place = Place::new(plain(mechanism(2, 0, &[(5, SIZE, 1)])));
    let node = Arc::new(place.start(Roles::Both));
    let began = Instant::now();
    let mut strangers = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let node = node.clone();
        strangers.spawn(async move {
            for number in 0..25 {
                let path = ["/model", "/round", "/config", "/model", "/model"][number % 5];
                let asked = node.ask(Method::GET, &format!("{path}?wait=60&after=0")).send();
                let status = asked.await.unwrap().status().as_u16();
                assert_eq!(status, if path == "/model" { 404 } else { 200 });
            }
        });
    }
    for number in 0..SIZE - 1 {
        let report = one_hot(node.mechanism(), 1, number);
        assert_eq!(node.put(&report).await.status(), 204);
    }
    while let Some(done) = strangers.join_next().await {
        done.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(50), "somebody waited");
    Arc::into_inner(node).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_the_model_is_the_librarys_however_often_the_bandit_stops_and_from_nothing_too() {
    let rounds = 6;
    let place = Place::new(plain(mechanism(2, 0, &[(rounds, SIZE, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let at_bandit = place.bandit_of(&shuffler);
    let mut releases = Vec::new();
    // Rounds go by with the bandit there and away.
    for (fills, there) in [(1..=1, true), (2..=3, false), (4..=4, true), (5..=6, false)] {
        let bandit = there.then(|| at_bandit.start(Roles::Bandit));
        for round in fills.clone() {
            fill(&shuffler, round).await;
            releases.push(shuffler.released(round).await);
        }
        if let Some(bandit) = bandit {
            bandit.model_of(*fills.end()).await;
            bandit.stop().await;
        }
    }
    let bandit = at_bandit.start(Roles::Bandit);
    let newest = bandit.model_of(rounds).await;
    assert_eq!(bandit.status().await.absorbed, Some(rounds));
    let expected = models(&place.task, &releases);
    assert_eq!(expected.len(), rounds as usize);
    assert_eq!(expected.last().unwrap().bytes, newest);
    assert_eq!(stored(&at_bandit), expected, "bit for bit, every version");
    bandit.stop().await;

    for file in ["bandit.db", "bandit.db-wal", "bandit.db-shm"] {
        let _ = fs::remove_file(at_bandit.config.data.join(file));
    }
    let bandit = at_bandit.start(Roles::Bandit);
    assert_eq!(bandit.model_of(rounds).await, newest);
    assert_eq!(stored(&at_bandit), expected, "rebuilt from the releases alone");
    let store = SqliteBanditStore::inspect(&at_bandit.files().bandit_store).unwrap();
    let kept: Vec<Vec<u8>> =
        store.releases(&place.task.id()).unwrap().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(kept, releases);
    bandit.stop().await;
    shuffler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_the_bandit_waits_for_a_shuffler_that_is_away() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, SIZE, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let at_bandit = place.bandit_of(&shuffler);
    let address = shuffler.node.address();
    shuffler.stop().await;
    let bandit = at_bandit.start(Roles::Bandit);
    eventually("a failure is counted", async || {
        let text = bandit.metrics().await;
        let mut lines = text.lines().filter(|line| line.starts_with("incrowd_collector_failures"));
        lines.any(|line| !line.ends_with(" 0"))
    })
    .await;
    place.config.listen = address;
    let shuffler = place.start(Roles::Shuffler);
    fill(&shuffler, 1).await;
    bandit.model_of(1).await;
    bandit.stop().await;
    shuffler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_a_release_that_the_shuffler_did_not_sign_is_not_absorbed() {
    use axum::{Router, http::HeaderMap, routing::get};
    let place = Place::new(plain(mechanism(2, 0, &[(2, SIZE, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    fill(&shuffler, 1).await;
    let release = shuffler.release(1).await;
    let signature = release.headers()[SIGNATURE_HEADER].clone();
    let honest = release.bytes().await.unwrap().to_vec();
    // Somebody in between who changes one digit of one sum.
    let text = String::from_utf8(honest.clone()).unwrap();
    let place_of_sum = text.find("\"sums\":[\"").unwrap() + 9;
    let mut forged = honest;
    forged[place_of_sum] = if forged[place_of_sum] == b'1' { b'2' } else { b'1' };
    let answer = move || {
        let mut headers = HeaderMap::new();
        headers.insert(SIGNATURE_HEADER, signature.clone());
        let forged = forged.clone();
        async move { (headers, forged) }
    };
    let app = Router::new().route(paths::RELEASE, get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let forger = tokio::spawn(async move { axum::serve(listener, app).await });
    let mut at_bandit = place.bandit_of(&shuffler);
    at_bandit.config.bandit.shuffler_url = format!("http://{address}");
    let bandit = at_bandit.start(Roles::Bandit);
    eventually("the forgery is noticed", async || {
        let text = bandit.metrics().await;
        let mut lines = text.lines().filter(|line| line.starts_with("incrowd_collector_failures"));
        lines.any(|line| !line.ends_with(" 0"))
    })
    .await;
    assert_eq!(bandit.status().await.absorbed, Some(0));
    bandit.stop().await;
    at_bandit.config.bandit.shuffler_url = shuffler.base.clone();
    let bandit = at_bandit.start(Roles::Bandit);
    bandit.model_of(1).await;
    bandit.stop().await;
    shuffler.stop().await;
    forger.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bandit_stops_asking_when_the_task_is_closed() {
    let place = Place::new(plain(mechanism(2, 0, &[(3, SIZE, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let bandit = place.bandit_of(&shuffler).start(Roles::Bandit);
    fill(&shuffler, 1).await;
    let model = bandit.model_of(1).await;
    assert_eq!(shuffler.close().await, 204);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let text = shuffler.metrics().await;
    let told = crate::common::metric(&text, "incrowd_http_requests_total{status=\"410\"}");
    assert!((told - 1.0).abs() < 0.5, "it is told once and asks no more");
    assert_eq!(bandit.signed(bandit.model().await, Document::Model).await, model);
    bandit.stop().await;
    shuffler.stop().await;
}
