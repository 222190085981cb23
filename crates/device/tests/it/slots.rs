//! Choosing among arms with slots.

use std::sync::Arc;

use incrowd_device::{Arm, Device, DeviceError};
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Model, ModelParts, Policy,
    PolicyConfig, Selection, SlotParts, Stage, TaskConfig,
};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

fn task(layout: Layout, selection: Selection) -> Arc<TaskConfig> {
    let law = Law::bits(1, FlipProbability::new(1, 2).unwrap());
    let mechanism = MechanismConfig {
        dimension: 3,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 10, size: 10, window: None, law }],
        layout,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    let policy = Policy::try_from(PolicyConfig { selection, ..PolicyConfig::default() }).unwrap();
    let task = TaskConfig::new(mechanism.check().unwrap(), Learner::default(), policy);
    Arc::new(task.unwrap())
}

fn slot(action: &str, theta: [f64; 2], factor: [f64; 3], cross: [f64; 2], width: f64) -> SlotParts {
    SlotParts {
        action: Some(action.into()),
        theta: theta.to_vec(),
        width_factor: factor.to_vec(),
        cross_factor: cross.to_vec(),
        confidence_width: width,
    }
}

const HYBRID: Layout = Layout::Hybrid { slots: 2, shared: 1 };

fn hybrid(task: &TaskConfig) -> Model {
    ModelParts {
        mechanism: task.mechanism().hash(),
        version: 1,
        round: 1,
        theta: vec![0.4],
        width_factor: vec![1.5],
        confidence_width: 0.0,
        slots: vec![
            slot("a", [0.2, -0.3], [1.0, -0.5, 2.0], [0.5, -1.0], 1.5),
            slot("b", [-0.1, 0.6], [0.5, 1.0, 1.0], [-2.0, 0.25], 0.75),
        ],
    }
    .check()
    .unwrap()
}

/// <x, theta> and |x|^2_{V^-1} = |W own|^2 + |C own + W shared|^2, written out for q = 2 and s = 1.
fn mean_and_square(model: &Model, slot: usize, x: [f64; 3]) -> (f64, f64) {
    let s = &model.slots()[slot];
    let (w, c) = (&s.width_factor, &s.cross_factor);
    let mean = s.theta[0] * x[0] + s.theta[1] * x[1] + model.theta()[0] * x[2];
    let rows = [
        w[0] * x[0],
        w[1] * x[0] + w[2] * x[1],
        c[0] * x[0] + c[1] * x[1] + model.width_factor()[0] * x[2],
    ];
    (mean, rows.iter().map(|row| row * row).sum())
}

#[test]
fn the_highest_upper_confidence_bound_of_all_slots_is_chosen() {
    let task = task(HYBRID, Selection::Ucb {});
    let (model, mut chosen) = (hybrid(&task), [0; 8]);
    let mut device = Device::simulated(task.clone(), ChaCha20Rng::seed_from_u64(1));
    for number in 0..500u32 {
        // Arms all around, in turn of either slot.
        let angle = |i: u32| f64::from(number * 7 + i * 13);
        let arms: Vec<(u32, [f64; 3])> = (0..8)
            .map(|i| {
                (i % 2, [angle(i).sin() * 0.5, angle(2 * i).cos() * 0.5, angle(3 * i).sin() * 0.5])
            })
            .collect();
        let score = |(slot, x): &(u32, [f64; 3])| {
            let (mean, square) = mean_and_square(&model, *slot as usize, *x);
            mean + model.slots()[*slot as usize].confidence_width * square.sqrt()
        };
        let scores: Vec<f64> = arms.iter().map(score).collect();
        let best = (0..8).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap();
        let offered = arms.iter().map(|(slot, features)| Arm { slot: *slot, features });
        assert_eq!(device.choose(Some(&model), offered), Ok(best), "{scores:?}");
        chosen[best] += 1;
    }
    let of_slot = |slot: usize| (0..4).map(|i| chosen[2 * i + slot]).sum::<u32>();
    assert!(of_slot(0) > 50 && of_slot(1) > 50, "{chosen:?}");
}

/// An arm's score is N(<x, theta>, (s beta)^2 |x|^2_{V^-1}), and two arms of different slots have
/// the same draw of the shared weights. Hoeffding: 60,000 draws stray by more than sqrt(n/2
/// ln(2e10)) = 843 with probability at most 1e-10.
#[test]
fn sampled_scores_have_the_law_of_the_joint_posterior() {
    const DRAWS: u32 = 60_000;
    let task = task(HYBRID, Selection::Sampled { scale: 0.5 });
    let model = hybrid(&task);
    let mut device = Device::simulated(task.clone(), ChaCha20Rng::seed_from_u64(2));
    let mut share = |arms: [(u32, [f64; 3]); 2]| {
        let first = (0..DRAWS).filter(|_| {
            let offered = arms.iter().map(|(slot, features)| Arm { slot: *slot, features });
            device.choose(Some(&model), offered) == Ok(0)
        });
        f64::from(first.count() as u32)
    };
    let strays = |count: f64, chance: f64| {
        let n = f64::from(DRAWS);
        (count - n * chance).abs() > (n / 2.0 * 2e10f64.ln()).sqrt()
    };
    // Against the zero arm, whose score is 0.
    let x = [0.9, -0.3, 0.2];
    let (mean, square) = mean_and_square(&model, 0, x);
    let found = share([(0, x), (1, [0.0; 3])]);
    let std = 0.5 * 1.5 * square.sqrt();
    assert!(!strays(found, normal(mean / std)), "{found}");
    // Without the cross factor the law would be another one.
    let plain = 0.5 * 1.5 * (0.81f64 + (-0.45f64 - 0.6).powi(2) + 0.3f64.powi(2)).sqrt();
    assert!(strays(found, normal(mean / plain)));
    // Shared features alone, in both slots: the draw is the same, so the wider one is first exactly
    // when the common normal variable says so.
    let (one, other) = ([0.0, 0.0, 0.8], [0.0, 0.0, 0.4]);
    let (a, b) = (mean_and_square(&model, 0, one), mean_and_square(&model, 1, other));
    let difference = 0.5 * 1.5 * a.1.sqrt() - 0.5 * 0.75 * b.1.sqrt();
    let found = share([(0, one), (1, other)]);
    assert!(!strays(found, normal((a.0 - b.0) / difference.abs())), "{found}");
    let independent = ((0.5f64 * 1.5).powi(2) * a.1 + (0.5f64 * 0.75).powi(2) * b.1).sqrt();
    assert!(strays(found, normal((a.0 - b.0) / independent)));
}

/// The distribution function of the standard normal law.
fn normal(x: f64) -> f64 {
    libm::erfc(-x / 2f64.sqrt()) / 2.0
}

#[test]
fn arms_that_no_slot_can_score_are_refused() {
    let task = task(HYBRID, Selection::Ucb {});
    let model = hybrid(&task);
    let mut device = Device::simulated(task.clone(), ChaCha20Rng::seed_from_u64(3));
    let good = [0.1, 0.2, 0.3];
    for (slot, features) in
        [(2, &good[..]), (u32::MAX, &good), (0, &good[..2]), (1, &[0.1, f64::NAN, 0.0])]
    {
        let arms = [Arm { slot: 1, features: &good }, Arm { slot, features }];
        let refused = Err(DeviceError::Arm { index: 1, dimension: 3 });
        assert_eq!(device.choose(Some(&model), arms), refused, "{slot} {features:?}");
        assert_eq!(device.choose(None, arms), refused, "{slot} {features:?}");
    }
    let other = self::task(Layout::PerAction { slots: 2 }, Selection::Ucb {});
    let mut device = Device::simulated(other, ChaCha20Rng::seed_from_u64(3));
    let arm = Arm { slot: 0, features: &good };
    assert_eq!(device.choose(Some(&model), [arm]), Err(DeviceError::WrongModel));
}
