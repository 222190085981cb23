//! R11, R16, R17: what leaves a device, how often, and what happens to it on the way.

use std::time::Duration;

use crate::common::{ACTIONS, Server, Shape, key, until};
use incrowd_client::{ClientError, InputProblem, Phase, Problem};
use incrowd_envelope::{Document, SealedHeader};
use incrowd_protocol::{KeyState, MediaType, ProblemKind};

#[tokio::test]
async fn r16_one_report_per_batch_and_k_in_all_across_restarts() {
    let server =
        Server::start(Shape { size: 2, grace: 1, participations: 2, ..Shape::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = server.client().token("me").state_file(folder.path().join("state.json"));
    let rounds_asked = || server.world().asked.iter().filter(|(path, _)| path == "round").count();
    for _ in 0..8 {
        let client = builder.clone().connect().await.unwrap();
        // Long enough to have learnt the round, where it must wait for one.
        let before = rounds_asked();
        until("a look at the round", || {
            client.status().phase != Phase::Waiting || rounds_asked() > before + 2
        })
        .await;
        for _ in 0..3 {
            let _ = client.rank_features(&ACTIONS).unwrap();
            client.flush().await;
        }
        client.close().await;
        // Another device fills the batches.
        let other = server.client().connect().await.unwrap();
        let _ = other.rank_features(&ACTIONS).unwrap();
        other.flush().await;
        assert_eq!(other.status().reports_sent, 1);
    }
    assert!(server.world().batch.round().unwrap().number >= 5);
    let mine = server.arrivals().into_iter().filter(|a| a.token.as_deref() == Some("Bearer me"));
    let rounds: Vec<u32> = mine.map(|a| SealedHeader::decode(&a.body).unwrap().round).collect();
    // With grace 1 a report for round 1 may count until round 2; two reports are all.
    assert_eq!(rounds, [1, 3]);
}

#[tokio::test]
async fn r16_a_state_file_has_one_client_and_is_never_replaced_by_a_guess() {
    let server = Server::start(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let builder = server.client().state_file(&path);
    let client = builder.clone().connect().await.unwrap();
    let second = builder.clone().connect().await.map(drop);
    assert_eq!(second, Err(ClientError::StateInUse));
    client.close().await;
    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert_eq!(builder.connect().await.map(drop), Err(ClientError::StateFormat));
    std::fs::write(&path, text).unwrap();
    let other = Server::start(Shape::default()).await;
    let refused = other.client().state_file(&path).connect().await.map(drop);
    assert_eq!(refused, Err(ClientError::StateTask));
}

#[tokio::test]
async fn r17_reports_are_sealed_and_plain_ones_only_where_allowed() {
    let server = Server::start(Shape::default()).await;
    let client = server.client().connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    let (arrivals, opened) = (server.arrivals(), server.world().opened.clone());
    assert_eq!(arrivals.len(), 1);
    assert_eq!(arrivals[0].kind, MediaType::SealedReport.as_str());
    assert_eq!(arrivals[0].token.as_deref(), Some("Bearer device"));
    assert_eq!(opened.len(), 1, "the shuffler opens and counts it");
    assert!(!arrivals[0].body.windows(opened[0].len()).any(|window| window == opened[0]));
    let refused = server.client().plain().connect().await.map(drop);
    assert_eq!(refused, Err(ClientError::SealedOnly));

    let server = Server::start(Shape { plain: true, ..Shape::default() }).await;
    let client = server.client().plain().connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    let (arrivals, opened) = (server.arrivals(), server.world().opened.clone());
    assert_eq!(arrivals[0].kind, MediaType::Report.as_str());
    assert_eq!(arrivals[0].body, opened[0]);
}

#[tokio::test]
async fn r11_bad_features_and_rewards_are_told_and_reported_all_the_same() {
    let shape = Shape { participations: 4, ..Shape::default() };
    let server = Server::start(shape).await;
    let builder = server.client().default_action(1).reward_window(Duration::from_millis(300));
    let client = builder.connect().await.unwrap();
    let parts = server.world().parts(1, [1.0, 0.0]);
    server.world().publish_parts(&parts);
    until("a model", || client.status().model_version == Some(1)).await;
    let nan = vec![vec![f64::NAN, 0.0], vec![0.0, 1.0]];
    let short = vec![vec![1.0], vec![0.0, 1.0]];
    let long = vec![vec![3.0, 4.0], vec![0.0, 0.5]];
    for (case, actions, action) in [("nan", nan, 1), ("short", short, 1), ("long", long, 0)] {
        until("a turn", || client.status().phase == Phase::Open).await;
        let decision = client.rank_features(&actions).unwrap();
        assert_eq!(decision.action(), action, "{case}");
        match decision.problems() {
            [Problem::Choice(_)] if case != "long" => {}
            [Problem::Input(InputProblem::Norm)] if case == "long" => {}
            other => panic!("{case}: {other:?}"),
        }
        let told = decision.reward(2.0);
        assert_eq!(told, Err(ClientError::Input(InputProblem::Reward)));
        client.flush().await;
    }
    until("a turn", || client.status().phase == Phase::Open).await;
    let decision = client.rank_features(&ACTIONS).unwrap();
    assert_eq!(decision.problems(), []);
    assert_eq!(decision.reward(f64::NAN), Err(ClientError::Input(InputProblem::NotFinite)));
    client.flush().await;
    assert_eq!(server.world().opened.len(), 4);
    assert_eq!(decision.reward(1.0), Err(ClientError::WindowOver));
    assert_eq!(client.rank_features(&[] as &[[f64; 2]]).map(drop), Err(ClientError::NoActions));
}

#[tokio::test(start_paused = true)]
async fn a_retry_sends_the_same_bytes_and_honours_the_server() {
    let _frozen = crate::common::Frozen::new();
    let server = Server::start(Shape::default()).await;
    let client = server.client().connect().await.unwrap();
    server.world().failures = [(500, None), (429, Some(100)), (503, None)].into();
    let _ = client.rank_features(&ACTIONS).unwrap();
    for _ in 0..400 {
        if client.status().phase != Phase::Busy {
            break;
        }
        crate::common::settle(2).await;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let arrivals = server.arrivals();
    let statuses: Vec<u16> = arrivals.iter().map(|arrival| arrival.status).collect();
    assert_eq!(statuses, [500, 429, 503, 204]);
    assert!(arrivals.iter().all(|arrival| arrival.body == arrivals[0].body));
    assert!(arrivals.iter().all(|arrival| arrival.path == arrivals[0].path));
    assert!(arrivals[2].at - arrivals[1].at >= Duration::from_secs(100));
    assert!(arrivals[1].at - arrivals[0].at <= Duration::from_secs(3));
    assert_eq!(client.status().phase, Phase::Done);
}

#[tokio::test]
async fn a_restart_goes_on_with_the_same_bytes() {
    let server = Server::start(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = server.client().state_file(folder.path().join("state.json"));
    let client = builder.clone().connect().await.unwrap();
    server.world().failures = [(503, Some(3600))].into();
    let _ = client.rank_features(&ACTIONS).unwrap();
    until("an attempt", || server.arrivals().len() == 1).await;
    client.close().await;

    let client = builder.connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    let arrivals = server.arrivals();
    assert_eq!(arrivals.len(), 2);
    assert_eq!(arrivals[0].body, arrivals[1].body);
    assert_eq!(client.status().reports_sent, 1);
}

#[tokio::test]
async fn a_refused_report_is_not_sent_again() {
    let finals = ProblemKind::ALL.into_iter().filter(|kind| kind.is_final());
    // An unknown key is the one that gets a second try, with another body.
    for kind in finals.filter(|kind| *kind != ProblemKind::UnknownKey) {
        let server = Server::start(Shape::default()).await;
        let client = server.client().connect().await.unwrap();
        server.world().problems = [kind].into();
        let _ = client.rank_features(&ACTIONS).unwrap();
        client.flush().await;
        assert_eq!(server.arrivals().len(), 1);
        let told = format!("the server answered {} ({}): a rule", kind.status(), kind.name());
        assert_eq!(client.status().last_error, Some(told));
    }
}

#[tokio::test(start_paused = true)]
async fn r34_only_the_shufflers_last_word_ends_the_retries() {
    let _frozen = crate::common::Frozen::new();
    let server = Server::start(Shape { participations: 2, ..Shape::default() }).await;
    let client = server.client().connect().await.unwrap();
    // A proxy that refuses everything, then a revoked token, a lost task, a busy store.
    server.world().failures = [403, 404, 400, 409, 410, 502].map(|status| (status, None)).into();
    let passing: Vec<_> = ProblemKind::ALL.into_iter().filter(|kind| !kind.is_final()).collect();
    assert!(passing.contains(&ProblemKind::Unauthorized));
    server.world().problems = passing.clone().into();
    let _ = client.rank_features(&ACTIONS).unwrap();
    for _ in 0..4000 {
        if client.status().phase != Phase::Busy {
            break;
        }
        crate::common::settle(2).await;
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    let arrivals = server.arrivals();
    assert_eq!(arrivals.len(), 6 + passing.len() + 1);
    assert!(arrivals.iter().all(|arrival| arrival.body == arrivals[0].body));
    assert_eq!(arrivals.last().unwrap().status, 204);
    assert_eq!(server.world().opened.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn keys_rotate_and_an_unknown_key_is_resealed_once() {
    let _frozen = crate::common::Frozen::new();
    let shape = Shape { participations: 3, ..Shape::default() };
    let server = Server::start(shape).await;
    let client = server.client().connect().await.unwrap();
    // Fresh notice: sealed to key 1, which the shuffler has erased meanwhile.
    server.world().keys = vec![key(2)];
    let _ = client.rank_features(&ACTIONS).unwrap();
    until("a second try", || client.status().phase != Phase::Busy).await;
    let arrivals = server.arrivals();
    let keys: Vec<u8> = arrivals.iter().map(|arrival| arrival.body[1]).collect();
    assert_eq!(keys, [1, 2]);
    assert_eq!(arrivals[0].path, arrivals[1].path, "the same report");
    assert_eq!(server.world().opened.len(), 1);

    // A key that was rotated in time is known without a refusal: notices are fetched again after a
    // minute.
    until("a turn", || client.status().phase == Phase::Open).await;
    {
        let mut world = server.world();
        world.keys[0].0.state = KeyState::Expired;
        world.keys.push(key(3));
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    let _ = client.rank_features(&ACTIONS).unwrap();
    until("a report", || client.status().phase != Phase::Busy).await;
    assert_eq!(server.arrivals().last().unwrap().body[1], 3);
    assert_eq!(server.arrivals().len(), 3);

    // A shuffler that knows no key it publishes gets two tries, not more.
    until("a turn", || client.status().phase == Phase::Open).await;
    let body = {
        let mut world = server.world();
        let notice = serde_json::to_string(&world.notice()).unwrap();
        world.keys.clear();
        notice
    };
    let signature = server.world().sign(Document::Notice, &body);
    server.world().notice = Some((200, body, Some(signature)));
    let _ = client.rank_features(&ACTIONS).unwrap();
    until("a refusal", || client.status().phase != Phase::Busy).await;
    assert_eq!(server.arrivals().len(), 5);
    assert_eq!(server.arrivals()[3].path, server.arrivals()[4].path);
}

#[tokio::test]
async fn a_finished_task_gets_no_report_and_still_ranks() {
    let server = Server::start(Shape { rounds: 1, participations: 2, ..Shape::default() }).await;
    let client = server.client().connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    until("the end", || client.status().phase == Phase::Done).await;
    let _ = client.rank_features(&ACTIONS).unwrap();
    client.flush().await;
    let late = server.client().connect().await.unwrap();
    let _ = late.rank_features(&ACTIONS).unwrap();
    late.flush().await;
    assert_eq!(late.status().phase, Phase::Done);
    assert_eq!(server.arrivals().len(), 1);
}
