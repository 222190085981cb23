//! Hold-outs: who is in which group, what each group chooses, and which task it reports to.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::{ACTIONS, Frozen, Server, Shape, settle, until};
use incrowd_client::{Builder, Client, ClientError, Fields, Group, Limits, Phase, Value as Field};
use incrowd_protocol::{Payload, Report};
use serde_json::Value;
use tokio::time::advance;

/// The action of the incumbent; the model prefers the other one.
const INCUMBENT: usize = 1;
const BY_MODEL: usize = 0;

/// A task with a model and a comparison task, both with reports that can be read.
async fn tasks(shape: Shape) -> [Server; 2] {
    let main = Shape { size: 1000, bare: true, ..shape };
    let servers = Server::start_both([main, Shape { comparison: true, ..main }]).await;
    let parts = servers[0].world().parts(1, [1.0, 0.0]);
    servers[0].world().publish_parts(&parts);
    servers
}

fn device(servers: &[Server; 2], state: &Path, share: f64) -> Builder {
    let limits = Limits { epsilon_local: f64::INFINITY, ..Limits::default() };
    let comparison = servers[1].world().task.id();
    let builder = servers[0].client().limits(limits).default_action(INCUMBENT);
    builder.state_file(state).hold_out(share, comparison)
}

/// A device of one of the two groups that are compared, by trying, and its state file.
async fn device_of(group: Group, servers: &[Server; 2], folder: &Path) -> (Client, PathBuf) {
    // All of them are of the other group with a probability of 2^-64.
    for number in 0..64 {
        let path = folder.join(format!("{number}.json"));
        let client = device(servers, &path, 0.5).connect().await.unwrap();
        if client.status().group == group {
            return (client, path);
        }
        client.close().await;
    }
    panic!("no device is {group:?}");
}

/// What a report says: two for a value of 1 and one for a value of 0, in each coordinate.
fn counts(server: &Server, report: usize) -> Vec<u16> {
    let world = server.world();
    let report = Report::decode(&world.opened[report], world.task.mechanism()).unwrap();
    match report.payload() {
        Payload::Counts(counts) => counts.clone(),
        Payload::Word { .. } => panic!("a word"),
    }
}

fn opened(server: &Server) -> usize {
    server.world().opened.len()
}

/// n = 160 devices with a share of 0.3. Hoeffding: a share of a group is off by more than 0.27 with
/// probability at most 2 exp(-2 n 0.27^2) < 2e-10. It must catch a share of 0 or 0.6.
#[tokio::test]
async fn every_group_has_its_share_its_choice_and_its_task() {
    let servers = tasks(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let (n, mut found) = (160, [0; 3]);
    for number in 0..n {
        let path = folder.path().join(format!("{number}.json"));
        let client = device(&servers, &path, 0.3).connect().await.unwrap();
        client.refresh().await.unwrap();
        let group = client.status().group;
        let before = [opened(&servers[0]), opened(&servers[1])];
        let decision = client.rank_features(&ACTIONS).unwrap();
        assert_eq!(decision.held_out(), group == Group::HeldOut);
        client.flush().await;
        let after = [opened(&servers[0]), opened(&servers[1])];
        let (action, reports) = match group {
            Group::Main => (BY_MODEL, [1, 0]),
            Group::HeldOut => (INCUMBENT, [0, 1]),
            Group::Compared => (BY_MODEL, [0, 1]),
        };
        assert_eq!(decision.action(), action, "{group:?}");
        assert_eq!([after[0] - before[0], after[1] - before[1]], reports, "{group:?}");
        assert_eq!(client.status().reports_sent, 1);
        // With the default reward: a number of 1 in the slot of the group, nothing in the other.
        match group {
            Group::HeldOut => assert_eq!(counts(&servers[1], before[1]), [1, 2, 1, 1]),
            Group::Compared => assert_eq!(counts(&servers[1], before[1]), [1, 1, 1, 2]),
            Group::Main => assert_eq!(counts(&servers[0], before[0]), [1, 1, 2, 1, 1]),
        }
        found[group as usize] += 1;
    }
    // In the order of their declaration: main, held out, compared.
    for (found, share) in found.into_iter().zip([0.4, 0.3, 0.3]) {
        assert!((f64::from(found) / f64::from(n) - share).abs() <= 0.27, "{found} of {n}");
    }
}

#[tokio::test]
async fn rewards_of_a_group_arrive_in_its_slot() {
    let servers = tasks(Shape { participations: 3, ..Shape::default() }).await;
    for (group, slot) in [(Group::HeldOut, 0), (Group::Compared, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let (client, path) = device_of(group, &servers, folder.path()).await;
        client.close().await;
        let builder = device(&servers, &path, 0.5).reward_window(Duration::from_millis(300));
        let client = builder.connect().await.unwrap();
        let before = opened(&servers[1]);
        let decision = client.rank_features(&ACTIONS).unwrap();
        decision.reward(1.0).unwrap();
        client.flush().await;
        let mut wanted = [1; 4];
        wanted[2 * slot..2 * slot + 2].fill(2);
        assert_eq!(counts(&servers[1], before), wanted, "{group:?}");
    }
    assert_eq!(opened(&servers[0]), 0);
}

#[tokio::test]
async fn without_an_incumbent_the_held_out_choose_by_lot() {
    let servers = tasks(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let (client, path) = device_of(Group::HeldOut, &servers, folder.path()).await;
    client.close().await;
    let map = r#"{"context_bound": 1.0, "context": [], "action": [{"name": "topic", "kind": "category", "values": ["a", "b"]}]}"#;
    let builder = servers[0].client().features(serde_json::from_str(map).unwrap());
    let limits = Limits { epsilon_local: f64::INFINITY, ..Limits::default() };
    let id = servers[1].world().task.id();
    let builder = builder.limits(limits).state_file(&path).hold_out(0.5, id);
    let client = builder.connect().await.unwrap();
    client.refresh().await.unwrap();
    let topic = |name: &str| Fields::from([("topic".to_owned(), Field::Text(name.to_owned()))]);
    let (context, actions) = (Fields::new(), [topic("a"), topic("b")]);
    let choices: Vec<usize> =
        (0..50).map(|_| client.rank(&context, &actions).unwrap().action()).collect();
    // Both occur, but for a chance of 2^-49.
    assert!(choices.contains(&0) && choices.contains(&1));
    assert_eq!(client.rank_or(&context, &actions, 1).unwrap().action(), 1);
}

/// 20 devices, 2 restarts each: if groups were drawn anew, each device would have its old one both
/// times with probability 0.118, all of them with 3e-19.
#[tokio::test]
async fn a_group_outlives_a_restart_and_a_failed_start() {
    let servers = tasks(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let kept = |path: &Path| -> Value {
        serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap()["group"].clone()
    };
    for number in 0..20 {
        let path = folder.path().join(format!("{number}.json"));
        let builder = device(&servers, &path, 0.33);
        // Nobody answers: the group is drawn all the same, and stays.
        servers[0].world().down = true;
        builder.clone().connect().await.map(drop).unwrap_err();
        servers[0].world().down = false;
        let drawn = kept(&path);
        for _ in 0..2 {
            let client = builder.clone().connect().await.unwrap();
            let group = serde_json::to_value(client.status().group).unwrap();
            assert_eq!((&group, &kept(&path)), (&drawn, &drawn));
            client.close().await;
        }
        let comparison = folder.path().join(format!("{number}.json.comparison"));
        assert_eq!(comparison.exists(), drawn != "main");
    }
}

#[tokio::test]
async fn what_cannot_be_compared_is_refused() {
    let servers = tasks(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let id = servers[1].world().task.id();
    let limits = Limits { epsilon_local: f64::INFINITY, ..Limits::default() };
    let plain = servers[0].client().limits(limits);
    for (share, error) in [
        (0.6, "hold_out is 0.6, must be from 0 to 0.5"),
        (0.01, "hold_out above 0 needs a state file"),
    ] {
        let refused = plain.clone().hold_out(share, id).connect().await.map(drop);
        assert_eq!(refused.unwrap_err().to_string(), error);
    }
    // Nobody is held out, so nothing has to be remembered.
    let nobody = plain.clone().hold_out(0.0, id).connect().await.unwrap();
    assert_eq!(nobody.status().group, Group::Main);
    let main = servers[0].world().task.id();
    let same = plain.clone().state_file(&path).hold_out(0.5, main).connect().await.map(drop);
    assert_eq!(same, Err(ClientError::NotComparison));

    // A task of another kind, on the same service: nothing is left behind.
    let others = Shape { size: 1000, bare: true, slots: 2, ..Shape::default() };
    let others = Server::start_both([Shape { slots: 0, ..others }, others]).await;
    let id = others[1].world().task.id();
    let builder = others[0].client().limits(limits).state_file(&path).hold_out(0.5, id);
    assert_eq!(builder.connect().await.map(drop), Err(ClientError::NotComparison));
    assert!(!folder.path().join("state.json.comparison").exists());

    // The limits hold for the comparison task too.
    let weak = Shape { bare: true, comparison: true, ..Shape::default() };
    let servers = Server::start_both([Shape::default(), weak]).await;
    let id = servers[1].world().task.id();
    let path = folder.path().join("another.json");
    let refused = servers[0].client().state_file(&path).hold_out(0.5, id).connect().await;
    assert!(matches!(refused.map(drop), Err(ClientError::EpsilonLocal { .. })));
}

/// R34, R26 for a comparison task: the report is made when it is due, without network, and the same
/// bytes are sent after a restart, to no other task.
#[tokio::test(start_paused = true)]
async fn r34_a_held_out_report_is_made_offline_and_sent_after_a_restart() {
    let _frozen = Frozen::new();
    let servers = tasks(Shape { window: Some(3600), ..Shape::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let (client, path) = device_of(Group::HeldOut, &servers, folder.path()).await;
    client.close().await;
    let builder = device(&servers, &path, 0.5).reward_window(Duration::from_secs(60));
    let client = builder.clone().connect().await.unwrap();
    assert_eq!(client.status().phase, Phase::Open);
    let decision = client.rank_features(&ACTIONS).unwrap();
    decision.reward(1.0).unwrap();
    servers.iter().for_each(|server| server.world().down = true);
    for _ in 0..7 {
        settle(3).await;
        advance(Duration::from_secs(10)).await;
    }
    until("a report", || client.status().uploads == 1).await;
    client.close().await;
    let state = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let comparison = state(&path.with_extension("json.comparison"));
    let spent = |state: &Value| state["participation"]["reports"].as_u64().unwrap();
    assert_eq!((spent(&comparison), spent(&state(&path))), (1, 0), "spent when it is made");

    servers.iter().for_each(|server| server.world().down = false);
    let client = builder.connect().await.unwrap();
    assert_eq!(client.status().group, Group::HeldOut);
    until("delivery", || client.status().reports_sent == 1).await;
    let sent = hex::encode(&servers[1].world().opened[0]);
    assert_eq!(comparison["uploads"][0]["report"], sent);
    assert_eq!(counts(&servers[1], 0), [2, 2, 1, 1]);
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    assert_eq!((opened(&servers[0]), opened(&servers[1])), (0, 1));
}

/// R19 for a comparison task: reports leave at the end of the window, whatever the reward.
#[tokio::test(start_paused = true)]
async fn r19_a_comparison_report_leaves_at_its_time_whatever_the_reward() {
    let _frozen = Frozen::new();
    let window = Duration::from_secs(10);
    for reward in [None, Some(0.0), Some(1.0), Some(f64::NAN)] {
        let servers = tasks(Shape::default()).await;
        let folder = tempfile::tempdir().unwrap();
        let (client, path) = device_of(Group::Compared, &servers, folder.path()).await;
        client.close().await;
        let builder = device(&servers, &path, 0.5).reward_window(window);
        let client = builder.connect().await.unwrap();
        let start = tokio::time::Instant::now();
        let decision = client.rank_features(&ACTIONS).unwrap();
        let _ = reward.map(|reward| decision.reward(reward));
        drop(decision);
        for _ in 0..19 {
            settle(3).await;
            advance(Duration::from_millis(500)).await;
        }
        settle(20).await;
        assert_eq!(servers[1].arrivals().len(), 0, "{reward:?}");
        // Time stands still until it has arrived.
        advance(Duration::from_millis(501)).await;
        until("an arrival", || servers[1].arrivals().len() == 1).await;
        let delay = servers[1].arrivals()[0].at - start;
        assert_eq!(delay, window + Duration::from_millis(1), "{reward:?}");
    }
}

#[tokio::test]
async fn who_was_in_a_comparison_that_is_over_reports_to_nobody() {
    let servers = tasks(Shape { participations: 2, ..Shape::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let (client, path) = device_of(Group::HeldOut, &servers, folder.path()).await;
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    client.close().await;
    assert_eq!(opened(&servers[1]), 1);
    let other = Server::start(Shape { comparison: true, ..Shape::default() }).await;
    let other = other.world().task.id();
    let limits = Limits { epsilon_local: f64::INFINITY, ..Limits::default() };
    let none = servers[0].client().limits(limits).state_file(&path);
    for builder in [none.clone().hold_out(0.5, other), none] {
        let client = builder.connect().await.unwrap();
        client.refresh().await.unwrap();
        assert_eq!(client.status().phase, Phase::Done);
        let decision = client.rank_features(&ACTIONS).unwrap();
        assert_eq!((decision.action(), decision.held_out()), (BY_MODEL, false));
        client.flush().await;
        client.close().await;
    }
    assert_eq!((opened(&servers[0]), opened(&servers[1])), (0, 1));
}
