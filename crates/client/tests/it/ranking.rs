//! Ranking is local: with a model or without, online or not, through fields or features, from async
//! code or not.

use std::time::Duration;

use crate::common::{ACTIONS, Frozen, Server, Shape, settle, until};
use incrowd_client::{
    ClientError, FeatureMap, FieldProblem, Fields, InputProblem, Phase, Problem, Value, blocking,
    transport::{NetworkFailure, TransportError},
};
use incrowd_protocol::{EntityTag, ModelParts, SlotParts};
use tokio::time::advance;

const CLOSED: &str = "http://127.0.0.1:1";
/// Seconds that pass at once.
const STEP: u64 = 5;

#[tokio::test]
async fn a_restart_without_network_ranks_with_the_last_model() {
    let server = Server::start(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let id = server.world().task.id();
    let offline = || incrowd_client::Client::builder(CLOSED, id);
    let first = offline().state_file(&path).connect().await.map(drop);
    assert!(
        matches!(
            first,
            Err(ClientError::Transport(TransportError::Network(NetworkFailure::Refused)))
        ),
        "nothing to start from: {first:?}"
    );

    let client = server.client().state_file(&path).connect().await.unwrap();
    let parts = server.world().parts(1, [0.0, 1.0]);
    server.world().publish_parts(&parts);
    client.refresh().await.unwrap();
    client.close().await;
    server.world().down = true;
    for builder in [server.client().state_file(&path), offline().state_file(&path)] {
        let client = builder.connect().await.unwrap();
        assert_eq!(client.status().model_version, Some(1));
        for _ in 0..50 {
            assert_eq!(client.rank_features(&ACTIONS).unwrap().action(), 1);
        }
        client.close().await;
    }
    // A kept notice is checked like any other.
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("plain_reports\\\":false"));
    let changed = text.replace("plain_reports\\\":false", "plain_reports\\\":true");
    std::fs::write(&path, changed).unwrap();
    let refused = offline().state_file(&path).connect().await.map(drop);
    assert!(
        matches!(refused, Err(ClientError::Transport(TransportError::Envelope(_)))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn before_the_first_model_the_default_action_or_any() {
    let server = Server::start(Shape::default()).await;
    let client = server.client().default_action(1).connect().await.unwrap();
    for _ in 0..50 {
        assert_eq!(client.rank_features(&ACTIONS).unwrap().action(), 1);
    }
    let few = client.rank_features(&ACTIONS[..1]).unwrap();
    assert_eq!(few.action(), 0);
    assert_eq!(few.problems(), [Problem::DefaultAction { default: 1, actions: 1 }]);
    let client = server.client().connect().await.unwrap();
    let actions: Vec<usize> =
        (0..50).map(|_| client.rank_features(&ACTIONS).unwrap().action()).collect();
    // Both occur, but for a chance of 2^-49.
    assert!(actions.contains(&0) && actions.contains(&1));
}

fn map(values: &str) -> FeatureMap {
    let text = format!(
        r#"{{"context_bound": 1.0, "context": [], "action": [{{"name": "topic", "kind": "category", "values": {values}}}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn topic(name: &str) -> Fields {
    Fields::from([("topic".to_owned(), Value::Text(name.to_owned()))])
}

#[tokio::test]
async fn named_fields_go_through_the_feature_map() {
    let server = Server::start(Shape::default()).await;
    let wide = server.client().features(map(r#"["a", "b", "c"]"#)).connect().await.map(drop);
    assert_eq!(wide, Err(ClientError::FeatureMap));
    let bare = server.client().connect().await.unwrap();
    let refused = bare.rank(&Fields::new(), &[topic("a")]).map(drop);
    assert_eq!(refused, Err(ClientError::NoFeatureMap));

    let client = server.client().features(map(r#"["a", "b"]"#)).connect().await.unwrap();
    let parts = server.world().parts(1, [0.0, 1.0]);
    server.world().publish_parts(&parts);
    client.refresh().await.unwrap();
    let decision = client.rank(&Fields::new(), &[topic("a"), topic("b")]).unwrap();
    assert_eq!((decision.action(), decision.problems()), (1, [].as_slice()));
    let decision = client.rank(&Fields::new(), &[topic("b"), topic("x"), topic("y")]).unwrap();
    assert_eq!(decision.action(), 0);
    let unknown = vec![FieldProblem::UnknownCategory("topic".to_owned())];
    assert_eq!(decision.problems(), [Problem::Fields(unknown)]);
    assert!(!format!("{decision:?} {:?}", decision.problems()).contains('x'));
}

#[tokio::test]
async fn every_problem_of_a_decision_is_told() {
    let server = Server::start(Shape::default()).await;
    let builder = server.client().features(map(r#"["a", "b"]"#)).default_action(7);
    let client = builder.connect().await.unwrap();
    let decision = client.rank(&Fields::new(), &[topic("x")]).unwrap();
    let unknown = vec![FieldProblem::UnknownCategory("topic".to_owned())];
    let few = Problem::DefaultAction { default: 7, actions: 1 };
    assert_eq!(decision.problems(), [few, Problem::Fields(unknown)]);

    let parts = server.world().parts(1, [0.0, 1.0]);
    server.world().publish_parts(&parts);
    client.refresh().await.unwrap();
    let decision = client.rank_features(&[[f64::NAN, 0.0]]).unwrap();
    match decision.problems() {
        [
            Problem::Choice(_),
            Problem::DefaultAction { .. },
            Problem::Input(InputProblem::NotFinite),
        ] => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn models_come_by_themselves() {
    let server = Server::start(Shape::default()).await;
    let parts = server.world().parts(3, [1.0, 0.0]);
    server.world().publish_parts(&parts);
    let client = server.client().connect().await.unwrap();
    until("a model", || client.status().model_version == Some(3)).await;
}

/// When models were asked for, in seconds since the first time, after so many more.
async fn asked_for_models(server: &Server, seconds: u64) -> Vec<u64> {
    for _ in 0..seconds / STEP {
        settle(2).await;
        advance(Duration::from_secs(STEP)).await;
    }
    settle(2).await;
    let world = server.world();
    let times: Vec<_> = world.asked.iter().filter(|(path, _)| path == "model").collect();
    times.iter().map(|(_, at)| (*at - times[0].1).as_secs()).collect()
}

/// False alarms: at least 17 pauses, each of one length with probability at most 1/6, are all as
/// long as the first one with probability below 6^-16 < 1e-12 for each of two devices.
#[tokio::test(start_paused = true)]
async fn r19_models_are_asked_for_at_drawn_times_and_named_by_their_bytes_only() {
    let _frozen = Frozen::new();
    for (least, cache) in [(30, "public, max-age=5"), (60, "public, max-age=60")] {
        let server = &Server::start(Shape::default()).await;
        server.world().model_headers = vec![("cache-control", cache.into())];
        let parts = server.world().parts(1, [1.0, 0.0]);
        server.world().publish_parts(&parts);
        let client = server.client().connect().await.unwrap();
        let times = asked_for_models(server, 40 * least).await;
        assert!((18..=41).contains(&times.len()), "{times:?}");
        let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let range = least..=2 * least + STEP;
        assert!(pauses.iter().all(|pause| range.contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
        // The server calls the model "device-7": that is not repeated.
        let tag = EntityTag::of(server.world().model.as_ref().unwrap().0.as_bytes()).to_string();
        let known = server.world().known.clone();
        assert_eq!(known[0], None);
        assert!(known[1..].iter().all(|known| *known == Some(tag.clone())), "{known:?}");
        // The next version comes with one of the next requests.
        let parts = server.world().parts(2, [0.0, 1.0]);
        server.world().publish_parts(&parts);
        asked_for_models(server, 2 * least + STEP).await;
        until("the next model", || client.status().model_version == Some(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn before_the_first_model_a_server_that_asks_for_patience_gets_it() {
    let _frozen = Frozen::new();
    let server = Server::start(Shape::default()).await;
    server.world().model_headers = vec![("retry-after", "300".into())];
    let client = server.client().connect().await.unwrap();
    let times = asked_for_models(&server, 3000).await;
    assert!((5..=10).contains(&times.len()), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 300), "{times:?}");
    assert_eq!((client.status().model_version, client.status().last_error), (None, None));
    // Nor does a server that asks for a year get that.
    server.world().model_headers = vec![("cache-control", "public, max-age=31536000".into())];
    let parts = server.world().parts(1, [1.0, 0.0]);
    server.world().publish_parts(&parts);
    asked_for_models(&server, 605).await;
    until("a model", || client.status().model_version == Some(1)).await;
    let parts = server.world().parts(2, [1.0, 0.0]);
    server.world().publish_parts(&parts);
    for _ in 0..9 {
        advance(Duration::from_secs(900)).await;
        settle(5).await;
    }
    until("the next model", || client.status().model_version == Some(2)).await;
}

/// A model of an earlier life is not named: it would tell how long the device was away.
#[tokio::test]
async fn a_restart_asks_for_the_model_like_a_new_device() {
    let server = Server::start(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = server.client().state_file(folder.path().join("state.json"));
    let parts = server.world().parts(1, [1.0, 0.0]);
    server.world().publish_parts(&parts);
    for _ in 0..2 {
        let client = builder.clone().connect().await.unwrap();
        client.refresh().await.unwrap();
        assert_eq!(client.refresh().await, Ok(false));
        assert_eq!(client.status().model_version, Some(1));
        client.close().await;
        let known = std::mem::take(&mut server.world().known);
        assert_eq!(known[0], None);
        assert!(known.last().unwrap().is_some());
    }
}

#[test]
fn a_blocking_client_does_the_same() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(Shape::default()));
    let parts = server.world().parts(1, [0.0, 1.0]);
    server.world().publish_parts(&parts);
    let client: blocking::Client = server.client().connect_blocking().unwrap();
    client.refresh().unwrap();
    let decision = client.rank_features(&ACTIONS).unwrap();
    assert_eq!(decision.action(), 1);
    client.flush();
    assert_eq!(client.status().reports_sent, 1);
    assert_eq!(server.world().opened.len(), 1);
    assert_eq!(client.status().phase, Phase::Done);
    client.close();
}

/// Actions by name: those that the model has a slot for are ranked, any subset of them, and before
/// something is learned the incumbent's choice is taken.
#[tokio::test]
async fn actions_with_weights_of_their_own_are_ranked_by_name() {
    let server = Server::start(Shape { slots: 3, ..Shape::default() }).await;
    let map = r#"{"model": "per-action", "actions": ["a", "b"], "spare_slots": 1, "bias": true,
        "context": [{"name": "hour", "kind": "number", "min": 0, "max": 24}]}"#;
    let map: FeatureMap = serde_json::from_str(map).unwrap();
    let client = server.client().features(map).connect().await.unwrap();
    let hour = |hour: f64| Fields::from([("hour".to_owned(), Value::Number(hour))]);
    for incumbent in [0, 1] {
        let decision = client.rank_or(&hour(3.0), ["a", "b"], incumbent).unwrap();
        assert_eq!((decision.action(), decision.problems()), (incumbent, &[][..]));
    }

    // News of which slot is which, and of nothing else.
    let slot = |action: Option<&str>, theta: [f64; 2]| SlotParts {
        action: action.map(str::to_owned),
        theta: theta.to_vec(),
        width_factor: vec![1.0, 0.0, 1.0],
        cross_factor: Vec::new(),
        confidence_width: 0.0,
    };
    let parts = |version, slots| ModelParts {
        mechanism: server.world().task.mechanism().hash(),
        version,
        round: 1,
        theta: Vec::new(),
        width_factor: Vec::new(),
        confidence_width: 0.0,
        slots,
    };
    let nothing = [0.0, 0.0];
    let blank =
        parts(1, vec![slot(Some("a"), nothing), slot(Some("b"), nothing), slot(None, nothing)]);
    server.world().publish_parts(&blank);
    client.refresh().await.unwrap();
    assert_eq!(client.rank_or(&hour(3.0), ["a", "b"], 1).unwrap().action(), 1);

    // a in the morning, b in the evening, c always a little less; the slots changed their order.
    let slots = vec![
        slot(Some("c"), [0.3, 0.0]),
        slot(Some("b"), [0.5, 0.5]),
        slot(Some("a"), [0.5, -0.5]),
    ];
    let learned = parts(2, slots);
    server.world().publish_parts(&learned);
    client.refresh().await.unwrap();
    let best = |time: f64, actions: &[&'static str]| {
        let decision = client.rank_or(&hour(time), actions, 0).unwrap();
        assert_eq!(decision.problems(), []);
        actions[decision.action()]
    };
    assert_eq!((best(3.0, &["a", "b", "c"]), best(21.0, &["a", "b", "c"])), ("a", "b"));
    assert_eq!((best(21.0, &["c", "a"]), best(3.0, &["c", "b"])), ("c", "c"));

    // What has no slot is left out, and told; alone it is taken and reported as nothing.
    let decision = client.rank_or(&hour(21.0), ["z", "b"], 0).unwrap();
    assert_eq!(decision.action(), 1);
    assert_eq!(decision.problems(), [Problem::UnknownAction("z".into())]);
    let decision = client.rank_or(&hour(21.0), ["z"], 0).unwrap();
    assert_eq!(decision.action(), 0);
    assert_eq!(decision.problems(), [Problem::UnknownAction("z".into())]);
}
