//! The bandit is deterministic and resumable, in order, and bounded in what one report can do to
//! it.

use std::sync::Arc;

use incrowd_bandit::{Bandit, BanditError, Statistics};
use incrowd_protocol::{
    BatchSums, Closes, Confidence, FlipProbability, Law, Layout, LearnerConfig, MechanismConfig,
    Model, Policy, Stage, TaskConfig, UpdateRule,
};
use proptest::prelude::*;

const SIZE: u32 = 50;
const BITS: u32 = 2;

fn task(confidence: Confidence, update: UpdateRule) -> Arc<TaskConfig> {
    let flip = FlipProbability::new(1, 4).unwrap();
    let mechanism = MechanismConfig {
        dimension: 3,
        context_bound: 2.0,
        schedule: vec![Stage { rounds: 6, size: SIZE, window: None, law: Law::bits(BITS, flip) }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    let learner = LearnerConfig { confidence, update, ..LearnerConfig::default() };
    let task =
        TaskConfig::new(mechanism.check().unwrap(), learner.check().unwrap(), Policy::default());
    Arc::new(task.unwrap())
}

fn tasks() -> [Arc<TaskConfig>; 3] {
    [
        task(Confidence::Proven {}, UpdateRule::EveryBatch {}),
        task(Confidence::Calibrated { exploration: 0.2 }, UpdateRule::Determinant { growth: 0.5 }),
        task(Confidence::Paper { ridge: 1.0 }, UpdateRule::Determinant { growth: 0.1 }),
    ]
}

fn sums() -> impl Strategy<Value = Vec<Vec<i64>>> {
    prop::collection::vec(prop::collection::vec(0..=i64::from(SIZE * BITS), 9), 6)
}

fn absorb_all(
    bandit: &mut Bandit,
    task: &TaskConfig,
    sums: &[Vec<i64>],
    first: u32,
) -> Vec<Option<Model>> {
    let release = |(i, sums): (usize, &Vec<i64>)| {
        BatchSums::new(task.mechanism(), first + i as u32, sums.clone()).unwrap()
    };
    sums.iter().enumerate().map(release).map(|sums| bandit.absorb(&sums).unwrap()).collect()
}

proptest! {
    /// R24 at library level: written down after any release and resumed, the models are the same to
    /// the last bit.
    #[test]
    fn a_resumed_bandit_gives_the_same_bytes(sums in sums(), pause in 0usize..=6) {
        for task in tasks() {
            let whole = absorb_all(&mut Bandit::new(task.clone()), &task, &sums, 1);

            let mut bandit = Bandit::new(task.clone());
            let mut parts = absorb_all(&mut bandit, &task, &sums[..pause], 1);
            let saved = serde_json::to_string(bandit.statistics()).unwrap();
            let statistics: Statistics = serde_json::from_str(&saved).unwrap();
            prop_assert_eq!(&statistics, bandit.statistics());
            let mut bandit = Bandit::resume(task.clone(), statistics).unwrap();
            parts.extend(absorb_all(&mut bandit, &task, &sums[pause..], pause as u32 + 1));

            let bytes = |models: &[Option<Model>]| serde_json::to_string(models).unwrap();
            prop_assert_eq!(bytes(&whole), bytes(&parts));
            prop_assert!(whole[0].is_some(), "the first release always gives a model");
        }
    }

    /// Every model is valid whatever the sums: V is positive definite, everything finite.
    #[test]
    fn any_sums_give_a_usable_estimate(sums in sums()) {
        for task in tasks() {
            let mut bandit = Bandit::new(task.clone());
            for (i, sums) in sums.iter().enumerate() {
                absorb_all(&mut bandit, &task, std::slice::from_ref(sums), i as u32 + 1);
                let ellipsoid = bandit.estimate().unwrap().ellipsoid;
                prop_assert!(ellipsoid.smallest_eigenvalue >= ellipsoid.floor * (1.0 - 1e-9));
                prop_assert!(ellipsoid.confidence_width.is_finite());
            }
        }
    }

    /// R23: the stated bound on what one report does to theta (docs/confidence.md), whether the
    /// ridge stays where it is or not.
    #[test]
    fn r23_one_report_moves_theta_by_at_most_the_stated_bound(
        base in prop::collection::vec(2i64..=98, 9),
        moves in prop::collection::vec(-i64::from(BITS)..=i64::from(BITS), 9),
    ) {
        let task = task(Confidence::Proven {}, UpdateRule::EveryBatch {});
        let estimate = |sums: Vec<i64>| {
            let mut bandit = Bandit::new(task.clone());
            absorb_all(&mut bandit, &task, &[sums], 1);
            bandit.estimate().unwrap()
        };
        let before = estimate(base.clone());
        let after = estimate(base.iter().zip(&moves).map(|(&sum, &by)| sum + by).collect());

        let (d, l, c) = (3f64, 2.0, 0.75);
        let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
        let moved: Vec<f64> = after.theta.iter().zip(&before.theta).map(|(a, b)| a - b).collect();
        let gram = 2.0 * l * l * d / c;
        let smallest = before.ellipsoid.floor.max(before.ellipsoid.smallest_eigenvalue - gram);
        let bound = (2.0 * l / c) * (d.sqrt() + 2.0 * l * d * norm(&before.theta)) / smallest;
        prop_assert!(norm(&moved) <= bound, "{} > {}", norm(&moved), bound);
    }
}

#[test]
fn releases_are_taken_in_order_and_once() {
    let [task, ..] = tasks();
    let mut bandit = Bandit::new(task.clone());
    let release = |round| BatchSums::new(task.mechanism(), round, vec![50; 9]).unwrap();
    assert_eq!(bandit.absorb(&release(2)), Err(BanditError::Order { found: 2, next: 1 }));
    assert!(bandit.absorb(&release(1)).is_ok());
    assert_eq!(bandit.absorb(&release(1)), Err(BanditError::Order { found: 1, next: 2 }));
    assert_eq!(bandit.statistics().round(), 1);
}

#[test]
fn statistics_of_another_task_are_refused() {
    let [a, b, _] = tasks();
    let saved = Bandit::new(a.clone()).statistics().clone();
    assert!(Bandit::resume(b, saved.clone()).is_ok(), "the learner is not part of the mechanism");
    let json = serde_json::to_value(&saved).unwrap();
    for name in json.as_object().unwrap().keys() {
        let mut broken = json.clone();
        broken.as_object_mut().unwrap().remove(name);
        assert!(serde_json::from_value::<Statistics>(broken).is_err(), "{name} is missing");
    }
    for (key, value) in [
        ("round", serde_json::json!(7)),
        ("sums", serde_json::json!([0.0])),
        ("models", serde_json::json!(1)),
    ] {
        let mut broken = json.clone();
        broken[key] = value;
        let broken: Statistics = serde_json::from_value(broken).unwrap();
        assert_eq!(
            Bandit::resume(a.clone(), broken).err(),
            Some(BanditError::WrongStatistics),
            "{key}"
        );
    }
}
