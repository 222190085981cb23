//! R35: what changes in files while a service runs: tokens, certificates, the collector's token.

use std::{
    fs,
    io::{Read, Write},
    time::Duration,
};

use incrowd_node::{Role, Roles, Tokens};
use incrowd_protocol::{TaskNotice, paths};
use incrowd_transport::Trust;

use crate::{
    common::{Place, certificate, eventually, mechanism, metric, one_hot, plain, private},
    robustness::{answer, connect},
};

/// The tokens of a place without those of a role.
fn revoke(place: &Place, role: Role) {
    let mut tokens = Tokens::load(&place.files().tokens).unwrap();
    assert!(tokens.revoke(role) > 0);
    tokens.save(&place.files().tokens).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r35_a_revoked_token_is_refused_within_seconds_also_on_an_open_connection() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let release = paths::release(&place.task.id(), 1, None, 0);
    let token = place.token(Role::Bandit).to_owned();
    let request =
        format!("GET {release} HTTP/1.1\r\nhost: n\r\nauthorization: Bearer {token}\r\n\r\n");
    let mut stream = connect(node.node.address());
    let mut status = || {
        stream.write_all(request.as_bytes()).unwrap();
        let mut buffer = [0; 1 << 12];
        let read = stream.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..read])[9..12].to_owned()
    };
    assert_eq!(status(), "202");
    // One that waits meanwhile gets nothing either.
    let waits = paths::release(&place.task.id(), 1, None, 3);
    let waiting = connect(node.node.address());
    let head = format!("GET {waits} HTTP/1.1\r\nhost: n\r\nauthorization: Bearer {token}\r\n");
    (&waiting).write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).unwrap();
    revoke(&place, Role::Bandit);
    for _ in 0..100 {
        if status() == "401" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(status(), "401", "the connection is still the same");
    let waited = tokio::task::spawn_blocking(move || answer(&waiting)).await.unwrap();
    assert!(waited.starts_with("HTTP/1.1 401"), "known when the wait began, not at its end");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r35_a_new_token_works_and_a_broken_file_changes_nothing() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let (path, report) = (place.files().tokens, one_hot(place.mechanism(), 1, 0));
    let good = fs::read_to_string(&path).unwrap();
    let mut tokens = Tokens::load(&path).unwrap();
    let new = tokens.add(Role::Monitor).unwrap();
    tokens.save(&path).unwrap();
    let asked = async |token: &str| {
        let url = format!("{}/metrics", node.admin);
        node.client.get(url).bearer_auth(token).send().await.unwrap().status().as_u16()
    };
    eventually("the new token works", async || asked(&new).await == 200).await;
    fs::write(&path, "[[token]]\nrole = \"king\"").unwrap();
    let failed = node.node.reload().unwrap_err().to_string();
    assert!(failed.contains("tokens.toml"), "{failed}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(asked(&new).await, 200, "the old ones stay");
    fs::remove_file(&path).unwrap();
    assert!(node.node.reload().is_err(), "tokens do not go by mistake");
    assert_eq!(node.put(&report).await.status(), 204);
    fs::write(&path, good).unwrap();
    eventually("it is forgotten", async || asked(&new).await == 401).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r35_a_monitor_reads_and_does_nothing() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let node = place.start(Roles::Shuffler);
    let monitor = place.token(Role::Monitor);
    let close = format!("{}{}", node.admin, paths::close(&place.task.id()));
    let refused = node.client.post(&close).bearer_auth(monitor).send().await.unwrap();
    assert_eq!(refused.status(), 403);
    for path in ["/metrics", paths::TASKS] {
        for role in [Role::Monitor, Role::Admin] {
            let request = node.client.get(format!("{}{path}", node.admin));
            let answer = request.bearer_auth(place.token(role)).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path} {role:?}");
        }
    }
    assert_eq!(node.put(&one_hot(place.mechanism(), 1, 0)).await.status(), 204, "still open");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r35_a_renewed_certificate_is_for_new_connections_and_a_broken_one_changes_nothing() {
    let mut place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let tls = certificate(place.folder.path(), "127.0.0.1");
    place.config.tls = Some(tls.clone());
    let node = place.start(Roles::Both);
    let trust = || Trust::new(Some(&fs::read(&tls.certificate).unwrap()));
    let asked = async |client: &reqwest::Client, path: &str| {
        client.get(format!("{}{path}", node.base)).send().await
    };
    let works = async |trust: &Trust| {
        let client = incrowd_transport::client(trust).unwrap();
        asked(&client, paths::GATEWAY_KEYS).await.map(|answer| answer.status().as_u16()).ok()
    };
    let old = trust();
    let open = incrowd_transport::client(&old).unwrap();
    asked(&open, paths::GATEWAY_KEYS).await.unwrap().bytes().await.unwrap();
    assert_eq!(works(&old).await, Some(200));
    // The first day of 4096, which is rcgen's default.
    let expiry = metric(&node.metrics().await, "incrowd_tls_certificate_expiry_timestamp_seconds");
    assert!((expiry - 67_090_118_400.0).abs() < 86_400.0, "{expiry}");
    certificate(place.folder.path(), "127.0.0.1");
    let new = trust();
    assert_eq!((works(&old).await, works(&new).await), (Some(200), None), "not read yet");
    node.node.reload().unwrap();
    assert_eq!((works(&old).await, works(&new).await), (None, Some(200)));
    let kept = asked(&open, paths::GATEWAY_KEYS).await.map(|answer| answer.status().as_u16());
    assert_eq!(kept.unwrap(), 200, "the connection from before goes on");

    let key = fs::read_to_string(&tls.key).unwrap();
    for broken in ["nothing", &rcgen::KeyPair::generate().unwrap().serialize_pem()] {
        private(&tls.key, broken);
        let failed = node.node.reload().unwrap_err().to_string();
        assert!(failed.contains("tls.key"), "{failed}");
        assert_eq!(works(&new).await, Some(200));
    }
    // All or nothing: the keys of reports are not taken either.
    let mut keys =
        incrowd_node::Keys::load(&place.files().shuffler_keys, incrowd_node::KeyRole::Shuffler)
            .unwrap();
    keys.add_pending().unwrap();
    assert!(node.node.reload().is_err());
    let renewed = incrowd_transport::client(&new).unwrap();
    let keys = async || {
        let answer = asked(&renewed, &paths::notice(&place.task.id())).await.unwrap();
        let notice: TaskNotice = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        notice.sealing_keys.len()
    };
    assert_eq!(keys().await, 1);
    private(&tls.key, &key);
    node.node.reload().unwrap();
    assert_eq!(keys().await, 2);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r35_a_bandit_takes_a_new_token_for_the_shuffler_without_a_restart() {
    let place = Place::new(plain(mechanism(2, 0, &[(2, 2, 1)])));
    let shuffler = place.start(Roles::Shuffler);
    let other = place.bandit_of(&shuffler);
    let mut tokens = Tokens::load(&place.files().tokens).unwrap();
    tokens.revoke(Role::Bandit);
    let new = tokens.add(Role::Bandit).unwrap();
    tokens.save(&place.files().tokens).unwrap();
    eventually("the old token is refused", async || shuffler.release(1).await.status() == 401)
        .await;
    let bandit = other.start(Roles::Bandit);
    let path = other.config.bandit.token_file.clone().unwrap();
    let old = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(bandit.node.reload().unwrap_err().to_string().contains("token"));
    private(&path, &old);
    for number in 0..2 {
        assert_eq!(shuffler.put(&one_hot(place.mechanism(), 1, number)).await.status(), 204);
    }
    eventually("nothing is collected", async || {
        let name = format!("incrowd_collector_up{{task=\"{}\"}}", place.task.id());
        metric(&bandit.metrics().await, &name) < 0.5
    })
    .await;
    private(&path, &new);
    bandit.node.reload().unwrap();
    bandit.model_of(1).await;
    bandit.stop().await;
    shuffler.stop().await;
}
