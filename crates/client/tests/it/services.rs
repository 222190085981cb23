//! The client and the real services: a batch of devices, one of them behind a relay, makes a model
//! that a new device ranks with.

use std::{net::SocketAddr, path::Path, time::Duration};

use incrowd_client::{Builder, Client, Limits};
use incrowd_node::{
    KeyRole, Keys, Limits as NodeLimits, Node, NodeConfig, Relay, RelayConfig, Role, Roles,
    RoundKeysConfig, RunningRelay, ShufflerConfig, Tokens, write_token,
};
use incrowd_protocol::TaskId;

const TASK: &str = r#"
[mechanism]
dimension = 2
context_bound = 1.0
schedule = [{ rounds = 2, size = 4, encoding = "bits", bits = 1, flip = "1/2" }]
layout = "shared"
closes = "count"
grace = 0
central_delta = 1e-6
participations = 1
honest_fraction = 1.0
"#;

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A node with a task, and the tokens of devices and relays.
fn node(data: &Path, task: &str) -> (Node, String, String) {
    let file = data.join("task.toml");
    std::fs::write(&file, task).unwrap();
    Keys::create(&data.join("shuffler.keys"), KeyRole::Shuffler).unwrap();
    let mut tokens = Tokens::default();
    let device = tokens.add(Role::Device).unwrap().to_string();
    let relay = tokens.add(Role::Relay).unwrap().to_string();
    tokens.save(&data.join("tokens.toml")).unwrap();
    let limits = NodeLimits {
        epsilon_local: 100.0,
        epsilon_central: 100.0,
        smallest_batch: 1,
        ..NodeLimits::default()
    };
    let config = NodeConfig {
        listen: FREE,
        admin_listen: FREE,
        data: data.to_owned(),
        tasks: vec![file],
        limits,
        // Below the data folder, so that nothing is left in /dev/shm.
        shuffler: ShufflerConfig {
            round_keys: Some(RoundKeysConfig::File { path: None }),
            ..ShufflerConfig::default()
        },
        ..NodeConfig::default()
    };
    (Node::start(&config, Roles::Both).unwrap(), device, relay)
}

/// A relay to the gateway of a node.
async fn relay(data: &Path, url: &str, token: &str) -> RunningRelay {
    let token_file = data.join("relay.token");
    write_token(&token_file, token).unwrap();
    let config = RelayConfig {
        gateway: url.to_owned(),
        token_file: Some(token_file),
        listen: FREE,
        admin_listen: FREE,
        ..RelayConfig::default()
    };
    Relay::start(&config).await.unwrap()
}

fn builder(url: &str, task: TaskId, token: &str) -> Builder {
    Client::builder(url, task)
        .token(token)
        .reward_window(Duration::from_millis(50))
        .jitter(Duration::from_millis(50))
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_report_through_the_real_services_and_rank_with_the_model_they_made() {
    let data = tempfile::tempdir().unwrap();
    let (node, token, relay_token) = node(data.path(), TASK);
    let (url, task) = (format!("http://{}", node.address()), node.tasks().next().unwrap());
    let relay = relay(data.path(), &url, &relay_token).await;

    let strict =
        builder(&url, task, &token).limits(Limits { epsilon_local: 1.0, epsilon_central: None });
    assert!(strict.connect().await.unwrap_err().to_string().contains("epsilon"));

    let arms = [[0.9, 0.0], [0.0, 0.9]];
    let mut devices = Vec::new();
    for number in 0..4 {
        let mut builder = builder(&url, task, &token);
        if number == 0 {
            builder = builder.relay(format!("http://{}", relay.address()));
        }
        let client = builder.connect().await.unwrap();
        let decision = client.rank_features(&arms).unwrap();
        decision.reward(1.0).unwrap();
        devices.push(client);
    }
    for client in &devices {
        client.flush().await;
        assert_eq!(client.status().reports_sent, 1, "{:?}", client.status());
    }
    let newcomer = builder(&url, task, &token).connect().await.unwrap();
    for _ in 0..200 {
        newcomer.refresh().await.unwrap();
        if newcomer.status().model_version == Some(1) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(newcomer.status().model_version, Some(1));
    assert!(newcomer.rank_features(&arms).unwrap().problems().is_empty());
    newcomer.flush().await;
    assert_eq!(newcomer.status().round, Some(2), "the four made a batch, the fifth is in the next");
    for client in devices {
        client.close().await;
    }
    newcomer.close().await;
    relay.stop().await;
    node.stop().await;
}

/// R35: every key of the shuffler changes between a device's notice and its report.
#[tokio::test(flavor = "multi_thread")]
async fn r34_r35_a_device_behind_a_relay_reports_once_after_a_rotation() {
    let data = tempfile::tempdir().unwrap();
    let (node, token, relay_token) = node(data.path(), TASK);
    let (url, task) = (format!("http://{}", node.address()), node.tasks().next().unwrap());
    let relay = relay(data.path(), &url, &relay_token).await;
    let relay_url = format!("http://{}", relay.address());
    let mut devices = Vec::new();
    for _ in 0..3 {
        devices.push(builder(&url, task, &token).relay(&relay_url).connect().await.unwrap());
    }
    let mut keys = Keys::load(&data.path().join("shuffler.keys"), KeyRole::Shuffler).unwrap();
    let now = std::time::SystemTime::now();
    assert_eq!(keys.add_pending().unwrap(), 2);
    node.reload().unwrap();
    // The gateway's old key opens what comes, as long as it is not expired.
    let _ = devices[0].rank_features(&[[0.9, 0.0]]).unwrap();
    devices[0].flush().await;
    keys.activate_pending(now).unwrap();
    node.reload().unwrap();
    let _ = devices[1].rank_features(&[[0.9, 0.0]]).unwrap();
    devices[1].flush().await;
    assert_eq!(devices[1].status().last_error, None);
    assert_eq!(keys.expire_old(now, true).unwrap(), [1]);
    node.reload().unwrap();
    let _ = devices[2].rank_features(&[[0.9, 0.0]]).unwrap();
    devices[2].flush().await;
    let error = devices[2].status().last_error;
    assert!(error.is_some(), "the old keys did not open anything");
    for client in &devices {
        assert_eq!(client.status().reports_sent, 1, "{:?}", client.status());
        assert_eq!(client.status().round, Some(1));
    }
    // With a fourth the batch is full, so the three counted once each.
    let last = builder(&url, task, &token).connect().await.unwrap();
    let _ = last.rank_features(&[[0.9, 0.0]]).unwrap();
    last.flush().await;
    let newcomer = builder(&url, task, &token).connect().await.unwrap();
    assert_eq!(newcomer.status().round, None);
    let _ = newcomer.rank_features(&[[0.9, 0.0]]).unwrap();
    newcomer.flush().await;
    assert_eq!(newcomer.status().round, Some(2));
    for client in devices.into_iter().chain([last, newcomer]) {
        client.close().await;
    }
    relay.stop().await;
    node.stop().await;
}

/// A task whose rounds close by time, from this moment on.
fn timed_task(window: u32) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let task = TASK.replace(r#"closes = "count""#, "closes = \"time\"\nopens = \"OPENS\"");
    let task = task.replace("OPENS", &now.as_millis().to_string());
    task.replace("rounds = 2, size = 4,", &format!("rounds = 5000, size = 4, window = {window},"))
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_r34_devices_report_to_rounds_that_close_by_time() {
    let data = tempfile::tempdir().unwrap();
    let (node, token, _) = node(data.path(), &timed_task(400));
    let (url, task) = (format!("http://{}", node.address()), node.tasks().next().unwrap());
    let arms = [[0.9, 0.0], [0.0, 0.9]];
    let mut devices = Vec::new();
    // Fewer than the rounds have room for: pads make up for the others.
    for _ in 0..3 {
        let client = builder(&url, task, &token).connect().await.unwrap();
        client.rank_features(&arms).unwrap().reward(1.0).unwrap();
        devices.push(client);
    }
    for client in &devices {
        client.flush().await;
        assert_eq!(client.status().uploads, 0, "{:?}", client.status());
    }
    // The first rounds are released whether anybody came or not, and make models.
    let newcomer = builder(&url, task, &token).connect().await.unwrap();
    for _ in 0..1000 {
        newcomer.refresh().await.unwrap();
        if newcomer.status().model_version.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(newcomer.status().model_version.is_some(), "{:?}", newcomer.status());
    for client in devices {
        client.close().await;
    }
    newcomer.close().await;
    node.stop().await;
}
