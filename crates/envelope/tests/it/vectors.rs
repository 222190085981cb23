//! Golden vectors of `vectors/v1`: task ids, signed documents and sealed reports.

use incrowd_envelope::{
    Document, EnvelopeError, OpeningKey, SealedHeader, SigningKey, seal, verify,
};
use incrowd_protocol::{
    KeyState, Mechanism, Report, ReportId, SealingKey, SealingPublicKey, Task, TaskId,
    VerificationKey,
};
use serde_json::Value;

fn cases(kind: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/v1/envelope.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut all: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(mut cases) = all["cases"].take() else { panic!("{path} has no cases") };
    cases.retain(|case| case["kind"] == kind);
    assert!(cases.iter().any(|case| case["error"].is_null()), "{kind}: no good case");
    assert!(cases.iter().any(|case| case["error"].is_string()), "{kind}: no bad case");
    cases
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(text(value)).unwrap()
}

fn secret(value: &Value) -> [u8; 32] {
    bytes(value).try_into().unwrap()
}

#[test]
fn tasks_have_the_written_id_and_bad_ones_are_refused() {
    for case in cases("task") {
        match (case["error"].as_str(), serde_json::from_value::<Task>(case["task"].clone())) {
            (None, Ok(task)) => {
                assert_eq!(task.id().to_string(), case["id"], "{}", case["name"]);
                assert_eq!(TaskId::of(task.mechanism(), task.keys()), task.id());
            }
            (Some(rule), Err(error)) => {
                let start = if rule == "key" { "a verification key" } else { rule };
                assert!(error.to_string().starts_with(start), "{}: {error}", case["name"]);
            }
            (_, result) => panic!("{}: {result:?}", case["name"]),
        }
    }
}

#[test]
fn documents_are_signed_as_written_and_believed_only_so() {
    for case in cases("signature") {
        let task: TaskId = text(&case["task"]).parse().unwrap();
        let key: VerificationKey = text(&case["key"]).parse().unwrap();
        let (body, document) = (bytes(&case["body"]), document(text(&case["document"])));
        let believed = text(&case["signature"])
            .parse()
            .and_then(|signature| verify(&key, document, &task, &body, &signature));
        let expected = match case["error"].as_str() {
            None => Ok(()),
            Some("text") => Err(EnvelopeError::SignatureText),
            Some("signature") => Err(EnvelopeError::Signature),
            Some(other) => panic!("{other}"),
        };
        assert_eq!(believed, expected, "{}", case["name"]);
        if expected.is_ok() {
            let signer = SigningKey::from_bytes(&secret(&case["secret"]));
            assert_eq!(signer.verification_key(), key, "{}", case["name"]);
            let signature = signer.sign(document, &task, &body).to_string();
            assert_eq!(signature, case["signature"], "{}", case["name"]);
        }
    }
}

fn document(name: &str) -> Document {
    match name {
        "notice" => Document::Notice,
        "round" => Document::Round,
        "release" => Document::Release,
        "model" => Document::Model,
        other => panic!("{other}"),
    }
}

#[test]
fn sealed_reports_open_as_written_and_bad_ones_are_refused() {
    for case in cases("sealed") {
        let sealed = bytes(&case["sealed"]);
        match (case["error"].as_str(), open(&case, &sealed)) {
            (None, Ok(report)) => {
                assert_eq!(report, bytes(&case["report"]), "{}", case["name"]);
                let header = SealedHeader::decode(&sealed).unwrap();
                assert_eq!(u64::from(header.key), case["key"], "{}", case["name"]);
                assert_eq!(u64::from(header.round), case["round"], "{}", case["name"]);
                assert_eq!(hex::encode(header.id.0), case["id"], "{}", case["name"]);
            }
            (Some(rule), Err(found)) => assert_eq!(found, rule, "{}", case["name"]),
            (_, result) => panic!("{}: {result:?}", case["name"]),
        }
    }
}

/// What a shuffler with the case's keys does.
fn open(case: &Value, sealed: &[u8]) -> Result<Vec<u8>, &'static str> {
    let task: TaskId = text(&case["task"]).parse().unwrap();
    let header = SealedHeader::decode(sealed).map_err(|error| rule_of(&error))?;
    let mut keys = case["keys"].as_array().unwrap().iter();
    let key = keys.find(|key| key["id"] == u64::from(header.key)).ok_or("key")?;
    let opening = OpeningKey::from_bytes(&secret(&key["secret"])).unwrap();
    assert_eq!(opening.public().to_string(), key["key"], "{}", case["name"]);
    let report = opening.open(&task, sealed).map_err(|error| rule_of(&error))?;
    let mechanism: Mechanism = serde_json::from_value(case["mechanism"].clone()).unwrap();
    let inner = Report::decode(&report, &mechanism).map_err(|_| "report")?;
    if (inner.round(), inner.id()) != (header.round, header.id) {
        return Err("header");
    }
    Ok(report)
}

fn rule_of(error: &EnvelopeError) -> &'static str {
    match error {
        EnvelopeError::Short { .. } => "short",
        EnvelopeError::Version(_) => "version",
        EnvelopeError::CannotOpen => "open",
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_sealed_here_has_the_written_form() {
    for case in cases("sealed").iter().filter(|case| case["error"].is_null()) {
        let keys = case["keys"].as_array().unwrap();
        let key = keys.iter().find(|key| key["id"] == case["key"]).unwrap();
        let public: SealingPublicKey = text(&key["key"]).parse().unwrap();
        let key = SealingKey {
            id: case["key"].as_u64().unwrap().try_into().unwrap(),
            key: public,
            state: KeyState::Active,
        };
        let task: TaskId = text(&case["task"]).parse().unwrap();
        let round = case["round"].as_u64().unwrap().try_into().unwrap();
        let id = ReportId(bytes(&case["id"]).try_into().unwrap());
        let sealed = seal(&task, &key, round, id, &bytes(&case["report"])).unwrap();
        let written = bytes(&case["sealed"]);
        assert_eq!(sealed.len(), written.len(), "{}", case["name"]);
        assert_eq!(sealed[..22], written[..22], "{}", case["name"]);
        assert_eq!(open(case, &sealed), Ok(bytes(&case["report"])), "{}", case["name"]);
    }
}
