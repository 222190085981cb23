//! Golden vectors of `vectors/v1`: mechanisms and reports.

use incrowd_protocol::{Mechanism, OpenRound, ProtocolError, Report, Window};
use serde_json::Value;

fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/v1/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    match serde_json::from_str::<Value>(&text).unwrap()["cases"].take() {
        Value::Array(cases) if !cases.is_empty() => cases,
        _ => panic!("{path} has no cases"),
    }
}

#[test]
fn mechanisms_hash_as_written_and_bad_ones_are_refused() {
    let mut timed = 0;
    for case in cases("mechanism") {
        let result = serde_json::from_value::<Mechanism>(case["mechanism"].clone());
        match (case["error"].as_str(), result) {
            (None, Ok(mechanism)) => {
                assert_eq!(mechanism.hash().to_string(), case["hash"], "{}", case["name"]);
                for (number, window) in (1..).zip(case["windows"].as_array().into_iter().flatten())
                {
                    let Window { opens, closes } = mechanism.window(number).unwrap().unwrap();
                    assert_eq!(
                        [opens.to_string(), closes.to_string()][..],
                        *window.as_array().unwrap()
                    );
                    for (time, open) in
                        [(opens, number), (closes - 1, number), (closes, number + 1)]
                    {
                        let over = open > mechanism.schedule().last_round();
                        let open = if over { OpenRound::Over } else { OpenRound::Open(open) };
                        assert_eq!(mechanism.round_at(time), Some(open), "{}", case["name"]);
                    }
                    timed += 1;
                }
                let again = serde_json::to_value(&mechanism).unwrap();
                assert_eq!(serde_json::from_value::<Mechanism>(again).unwrap(), mechanism);
            }
            (Some(rule), Err(error)) => {
                let error = error.to_string();
                // What does not fit the type at all is refused by the reader of integers.
                let no_integer = error.starts_with("invalid") && error.contains("expected u32");
                assert!(error.starts_with(rule) || no_integer, "{}: {error}", case["name"]);
            }
            (_, result) => panic!("{}: {result:?}", case["name"]),
        }
    }
    assert!(timed > 20, "{timed} windows");
}

#[test]
fn reports_decode_and_encode_as_written_and_bad_ones_are_refused() {
    for case in cases("reports") {
        let mechanism: Mechanism = serde_json::from_value(case["mechanism"].clone()).unwrap();
        let bytes = hex::decode(case["report"].as_str().unwrap()).unwrap();
        match (case["error"].as_str(), Report::decode(&bytes, &mechanism)) {
            (None, Ok(report)) => {
                assert_eq!(u64::from(report.round()), case["round"], "{}", case["name"]);
                assert_eq!(serde_json::to_value(report.counts()).unwrap(), case["counts"]);
                assert_eq!(report.encode(&mechanism).unwrap(), bytes, "{}", case["name"]);
            }
            (Some(rule), Err(error)) => assert_eq!(rule_of(&error), rule, "{}", case["name"]),
            (_, result) => panic!("{}: {result:?}", case["name"]),
        }
    }
}

fn rule_of(error: &ProtocolError) -> &'static str {
    match error {
        ProtocolError::Short { .. } => "short",
        ProtocolError::Long { .. } => "long",
        ProtocolError::Version(_) => "version",
        ProtocolError::Task => "task",
        ProtocolError::Round { .. } => "round",
        ProtocolError::Count { .. } => "count",
        ProtocolError::Padding => "padding",
        other => panic!("{other}"),
    }
}
