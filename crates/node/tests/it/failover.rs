//! Another database server takes over, or an older state of it: what was acknowledged stays, what
//! was only visible on the lost one does no harm (R25), and a database that went back is noticed
//! (R28).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use incrowd_node::{Roles, StoreError, store::ReleaseHash};
use incrowd_testdb::{Server, USER};

use crate::{
    common::{Place, eventually, hot, one_hot, sums},
    nodes::{SIZE, is_ready, nodes, numbers, place, place_with_grace, refused, stop, unready},
};

/// A primary with a synchronous standby, and a place whose nodes know both, the standby first.
fn pair() -> (Server, Server, Place) {
    let (primary, standby, place) = asynchronous_pair();
    primary.set("synchronous_standby_names", "FIRST 1 (second)");
    (primary, standby, place)
}

/// The same, but commits do not wait for the standby.
fn asynchronous_pair() -> (Server, Server, Place) {
    let primary = Server::start(&[]);
    primary.create("incrowd");
    let standby = Server::standby_of(&primary, "second", &[]);
    let hosts = format!("{},{}", standby.address(), primary.address());
    let place = place_with_grace(format!("postgres://{USER}@{hosts}/incrowd"), 0);
    (primary, standby, place)
}

/// Ends every wait for a standby, as an operator may, until this is dropped: nobody knows what a
/// crash leaves then.
struct Impatient(Arc<AtomicBool>, Option<thread::JoinHandle<()>>);

impl Impatient {
    fn with(primary: &Arc<Server>) -> Self {
        let (over, primary) = (Arc::new(AtomicBool::new(false)), primary.clone());
        let watched = over.clone();
        let cancel =
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let cancelling = thread::spawn(move || {
            while !watched.load(SeqCst) {
                primary.sql("postgres", cancel);
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self(over, Some(cancelling))
    }
}

impl Drop for Impatient {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        self.1.take().map(thread::JoinHandle::join);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r25_when_the_primary_dies_the_standby_has_all_that_was_acknowledged() {
    let (primary, standby, place) = pair();
    let nodes = nodes(&place, 2, Roles::Both);
    let report = |number| one_hot(place.mechanism(), 1 + number / SIZE, number);
    // Into the second round: a release is served, and a model.
    for number in 0..SIZE + 4 {
        let node = &nodes[number as usize % 2].1;
        assert_eq!(node.put(&report(number)).await.status(), 204);
    }
    let release = nodes[0].1.released(1).await;
    let model = nodes[1].1.model_of(1).await;

    let primary = Arc::new(primary);
    standby.stop();
    let impatient = Impatient::with(&primary);
    assert_eq!(nodes[0].1.put(&report(SIZE + 4)).await.status(), 503, "nobody knows");
    drop(impatient);
    standby.start_again();
    eventually("it is ready again", async || is_ready(&nodes[0].1).await).await;
    assert_eq!(nodes[1].1.put(&report(SIZE + 4)).await.status(), 204);

    primary.stop();
    standby.promote();
    for number in SIZE + 5..2 * SIZE {
        let node = &nodes[number as usize % 2].1;
        eventually("it counts again", async || node.put(&report(number)).await.status() == 204)
            .await;
    }
    for (_, node) in &nodes {
        assert_eq!(node.released(1).await, release);
        assert_eq!(sums(&node.released(2).await), hot(place.mechanism(), numbers(2)));
        let second = node.model_of(2).await;
        assert_ne!(second, model);
    }
    stop(nodes).await;
}

/// The release of a round is visible on a primary that is then lost, and no standby has it: nobody
/// was given it, its key is still there, and the round is released again with all its reports.
#[tokio::test(flavor = "multi_thread")]
async fn r25_what_only_the_lost_primary_had_is_given_to_nobody_and_keeps_its_keys() {
    let (primary, standby, place) = pair();
    let nodes = nodes(&place, 2, Roles::Both);
    let report = |number| one_hot(place.mechanism(), 1, number);
    for number in 0..SIZE - 1 {
        assert_eq!(nodes[number as usize % 2].1.put(&report(number)).await.status(), 204);
    }
    let primary = Arc::new(primary);
    standby.stop();
    let impatient = Impatient::with(&primary);
    assert_eq!(nodes[0].1.put(&report(SIZE - 1)).await.status(), 503, "nobody knows");
    let round = "SELECT round FROM incrowd_shuffler.task";
    assert_eq!(primary.sql("incrowd", round), "2", "it is visible");
    // Not even that a report for that round is late.
    assert_eq!(nodes[1].1.put(&report(SIZE)).await.status(), 503);
    for (_, node) in &nodes {
        assert_eq!(node.release(1).await.status(), 503);
        // Long enough for what a node does when it has nothing else to do.
        thread::sleep(Duration::from_millis(700));
    }
    drop(impatient);
    primary.stop();
    standby.start_again();
    standby.promote();
    assert_eq!(standby.sql("incrowd", round), "1", "the standby does not have it");
    for number in 0..SIZE {
        let node = &nodes[number as usize % 2].1;
        eventually("it counts", async || node.put(&report(number)).await.status() == 204).await;
    }
    for (_, node) in &nodes {
        assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), numbers(1)));
        assert!(!node.model_of(1).await.is_empty());
        eventually("it is ready", async || is_ready(node).await).await;
    }
    stop(nodes).await;
}

/// A standby that commits do not wait for takes over without the last of them: nodes read the log
/// again, and reports that were lost count when they come again.
#[tokio::test(flavor = "multi_thread")]
async fn r25_a_standby_without_the_last_commits_is_read_again() {
    let (primary, standby, place) = asynchronous_pair();
    let nodes = nodes(&place, 2, Roles::Shuffler);
    let put = async |number: u32| {
        let node = &nodes[number as usize % 2].1;
        node.put(&one_hot(place.mechanism(), 1, number)).await.status() == 204
    };
    let commits = |server: &Server| server.sql("incrowd", "SELECT seq FROM incrowd_shuffler.task");
    for number in 0..3 {
        assert!(put(number).await);
    }
    eventually("the standby follows", async || commits(&standby) == commits(&primary)).await;
    standby.stop();
    for number in 3..7 {
        assert!(put(number).await);
    }
    primary.stop();
    standby.start_again();
    standby.promote();
    assert_eq!(commits(&standby), "3", "it does not have the others");
    for number in (7..SIZE).chain(3..7) {
        eventually("it counts", async || put(number).await).await;
    }
    for (_, node) in &nodes {
        assert_eq!(sums(&node.released(1).await), hot(place.mechanism(), numbers(1)));
    }
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r28_a_database_that_went_back_counts_nothing_and_is_told() {
    let server = Server::start(&[]);
    let place = place(server.create("incrowd"));
    let nodes = nodes(&place, 2, Roles::Shuffler);
    let report = |number| one_hot(place.mechanism(), 1 + number / SIZE, number);
    for number in 0..SIZE + 3 {
        assert_eq!(nodes[number as usize % 2].1.put(&report(number)).await.status(), 204);
    }
    server.stop();
    let older = server.copy();
    server.start_again();
    for number in SIZE + 3..2 * SIZE {
        let node = &nodes[number as usize % 2].1;
        eventually("it counts", async || node.put(&report(number)).await.status() == 204).await;
    }
    let seen = ReleaseHash::of(&nodes[1].1.released(2).await);
    assert_eq!(nodes[0].1.round().await, Some(3), "both know it");
    server.stop();
    server.put_back(&older);
    server.start_again();

    // Nodes that run remember the release.
    for (_, node) in &nodes {
        assert_eq!(node.put(&report(SIZE + 3)).await.status(), 503);
        eventually("it tells", async || {
            unready(node).await.is_some_and(|reason| reason.contains("went back in time"))
        })
        .await;
    }
    // So does a start with the file of the node that released it; without it the keys are missing.
    let mut third = place.beside();
    let error = refused(&third, Roles::Shuffler);
    assert!(matches!(error, StoreError::RoundKeyLost { .. }), "{error}");
    third.config.shuffler.heads = Some(nodes[1].0.files().heads);
    let error = refused(&third, Roles::Shuffler);
    assert!(matches!(error, StoreError::WentBack(_)), "{error}");
    // Where both are waved through, the first question of the bandit ends it.
    let mut fourth = place.beside();
    fourth.config.shuffler.accept_lost_round_keys = true;
    let fourth = fourth.start(Roles::Shuffler);
    let wait = Duration::from_secs(1);
    let asked = fourth.collector.release(&place.task, 3, Some(seen), wait).await;
    assert!(asked.is_err());
    assert_eq!(fourth.put(&report(SIZE + 3)).await.status(), 503);
    assert_eq!(server.sql("incrowd", "SELECT round FROM incrowd_shuffler.task"), "2", "as it was");
    fourth.stop().await;
    stop(nodes).await;
    // What docs/scale-out.md (Backups) says for going on all the same: nobody knows the release.
    server.sql("incrowd", "DROP SCHEMA IF EXISTS incrowd_bandit CASCADE");
    let mut fifth = place.beside();
    fifth.config.shuffler.accept_lost_round_keys = true;
    let fifth = fifth.start(Roles::Both);
    for number in SIZE..2 * SIZE {
        assert_eq!(fifth.put(&report(number)).await.status(), 204);
    }
    assert_eq!(sums(&fifth.released(2).await), hot(place.mechanism(), numbers(2)));
    assert!(!fifth.model_of(2).await.is_empty());
    fifth.stop().await;
}
