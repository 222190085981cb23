//! Ranking is local: with a model or without, online or not, through fields or features, from async
//! code or not.

use crate::common::{ACTIONS, Server, Shape, until};
use incrowd_client::{
    ClientError, FeatureMap, FieldProblem, Fields, InputProblem, Phase, Problem, Value, blocking,
    transport::{NetworkFailure, TransportError},
};
use incrowd_protocol::{ModelParts, SlotParts};

const CLOSED: &str = "http://127.0.0.1:1";

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
