//! Codecs round-trip, refuse what is not theirs, and give every content the same length.

use incrowd_protocol::{
    BatchSums, Closes, FlipProbability, Law, Layout, Mechanism, MechanismConfig, Model,
    ProtocolError, Release, ReleaseHash, Report, ReportId, RoundNotice, Stage, TaskConfig,
};
use proptest::prelude::*;

fn mechanism(dimension: u32, bits: u32) -> Mechanism {
    let flip = FlipProbability::new(1, 2).unwrap();
    MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 5, size: 10, window: None, law: Law { bits, flip } }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 1 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    }
    .check()
    .unwrap()
}

fn report() -> impl Strategy<Value = (Mechanism, Report)> {
    (1u32..12, 1u32..40).prop_flat_map(|(dimension, bits)| {
        let mechanism = mechanism(dimension, bits);
        let counts = prop::collection::vec(0..=bits as u16, mechanism.coordinates());
        (counts, any::<[u8; 16]>(), 1u32..=5).prop_map(move |(counts, id, round)| {
            let report = Report::new(&mechanism, round, ReportId(id), counts).unwrap();
            (mechanism.clone(), report)
        })
    })
}

proptest! {
    #[test]
    fn a_report_comes_back_and_no_other_length_is_taken((mechanism, report) in report(), extra in 1usize..5) {
        let bytes = report.encode(&mechanism).unwrap();
        prop_assert_eq!(bytes.len(), Report::encoded_len(&mechanism, mechanism.round(1).unwrap().law.bits));
        prop_assert_eq!(&Report::decode(&bytes, &mechanism).unwrap(), &report);
        for length in 0..bytes.len() {
            let short = matches!(Report::decode(&bytes[..length], &mechanism), Err(ProtocolError::Short { .. }));
            prop_assert!(short);
        }
        let long = [bytes, vec![0; extra]].concat();
        let refused = matches!(Report::decode(&long, &mechanism), Err(ProtocolError::Long { .. }));
        prop_assert!(refused);
    }

    /// R8: whatever is decoded is in range and encodes to the same bytes: one report has one
    /// encoding.
    #[test]
    fn decoding_garbage_never_panics_and_is_canonical(
        (mechanism, report) in report(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..6),
    ) {
        let mut bytes = report.encode(&mechanism).unwrap();
        for (index, bit) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= 1 << bit;
        }
        if let Ok(decoded) = Report::decode(&bytes, &mechanism) {
            let bits = mechanism.round(decoded.round()).unwrap().law.bits;
            prop_assert!(decoded.counts().iter().all(|&count| u32::from(count) <= bits));
            prop_assert_eq!(decoded.encode(&mechanism).unwrap(), bytes);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = Report::decode(&bytes, &mechanism(3, 2));
    }
}

#[test]
fn sums_and_models_are_checked_when_read() {
    let mechanism = mechanism(1, 2);
    let sums = BatchSums::new(&mechanism, 1, vec![20, 0]).unwrap();
    let release = Release::new(sums.clone(), None).unwrap();
    let text = serde_json::to_string(&release).unwrap();
    assert!(text.contains(r#""previous":null,"sums":["20","0"]"#), "{text}");
    assert_eq!(serde_json::from_str::<Release>(&text).unwrap(), release);
    for wrong in [21, -1] {
        let range = BatchSums::new(&mechanism, 1, vec![wrong, 0]).unwrap_err();
        assert_eq!(range, ProtocolError::Range { coordinate: 0, found: wrong, limit: 20 });
    }
    let hash = ReleaseHash::of(text.as_bytes());
    assert_eq!(Release::new(sums, Some(hash)), Err(ProtocolError::Previous(1)));
    let second = BatchSums::new(&mechanism, 2, vec![20, 0]).unwrap();
    assert_eq!(Release::new(second.clone(), None), Err(ProtocolError::Previous(2)));
    let second = Release::new(second, Some(hash)).unwrap();
    let text = serde_json::to_string(&second).unwrap();
    assert!(text.contains(&format!(r#""previous":"{hash}""#)), "{text}");
    assert_eq!(serde_json::from_str::<Release>(&text).unwrap(), second);
    let missing = text.replace(&format!(r#""previous":"{hash}","#), "");
    assert!(serde_json::from_str::<Release>(&missing).is_err(), "{missing}");

    let hash = mechanism.hash();
    let model = |theta: &str, factor: &str, width: &str| {
        serde_json::from_str::<Model>(&format!(
            r#"{{"mechanism":"{hash}","version":"1","round":1,"theta":{theta},"width_factor":{factor},"confidence_width":{width}}}"#
        ))
    };
    assert!(model("[0.5]", "[1.0]", "0.1").is_ok());
    for (theta, factor, width, rule) in [
        ("[]", "[]", "0.1", "dimension"),
        ("[0.5]", "[1.0,2.0]", "0.1", "width_factor has 2"),
        ("[0.5]", "[-1.0]", "0.1", "positive"),
        ("[0.5]", "[0.0]", "0.1", "positive"),
        ("[0.5]", "[1.0]", "-0.1", "confidence_width"),
        ("[1e999]", "[1.0]", "0.1", "out of range"),
    ] {
        let error = model(theta, factor, width).unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
}

#[test]
fn a_task_is_the_same_in_toml_and_json_and_keeps_its_limits() {
    let toml = r#"
        [mechanism]
        dimension = 5
        context_bound = 1.0
        schedule = [{ rounds = 1000, size = 100, encoding = "bits", bits = 1, flip = "53/100" }]
        layout = "shared"
        closes = "count"
        grace = 0
        central_delta = 1e-6
        participations = 1
        honest_fraction = 1.0
        [learner]
        parameter_bound = 1.0
        reward_noise = 0.5
        failure_probability = 0.05
        confidence = { mode = "proven" }
        update = { rule = "every-batch" }
        [policy]
        selection = { rule = "sampled", scale = 0.3 }
        smallest_batch = 100
    "#;
    let task: TaskConfig = toml::from_str(toml).unwrap();
    let json = serde_json::to_string(&task).unwrap();
    assert_eq!(serde_json::from_str::<TaskConfig>(&json).unwrap(), task);
    assert_eq!(toml::from_str::<TaskConfig>(&toml::to_string(&task).unwrap()).unwrap(), task);

    let smaller = toml.replace("size = 100", "size = 99");
    let error = toml::from_str::<TaskConfig>(&smaller).unwrap_err().to_string();
    assert!(error.contains("size is 99, must be from 100"), "{error}");
    for (good, bad, rule) in [
        ("scale = 0.3", "scale = -1.0", "scale is -1"),
        ("failure_probability = 0.05", "failure_probability = nan", "failure_probability is NaN"),
        ("reward_noise = 0.5", "reward_noise = 0", "reward_noise"),
        ("parameter_bound = 1.0", "parameter_bound = inf", "parameter_bound is inf"),
        (r#"mode = "proven""#, r#"mode = "calibrated", exploration = 101.0"#, "exploration is 101"),
        (r#"mode = "proven""#, r#"mode = "paper", ridge = 0.0"#, "ridge is 0"),
        (r#"rule = "every-batch""#, r#"rule = "determinant", growth = 0.0"#, "growth"),
        (r#"rule = "every-batch""#, r#"rule = "every-batch", growth = 1.0"#, "unknown field"),
        (r#"rule = "sampled""#, r#"rule = "ucb""#, "unknown field `scale`"),
        ("smallest_batch = 100", "smallest = 100", "unknown field"),
    ] {
        let changed = toml.replace(good, bad);
        assert_ne!(changed, toml);
        let error = toml::from_str::<TaskConfig>(&changed).unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
}

#[test]
fn a_round_that_is_left_out_is_not_a_task_that_is_over() {
    let task = "0".repeat(64);
    let read = |text: &str| serde_json::from_str::<RoundNotice>(text);
    let over = read(&format!(r#"{{"task": "{task}", "round": null, "time": "1800000000000"}}"#));
    assert_eq!((over.as_ref().unwrap().round, over.unwrap().time), (None, Some(1_800_000_000_000)));
    let by_count = read(&format!(r#"{{"task": "{task}", "round": null, "time": null}}"#));
    assert_eq!(by_count.unwrap().time, None);
    for (given, missing) in [("time", "round"), ("round", "time")] {
        let error = read(&format!(r#"{{"task": "{task}", "{given}": null}}"#)).unwrap_err();
        assert!(error.to_string().contains(&format!("missing field `{missing}`")), "{error}");
    }
}
