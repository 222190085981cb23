//! Codecs round-trip, refuse what is not theirs, and give every content the same length.

use incrowd_protocol::{
    BatchSums, CLIP, Closes, CodebookLaw, FlipProbability, Law, Layout, Mechanism, MechanismConfig,
    Model, OutsideProbability, Payload, ProtocolError, Release, ReleaseHash, Report, ReportId,
    RoundNotice, Stage, TaskConfig,
};
use proptest::prelude::*;

fn mechanism(dimension: u32, bits: u32) -> Mechanism {
    of_law(dimension, Law::bits(bits, FlipProbability::new(1, 2).unwrap()))
}

fn codebook(dimension: u32, words: u32) -> Mechanism {
    let outside = OutsideProbability::new(1, 4).unwrap();
    let law = CodebookLaw { words, chosen: words / 2, outside, moment_weight: 128 };
    of_law(dimension, Law::Codebook(law))
}

fn of_law(dimension: u32, law: Law) -> Mechanism {
    MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 5, size: 10, window: None, law }],
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

fn word_report() -> impl Strategy<Value = (Mechanism, Report)> {
    (1u32..12, 2u32..=256).prop_flat_map(|(dimension, words)| {
        let mechanism = codebook(dimension, words);
        (any::<[u8; 16]>(), 0..words, any::<[u8; 16]>(), 1u32..=5).prop_map(
            move |(seed, index, id, round)| {
                let payload = Payload::Word { seed, index: index as u8 };
                let report = Report::new(&mechanism, round, ReportId(id), payload).unwrap();
                (mechanism.clone(), report)
            },
        )
    })
}

/// A word's bytes with another index.
fn with_index(bytes: &[u8], index: u8) -> Vec<u8> {
    [&bytes[..45], &[index]].concat()
}

proptest! {
    /// The length is that of every content and dimension; the payload is the seed and the index.
    #[test]
    fn a_word_comes_back_and_no_other_length_or_index_is_taken((mechanism, report) in word_report(), extra in 1usize..5) {
        let bytes = report.encode(&mechanism).unwrap();
        let law = mechanism.round(1).unwrap().law;
        prop_assert_eq!((bytes.len(), Report::encoded_len(&mechanism, law)), (46, 46));
        let &Payload::Word { seed, index } = report.payload() else { panic!("a word") };
        prop_assert_eq!(&bytes[29..], &[&seed[..], &[index]].concat()[..]);
        prop_assert_eq!(&Report::decode(&bytes, &mechanism).unwrap(), &report);
        for length in 0..bytes.len() {
            let short = matches!(Report::decode(&bytes[..length], &mechanism), Err(ProtocolError::Short { .. }));
            prop_assert!(short);
        }
        let long = [bytes.clone(), vec![0; extra]].concat();
        let refused = matches!(Report::decode(&long, &mechanism), Err(ProtocolError::Long { .. }));
        prop_assert!(refused);
        let Law::Codebook(CodebookLaw { words, .. }) = law else { panic!("a codebook") };
        for other in 0..=255u8 {
            let decoded = Report::decode(&with_index(&bytes, other), &mechanism);
            let made = Report::new(&mechanism, report.round(), report.id(), Payload::Word { seed, index: other });
            prop_assert_eq!(&decoded, &made);
            let refusal = ProtocolError::WordIndex { index: other, words };
            prop_assert_eq!(decoded.err(), (u32::from(other) >= words).then_some(refusal));
        }
    }

    /// R8, R23: whatever is decoded encodes to the same bytes, and moves no sum by more than a word
    /// can.
    #[test]
    fn decoding_garbage_of_a_word_is_canonical_and_bounded(
        (mechanism, report) in word_report(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..6),
    ) {
        let mut bytes = report.encode(&mechanism).unwrap();
        for (index, bit) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= 1 << bit;
        }
        if let Ok(decoded) = Report::decode(&bytes, &mechanism) {
            prop_assert_eq!(decoded.encode(&mechanism).unwrap(), bytes);
            let mut sums = vec![0; mechanism.coordinates()];
            decoded.payload().add_to(&mut sums);
            let (low, high) = mechanism.round(1).unwrap().law.range();
            prop_assert_eq!((low, high), (-i64::from(CLIP), i64::from(CLIP)));
            prop_assert!(sums.iter().all(|sum| (low..=high).contains(sum)));
        }
    }

    #[test]
    fn a_report_comes_back_and_no_other_length_is_taken((mechanism, report) in report(), extra in 1usize..5) {
        let bytes = report.encode(&mechanism).unwrap();
        prop_assert_eq!(bytes.len(), Report::encoded_len(&mechanism, mechanism.round(1).unwrap().law));
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
            let bits = mechanism.round(decoded.round()).unwrap().law.as_bits().unwrap().bits;
            prop_assert!(decoded.payload().counts().unwrap().iter().all(|&count| u32::from(count) <= bits));
            prop_assert_eq!(decoded.encode(&mechanism).unwrap(), bytes);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = Report::decode(&bytes, &mechanism(3, 2));
    }
}

/// Content of another encoding than the round's is no report.
#[test]
fn counts_are_no_word_and_a_word_is_no_counts() {
    let (bits, words) = (mechanism(3, 2), codebook(3, 16));
    let (id, word) = (ReportId([1; 16]), Payload::Word { seed: [2; 16], index: 0 });
    assert_eq!(Report::new(&bits, 2, id, word), Err(ProtocolError::Payload(2)));
    assert_eq!(Report::new(&words, 2, id, vec![0; 9]), Err(ProtocolError::Payload(2)));
}

#[test]
fn sums_of_words_are_signed_and_bounded() {
    let mechanism = codebook(1, 16);
    for extreme in [1360, -1360] {
        let sums = BatchSums::new(&mechanism, 1, vec![extreme, -extreme]).unwrap();
        let release = Release::new(sums, None).unwrap();
        let text = serde_json::to_string(&release).unwrap();
        assert!(text.contains(&format!(r#""sums":["{extreme}","{}"]"#, -extreme)), "{text}");
        assert_eq!(serde_json::from_str::<Release>(&text).unwrap(), release);
    }
    for found in [1361, -1361, i64::MAX, i64::MIN] {
        let error = BatchSums::new(&mechanism, 1, vec![0, found]).unwrap_err();
        let wanted = ProtocolError::Range { coordinate: 1, found, low: -1360, high: 1360 };
        assert_eq!(error, wanted);
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
        assert_eq!(range, ProtocolError::Range { coordinate: 0, found: wrong, low: 0, high: 20 });
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
    assert!(error.contains("size in mechanism.schedule is 99, must be at least 100"), "{error}");
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
