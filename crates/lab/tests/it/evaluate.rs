//! Evaluation on logs: against an independent script, against the truth, and the three formats.

use std::{fmt::Write, path::Path};

use incrowd_device::FeatureMap;
use incrowd_lab::evaluate::{
    Estimate, EvaluateError, Evaluation, Format, Log, ModelPolicy, Policy, ReadOptions, Settings,
    parse_model,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use serde_json::Value;

fn parse(text: &str) -> Result<Log, EvaluateError> {
    Log::parse(Path::new("log"), text.as_bytes(), &ReadOptions::default())
}

fn evaluate(text: &str, policy: &str) -> Evaluation {
    let settings = Settings { folds: 2, ..Settings::default() };
    settings.evaluate(&parse(text).unwrap(), &policy.parse().unwrap()).unwrap()
}

fn message(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn assert_close(found: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap();
    let close = (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3);
    assert!(close, "{what}: found {found}, expected {expected}");
}

fn assert_estimate(found: Option<Estimate>, expected: &Value, what: &str) {
    let found = found.unwrap();
    assert_close(found.value, &expected["value"], what);
    assert_close(found.standard_error, &expected["standard_error"], what);
    for side in 0..2 {
        assert_close(found.interval[side], &expected["interval"][side], what);
    }
}

#[test]
fn estimators_agree_with_an_independent_script() {
    let expected: Value = serde_json::from_str(include_str!("../reference/evaluate.json")).unwrap();
    let model = |greedy| {
        let bytes = serde_json::to_vec(&expected["model"]).unwrap();
        let model = parse_model(Path::new("model.json"), &bytes).unwrap();
        let map: FeatureMap = serde_json::from_value(expected["features"].clone()).unwrap();
        Policy::Model(Box::new(ModelPolicy::new(model, map, greedy).unwrap()))
    };
    let options = ReadOptions { actions: vec!["d".into()], ..ReadOptions::default() };
    let csv = include_bytes!("../reference/evaluate.csv");
    let csv = Log::parse(Path::new("evaluate.csv"), csv, &options).unwrap();
    let dsjson = parse(include_str!("../reference/evaluate.dsjson")).unwrap();
    assert_eq!((csv.format(), dsjson.format()), (Format::Csv, Format::Dsjson));
    let cases = expected["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 16);
    for case in cases {
        let policy = match case["policy"].as_str().unwrap() {
            "model" => model(false),
            "greedy" => model(true),
            named => named.parse().unwrap(),
        };
        let settings = Settings {
            clip: case["clip"].as_f64(),
            folds: case["folds"].as_u64().unwrap() as u32,
            ridge: case["ridge"].as_f64().unwrap(),
            context: None,
        };
        let log = if case["log"] == "evaluate.csv" { &csv } else { &dsjson };
        let found = settings.evaluate(log, &policy).unwrap();
        let (what, expected) = (format!("{} {}", case["log"], case["policy"]), &case["expected"]);
        assert_estimate(found.estimates.ips, &expected["ips"], &format!("{what} ips"));
        assert_estimate(found.estimates.snips, &expected["snips"], &format!("{what} snips"));
        assert_estimate(found.estimates.dr, &expected["dr"], &format!("{what} dr"));
        let (weights, mean) = (&found.weights, &expected["mean_weight"]);
        assert_close(weights.mean, &mean["value"], &what);
        assert_close(weights.mean_standard_error, &mean["standard_error"], &what);
        assert_close(weights.clipped_share, &expected["clipped_share"], &what);
        assert_close(weights.effective_sample_size, &expected["effective_sample_size"], &what);
        assert_close(found.coverage.uncovered_share, &expected["uncovered_share"], &what);
    }
}

fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Mean rewards of three actions; a line fits the first only.
fn means(x: f64) -> [f64; 3] {
    [0.3 + 0.2 * x, 0.5 - 0.3 * x * x, if x > 0.0 { 0.6 } else { 0.2 }]
}

/// Of x uniform on [-1, 1].
const ALWAYS_1: f64 = 0.4;
const UNIFORM: f64 = (0.3 + 0.4 + 0.4) / 3.0;

/// A skewed log: what is chosen depends on x, and so do the rewards. Other fields tell nothing.
fn skewed_log(seed: u64, events: usize, useless: usize) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut text = String::from("action,reward,pscore,x");
    (0..useless).for_each(|field| write!(text, ",noise{field}").unwrap());
    for _ in 0..events {
        let x = 2.0 * uniform(&mut rng) - 1.0;
        let probabilities = if x > 0.0 { [0.6, 0.15, 0.25] } else { [0.2, 0.5, 0.3] };
        let coin = uniform(&mut rng);
        let action = usize::from(coin >= probabilities[0])
            + usize::from(coin >= probabilities[0] + probabilities[1]);
        let reward = u8::from(uniform(&mut rng) < means(x)[action]);
        write!(text, "\n{action},{reward},{},{x:.6}", probabilities[action]).unwrap();
        (0..useless).for_each(|_| write!(text, ",{:.3}", uniform(&mut rng)).unwrap());
    }
    text
}

/// 3000 logs of 400 events. If an interval misses the truth with a probability from 4 to 6.5 %, as
/// a 95 % interval from asymptotics may, a count of misses is outside of 58..=286 with a
/// probability below 1.6e-10, any of the six with one below 1e-9. Intervals with 90 % instead of 95
/// %, with errors half or double as large, or around an estimate that forgets the propensities, are
/// noticed.
#[test]
fn intervals_cover_the_truth() {
    let misses = |seed: u64| {
        let log = parse(&skewed_log(seed, 400, 1)).unwrap();
        let mut misses = [0u32; 6];
        for (policy, truth, first) in [("always:1", ALWAYS_1, 0), ("uniform", UNIFORM, 3)] {
            let settings = Settings { folds: 2, ..Settings::default() };
            let found = settings.evaluate(&log, &policy.parse().unwrap()).unwrap().estimates;
            for (count, estimate) in
                misses[first..].iter_mut().zip([found.ips, found.snips, found.dr])
            {
                let [low, high] = estimate.unwrap().interval;
                *count += u32::from(!(low..=high).contains(&truth));
            }
        }
        misses
    };
    let add = |a: [u32; 6], b: [u32; 6]| std::array::from_fn(|i| a[i] + b[i]);
    let misses = (0..3000).into_par_iter().map(misses).reduce(|| [0; 6], add);
    for (count, name) in misses.iter().zip([
        "always ips",
        "always snips",
        "always dr",
        "uniform ips",
        "uniform snips",
        "uniform dr",
    ]) {
        assert!((58..=286).contains(count), "{name}: {count} of 3000 intervals miss ({misses:?})");
    }
}

/// 1000 logs of 120 events with 25 useless fields: a reward model that has seen the rewards it
/// predicts fits them too well, and then intervals are too short. If an interval misses with
/// probability at most 8 %, 137 or more miss with a probability below 1e-9.
#[test]
fn a_reward_model_with_too_many_fields_does_not_make_intervals_too_short() {
    let missed = |seed: u64| {
        let log = parse(&skewed_log(seed, 120, 25)).unwrap();
        let settings = Settings { folds: 2, ridge: 0.1, ..Settings::default() };
        let found = settings.evaluate(&log, &Policy::Uniform).unwrap();
        let [low, high] = found.estimates.dr.unwrap().interval;
        !(low..=high).contains(&UNIFORM)
    };
    let misses = (0..1000).into_par_iter().filter(|&seed| missed(seed)).count();
    assert!(misses < 137, "{misses} of 1000 intervals miss");
}

fn value(estimate: Option<Estimate>) -> f64 {
    estimate.unwrap().value
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-12
}

const OURS: &str = "action,reward,pscore,x\n0,1,0.5,1\n1,0,0.25,2\n0,0,0.5,3\n1,1,0.5,4\n";

#[test]
fn our_csv_by_hand() {
    // Weights of uniform: 1, 2, 1, 1.
    let found = evaluate(OURS, "uniform");
    assert!(near(value(found.estimates.ips), 2.0 / 4.0));
    assert!(near(value(found.estimates.snips), 2.0 / 5.0));
    assert!(near(found.weights.effective_sample_size, 25.0 / 7.0));
    assert!(near(found.weights.mean, 1.25) && near(found.weights.largest, 2.0));
    // w r = 0, 0, 0, 2.
    let found = evaluate(OURS, "always:1");
    assert!(near(value(found.estimates.ips), 0.5) && near(value(found.estimates.snips), 2.0 / 6.0));
    let clipped = Settings { folds: 2, clip: Some(2.0), ..Settings::default() };
    let found = clipped.evaluate(&parse(OURS).unwrap(), &"always:1".parse().unwrap()).unwrap();
    assert!(near(value(found.estimates.snips), 0.5) && near(found.weights.clipped_share, 0.25));
    assert!(
        found.warnings.iter().any(|warning| warning.contains("25.00 % of the weights were cut"))
    );
    // The log's own policy needs no weights; other actions' probabilities are unknown.
    let found = evaluate(OURS, "logged");
    assert!(near(value(found.estimates.ips), 0.5) && found.estimates.dr.is_none());
    assert!(near(found.weights.effective_sample_size, 4.0));
}

#[test]
fn what_the_log_cannot_show_is_reported() {
    let options = ReadOptions { actions: vec!["2".into()], ..ReadOptions::default() };
    let log = Log::parse(Path::new("log"), OURS.as_bytes(), &options).unwrap();
    let settings = Settings { folds: 2, ..Settings::default() };
    let found = settings.evaluate(&log, &Policy::Uniform).unwrap();
    assert!(near(found.coverage.uncovered_share, 1.0 / 3.0));
    assert_eq!(found.coverage.uncovered_events, 4);
    assert_eq!(found.coverage.uncovered_actions[0].action, "2");
    assert!(found.warnings[0].contains("33.33 % of the policy's choices"), "{:?}", found.warnings);
    let found = settings.evaluate(&log, &"always:2".parse().unwrap()).unwrap();
    assert!(found.estimates.ips.is_none() && found.estimates.dr.is_none());
    assert!(near(found.coverage.uncovered_share, 1.0));
    assert!(found.warnings[1].contains("there is no estimate"), "{:?}", found.warnings);
    let error = settings.evaluate(&log, &"always:7".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("always:7: found no such action, expected one of \"0\", \"1\", \"2\""));
}

#[test]
fn wrong_probabilities_are_suspected() {
    // Action 1 has probability 1/2 and is logged with 1/4.
    let mut text = String::from("action,reward,pscore\n");
    for i in 0..400 {
        writeln!(text, "{},{},{}", i % 2, i % 3, [0.5, 0.25][i % 2]).unwrap();
    }
    let warnings = evaluate(&text, "uniform").warnings;
    assert!(warnings.iter().any(|warning| warning.contains("mean weight is 1.5")), "{warnings:?}");
    let right = text.replace("0.25", "0.5");
    assert_eq!(evaluate(&right, "uniform").warnings, Vec::<String>::new());
}

#[test]
fn rewards_that_are_all_equal_are_no_certainty() {
    let text = OURS.replace("0,1,0.5,1", "0,0,0.5,1");
    let found = evaluate(&text, "always:0");
    assert!(near(found.estimates.ips.unwrap().standard_error, 0.0));
    assert!(found.warnings.iter().any(|warning| warning.contains("standard error of 0")));
}

#[test]
fn texts_are_listed_or_hashed_and_explain_rewards() {
    // The reward is that of the city, with 20 and with 40 different ones.
    let log = |cities: usize| {
        let mut text = String::from("action,reward,pscore,city,mixed\n");
        for i in 0..800 {
            let city = (i / 2 * 7) % cities;
            let reward = u8::from(city.is_multiple_of(3));
            let mixed = if i % 2 == 0 { "12" } else { "unknown" };
            writeln!(text, "{},{reward},0.5,c{city},{mixed}", i % 2).unwrap();
        }
        text
    };
    // One constant; the cities; a number and a text.
    for (cities, columns, shorter) in [(20, 1 + 20 + 2, 0.7), (40, 1 + 32 + 2, 0.8)] {
        let found = evaluate(&log(cities), "always:0");
        assert_eq!(found.log.columns, columns);
        let error = |estimate: Option<Estimate>| estimate.unwrap().standard_error;
        let (ips, dr) = (error(found.estimates.ips), error(found.estimates.dr));
        assert!(dr < shorter * ips, "{cities} cities: {dr} {ips}");
        let settings =
            Settings { folds: 2, context: Some(vec!["mixed".into()]), ..Settings::default() };
        let log = parse(&log(cities)).unwrap();
        let without = settings.evaluate(&log, &"always:0".parse().unwrap()).unwrap();
        assert_eq!(without.log.columns, 3);
        let without = error(without.estimates.dr);
        assert!(without > 0.85 * ips, "{without} {ips}");
    }
}

#[test]
fn open_bandit_as_it_is() {
    let text = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,\
                user-item_affinity_0,user-item_affinity_1,user-item_affinity_2\n\
                0,2026-01-01 00:00:00.5+00:00,2,3,0,0.2,81e0,9bde,0.0,1.0,0.0\n\
                1,2026-01-01 00:00:01.5+00:00,0,1,1,0.5,81e0,03a5,0.0,0.0,2.0\n\
                2,2026-01-01 00:00:02.5+00:00,0,2,0,0.5,cef3,03a5,0.5,0.0,0.0\n";
    let log = parse(text).unwrap();
    assert_eq!(
        (log.format(), log.actions()),
        (Format::OpenBandit, &["0", "1", "2"].map(String::from)[..])
    );
    let found = evaluate(text, "always:0");
    assert!(near(value(found.estimates.ips), 2.0 / 3.0));
    // A constant; 3 positions; 2 values of each user feature (81e0 is a text); 1 affinity.
    assert_eq!(found.log.columns, 1 + 3 + 2 + 2 + 1);
    // Item 1 is never shown, though it could be.
    assert!(near(evaluate(text, "uniform").coverage.uncovered_share, 1.0 / 3.0));
    let error = message(&text.replace("02.5+00:00,0,", "02.5+00:00,3,"));
    assert!(error.contains("no column \"user-item_affinity_3\""), "{error}");
    let error = message(&text.replace("3,0,0.2", "3,0,0"));
    assert!(error.starts_with("log, line 2, column \"propensity_score\": found \"0\""), "{error}");
}

/// As Personalizer writes it, and as VW's own documentation does.
const DSJSON: &str = r#"{"_label_cost":-1,"_label_probability":0.8,"_label_Action":2,"_labelIndex":1,"Timestamp":"2026-01-01T00:00:00Z","Version":"1","EventId":"e1","a":[2,1],"c":{"User":[{"age":30},{"geo":"UK"}],"_synthetic":false,"_multi":[{"_tag":"news","Topic":[{"kind":"n","words":10}]},{"_tag":"sport","Topic":[{"kind":"s"}]}]},"p":[0.8,0.2],"VWState":{"m":"x"}}

{"RewardValue":1,"EventId":"late","DeferredAction":false}
{"_skipLearn":true,"_label_cost":0,"_label_probability":0.5,"_label_Action":1,"a":[1,2],"c":{"_multi":[{"_tag":"news"},{"_tag":"sport"}]},"p":[0.5,0.5]}
{"_label_cost":0.5,"c":{"User":{"age":40,"vector":[1,2.5],"pro":true},"_multi":[{"_tag":"news"},{"_tag":"sport"}]},"a":[1,2],"p":[0.6,0.4],"pdrop":0.5}
"#;

#[test]
fn dsjson_as_it_is() {
    let log = parse(DSJSON).unwrap();
    assert_eq!((log.format(), log.events()), (Format::Dsjson, 2));
    assert_eq!(log.actions(), ["news", "sport"]);
    let found = evaluate(DSJSON, "logged");
    assert_eq!(found.log.skipped, 2);
    // The second event stands for two: (1 + 2 (-0.5)) / 3.
    assert!(near(value(found.estimates.ips), 0.0));
    // Weights 0 and 1/0.6; the second counts twice.
    let found = evaluate(DSJSON, "always:news");
    assert!(near(value(found.estimates.ips), -0.5 / 0.6 * 2.0 / 3.0));
    assert!(near(value(evaluate(DSJSON, "always:#1").estimates.ips), -0.5 / 0.6 * 2.0 / 3.0));
    // age, geo, vector.0, vector.1, pro; kind (2 texts), words.
    assert_eq!(found.log.columns, 1 + 5 + 3);
    // Without tags an action is what is logged of it.
    let untagged = DSJSON.replace(r#""_tag":"news","Topic""#, r#""Topic""#);
    assert!(
        parse(&untagged)
            .unwrap()
            .actions()
            .contains(&r#"{"Topic":[{"kind":"n","words":10}]}"#.into())
    );
    // An action that could not be chosen is not covered, even if it was elsewhere.
    let certain = DSJSON.replace(r#""p":[0.6,0.4]"#, r#""p":[1.0,0.0]"#);
    let found = evaluate(&certain, "always:sport");
    assert!(near(found.coverage.uncovered_share, 2.0 / 3.0));
    assert_eq!(found.coverage.uncovered_events, 1);
}

#[test]
fn broken_dsjson_is_explained() {
    for (from, to, expected) in [
        (
            "\"_label_cost\":0.5,",
            "",
            "log, line 5, column \"_label_cost\": found nothing, expected a finite cost",
        ),
        (
            "\"a\":[1,2],\"p\":[0.6",
            "\"a\":[1,3],\"p\":[0.6",
            "column \"a\": found 3, expected an array of different actions from 1 to 2",
        ),
        (
            "[0.6,0.4]",
            "[0.6,0.6]",
            "column \"p\": found a sum of 1.2, expected an array of 2 probabilities that add up to 1",
        ),
        ("[0.6,0.4]", "[0.6]", "column \"p\": found [0.6], expected an array of 2 probabilities"),
        ("[0.6,0.4]", "[0.0,1.0]", "column \"p\": found 0, expected a probability above 0"),
        (
            "\"_label_probability\":0.8",
            "\"_label_probability\":0.7",
            "line 1, column \"_label_probability\": found 0.7, expected 0.8 as in p",
        ),
        (
            "\"_labelIndex\":1",
            "\"_labelIndex\":0",
            "column \"_labelIndex\": found 0, expected action 1",
        ),
        (
            "\"_label_Action\":2",
            "\"_label_Action\":3",
            "column \"_label_Action\": found 3, expected an action from 1 to 2",
        ),
        (
            "\"pdrop\":0.5",
            "\"pdrop\":1",
            "column \"pdrop\": found 1, expected a probability from 0 and below 1",
        ),
        (
            "\"_multi\":[{\"_tag\":\"news\"},{\"_tag\":\"sport\"}]},\"a\":[1,2],\"p\":[0.6",
            "\"_slots\":[],\"a\":[]},\"p\":[0.6",
            "column \"_slots\": found several decisions",
        ),
        (
            "\"c\":{\"User\":{",
            "\"d\":{\"User\":{",
            "line 5, column \"c\": found nothing, expected an object",
        ),
        ("{\"RewardValue\"", "{{", "line 3: found no JSON object"),
    ] {
        let text = DSJSON.replace(from, to);
        assert_ne!(text, DSJSON, "{from}");
        let found = message(&text);
        assert!(found.contains(expected), "{from} -> {to}: {found}");
    }
}

#[test]
fn broken_csv_is_explained() {
    for (text, expected) in [
        ("", "log, line 1: found nothing, expected a CSV header with action, reward and pscore"),
        ("a,b\n1,2\n", "log, line 1: found \"a,b\", expected a CSV header"),
        ("action,reward,pscore\n0,1,1\n", "log: found 1 events, expected at least 2"),
        (
            "action,reward,pscore\n0,1,1\n\n0,1\n",
            "log, line 4: found a row of 2, expected 3 fields",
        ),
        (
            "action,reward,pscore,x,x\n",
            "log, line 1, column \"x\": found the name of this column twice",
        ),
        (
            "action,reward,pscore\n0,1,1\n,1,1\n",
            "log, line 3, column \"action\": found \"\", expected the name of an action",
        ),
        (
            "action,reward,pscore\n0,many,1\n",
            "log, line 2, column \"reward\": found \"many\", expected a finite reward",
        ),
        (
            "action,reward,pscore\n0,1,1.5\n",
            "column \"pscore\": found \"1.5\", expected a probability above 0 and at most 1",
        ),
        (
            "action,reward,pscore,x\n0,1,1,inf\n",
            "column \"x\": found \"inf\", expected a finite number, a text or nothing",
        ),
        (
            "action,reward,pscore,z:x\n0,1,1,1\n",
            "column \"z:x\": found no action before the colon, expected one of \"0\"",
        ),
        (
            "action,reward,pscore,0:x\n0,1,1,1\n1,1,1,1\n",
            "log, line 1: found no column \"1:x\", expected the same features",
        ),
    ] {
        let found = message(text);
        assert!(found.contains(expected), "{text:?}: {found}");
    }
    let options = ReadOptions { format: Some(Format::Csv), ..ReadOptions::default() };
    let error = Log::parse(Path::new("log"), b"action,reward\n", &options).unwrap_err();
    assert!(error.to_string().contains("found no column \"pscore\""), "{error}");
    let error = Log::parse(Path::new("log"), b"action\n\xff", &options).unwrap_err();
    assert!(error.to_string().contains("log, line 2: found bytes that are not UTF-8"), "{error}");
}

#[test]
fn settings_are_checked() {
    let log = parse(OURS).unwrap();
    let fine = Settings { folds: 2, ..Settings::default() };
    for (settings, expected) in [
        (Settings { clip: Some(0.5), ..fine.clone() }, "clip is 0.5, must be at least 1"),
        (Settings { clip: Some(f64::NAN), ..fine.clone() }, "clip is NaN, must be at least 1"),
        (Settings { folds: 1, ..fine.clone() }, "folds is 1, must be from 2 to 100"),
        (Settings { folds: 5, ..fine.clone() }, "found 4 events, expected at least 5"),
        (Settings { ridge: 0.0, ..fine.clone() }, "ridge is 0, must be from 0.000001"),
        (
            Settings { context: Some(vec!["y".into()]), ..fine.clone() },
            "--context names \"y\": found no such field in the log, expected one of \"x\"",
        ),
    ] {
        let found = settings.evaluate(&log, &Policy::Uniform).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
    }
    let error = "sometimes:1".parse::<Policy>().map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("must be uniform, logged or always:ACTION"));
}
