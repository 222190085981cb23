//! Learning on the demo problem with the real device, shuffler and bandit.

use std::sync::Arc;

use crate::shared;
use incrowd_planner::sizes::growing;
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy, PolicyConfig,
    Selection, Stage, TaskConfig,
};
use incrowd_sim::{Path, Rewards, Sblb, Simulation, SimulationError, Summary, Synthetic};
use rayon::prelude::*;

fn task(schedule: Vec<Stage>, policy: Policy) -> Arc<TaskConfig> {
    let mechanism = MechanismConfig {
        dimension: 5,
        context_bound: 1.0,
        schedule,
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(TaskConfig::new(mechanism.check().unwrap(), Learner::default(), policy).unwrap())
}

fn fixed(users: u32) -> Vec<Stage> {
    let flip = FlipProbability::new(53, 100).unwrap();
    vec![Stage { rounds: users / 100, size: 100, window: None, law: Law::bits(1, flip) }]
}

fn run(task: &Arc<TaskConfig>, path: Path, seed: u64) -> Summary {
    let people = Synthetic::new(5, 10, Rewards::Bernoulli, seed).unwrap();
    let mut simulation = Simulation::new(people, Sblb::new(task.clone(), path, seed)).unwrap();
    simulation.run(task.mechanism().schedule().horizon()).unwrap();
    simulation.summary()
}

fn mean_share(task: &Arc<TaskConfig>, seeds: u64) -> f64 {
    let shares: Vec<f64> =
        (0..seeds).into_par_iter().map(|seed| run(task, Path::Bulk, seed).regret_share()).collect();
    shares.iter().sum::<f64>() / seeds as f64
}

/// c = 0.47, batches of 100, 100,000 users, calibrated confidence, 20 seeds.
#[test]
fn regret_is_below_15_percent_of_a_random_choice() {
    let ucb = mean_share(&task(fixed(100_000), Policy::default()), 20);
    let sampled =
        PolicyConfig { selection: Selection::Sampled { scale: 0.25 }, ..PolicyConfig::default() };
    let sampled = mean_share(&task(fixed(100_000), sampled.check().unwrap()), 20);
    println!("mean regret over the random choice's: ucb {ucb:.4}, sampled {sampled:.4}");
    assert!(ucb < 0.15);
    assert!(sampled < 0.15);
}

#[test]
fn growing_batches_learn_too() {
    let flip = FlipProbability::new(53, 100).unwrap();
    let law = Law::bits(1, flip);
    let sizes = growing(100, 1.2, 100_000, 100_000).unwrap();
    let schedule =
        sizes.into_iter().map(|(rounds, size)| Stage { rounds, size, window: None, law }).collect();
    let share = mean_share(&task(schedule, Policy::default()), 8);
    println!("growing batches: {share:.4}");
    assert!(share < 0.25);
}

/// The same people, coins from other streams: 20,000 users, so the two shares differ only by luck.
#[test]
fn both_paths_count_everyone_once() {
    let task = task(fixed(20_000), Policy::default());
    for path in [Path::Wire, Path::Bulk] {
        let summary = run(&task, path, 1);
        assert_eq!((summary.users, summary.batches), (20_000, 200));
        assert!(
            summary.models > 1 && summary.models < 200,
            "the determinant rule skips some: {}",
            summary.models
        );
        assert!(
            summary.regret < 0.6 * summary.regret_random(),
            "{path:?} {}",
            summary.regret_share()
        );
        assert_eq!(summary, run(&task, path, 1), "the same seed gives the same run");
    }
}

#[test]
fn an_environment_of_another_dimension_is_refused() {
    let people = Synthetic::new(4, 10, Rewards::Bernoulli, 1).unwrap();
    let sblb = Sblb::new(task(fixed(1000), Policy::default()), Path::Wire, 1);
    let result = Simulation::new(people, sblb);
    assert_eq!(result.err(), Some(SimulationError::Layout { found: shared(4), needed: shared(5) }));
}
