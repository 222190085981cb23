//! R32: whatever stops learning, counting or publishing turns readiness red and names the reason.
//! What exhausts a listener is in `attacks`, a full disk in `robustness`, a store that went back in
//! `history`, the clock in `timed`.

use std::fs;

use incrowd_node::{Role, Roles};

use crate::common::{Place, Running, eventually, mechanism, metric, one_hot, plain};

/// The reason; empty when it is ready.
async fn reason(node: &Running) -> String {
    let answer = node.client.get(format!("{}/readyz", node.admin)).send().await.unwrap();
    if answer.status() == 200 { String::new() } else { answer.text().await.unwrap() }
}

#[tokio::test(flavor = "multi_thread")]
async fn r32_a_bandit_that_cannot_collect_is_not_ready_and_says_why() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let mut other = place.bandit_of(&shuffler);
    let bandit = other.start(Roles::Bandit);
    let name = format!("incrowd_collector_failures_total{{task=\"{}\"}}", place.task.id());
    let text = bandit.metrics().await;
    assert!(text.contains(&name), "it is there before the first failure");
    assert_eq!(reason(&bandit).await, "");
    shuffler.stop().await;
    let refused = async || reason(&bandit).await.contains("connection was refused");
    eventually("the shuffler is away", refused).await;
    assert!(metric(&bandit.metrics().await, &name) > 0.5);
    bandit.stop().await;

    let shuffler = place.start(Roles::Shuffler);
    other.config.bandit.shuffler_url.clone_from(&shuffler.base);
    let token = other.config.bandit.token_file.clone().unwrap();
    fs::write(&token, place.token(Role::Device)).unwrap();
    let bandit = other.start(Roles::Bandit);
    eventually("the token is refused", async || reason(&bandit).await.contains("forbidden")).await;
    bandit.stop().await;
    fs::write(&token, place.token(Role::Bandit)).unwrap();
    let bandit = other.start(Roles::Bandit);
    for number in 0..2 {
        let report = one_hot(place.mechanism(), 1, number);
        assert_eq!(shuffler.put(&report).await.status(), 204);
    }
    bandit.model_of(1).await;
    assert_eq!(reason(&bandit).await, "");
    bandit.stop().await;
    shuffler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r32_a_round_key_that_is_gone_from_its_medium_turns_readiness_red() {
    let place = Place::new(plain(mechanism(2, 0, &[(3, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let put = async |round, number| {
        let report = one_hot(place.mechanism(), round, number);
        assert_eq!(node.put(&report).await.status(), 204);
    };
    put(1, 0).await;
    assert_eq!(reason(&node).await, "");
    let keys = place.round_keys.path().join("keys");
    let key = keys.join(format!("{}-1", place.task.id()));
    fs::remove_file(&key).unwrap();
    let gone = async || reason(&node).await.contains("gone from its medium");
    eventually("the key is missed", gone).await;
    // The round is released all the same; then its key is of no use.
    put(1, 1).await;
    put(2, 2).await;
    eventually("the next round has its key", async || reason(&node).await.is_empty()).await;
    node.stop().await;
}
