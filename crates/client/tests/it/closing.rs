//! R16, R26, R34 where rounds close by time: a report is made once, when its decision is due, for
//! the round that is open then, and from then on only its bytes matter.

use std::{collections::BTreeSet, fs, path::Path, sync::atomic::Ordering, time::Duration};

use crate::common::{ACTIONS, Arrival, Frozen, Server, Shape, settle, until};
use incrowd_client::{Builder, Client, ClientError, Limits, Phase, transport::TransportError};
use incrowd_envelope::{Document, SealedHeader};
use incrowd_protocol::{KeyState, OpenRound, ProblemKind, Report};
use serde_json::Value;
use tokio::time::advance;

const HOUR: u64 = 3600;
/// From the decision to its report.
const DELAY: u64 = 600;

fn hourly(participations: u32) -> Shape {
    Shape { window: Some(3600), participations, ..Shape::default() }
}

fn device(server: &Server, folder: &Path) -> Builder {
    server.client().reward_window(Duration::from_secs(DELAY)).state_file(folder.join("state.json"))
}

/// Lets virtual time pass in steps that sockets can follow.
async fn pass(seconds: u64) {
    let step = 20;
    for _ in 0..seconds / step {
        settle(2).await;
        advance(Duration::from_secs(step)).await;
    }
    advance(Duration::from_secs(seconds % step)).await;
    settle(5).await;
}

/// Passes time until something is so.
async fn pass_until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..4000 {
        if so() {
            return;
        }
        settle(2).await;
        advance(Duration::from_secs(5)).await;
    }
    panic!("never: {what}");
}

/// The state file.
fn state(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("state.json")).unwrap()).unwrap()
}

fn made(folder: &Path) -> u64 {
    state(folder)["participation"]["reports"].as_u64().unwrap()
}

fn rounds(arrivals: &[Arrival]) -> BTreeSet<u32> {
    arrivals.iter().map(|a| SealedHeader::decode(&a.body).unwrap().round).collect()
}

fn open_round(server: &Server) -> u32 {
    match server.world().open_round() {
        Some(OpenRound::Open(round)) => round,
        other => panic!("{other:?}"),
    }
}

async fn open(client: &Client) {
    pass_until("a turn", || client.status().phase == Phase::Open).await;
}

#[tokio::test(start_paused = true)]
async fn r26_r34_a_report_is_made_offline_for_its_round_and_late_ends_it_without_refund() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(2)).await;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    server.world().down = true;
    pass(DELAY - 1).await;
    assert_eq!((made(folder.path()), client.status().uploads), (0, 0));
    pass(1).await;
    until("a report", || client.status().uploads == 1).await;
    assert_eq!(made(folder.path()), 1);
    assert_eq!(state(folder.path())["uploads"][0]["round"], 1);

    // The round closes before there is a network again. The next decision does not wait for it.
    pass(2 * HOUR).await;
    assert_eq!(open_round(&server), 3);
    assert_eq!(client.status().phase, Phase::Open);
    server.world().down = false;
    pass_until("the last word", || client.status().uploads == 0).await;
    let arrivals = server.arrivals();
    assert!(arrivals.len() > 5);
    assert_eq!(rounds(&arrivals), [1].into(), "no report for another round");
    assert!(arrivals.iter().all(|a| (&a.path, &a.body) == (&arrivals[0].path, &arrivals[0].body)));
    assert_eq!(arrivals.iter().filter(|a| a.status == ProblemKind::Late.status()).count(), 1);
    assert_eq!(client.status().reports_sent, 0);
    assert_eq!(made(folder.path()), 1, "no participation comes back");

    // It stays spent: of two there is one left, and after a restart too.
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY).await;
    pass_until("a second report", || client.status().reports_sent == 1).await;
    assert_eq!((made(folder.path()), client.status().phase), (2, Phase::Done));
    client.close().await;
    let client = device(&server, folder.path()).connect().await.unwrap();
    for _ in 0..3 {
        pass(HOUR).await;
        let _ = client.rank_features(&ACTIONS).unwrap();
        pass(DELAY).await;
    }
    assert_eq!(client.status().phase, Phase::Done);
    let ids: BTreeSet<String> = server.arrivals().into_iter().map(|a| a.path).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(server.world().opened.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r34_a_restart_between_making_and_delivering_sends_the_same_bytes() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    server.world().down = true;
    pass(DELAY).await;
    until("a report", || client.status().uploads == 1).await;
    let written = state(folder.path())["uploads"].clone();
    client.close().await;
    // Without network the kept notice will do; so it does behind a portal that answers everything.
    for portal in [None, Some((200, "<html>".into(), None)), Some((302, String::new(), None))] {
        server.world().down = portal.is_none();
        server.world().failures = [(200, None), (302, None)].into();
        server.world().notice = portal;
        let client = device(&server, folder.path()).connect().await.unwrap();
        assert_eq!(client.status().uploads, 1);
        pass(5).await;
        client.close().await;
        assert_eq!(state(folder.path())["uploads"], written);
    }
    server.world().notice = None;
    server.world().failures.clear();
    let client = device(&server, folder.path()).connect().await.unwrap();
    pass_until("delivery", || client.status().uploads == 0).await;
    assert_eq!(client.status().reports_sent, 1);
    let body = hex::decode(written[0]["seal"]["sealed"].as_str().unwrap()).unwrap();
    assert!(server.arrivals().iter().all(|arrival| arrival.body == body));
    assert_eq!(state(folder.path())["uploads"], serde_json::json!([]));
    assert_eq!(server.world().opened.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_corrected_by_signed_notices_also_for_a_start_without_network() {
    let _frozen = Frozen::new();
    for skew in [-5 * HOUR as i64, -(HOUR as i64), HOUR as i64, 100_000 * HOUR as i64] {
        let server = Server::start(hourly(3)).await;
        server.skew.store(skew * 1000, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let client = device(&server, folder.path()).connect().await.unwrap();
        assert_eq!(client.status().round, Some(1), "{skew}");
        let _ = client.rank_features(&ACTIONS).unwrap();
        pass(DELAY).await;
        pass_until("delivery", || client.status().reports_sent == 1).await;
        client.close().await;
        // The correction is in the file.
        server.world().down = true;
        let client = device(&server, folder.path()).connect().await.unwrap();
        pass(2 * HOUR).await;
        open(&client).await;
        let _ = client.rank_features(&ACTIONS).unwrap();
        pass(DELAY + 1).await;
        until("a report", || client.status().uploads == 1).await;
        assert_eq!(state(folder.path())["uploads"][0]["round"], open_round(&server), "{skew}");
        server.world().down = false;
        pass_until("delivery", || client.status().reports_sent == 1).await;
        assert_eq!(server.world().opened.len(), 2, "{skew}");
        // The clock is set while the client runs: it is asked for again before a report is made.
        pass(HOUR).await;
        open(&client).await;
        let _ = client.rank_features(&ACTIONS).unwrap();
        server.skew.fetch_add(3 * HOUR as i64 * 1000, Ordering::Relaxed);
        pass(DELAY).await;
        pass_until("delivery", || client.status().reports_sent == 2).await;
        assert_eq!(server.world().opened.len(), 3, "{skew}");
    }
}

#[tokio::test(start_paused = true)]
async fn r31_a_time_that_the_shuffler_did_not_sign_is_not_believed() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(1)).await;
    let folder = tempfile::tempdir().unwrap();
    {
        let mut world = server.world();
        let body = serde_json::to_string(&world.round_notice(5 * HOUR as i64)).unwrap();
        let id = world.task.id();
        let forged = world.bandit.sign(Document::Round, &id, body.as_bytes()).to_string();
        world.round = Some((200, body, Some(forged)));
    }
    let client = device(&server, folder.path()).connect().await.unwrap();
    assert_eq!(client.status().round, Some(1));
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY).await;
    pass_until("delivery", || client.status().reports_sent == 1).await;
    assert_eq!(rounds(&server.arrivals()), [1].into());
    assert_eq!(server.world().opened.len(), 1);
    assert_eq!(state(folder.path())["clock"], 0);
    // The same words with the shuffler's signature are believed.
    {
        let mut world = server.world();
        let body = serde_json::to_string(&world.round_notice(5 * HOUR as i64)).unwrap();
        let signature = world.sign(Document::Round, &body);
        world.round = Some((200, body, Some(signature)));
    }
    client.close().await;
    let client = device(&server, folder.path()).connect().await.unwrap();
    assert_eq!(client.status().round, Some(6));
}

#[tokio::test(start_paused = true)]
async fn r34_no_proxy_ends_the_retries_and_none_burns_the_participation() {
    let _frozen = Frozen::new();
    let server = Server::start(Shape { window: Some(400_000), ..hourly(2) }).await;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    let statuses = [200, 201, 302, 400, 401, 403, 404, 405, 408, 409, 410, 413, 422, 429, 500, 502];
    server.world().failures = statuses.map(|status| (status, None)).into();
    server.world().failures[13].1 = Some(7200);
    let passing: Vec<_> = ProblemKind::ALL.into_iter().filter(|kind| !kind.is_final()).collect();
    assert!(passing.contains(&ProblemKind::Early) && passing.contains(&ProblemKind::NotFound));
    server.world().problems = passing.clone().into();
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY).await;
    pass_until("delivery", || client.status().reports_sent == 1).await;
    let arrivals = server.arrivals();
    assert!(arrivals.len() > statuses.len() + passing.len());
    assert!(arrivals.iter().all(|arrival| arrival.body == arrivals[0].body));
    let pauses: Vec<Duration> = arrivals.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    let longest = pauses.iter().max().unwrap();
    // An hour is the most that a server may ask for.
    assert!((HOUR..=HOUR + 400).contains(&longest.as_secs()), "{longest:?}");
    assert_eq!(arrivals.last().unwrap().status, 204);
    assert_eq!((client.status().reports_sent, made(folder.path())), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn r34_a_report_that_is_stuck_holds_up_no_other() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(2)).await;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    server.world().stuck = Some(1);
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY).await;
    until("a report", || client.status().uploads == 1).await;
    pass(HOUR).await;
    open(&client).await;
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY).await;
    pass_until("the second", || client.status().reports_sent == 1).await;
    // The first is on its way still.
    until("one upload", || client.status().uploads == 1).await;
    assert_eq!(state(folder.path())["uploads"][0]["round"], 1);
    // Both are kept for a restart: here the one that is left.
    client.close().await;
    let client = device(&server, folder.path()).connect().await.unwrap();
    assert_eq!(client.status().phase, Phase::Done);
    server.world().stuck = None;
    pass_until("the last word", || client.status().uploads == 0).await;
    let arrivals = server.arrivals();
    assert_eq!(arrivals.iter().map(|a| &a.body).collect::<BTreeSet<_>>().len(), 2);
    assert_eq!(server.world().opened.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r16_one_report_for_a_round_and_the_next_without_asking() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(3)).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = device(&server, folder.path()).reward_window(Duration::ZERO);
    let client = builder.clone().connect().await.unwrap();
    for _ in 0..3 {
        let _ = client.rank_features(&ACTIONS).unwrap();
        client.flush().await;
        pass(60).await;
    }
    assert_eq!((made(folder.path()), client.status().phase), (1, Phase::Waiting));
    client.close().await;
    let client = builder.connect().await.unwrap();
    for _ in 0..3 {
        let _ = client.rank_features(&ACTIONS).unwrap();
        client.flush().await;
        pass(60).await;
    }
    assert_eq!(made(folder.path()), 1, "nor after a restart");
    let rounds_asked = || server.world().asked.iter().filter(|(path, _)| path == "round").count();
    let (asked, arrived) = (rounds_asked(), server.arrivals().len());
    server.world().down = true;
    pass(HOUR).await;
    assert_eq!(client.status().phase, Phase::Open);
    assert_eq!(client.status().round, Some(2));
    assert_eq!((rounds_asked(), server.arrivals().len()), (asked, arrived));
}

#[tokio::test(start_paused = true)]
async fn without_an_open_round_there_is_no_report_and_nothing_is_spent() {
    let _frozen = Frozen::new();
    let server = Server::start(Shape { begin: -3600, rounds: 2, ..hourly(2) }).await;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    assert_eq!(client.status().phase, Phase::Busy);
    pass(DELAY).await;
    open(&client).await;
    assert_eq!((made(folder.path()), server.arrivals().len()), (0, 0));
    // Due just after the opening.
    pass(HOUR - DELAY - 300).await;
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY).await;
    pass_until("delivery", || client.status().reports_sent == 1).await;
    assert_eq!(rounds(&server.arrivals()), [1].into());
    // Decided in the last round, due after it.
    pass(2 * HOUR - 600).await;
    assert_eq!((client.status().round, client.status().phase), (Some(2), Phase::Open));
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY + 300).await;
    until("the end", || client.status().phase == Phase::Done).await;
    assert_eq!((made(folder.path()), client.status().reports_sent), (1, 1));
}

/// The counts of the only report, which is hardly randomized at all: with two bits a value of 1
/// has the count 2, a value of 0 the count 1, but for probability 2^-31 (either of two coins).
async fn moment(default: f64, reward: Option<f64>) -> u16 {
    let server = Server::start(Shape { bare: true, ..hourly(1) }).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = device(&server, folder.path()).default_reward(default).default_action(0);
    let limits = Limits { epsilon_local: 1e9, epsilon_central: None };
    let client = builder.limits(limits).connect().await.unwrap();
    let decision = client.rank_features(&ACTIONS).unwrap();
    reward.into_iter().for_each(|reward| decision.reward(reward).unwrap());
    pass(DELAY).await;
    pass_until("delivery", || client.status().reports_sent == 1).await;
    let world = server.world();
    Report::decode(&world.opened[0], world.task.mechanism()).unwrap().payload().counts().unwrap()[0]
}

/// False alarms: two reports, each with probability 2^-31, together less than 1e-9.
#[tokio::test(start_paused = true)]
async fn a_decision_without_a_reward_is_reported_with_the_default_one() {
    let _frozen = Frozen::new();
    assert_eq!(moment(1.0, None).await, 2);
    assert_eq!(moment(1.0, Some(0.0)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn r16_an_app_that_ends_before_the_due_time_spends_nothing_and_after_it_loses_nothing() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    let decision = client.rank_features(&ACTIONS).unwrap();
    decision.reward(0.0).unwrap();
    pass(DELAY - 1).await;
    client.close().await;
    pass(60).await;
    assert_eq!(made(folder.path()), 0);
    let client = device(&server, folder.path()).connect().await.unwrap();
    pass(DELAY).await;
    assert_eq!((client.status().phase, server.arrivals().len()), (Phase::Open, 0));
    let _ = client.rank_features(&ACTIONS).unwrap();
    server.world().down = true;
    pass(DELAY).await;
    until("a report", || client.status().uploads == 1).await;
    client.close().await;
    server.world().down = false;
    let client = device(&server, folder.path()).connect().await.unwrap();
    pass_until("delivery", || client.status().reports_sent == 1).await;
    assert_eq!((made(folder.path()), server.world().opened.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_state_file_holds_no_context_and_no_reward() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    let (context, reward) = ([0.123_456_789_012, 0.765_432_109_876], 0.345_678_901_234);
    let decision = client.rank_features(&[context]).unwrap();
    decision.reward(reward).unwrap();
    server.world().down = true;
    let secrets: Vec<Vec<u8>> = [context[0], context[1], reward]
        .iter()
        .flat_map(|value: &f64| {
            // As text, as bytes, and as bytes in hex; the products of a report too.
            [*value, value * value, value * reward, context[0] * context[1]]
        })
        .flat_map(|value| {
            let text = value.to_string().as_bytes()[..8].to_vec();
            let (big, little) = (value.to_be_bytes().to_vec(), value.to_le_bytes().to_vec());
            let hex = [&big, &little].map(|bytes| hex::encode(bytes).into_bytes());
            [vec![text, big, little], hex.into()].concat()
        })
        .collect();
    let search = |when: &str| {
        for entry in fs::read_dir(folder.path()).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            for secret in &secrets {
                assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{when}");
            }
        }
    };
    search("pending");
    pass(DELAY).await;
    until("a report", || client.status().uploads == 1).await;
    search("made");
    client.close().await;
    search("closed");
    // The same search finds what is there.
    let round = state(folder.path())["uploads"][0]["id"].as_str().unwrap().to_owned();
    let bytes = fs::read(folder.path().join("state.json")).unwrap();
    assert!(bytes.windows(round.len()).any(|window| window == round.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn a_report_made_without_a_key_is_sealed_later_with_the_same_bytes_inside() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(1)).await;
    server.world().keys[0].0.state = KeyState::Pending;
    let folder = tempfile::tempdir().unwrap();
    let client = device(&server, folder.path()).connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    pass(DELAY).await;
    until("a report", || client.status().uploads == 1).await;
    let written = state(folder.path())["uploads"][0].clone();
    assert_eq!(written["seal"], "missing");
    assert_eq!((made(folder.path()), server.arrivals().len()), (1, 0));
    client.close().await;
    server.world().keys[0].0.state = KeyState::Active;
    let client = device(&server, folder.path()).connect().await.unwrap();
    pass_until("delivery", || client.status().reports_sent == 1).await;
    assert_eq!(hex::encode(&server.world().opened[0]), written["report"].as_str().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_state_file_of_another_format_is_refused_and_left_alone() {
    let _frozen = Frozen::new();
    let server = Server::start(hourly(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    // Format 3 had no group.
    for found in [2, 3, 5] {
        let other = r#","task":"00","participation":{"last_round":1,"reports":1}}"#;
        let other = format!(r#"{{"format":{found}{other}"#);
        fs::write(&path, &other).unwrap();
        let refused = device(&server, folder.path()).connect().await.map(drop);
        assert_eq!(refused, Err(ClientError::StateVersion { found, needed: 4 }));
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
    }
    // Without a state file a portal's answer is what it is.
    server.world().notice = Some((200, "<html>".into(), None));
    let refused = server.client().connect().await.map(drop);
    assert_eq!(refused, Err(ClientError::Transport(TransportError::Unsigned("notice"))));
}
