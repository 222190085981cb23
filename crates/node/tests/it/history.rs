//! R28: a store that went back in time is noticed before it counts, signs or releases anything.

use std::{fs, path::Path};

use axum::{Router, http::HeaderMap, routing::get};
use incrowd_envelope::{Document, Signed};
use incrowd_node::{
    Heads, KeyRole, Keys, Node, Roles, ServiceError, StoreError, store::ReleaseHash,
};
use incrowd_protocol::{BatchSums, Release, Report, SIGNATURE_HEADER, paths};
use reqwest::Method;

use crate::common::{Place, Running, eventually, mechanism, one_hot, plain, problem, sums};

const SIZE: u32 = 3;

fn place() -> Place {
    Place::new(plain(mechanism(6, 0, &[(6, SIZE, 1)])))
}

fn reports(place: &Place, round: u32) -> Vec<Report> {
    let first = (round - 1) * SIZE;
    (first..first + SIZE).map(|number| one_hot(place.mechanism(), round, number)).collect()
}

async fn fill(place: &Place, node: &Running, round: u32) {
    assert_eq!(node.bulk(&reports(place, round)).await.0, u64::from(SIZE));
}

/// Copies the files of a store.
fn copy_store(from: &Path, to: &Path, name: &str) {
    fs::create_dir_all(to).unwrap();
    for ending in ["", "-wal", "-shm"] {
        let file = format!("{name}.db{ending}");
        let _ = fs::remove_file(to.join(&file));
        let copied = fs::copy(from.join(&file), to.join(&file));
        assert!(copied.is_ok() || !ending.is_empty());
    }
}

async fn ready(node: &Running) -> (u16, String) {
    let url = format!("{}/readyz", node.admin);
    let answer = node.client.get(url).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn refused(place: &Place, roles: Roles) -> StoreError {
    match Node::start(&place.config, roles) {
        Err(ServiceError::Store(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r28_an_old_store_of_a_shuffler_is_refused_at_the_start() {
    let place = place();
    let (data, kept) = (place.config.data.clone(), place.folder.path().join("kept"));
    let node = place.start(Roles::Shuffler);
    fill(&place, &node, 1).await;
    node.stop().await;
    copy_store(&data, &kept, "shuffler");
    let node = place.start(Roles::Shuffler);
    fill(&place, &node, 2).await;
    let second = ReleaseHash::of(&node.released(2).await);
    node.stop().await;
    let heads = Heads::load(&place.files().heads).unwrap();
    let seen = heads.get(&place.task.id()).unwrap();
    assert_eq!((seen.round, seen.release), (2, second));

    let newest = place.folder.path().join("newest");
    copy_store(&data, &newest, "shuffler");
    copy_store(&kept, &data, "shuffler");
    let before = fs::read(data.join("shuffler.db")).unwrap();
    let error = refused(&place, Roles::Shuffler);
    let StoreError::WentBack(found) = &error else { panic!("{error}") };
    assert_eq!((found.seen.round, found.seen.release, found.found), (2, second, None));
    assert!(error.to_string().contains("heads.json"), "{error}");
    assert_eq!(fs::read(data.join("shuffler.db")).unwrap(), before, "nothing was counted");

    // Another release of the same round is no better.
    let aside = place.folder.path().join("heads");
    fs::rename(&place.files().heads, &aside).unwrap();
    let node = place.start(Roles::Shuffler);
    let others: Vec<Report> =
        (10..13).map(|number| one_hot(place.mechanism(), 2, number)).collect();
    assert_eq!(node.bulk(&others).await.0, 3);
    node.stop().await;
    fs::rename(&aside, &place.files().heads).unwrap();
    let error = refused(&place, Roles::Shuffler);
    let StoreError::WentBack(found) = &error else { panic!("{error}") };
    assert!(found.seen.round == 2 && found.found.is_some(), "{error}");

    // The newer store goes on; a file that is behind is no harm.
    copy_store(&newest, &data, "shuffler");
    let mut behind: serde_json::Value =
        serde_json::from_slice(&fs::read(&place.files().heads).unwrap()).unwrap();
    let node = place.start(Roles::Shuffler);
    let first = ReleaseHash::of(&node.released(1).await);
    node.stop().await;
    behind[place.task.id().to_string()] =
        serde_json::json!({"round": 1, "release": first.to_string()});
    fs::write(&place.files().heads, behind.to_string()).unwrap();
    let node = place.start(Roles::Shuffler);
    fill(&place, &node, 3).await;
    node.stop().await;
    let heads = Heads::load(&place.files().heads).unwrap();
    assert_eq!(heads.get(&place.task.id()).unwrap().round, 3);
    fs::write(&place.files().heads, "{").unwrap();
    let error = refused(&place, Roles::Shuffler);
    assert!(matches!(error, StoreError::HeadsFile(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r28_serve_compares_its_two_stores_before_it_counts() {
    let mut place = place();
    // On another disk, and lost.
    place.config.shuffler.heads = Some(place.folder.path().join("elsewhere.json"));
    let (data, kept) = (place.config.data.clone(), place.folder.path().join("kept"));
    let node = place.start(Roles::Both);
    fill(&place, &node, 1).await;
    node.model_of(1).await;
    node.stop().await;
    copy_store(&data, &kept, "shuffler");
    copy_store(&data, &kept, "bandit");
    let node = place.start(Roles::Both);
    fill(&place, &node, 2).await;
    node.model_of(2).await;
    node.stop().await;
    fs::remove_file(place.config.shuffler.heads.as_ref().unwrap()).unwrap();

    let newest = place.folder.path().join("newest");
    copy_store(&data, &newest, "shuffler");
    copy_store(&kept, &data, "shuffler");
    let error = refused(&place, Roles::Both);
    assert!(matches!(&error, StoreError::WentBack(found) if found.found.is_none()), "{error}");
    assert!(error.to_string().contains("the bandit's store has seen release 2"), "{error}");
    // A bandit that is behind collects again.
    copy_store(&newest, &data, "shuffler");
    copy_store(&kept, &data, "bandit");
    let node = place.start(Roles::Both);
    node.model_of(2).await;
    fill(&place, &node, 3).await;
    node.model_of(3).await;
    node.stop().await;
    // Everything together went back: nobody can know.
    fs::remove_file(place.config.shuffler.heads.as_ref().unwrap()).unwrap();
    for name in ["shuffler", "bandit"] {
        copy_store(&kept, &data, name);
    }
    place.start(Roles::Both).stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r28_a_bandit_that_knows_better_stops_the_shuffler() {
    let mut place = place();
    let (data, kept) = (place.config.data.clone(), place.folder.path().join("kept"));
    let node = place.start(Roles::Shuffler);
    let at_bandit = place.bandit_of(&node);
    place.config.listen = node.node.address();
    let bandit = at_bandit.start(Roles::Bandit);
    fill(&place, &node, 1).await;
    bandit.model_of(1).await;
    node.stop().await;
    copy_store(&data, &kept, "shuffler");
    let node = place.start(Roles::Shuffler);
    fill(&place, &node, 2).await;
    let model = bandit.model_of(2).await;
    bandit.stop().await;
    node.stop().await;

    copy_store(&kept, &data, "shuffler");
    fs::remove_file(&place.files().heads).unwrap();
    let node = place.start(Roles::Shuffler);
    assert_eq!(ready(&node).await.0, 200, "nobody has told it yet");
    // One report counts before the bandit asks; it is in no release that anybody gets.
    assert_eq!(node.put(&reports(&place, 2)[0]).await.status(), 204);
    let bandit = at_bandit.start(Roles::Bandit);
    eventually("the shuffler knows", async || ready(&node).await.0 == 503).await;
    assert!(ready(&node).await.1.contains("went back in time"));
    for report in &reports(&place, 2) {
        assert_eq!(problem(node.put(report).await).await, (503, "unavailable".into()));
    }
    assert_eq!(problem(node.release(1).await).await, (503, "unavailable".into()));
    assert_eq!(node.filled().await, (Some(2), Some(1)), "no report more");
    eventually("the bandit is not ready", async || ready(&bandit).await.0 == 503).await;
    assert!(ready(&bandit).await.1.contains("another history"));
    assert_eq!(bandit.signed(bandit.model().await, Document::Model).await, model);
    bandit.stop().await;
    node.stop().await;

    // The direct question, typed.
    let node = place.start(Roles::Shuffler);
    let ask = async |round: u32, after: &str| {
        let path = format!("/releases/{round}?after={after}");
        let token = place.token(incrowd_node::Role::Bandit);
        node.ask(Method::GET, &path).bearer_auth(token).send().await.unwrap()
    };
    let first = ReleaseHash::of(&node.released(1).await).to_string();
    assert_eq!(ask(2, &first).await.status(), 202);
    assert_eq!(problem(ask(1, &first).await).await, (400, "bad-request".into()));
    assert_eq!(problem(ask(2, "abc").await).await, (400, "bad-request".into()));
    assert_eq!(ready(&node).await.0, 200);
    assert_eq!(problem(ask(2, &"0".repeat(64)).await).await, (409, "other-history".into()));
    assert_eq!(ready(&node).await.0, 503);
    assert_eq!(problem(ask(2, &first).await).await, (503, "unavailable".into()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r28_the_bandit_refuses_a_signed_release_that_does_not_follow_what_it_absorbed() {
    let place = place();
    let shuffler = place.start(Roles::Shuffler);
    fill(&place, &shuffler, 1).await;
    let first = shuffler.released(1).await;
    // A shuffler with the right key and another history, which does not look at `after`.
    let keys = Keys::load(&place.files().shuffler_keys, KeyRole::Shuffler).unwrap();
    let (mechanism, task) = (place.mechanism().clone(), place.task.id());
    let second = move |previous: &[u8]| {
        let sums = BatchSums::new(&mechanism, 2, vec![1; mechanism.coordinates()]).unwrap();
        let release = Release::new(sums, Some(ReleaseHash::of(previous))).unwrap();
        let body = serde_json::to_vec(&release).unwrap();
        Signed::new(body, keys.signing(), Document::Release, &task)
    };
    let serve = async |second: Signed| {
        let first = shuffler.collector.release(&place.task, 1, None, std::time::Duration::ZERO);
        let first = first.await.unwrap().release().unwrap();
        let answer = move |axum::extract::Path((_, round)): axum::extract::Path<(String, u32)>| {
            let Signed { body, signature } =
                if round == 1 { first.clone() } else { second.clone() };
            let mut headers = HeaderMap::new();
            headers.insert(SIGNATURE_HEADER, signature.to_string().parse().unwrap());
            async move { (headers, body) }
        };
        let app = Router::new().route(paths::RELEASE, get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tokio::spawn(async move { axum::serve(listener, app).await }))
    };
    let (address, forger) = serve(second(b"another first release")).await;
    let mut at_bandit = place.bandit_of(&shuffler);
    at_bandit.config.bandit.shuffler_url = format!("http://{address}");
    let bandit = at_bandit.start(Roles::Bandit);
    bandit.model_of(1).await;
    eventually("it is noticed", async || ready(&bandit).await.0 == 503).await;
    assert_eq!(bandit.status().await.absorbed, Some(1));
    bandit.stop().await;
    forger.abort();
    // The same sums in the right chain are absorbed.
    let (address, honest) = serve(second(&first)).await;
    at_bandit.config.bandit.shuffler_url = format!("http://{address}");
    let bandit = at_bandit.start(Roles::Bandit);
    bandit.model_of(2).await;
    assert_eq!(sums(&first).len(), place.mechanism().coordinates());
    bandit.stop().await;
    honest.abort();
    shuffler.stop().await;
}
