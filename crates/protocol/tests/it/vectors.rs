//! Golden vectors of `vectors/v1`: mechanisms, words and reports.

use incrowd_protocol::{
    CLIP, Mechanism, Model, OpenRound, Payload, ProtocolError, Report, TaskConfig, Window, Words,
    coordinates,
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

/// The cases of `layouts.json` of some kinds; at least `least` of them.
fn layout_cases(kinds: &[&str], least: usize) -> Vec<Value> {
    let known = |case: &Value| kinds.contains(&case["kind"].as_str().unwrap());
    let cases: Vec<Value> = cases("layouts").into_iter().filter(known).collect();
    assert!(cases.len() >= least, "{} cases of {kinds:?}", cases.len());
    cases
}

/// Reads a case's document, or checks that it is refused with the word that the case says.
fn read_or_refuse<T: serde::de::DeserializeOwned>(case: &Value, document: &str) -> Option<T> {
    match (case["error"].as_str(), serde_json::from_value::<T>(case[document].clone())) {
        (None, Ok(value)) => Some(value),
        (Some(rule), Err(error)) => {
            let error = error.to_string();
            assert!(error.contains(rule), "{}: {error}", case["name"]);
            None
        }
        (None, Err(error)) => panic!("{}: {error}", case["name"]),
        (Some(rule), Ok(_)) => panic!("{}: {rule} is not refused", case["name"]),
    }
}

#[test]
fn mechanisms_with_slots_hash_as_written_and_bad_ones_are_refused() {
    for case in layout_cases(&["mechanism"], 30) {
        let Some(mechanism) = read_or_refuse::<Mechanism>(&case, "mechanism") else { continue };
        assert_eq!(mechanism.hash().to_string(), case["hash"], "{}", case["name"]);
        assert_eq!(mechanism.coordinates(), number(&case["coordinates"]), "{}", case["name"]);
        let again = serde_json::to_value(&mechanism).unwrap();
        assert_eq!(serde_json::from_value::<Mechanism>(again).unwrap(), mechanism);
    }
}

/// Also through TOML, in which people keep them.
#[test]
fn tasks_with_actions_and_priors_are_read_as_written() {
    for case in layout_cases(&["task"], 30) {
        let Some(task) = read_or_refuse::<TaskConfig>(&case, "task") else { continue };
        assert_eq!(serde_json::to_value(task.actions()).unwrap(), case["actions"]);
        let json = serde_json::to_value(&task).unwrap();
        assert_eq!(serde_json::from_value::<TaskConfig>(json).unwrap(), task);
        let toml = toml::to_string(&task).unwrap();
        assert_eq!(toml::from_str::<TaskConfig>(&toml).unwrap(), task, "{}", case["name"]);
    }
}

#[test]
fn reports_of_arms_with_slots_decode_and_encode_as_written() {
    for case in layout_cases(&["bits", "codebook"], 100) {
        let mechanism: Mechanism = serde_json::from_value(case["mechanism"].clone()).unwrap();
        let bytes = hex::decode(case["report"].as_str().unwrap()).unwrap();
        let report = Report::decode(&bytes, &mechanism).unwrap();
        if let Payload::Counts(counts) = report.payload() {
            assert_eq!(serde_json::to_value(counts).unwrap(), case["counts"], "{}", case["name"]);
        }
        assert_eq!(report.encode(&mechanism).unwrap(), bytes, "{}", case["name"]);
        // One byte more or less is another layout's.
        let long = [&bytes[..], &[0]].concat();
        assert!(matches!(Report::decode(&long, &mechanism), Err(ProtocolError::Long { .. })));
        let short = &bytes[..bytes.len() - 1];
        assert!(matches!(Report::decode(short, &mechanism), Err(ProtocolError::Short { .. })));
    }
}

#[test]
fn models_with_slots_are_read_as_written_and_bad_ones_are_refused() {
    for case in layout_cases(&["model"], 25) {
        let Some(model) = read_or_refuse::<Model>(&case, "model") else { continue };
        let mut wanted = case["model"].clone();
        let object = wanted.as_object_mut().unwrap();
        object.retain(|name, value| name != "slots" || !value.as_array().unwrap().is_empty());
        assert_eq!(serde_json::to_value(&model).unwrap(), wanted, "{}", case["name"]);
        for (number, slot) in model.slots().iter().enumerate() {
            let found = slot.action.as_deref().and_then(|action| model.slot_of(action));
            assert_eq!(found, slot.action.is_some().then_some(number));
        }
    }
}
