//! R20: a device believes only what belongs to the task it pins, and never goes back; R13: it makes
//! its own randomness.

use std::{process::Command, time::Duration};

use crate::common::{ACTIONS, Server, Shape, task, until};
use incrowd_client::{Client, ClientError, Limits, Phase, transport::TransportError};
use incrowd_envelope::{Document, EnvelopeError, SigningKey};
use incrowd_privacy::certify;
use incrowd_protocol::{ModelParts, ProtocolError, RoundNotice, TaskNotice};

async fn refusal(server: &Server) -> ClientError {
    server.client().connect().await.map(drop).unwrap_err()
}

#[tokio::test]
async fn r20_a_notice_must_be_of_the_pinned_task_and_signed_by_its_shuffler() {
    let server = Server::start(Shape::default()).await;
    let give = |notice: &TaskNotice, key: Option<&SigningKey>| {
        let body = serde_json::to_string(notice).unwrap();
        let mut world = server.world();
        let signature = match key {
            Some(key) => key.sign(Document::Notice, &notice.id, body.as_bytes()).to_string(),
            None => world.sign(Document::Notice, &body),
        };
        world.notice = Some((200, body, Some(signature)));
    };
    let good = server.world().notice();
    give(&good, None);
    server.client().connect().await.unwrap();

    // Another task, complete and well signed by its own shuffler.
    let other = Server::start(Shape { grace: 1, ..Shape::default() }).await;
    {
        let world = other.world();
        give(&world.notice(), Some(&world.shuffler));
    }
    assert_eq!(refusal(&server).await, TransportError::OtherTask.into());
    // The pinned id over another mechanism, or over other keys, signed by those keys.
    {
        let world = other.world();
        give(&TaskNotice { id: good.id, ..world.notice() }, Some(&world.shuffler));
    }
    assert_eq!(refusal(&server).await, TransportError::TaskContent.into());
    let thief = SigningKey::generate().unwrap();
    let swapped = task(Shape::default(), &thief, &server.world().bandit);
    give(&TaskNotice { task: swapped, ..good.clone() }, Some(&thief));
    assert_eq!(refusal(&server).await, TransportError::TaskContent.into());
    let swapped = {
        let world = server.world();
        task(Shape::default(), &world.bandit, &world.shuffler)
    };
    give(&TaskNotice { task: swapped, ..good.clone() }, None);
    assert_eq!(refusal(&server).await, TransportError::TaskContent.into());
    // Other sealing keys, signed by someone else; the bandit is someone else too.
    let mut sealed = good.clone();
    sealed.sealing_keys = vec![crate::common::key(9).0];
    give(&sealed, Some(&thief));
    assert_eq!(refusal(&server).await, TransportError::Envelope(EnvelopeError::Signature).into());
    server.world().notice.as_mut().unwrap().2 = None;
    assert_eq!(refusal(&server).await, TransportError::Unsigned("notice").into());
    server.world().notice = Some((200, "{}".into(), Some("00".repeat(64))));
    assert_eq!(refusal(&server).await, TransportError::Document("notice").into());
}

#[tokio::test]
async fn r20_a_device_computes_its_own_certificate_and_keeps_to_its_limits() {
    let server = Server::start(Shape { size: 1000, ..Shape::default() }).await;
    let certificate = certify(server.world().task.mechanism()).unwrap();
    let (local, central) = (certificate.epsilon_local(), certificate.epsilon_central());
    let connect = |epsilon_local, epsilon_central| {
        let limits = Limits { epsilon_local, epsilon_central };
        let builder = server.client().limits(limits);
        async { builder.connect().await.map(drop) }
    };
    assert_eq!(connect(local, Some(central)).await, Ok(()));
    let limit = local * (1.0 - 1e-12);
    let refused = ClientError::EpsilonLocal { found: local, limit };
    assert_eq!(connect(limit, None).await, Err(refused));
    let limit = central * (1.0 - 1e-12);
    let refused = ClientError::EpsilonCentral { found: central, limit };
    assert_eq!(connect(local, Some(limit)).await, Err(refused));
    assert!(connect(f64::NAN, None).await.is_err());
    assert!(connect(local, Some(f64::NAN)).await.is_err());
}

/// Why the next model is refused; the last good one stays.
async fn refused(client: &Client) -> ClientError {
    let error = client.refresh().await.unwrap_err();
    assert_eq!(client.status().model_version, Some(5));
    error
}

#[tokio::test]
async fn r20_a_model_is_signed_valid_of_the_task_and_newer() {
    let server = Server::start(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = server.client().state_file(folder.path().join("state.json"));
    let client = builder.clone().connect().await.unwrap();
    let good = server.world().parts(5, [1.0, 0.0]);
    server.world().publish_parts(&good);
    // The background may have been first.
    client.refresh().await.unwrap();
    assert_eq!(client.status().model_version, Some(5));
    assert_eq!(client.refresh().await, Ok(false));

    let newer = ModelParts { version: 6, ..good.clone() };
    let publish = |parts: &ModelParts| server.world().publish_parts(parts);
    // A cache may give out what it has for a while. It is not believed again.
    for version in [1, 4] {
        publish(&ModelParts { version, theta: vec![0.0, 1.0], ..good.clone() });
        assert_eq!(client.refresh().await, Ok(false));
        assert_eq!(client.status().model_version, Some(5));
        assert_eq!(client.rank_features(&ACTIONS).unwrap().action(), 0);
    }
    publish(&ModelParts { theta: vec![0.0, 1.0], ..good.clone() });
    assert_eq!(refused(&client).await, ClientError::ModelChanged { version: 5 });
    publish(&newer);
    server.world().model.as_mut().unwrap().0.push(' ');
    assert_eq!(refused(&client).await, TransportError::Envelope(EnvelopeError::Signature).into());
    // The shuffler may not speak for the bandit, nor a round's signature for a model.
    publish(&newer);
    let body = server.world().model.clone().unwrap().0;
    let id = server.world().task.id();
    let signature = server.world().shuffler.sign(Document::Model, &id, body.as_bytes());
    server.world().model.as_mut().unwrap().1 = signature.to_string();
    assert_eq!(refused(&client).await, TransportError::Envelope(EnvelopeError::Signature).into());
    let signature = server.world().bandit.sign(Document::Round, &id, body.as_bytes());
    server.world().model.as_mut().unwrap().1 = signature.to_string();
    assert_eq!(refused(&client).await, TransportError::Envelope(EnvelopeError::Signature).into());

    publish(&ModelParts { theta: vec![0.0; 3], width_factor: vec![1.0; 6], ..newer.clone() });
    assert_eq!(refused(&client).await, TransportError::ModelLayout.into());
    publish(&ModelParts { width_factor: vec![1.0, 0.0, -1.0], ..newer.clone() });
    assert_eq!(
        refused(&client).await,
        TransportError::from(ProtocolError::NotPositiveDefinite).into()
    );
    let other = Server::start(Shape { grace: 3, ..Shape::default() }).await;
    let mechanism = other.world().task.mechanism().hash();
    publish(&ModelParts { mechanism, ..newer.clone() });
    assert_eq!(refused(&client).await, TransportError::ModelMechanism.into());
    let text = serde_json::to_string(&newer).unwrap();
    for bad in ["NaN", "null", "1e999"] {
        server.world().publish(text.replace("[1.0,0.0]", &format!("[{bad},0.0]")));
        assert_eq!(refused(&client).await, TransportError::Document("model").into(), "{bad}");
    }

    // A restart does not forget the version.
    client.close().await;
    publish(&ModelParts { version: 4, ..good.clone() });
    let client = builder.connect().await.unwrap();
    assert_eq!(client.refresh().await, Ok(false));
    assert_eq!(client.status().model_version, Some(5));
    publish(&newer);
    client.refresh().await.unwrap();
    assert_eq!(client.status().model_version, Some(6));
}

#[tokio::test]
async fn r20_a_model_is_believed_only_when_its_version_is_durable() {
    let server = Server::start(Shape::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = server.client().state_file(folder.path().join("state.json"));
    let client = builder.connect().await.unwrap();
    let parts = server.world().parts(1, [1.0, 0.0]);
    server.world().publish_parts(&parts);
    client.refresh().await.unwrap();
    assert_eq!(client.status().model_version, Some(1));

    // Nothing can be written any more: a restart would not know the second version.
    folder.close().unwrap();
    let parts = server.world().parts(2, [0.0, 1.0]);
    server.world().publish_parts(&parts);
    let refused = client.refresh().await;
    assert!(matches!(refused, Err(ClientError::StateFile { .. })), "{refused:?}");
    assert_eq!(client.status().model_version, Some(1));
    for _ in 0..50 {
        assert_eq!(client.rank_features(&ACTIONS).unwrap().action(), 0);
    }
}

#[tokio::test]
async fn r20_a_round_is_signed_of_the_mechanism_and_never_goes_back() {
    let shape = Shape { participations: 3, ..Shape::default() };
    let server = Server::start(shape).await;
    let folder = tempfile::tempdir().unwrap();
    let builder = server.client().state_file(folder.path().join("state.json"));
    let give = |text: String, key: &SigningKey| {
        let id = server.world().task.id();
        let signature = key.sign(Document::Round, &id, text.as_bytes()).to_string();
        server.world().round = Some((200, text, Some(signature)));
    };
    let shuffler = SigningKey::from_bytes(&server.world().shuffler.to_bytes());
    let bandit = SigningKey::from_bytes(&server.world().bandit.to_bytes());
    let (id, mechanism) = {
        let world = server.world();
        (world.task.id(), world.task.mechanism().clone())
    };
    let text = |number| {
        let notice = RoundNotice::new(id, Some(mechanism.round(number).unwrap()), None);
        serde_json::to_string(&notice).unwrap()
    };
    give(text(7), &shuffler);
    let client = builder.clone().connect().await.unwrap();
    let _ = client.rank_features(&ACTIONS).unwrap();
    // The small server is still in its first round and refuses it; the device has seen round 7.
    client.flush().await;
    assert_eq!(client.status().round, Some(7));
    client.close().await;

    for (text, key, expected) in [
        (text(6), &shuffler, ClientError::RoundRollback { found: 6, newest: 7 }.to_string()),
        (text(8), &bandit, EnvelopeError::Signature.to_string()),
        (text(8).replace("3/4", "1/4"), &shuffler, ProtocolError::RoundLaw(8).to_string()),
    ] {
        give(text, key);
        let client = builder.clone().connect().await.unwrap();
        until("an error", || client.status().last_error.is_some()).await;
        assert_eq!(client.status().last_error, Some(expected));
        assert_eq!(client.status().round, Some(7));
        assert_eq!(client.status().phase, Phase::Waiting);
        client.close().await;
    }
    assert_eq!(server.arrivals().len(), 1);
}

#[tokio::test]
async fn plain_http_to_other_machines_is_refused() {
    let id = Server::start(Shape::default()).await.world().task.id();
    let refused = Client::connect("http://192.0.2.1", id).await.map(drop);
    let plain = |what| TransportError::PlainHttp { what, url: "http://192.0.2.1".into() };
    assert_eq!(refused, Err(plain("url").into()));
    let builder = Client::builder("https://localhost", id).relay("http://192.0.2.1");
    assert_eq!(builder.connect().await.map(drop), Err(plain("relay").into()));
}

#[tokio::test]
async fn settings_out_of_range_are_refused() {
    let server = Server::start(Shape::default()).await;
    let id = Server::start(Shape::default()).await.world().task.id();
    for builder in [
        server.client().hold_out(0.6, id),
        server.client().hold_out(-0.1, id),
        server.client().hold_out(f64::NAN, id),
        server.client().default_reward(-0.1),
        server.client().jitter(Duration::MAX),
    ] {
        let refused = builder.connect().await.map(drop);
        assert!(matches!(refused, Err(ClientError::Setting { .. })), "{refused:?}");
    }
}

#[test]
fn r13_the_device_draws_from_the_operating_system() {
    let tree = |package: &str, edges: &str| {
        let arguments = ["tree", "--offline", "-p", package, "-e", edges];
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let simulation = "incrowd-device feature \"simulation\"";
    assert!(!tree("incrowd-client", "normal,build,features").contains(simulation));
    // The same look does see it where it is on.
    assert!(tree("incrowd-lab", "normal,build,features").contains(simulation));
}
