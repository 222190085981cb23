//! Golden vectors of `vectors/v1`: mechanisms, words and reports.

use incrowd_protocol::{
    CLIP, Mechanism, OpenRound, Payload, ProtocolError, Report, Window, Words, coordinates,
    words::{THRESHOLDS, magnitude},
};
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
    let mut words = 0;
    for case in cases("reports") {
        let mechanism: Mechanism = serde_json::from_value(case["mechanism"].clone()).unwrap();
        let bytes = hex::decode(case["report"].as_str().unwrap()).unwrap();
        match (case["error"].as_str(), Report::decode(&bytes, &mechanism)) {
            (None, Ok(report)) => {
                assert_eq!(u64::from(report.round()), case["round"], "{}", case["name"]);
                match report.payload() {
                    Payload::Counts(counts) => {
                        assert_eq!(serde_json::to_value(counts).unwrap(), case["counts"]);
                    }
                    Payload::Word { seed, index } => {
                        assert_eq!(hex::encode(seed), case["seed"], "{}", case["name"]);
                        assert_eq!(u64::from(*index), case["index"], "{}", case["name"]);
                        words += 1;
                    }
                }
                assert_eq!(report.encode(&mechanism).unwrap(), bytes, "{}", case["name"]);
            }
            (Some(rule), Err(error)) => assert_eq!(rule_of(&error), rule, "{}", case["name"]),
            (_, result) => panic!("{}: {result:?}", case["name"]),
        }
    }
    assert!(words > 30, "{words} reports of codebook rounds");
}

/// The cases of `words.json` of a kind; at least `least` of them.
fn word_cases(kind: &str, least: usize) -> Vec<Value> {
    let cases: Vec<Value> =
        cases("words").into_iter().filter(|case| case["kind"] == kind).collect();
    assert!(cases.len() >= least, "{} cases of {kind}", cases.len());
    cases
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// Words of a case's seed and dimension.
fn words(case: &Value) -> Words {
    let mut seed = [0; 16];
    hex::decode_to_slice(case["seed"].as_str().unwrap(), &mut seed).unwrap();
    Words::new(&seed, coordinates(number(&case["dimension"])) + 1)
}

#[test]
fn the_table_of_thresholds_is_as_written() {
    let [case] = &word_cases("thresholds", 1)[..] else { panic!("one table") };
    let wanted: Vec<u64> = case["thresholds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|threshold| threshold.as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(THRESHOLDS[..], wanted);
    assert_eq!(CLIP as usize, wanted.len());
}

#[test]
fn magnitudes_around_every_threshold_are_as_written() {
    for case in word_cases("magnitudes", THRESHOLDS.len()) {
        for point in case["points"].as_array().unwrap() {
            let [high, low] = [0, 1].map(|i| u32::try_from(number(&point[i])).unwrap());
            assert_eq!(magnitude(high, || low), number(&point[2]), "{}: {point}", case["name"]);
        }
    }
}

#[test]
fn words_and_their_single_entries_are_as_written() {
    for case in word_cases("word", 30) {
        let (mut words, index) = (words(&case), number(&case["index"]));
        let wanted: Vec<i64> = serde_json::from_value(case["entries"].clone()).unwrap();
        let mut sums = vec![0; wanted.len() - 1];
        words.add(index, &mut sums);
        assert_eq!(sums, wanted[..sums.len()], "{}", case["name"]);
        for (entry, &wanted) in wanted.iter().enumerate() {
            assert_eq!(i64::from(words.entry(index, entry)), wanted, "{}", case["name"]);
        }
        // A report of this word adds it to the sums of its batch.
        let (mut seed, mut twice) = ([0; 16], sums.clone());
        hex::decode_to_slice(case["seed"].as_str().unwrap(), &mut seed).unwrap();
        Payload::Word { seed, index: u8::try_from(index).unwrap() }.add_to(&mut twice);
        assert!(twice.iter().zip(&sums).all(|(twice, once)| *twice == 2 * once));
    }
    for case in word_cases("entry", 5) {
        let found = words(&case).entry(number(&case["index"]), number(&case["entry"]));
        assert_eq!(i64::from(found), case["value"].as_i64().unwrap(), "{}", case["name"]);
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
        ProtocolError::WordIndex { .. } => "index",
        other => panic!("{other}"),
    }
}
