//! The device's promises: it always answers (R11), always at the same length (R12), at most once
//! per batch (R16), from the system's randomness (R13).

use std::{collections::HashSet, sync::Arc};

use incrowd_device::{BitsRandomizer, Device, DeviceError, InputProblem, Participation};
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Model, ModelParts,
    PolicyConfig, Selection, Stage, TaskConfig,
};
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};

fn task(selection: Selection, grace: u32, participations: u32) -> Arc<TaskConfig> {
    let flip = FlipProbability::new(1, 2).unwrap();
    let mechanism = MechanismConfig {
        dimension: 2,
        context_bound: 2.0,
        schedule: vec![Stage { rounds: 20, size: 10, window: None, law: Law::bits(2, flip) }],
        layout: Layout::Shared,
        closes: Closes::Count { grace },
        central_delta: 1e-6,
        participations,
        honest_fraction: 1.0,
    };
    let policy = PolicyConfig { selection, ..PolicyConfig::default() }.check().unwrap();
    Arc::new(TaskConfig::new(mechanism.check().unwrap(), Learner::default(), policy).unwrap())
}

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

#[test]
fn r11_r12_every_input_gives_a_report_of_the_same_length() {
    let task = task(Selection::Ucb {}, 0, 1);
    let inputs: [(&[f64], f64, Option<InputProblem>); 11] = [
        (&[1.0, 1.0], 0.5, None),
        (&[2.0, 0.0], 1.0, None),
        (&[2.0 * (1.0 + 1e-12), 0.0], 1.0, None),
        (&[2.1, 0.0], 1.0, Some(InputProblem::Norm)),
        (&[1e308, -1e308], 1.0, Some(InputProblem::Norm)),
        (&[1.0, 1.0], 1.5, Some(InputProblem::Reward)),
        (&[1.0, 1.0], -1e300, Some(InputProblem::Reward)),
        (&[f64::NAN, 1.0], 0.5, Some(InputProblem::NotFinite)),
        (&[1.0, f64::INFINITY], 0.5, Some(InputProblem::NotFinite)),
        (&[1.0, 1.0], f64::NAN, Some(InputProblem::NotFinite)),
        (&[1.0], 0.5, Some(InputProblem::Dimension(2))),
    ];
    let mut lengths = HashSet::new();
    for (x, reward, wanted) in inputs {
        let answer = Device::simulated(task.clone(), rng(1)).report(1, x, reward).unwrap();
        assert_eq!(answer.problem, wanted, "{x:?} {reward}");
        lengths.insert(answer.report.encode(task.mechanism()).unwrap().len());
    }
    assert_eq!(lengths.len(), 1);
}

/// What clipping is for: without it the coins of an input outside of the ball are those of no valid
/// input.
#[test]
fn r11_an_input_outside_of_the_ball_has_the_coins_of_the_nearest_inside() {
    let task = task(Selection::Ucb {}, 0, 1);
    let round = task.mechanism().round(1).unwrap();
    let thresholds = |x: &[f64]| {
        BitsRandomizer::new(task.mechanism()).thresholds(round.law.as_bits().unwrap(), x, 1.0).0
    };
    let (outside, onto) = ([2.0, 2.0], [2f64.sqrt(), 2f64.sqrt()]);
    let close = |a: &[u32], b: &[u32]| a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 4);
    assert!(close(&thresholds(&outside), &thresholds(&onto)));
}

#[test]
fn problems_name_no_value() {
    let mut device = Device::simulated(task(Selection::Ucb {}, 0, 1), rng(1));
    let problem = device.report(1, &[12345.678, 0.0], 0.5).unwrap().problem.unwrap();
    assert!(!format!("{problem} {problem:?}").contains("12345"));
    let value = incrowd_device::Value::Number(12345.678);
    assert!(!format!("{value:?}").contains("12345"));
}

#[test]
fn r16_one_report_per_batch_and_k_in_all_also_after_a_restart() {
    let task = task(Selection::Ucb {}, 2, 3);
    let mut device = Device::new(task.clone()).unwrap();
    let mut ask = |round| device.report(round, &[1.0, 0.0], 1.0).map(|_| ());
    assert_eq!(ask(4), Ok(()));
    for round in [1, 4, 5, 6] {
        assert_eq!(ask(round), Err(DeviceError::TooSoon { round, last: 4, next: 7 }));
    }
    assert_eq!(ask(7), Ok(()));
    let kept = serde_json::to_string(&device.participation()).unwrap();

    let kept: Participation = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept.reports(), 2);
    let mut device = Device::resume(task, kept).unwrap();
    let mut ask = |round| device.report(round, &[1.0, 0.0], 1.0).map(|_| ());
    assert_eq!(ask(9), Err(DeviceError::TooSoon { round: 9, last: 7, next: 10 }));
    assert!(ask(21).is_err(), "no such round");
    assert_eq!(ask(10), Ok(()));
    assert_eq!(ask(20), Err(DeviceError::Spent(3)));
}

/// R13, what a test can see of it: devices agree on nothing, simulated ones with one seed on
/// everything. That no generator can be passed without the feature `simulation` is checked by
/// `./test`.
#[test]
fn r13_devices_do_not_share_their_randomness() {
    let task = task(Selection::Ucb {}, 0, 1);
    let report = |mut device: Device| device.report(1, &[0.0, 0.0], 0.0).unwrap().report;
    let ids: HashSet<_> =
        (0..64).map(|_| report(Device::new(task.clone()).unwrap()).id()).collect();
    assert_eq!(ids.len(), 64);
    let seeded = || report(Device::simulated(task.clone(), rng(7)));
    assert_eq!(seeded(), seeded());
}

fn model(
    task: &TaskConfig,
    theta: [f64; 2],
    width_factor: [f64; 3],
    confidence_width: f64,
) -> Model {
    let mechanism = task.mechanism().hash();
    let (theta, width_factor) = (theta.to_vec(), width_factor.to_vec());
    ModelParts {
        mechanism,
        version: 1,
        round: 1,
        theta,
        width_factor,
        confidence_width,
        slots: Vec::new(),
    }
    .check()
    .unwrap()
}

#[test]
fn choose_takes_the_highest_upper_confidence_bound() {
    let task = task(Selection::Ucb {}, 0, 1);
    let mut device = Device::simulated(task.clone(), rng(3));
    let arms: [[f64; 2]; 3] = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]];
    let mut choose =
        |model: &Model| device.choose(Some(model), arms.iter().map(|arm| &arm[..])).unwrap();
    // Without width the best mean wins; scores 0.5, 0.4, 0.54.
    assert_eq!(choose(&model(&task, [0.5, 0.4], [1.0, 0.0, 1.0], 0.0)), 2);
    // |W x| = 0.1, 3.0, 1.8 for W = diag(0.1, 3): scores 0.6, 3.4, 2.34 with beta 1.
    assert_eq!(choose(&model(&task, [0.5, 0.4], [0.1, 0.0, 3.0], 1.0)), 1);
    // W = [[1, 0], [-1, 1]]: |W x| = sqrt 2, 1, 0.6.
    assert_eq!(choose(&model(&task, [0.0, 0.0], [1.0, -1.0, 1.0], 1.0)), 0);
}

#[test]
fn choose_refuses_what_it_cannot_score() {
    let task = task(Selection::Ucb {}, 0, 1);
    let mut device = Device::simulated(task.clone(), rng(3));
    assert_eq!(device.choose(None, Vec::<&[f64]>::new()), Err(DeviceError::NoArms));
    for bad in [&[1.0][..], &[1.0, f64::NAN], &[f64::INFINITY, 0.0]] {
        let arms = [&[0.0, 0.0][..], bad];
        let refused = Err(DeviceError::Arm { index: 1, dimension: 2 });
        assert_eq!(device.choose(None, arms), refused);
        let model = model(&task, [0.0, 0.0], [1.0, 0.0, 1.0], 1.0);
        assert_eq!(device.choose(Some(&model), arms), refused);
    }
    let other = Arc::new(TaskConfig::clone(&self::task(Selection::Ucb {}, 1, 1)));
    let foreign = model(&other, [0.0, 0.0], [1.0, 0.0, 1.0], 1.0);
    assert_eq!(device.choose(Some(&foreign), [&[1.0, 0.0][..]]), Err(DeviceError::WrongModel));
}

/// Hoeffding: n draws of an event of probability q stray from n q by more than sqrt(n/2 ln(2e10))
/// with probability at most 1e-10; a test has at most ten such comparisons.
const DRAWS: usize = 60_000;
fn strays(count: usize, probability: f64) -> bool {
    let n = DRAWS as f64;
    (count as f64 - n * probability).abs() > (n / 2.0 * 2e10f64.ln()).sqrt()
}

#[test]
fn equal_arms_are_chosen_equally_often() {
    let task = task(Selection::Ucb {}, 0, 1);
    let mut device = Device::simulated(task.clone(), rng(11));
    let model = model(&task, [1.0, 0.0], [1.0, 0.0, 1.0], 0.0);
    let arms: [[f64; 2]; 4] = [[0.0, 1.0], [1.0, 0.0], [1.0, 0.5], [1.0, -0.5]];
    let mut counts = [[0; 4]; 2];
    for _ in 0..DRAWS {
        counts[0][device.choose(Some(&model), arms.iter().map(|arm| &arm[..])).unwrap()] += 1;
        counts[1][device.choose(None, arms.iter().map(|arm| &arm[..])).unwrap()] += 1;
    }
    assert_eq!(counts[0][0], 0, "a worse arm is never chosen");
    assert!(counts[0][1..].iter().all(|&count| !strays(count, 1.0 / 3.0)), "{counts:?}");
    assert!(counts[1].iter().all(|&count| !strays(count, 0.25)), "{counts:?}");
    assert!(strays(DRAWS, 1.0 / 3.0), "always the first of the equals would be noticed");
}

#[test]
fn sampled_choice_draws_from_the_posterior() {
    let task = task(Selection::Sampled { scale: 0.5 }, 0, 1);
    let mut device = Device::simulated(task.clone(), rng(5));
    // <x, theta> ~ N(0.3, (0.5 * 2)^2 |W x|^2) with W x = (1, 3) for x = (1, 0), against 0 for the
    // zero arm: P(first) = Phi(0.3 / sqrt 10) = Phi(0.0948683) = 0.537790.
    let model = model(&task, [0.3, 9.0], [1.0, 3.0, 2.0], 2.0);
    let arms: [[f64; 2]; 2] = [[1.0, 0.0], [0.0, 0.0]];
    let chosen = (0..DRAWS)
        .filter(|_| device.choose(Some(&model), arms.iter().map(|arm| &arm[..])).unwrap() == 0)
        .count();
    assert!(!strays(chosen, 0.537_790), "{chosen}");
    // W instead of W' would give Phi(0.3) = 0.617911, no confidence width Phi(0.6 / sqrt 10) =
    // 0.575.
    assert!(strays(chosen, 0.617_911) && strays(chosen, 0.575));
}
