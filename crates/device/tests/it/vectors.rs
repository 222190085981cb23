//! Golden vectors of `vectors/v1`: thresholds, reports from given random bytes, feature maps.

use std::sync::Arc;

use crate::tape::Tape;
use incrowd_device::{
    Arm, BitsRandomizer, CodebookRandomizer, Device, FeatureMap, FeatureMapError, Fields,
    InputProblem,
};
use incrowd_protocol::{
    Closes, Law, Layout, Learner, Mechanism, MechanismConfig, Payload, Policy, Stage, TaskConfig,
};
use serde_json::Value;

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/v1/{file}.json", env!("CARGO_MANIFEST_DIR"));
    read(&serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap()["cases"])
}

/// A number, or one of the strings for what JSON has no numbers for.
fn float(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(float).collect()
}

fn problem_name(problem: Option<InputProblem>) -> Value {
    match problem {
        None => Value::Null,
        Some(InputProblem::Dimension(_)) => "dimension".into(),
        Some(InputProblem::NotFinite) => "not_finite".into(),
        Some(InputProblem::Norm) => "norm".into(),
        Some(InputProblem::Reward) => "reward".into(),
        Some(InputProblem::Slot(_)) => "slot".into(),
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn thresholds_are_as_written() {
    for case in cases("thresholds") {
        let bits = read(&case["bits"]);
        let mechanism = MechanismConfig {
            dimension: read(&case["dimension"]),
            context_bound: read(&case["context_bound"]),
            schedule: vec![Stage {
                rounds: 1,
                size: 1,
                window: None,
                law: Law::bits(bits, read(&case["flip"])),
            }],
            layout: Layout::Shared,
            closes: Closes::Count { grace: 0 },
            central_delta: 1e-6,
            participations: 1,
            honest_fraction: 1.0,
        }
        .check()
        .unwrap();
        let mut randomizer = BitsRandomizer::new(&mechanism);
        let round = mechanism.round(1).unwrap();
        let (thresholds, problem) = randomizer.thresholds(
            round.law.as_bits().unwrap(),
            &floats(&case["x"]),
            float(&case["reward"]),
        );
        let wanted: Vec<Vec<u32>> = read(&case["thresholds"]);
        assert_eq!(thresholds, wanted.concat(), "{}", case["name"]);
        assert_eq!(problem_name(problem), case["problem"], "{}", case["name"]);
    }
}

/// Both encodings: a codebook round's case has been checked to have no two scores within 1e-6 where
/// the chosen words end.
#[test]
fn reports_from_given_bytes_are_as_written() {
    for case in cases("reports").iter().filter(|case| case["error"].is_null()) {
        let mechanism: Mechanism = read(&case["mechanism"]);
        let task =
            TaskConfig::new(mechanism.clone(), Learner::default(), Policy::default()).unwrap();
        let mut tape = Tape::new(hex::decode(case["random"].as_str().unwrap()).unwrap());
        let mut device = Device::simulated(Arc::new(task), &mut tape);
        let (x, reward) = (floats(&case["x"]), float(&case["reward"]));
        let answer = device.report(read(&case["round"]), &x, reward).unwrap();
        let bytes = answer.report.encode(&mechanism).unwrap();
        assert_eq!(hex::encode(bytes), case["report"], "{}", case["name"]);
        assert_eq!(problem_name(answer.problem), case["problem"], "{}", case["name"]);
        // What can be told before there is a reward is what the report finds, except for rewards.
        let told = InputProblem::of(&x, &mechanism);
        assert!(told.is_none() || told == answer.problem, "{}", case["name"]);
        if matches!(answer.problem, Some(InputProblem::Norm | InputProblem::Dimension(_))) {
            assert_eq!(told, answer.problem, "{}", case["name"]);
        }
        drop(device);
        assert_eq!(tape.used() as u64, case["bytes_used"], "{}", case["name"]);
    }
}

/// All chosen words in ascending order, and all others: one at a time, by their places.
#[test]
fn the_words_that_are_chosen_are_as_written() {
    let mut found = 0;
    for case in cases("reports").iter().filter(|case| !case["chosen"].is_null()) {
        let mechanism: Mechanism = read(&case["mechanism"]);
        let Law::Codebook(law) = mechanism.round(read(&case["round"])).unwrap().law else {
            panic!("{}: a codebook round", case["name"])
        };
        let mut randomizer = CodebookRandomizer::new(&mechanism);
        let (x, reward) = (floats(&case["x"]), float(&case["reward"]));
        let seed = hex::decode(case["seed"].as_str().unwrap()).unwrap();
        let mut word = |coin: u32, place: u32| {
            let integers = [coin.to_be_bytes(), place.to_be_bytes()].concat();
            let mut tape = Tape::new([&seed[..], &integers].concat());
            match randomizer.randomize(law, &x, reward, &mut tape).0 {
                Payload::Word { index, .. } => u32::from(index),
                Payload::Counts(_) => panic!("a word"),
            }
        };
        let inside: Vec<u32> =
            (0..law.chosen).map(|place| word(law.outside.numerator(), place)).collect();
        let outside: Vec<u32> = (0..law.words - law.chosen).map(|place| word(0, place)).collect();
        let chosen: Vec<u32> = read(&case["chosen"]);
        let others: Vec<u32> = (0..law.words).filter(|word| !chosen.contains(word)).collect();
        assert_eq!((inside, outside), (chosen, others), "{}", case["name"]);
        found += 1;
    }
    assert!(found > 30, "{found} codebook reports");
}

#[test]
fn feature_maps_are_as_written() {
    for case in cases("features") {
        match (case["error"].as_str(), serde_json::from_value::<FeatureMap>(case["map"].clone())) {
            (None, Ok(map)) => {
                let (context, action): (Fields, Fields) =
                    (read(&case["context"]), read(&case["action"]));
                let features = map.features(&context, &action);
                let twice = map.features_of_all(&context, &[action.clone(), action]);
                let both = vec![features.x.clone(), features.x.clone()];
                assert_eq!(twice, (both, features.problems.clone()), "{}", case["name"]);
                let wanted = floats(&case["x"]);
                assert_eq!(features.x.len(), wanted.len(), "{}", case["name"]);
                assert_eq!(features.x.len(), map.dimension());
                for (found, wanted) in features.x.iter().zip(&wanted) {
                    let close = (found - wanted).abs() <= 1e-12 * map.context_bound();
                    assert!(close, "{}: {found} instead of {wanted}", case["name"]);
                }
                let norm = features.x.iter().map(|x| x * x).sum::<f64>().sqrt();
                assert!(norm <= map.context_bound() * (1.0 + 1e-12), "{}", case["name"]);
                let mut problems: Vec<&str> =
                    features.problems.iter().map(incrowd_device::FieldProblem::field).collect();
                problems.sort_unstable();
                assert_eq!(problems, read::<Vec<String>>(&case["problems"]), "{}", case["name"]);
            }
            (Some(rule), Err(_)) => {
                let config = serde_json::from_value(case["map"].clone());
                let config: incrowd_device::FeatureMapConfig = config.unwrap();
                let found = match config.check().unwrap_err() {
                    FeatureMapError::DuplicateName(_) => "duplicate name",
                    FeatureMapError::UnknownInteractionField(..) => "unknown interaction field",
                    FeatureMapError::Range(_) => "range",
                    FeatureMapError::Values(_) => "values",
                    FeatureMapError::Buckets(..) => "buckets",
                    FeatureMapError::Dimension(_) => "size",
                    other => panic!("{other}"),
                };
                assert_eq!(found, rule, "{}", case["name"]);
            }
            (_, result) => panic!("{}: {result:?}", case["name"]),
        }
    }
}

#[test]
fn a_feature_map_refuses_fields_it_does_not_know() {
    for case in cases("features").iter().filter(|case| case["error"].is_null()) {
        let map = &case["map"];
        for place in ["", "/context/0", "/action/0"] {
            let mut changed = map.clone();
            let Some(object) = changed.pointer_mut(place) else { continue };
            object["colour"] = Value::from(1);
            let error = serde_json::from_value::<FeatureMap>(changed).unwrap_err().to_string();
            assert!(error.contains("unknown field `colour`"), "{}: {error}", case["name"]);
        }
    }
}

/// Coordinates of arms with slots: thresholds or the statistic, and the whole report. One randomizer
/// makes all reports of a mechanism, so that what an arm of another slot left behind would show.
#[test]
fn arms_with_slots_have_the_coordinates_and_reports_as_written() {
    let (mut found, mut words) = (0, None::<(Mechanism, CodebookRandomizer)>);
    let mut bits = None::<(Mechanism, BitsRandomizer)>;
    for case in cases("layouts").iter().filter(|case| !case["report"].is_null()) {
        let mechanism: Mechanism = read(&case["mechanism"]);
        let (features, reward) = (floats(&case["x"]), float(&case["reward"]));
        let arm = Arm { slot: read(&case["slot"]), features: &features };
        match mechanism.round(1).unwrap().law {
            Law::Bits(law) => {
                if bits.as_ref().is_none_or(|(known, _)| *known != mechanism) {
                    bits = Some((mechanism.clone(), BitsRandomizer::new(&mechanism)));
                }
                let randomizer = &mut bits.as_mut().unwrap().1;
                let (thresholds, problem) = randomizer.thresholds(law, arm, reward);
                let wanted: Vec<Vec<u32>> = read(&case["thresholds"]);
                assert_eq!(thresholds, wanted.concat(), "{}", case["name"]);
                assert_eq!(problem_name(problem), case["problem"], "{}", case["name"]);
            }
            Law::Codebook(law) => {
                if words.as_ref().is_none_or(|(known, _)| *known != mechanism) {
                    words = Some((mechanism.clone(), CodebookRandomizer::new(&mechanism)));
                }
                let randomizer = &mut words.as_mut().unwrap().1;
                let (statistic, problem) = randomizer.statistic(law, arm, reward);
                assert_eq!(statistic, floats(&case["statistic"]), "{}", case["name"]);
                assert_eq!(problem_name(problem), case["problem"], "{}", case["name"]);
            }
        }
        let task = TaskConfig::new(mechanism.clone(), Learner::default(), Policy::default());
        let mut tape = Tape::new(hex::decode(case["random"].as_str().unwrap()).unwrap());
        let mut device = Device::simulated(Arc::new(task.unwrap()), &mut tape);
        let answer = device.report(1, arm, reward).unwrap();
        let bytes = answer.report.encode(&mechanism).unwrap();
        assert_eq!(hex::encode(bytes), case["report"], "{}", case["name"]);
        drop(device);
        assert_eq!(2 * tape.used(), case["random"].as_str().unwrap().len(), "{}", case["name"]);
        found += 1;
    }
    assert!(found > 100, "{found} reports");
}

/// Layouts of feature maps, and features that are multiplied with a number of the map's own.
#[test]
fn feature_maps_of_models_with_slots_are_as_written() {
    let (mut good, mut bad) = (0, 0);
    for case in cases("layouts").iter().filter(|case| case["kind"] == "features") {
        let name = &case["name"];
        let map = match (case["error"].as_str(), serde_json::from_value(case["map"].clone())) {
            (None, Ok::<FeatureMap, _>(map)) => map,
            (Some(rule), Err(error)) => {
                assert!(error.to_string().contains(rule), "{name}: {error}");
                bad += 1;
                continue;
            }
            (_, result) => panic!("{name}: {result:?}"),
        };
        let found = map.features(&read(&case["context"]), &read(&case["action"]));
        assert_eq!(found.problems.len(), case["problems"].as_array().unwrap().len(), "{name}");
        let wanted = floats(&case["x"]);
        assert_eq!(found.x.len(), wanted.len(), "{name}");
        for (found, wanted) in found.x.iter().zip(&wanted) {
            let off = (found / map.context_bound() - wanted / map.context_bound()).abs();
            assert!(off <= 1e-12, "{name}: {found} instead of {wanted}");
        }
        let layout = match map.layout() {
            Layout::Shared => Value::Null,
            Layout::PerAction { slots } => vec![slots].into(),
            Layout::Hybrid { slots, shared } => vec![slots, shared].into(),
        };
        assert_eq!(layout, case["layout"], "{name}");
        good += 1;
    }
    assert!(good >= 12 && bad >= 12, "{good} {bad}");
}
