//! What comparison tasks say: against an independent computation, at the ends, and what is refused.

use std::sync::Arc;

use incrowd_bandit::{Bandit, BanditError, MeanReward, Uplift, comparison_half_width};
use incrowd_protocol::{
    BatchSums, ComparisonSlot, Learner, LearnerConfig, Mechanism, Policy, TaskConfig, UpdateRule,
};
use serde_json::{Value, json};

fn comparison(mechanism: Mechanism, learner: Learner) -> TaskConfig {
    let task = TaskConfig::new(mechanism, learner, Policy::default()).unwrap();
    task.with_actions(ComparisonSlot::actions()).unwrap()
}

fn mechanism(schedule: &Value, dimension: u32) -> Mechanism {
    let mechanism = json!({
        "dimension": dimension, "context_bound": 1.0, "layout": "per-action", "slots": 2,
        "closes": "count", "grace": 0, "central_delta": 1e-6, "participations": 1,
        "honest_fraction": 1.0, "schedule": schedule,
    });
    serde_json::from_value(mechanism).unwrap()
}

/// Coins that are hardly ever flipped: a report is what it says.
fn bare(bits: u32, rounds: u32, size: u32) -> Value {
    let flip = format!("1/{}", u32::MAX);
    json!([{ "rounds": rounds, "size": size, "encoding": "bits", "bits": bits, "flip": flip }])
}

fn after(task: TaskConfig, rows: &[Vec<i64>]) -> Bandit {
    let task = Arc::new(task);
    let mut bandit = Bandit::new(task.clone());
    for (round, sums) in (1..).zip(rows) {
        let sums = BatchSums::new(task.mechanism(), round, sums.clone()).unwrap();
        bandit.absorb(&sums).unwrap();
    }
    bandit
}

#[test]
fn sums_give_the_intervals_of_the_reference() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/uplift.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for case in &cases {
        let mechanism = serde_json::from_value(case["mechanism"].clone()).unwrap();
        let rows: Vec<Vec<i64>> = serde_json::from_value(case["sums"].clone()).unwrap();
        let bandit = after(comparison(mechanism, Learner::default()), &rows);
        let found = bandit.uplift(case["confidence"].as_f64().unwrap()).unwrap();
        assert_eq!(found.releases as usize, rows.len());
        let check = |found: Option<f64>, wanted: &Value, what: &str| {
            let name = &case["name"];
            assert_eq!(found.is_none(), wanted.is_null(), "{name}, {what}: {found:?}");
            let (Some(found), Some(wanted)) = (found, wanted.as_f64()) else { return };
            let scale = wanted.abs().max(1.0);
            assert!((found - wanted).abs() < 1e-9 * scale, "{name}, {what}: {found} {wanted}");
        };
        for (group, wanted) in [(found.incumbent, "incumbent"), (found.model, "model")] {
            check(Some(group.reports), &case[wanted]["reports"], "reports");
            check(group.mean, &case[wanted]["mean"], "mean");
            check(Some(group.lower), &case[wanted]["lower"], "lower limit of a mean");
            check(Some(group.upper), &case[wanted]["upper"], "upper limit of a mean");
        }
        check(found.difference, &case["difference"], "difference");
        check(Some(found.lower), &case["lower"], "lower limit");
        check(Some(found.upper), &case["upper"], "upper limit");
    }
    assert!(cases.len() >= 12, "{}", cases.len());
}

/// With 4095 bits that are hardly ever flipped the noise is invisible, and the interval is Wilson's
/// for a share: 100 of 400 people were pleased, and 300 of another 400.
#[test]
fn without_noise_the_limits_of_a_mean_are_wilsons() {
    let task = comparison(mechanism(&bare(4095, 1, 800), 1), Learner::default());
    // Ones of a coordinate whose values have this sum.
    let ones = |sum: i64| 4095 * (800 + sum) / 2;
    let rows = [[100, 400, 300, 400].map(ones).to_vec()];
    let Uplift { incumbent, model, difference, lower, upper, .. } =
        after(task, &rows).uplift(0.95).unwrap();
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-5, "{found} {wanted}");
    let wilson = |p: f64, side: f64| {
        let (z, n) = (1.959_964f64, 400.0);
        let root = (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        (p + z * z / (2.0 * n) + side * z * root) / (1.0 + z * z / n)
    };
    for (group, p) in [(incumbent, 0.25), (model, 0.75)] {
        near(group.mean.unwrap(), p);
        near(group.lower, wilson(p, -1.0));
        near(group.upper, wilson(p, 1.0));
    }
    near(difference.unwrap(), 0.5);
    let distance = |a: f64, b: f64| (a * a + b * b).sqrt();
    near(0.5 - lower, distance(0.75 - model.lower, incumbent.upper - 0.25));
    near(upper - 0.5, distance(model.upper - 0.75, 0.25 - incumbent.lower));
}

/// Whatever the sums are: limits are numbers, in order, around the estimate, and within [0, 1].
#[test]
fn no_sums_give_limits_that_are_no_limits() {
    let law = json!([{ "rounds": 1, "size": 50, "encoding": "bits", "bits": 1, "flip": "1/2" }]);
    let ends = [0, 1, 12, 25, 26, 38, 49, 50];
    let is_good = |group: &MeanReward| {
        let mean = group.mean.unwrap_or(group.lower);
        0.0 <= group.lower && group.lower <= mean && mean <= group.upper && group.upper <= 1.0
    };
    for rewards in ends {
        for reports in ends {
            let rows = [vec![rewards, reports, reports, rewards]];
            let task = comparison(mechanism(&law, 1), Learner::default());
            let bandit = after(task, &rows);
            for confidence in [0.5, 0.95, 0.999_999] {
                let found = bandit.uplift(confidence).unwrap();
                assert!(is_good(&found.incumbent) && is_good(&found.model), "{found:?}");
                let middle = found.difference.unwrap_or(found.lower);
                assert!(-1.0 <= found.lower && found.lower <= middle, "{found:?}");
                assert!(middle <= found.upper && found.upper <= 1.0, "{found:?}");
            }
        }
    }
}

#[test]
fn what_is_no_comparison_is_refused() {
    let good = comparison(mechanism(&bare(2, 2, 10), 1), Learner::default());
    assert_eq!(after(good.clone(), &[]).uplift(0.95), Err(BanditError::NoRelease));
    for confidence in [0.0, 0.49, 1.0, f64::NAN] {
        let refused = after(good.clone(), &[]).uplift(confidence);
        assert!(matches!(refused, Err(BanditError::ConfidenceLevel(_))), "{refused:?}");
    }
    let forgetting = LearnerConfig {
        discount: 0.9,
        update: UpdateRule::EveryBatch {},
        ..LearnerConfig::default()
    };
    let plain =
        TaskConfig::new(mechanism(&bare(2, 2, 10), 1), Learner::default(), Policy::default());
    let other = ["model", "incumbent"].map(String::from);
    for task in [
        plain.clone().unwrap(),
        plain.unwrap().with_actions(other.into()).unwrap(),
        comparison(mechanism(&bare(2, 2, 10), 2), Learner::default()),
        comparison(mechanism(&bare(2, 2, 10), 1), forgetting.check().unwrap()),
    ] {
        assert_eq!(comparison_half_width(&task, 20.0, 0.95), Err(BanditError::NotComparison));
        assert_eq!(after(task, &[]).uplift(0.95), Err(BanditError::NotComparison));
    }
}

/// The half width that is promised is the one that comes out when a mean is one half.
#[test]
fn the_predicted_half_width_is_what_comes() {
    let law = json!([
        { "rounds": 2, "size": 40_000, "encoding": "codebook", "words": 64, "chosen": 3, "outside": "1/4", "moment_weight": 150 },
        { "rounds": 1, "size": 20_000, "encoding": "bits", "bits": 3, "flip": "1/2" },
    ]);
    let task = comparison(mechanism(&law, 1), Learner::default());
    let promised = comparison_half_width(&task, 100_000.0, 0.95).unwrap();
    // The reference's words: gain 1.0457 times 16 and the square root of the share.
    let gain = incrowd_bandit::WordMoments::new(64, 3, 0.25).gain;
    let unit = |share: f64| 16.0 * gain * share.sqrt();
    let (rewards, reports) =
        ((10_000.0 * unit(150.0 / 256.0)) as i64, (20_000.0 * unit(106.0 / 256.0)) as i64);
    let words = vec![rewards, reports, rewards, reports];
    // l/2 m (1 + c v/l) ones.
    let bits = vec![33_750, 37_500, 33_750, 37_500];
    let found = after(task, &[words.clone(), words, bits]).uplift(0.95).unwrap();
    assert!((found.incumbent.reports - 50_000.0).abs() < 20.0, "{found:?}");
    let half = (found.upper - found.lower) / 2.0;
    assert!((half / promised - 1.0).abs() < 0.01, "{half} instead of {promised}");
}
