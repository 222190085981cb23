//! How often the interval of a comparison task holds the true difference, through real devices,
//! batches and pads.

use std::sync::Arc;

use incrowd_bandit::{Bandit, Uplift};
use incrowd_device::Arm;
use incrowd_protocol::{
    Closes, CodebookLaw, ComparisonSlot, FlipProbability, Law, Layout, Learner, MechanismConfig,
    OutsideProbability, Policy, Stage, TaskConfig,
};
use incrowd_sim::{Path, Rounds};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rayon::prelude::*;

const RUNS: u64 = 500;
/// More than so many intervals of 500 at 95 % miss with a probability below 1e-10 (Chernoff: 500
/// KL(0.13 || 0.05) = 23.8). Intervals that are narrower by a factor of 0.7 miss 85 on average.
const MOST_MISSES: usize = 65;
const ROUNDS: u32 = 3;
const PEOPLE: u32 = 500;
const HOUR: u32 = 3_600_000;
const BOUND: f64 = 2.0;
/// Mean rewards with the incumbent and with the model.
const MEANS: [f64; 2] = [0.75, 0.85];

/// Rounds of [`PEOPLE`] reports, or of an hour with so many pads.
fn task(law: Law, pads: Option<u32>) -> Arc<TaskConfig> {
    let size = PEOPLE + pads.unwrap_or(0);
    let mechanism = MechanismConfig {
        dimension: 1,
        context_bound: BOUND,
        schedule: vec![Stage { rounds: ROUNDS, size, window: pads.map(|_| HOUR), law }],
        layout: Layout::PerAction { slots: 2 },
        closes: match pads {
            None => Closes::Count { grace: 0 },
            Some(_) => Closes::Time { opens: 0 },
        },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    let task = TaskConfig::new(mechanism.check().unwrap(), Learner::default(), Policy::default());
    Arc::new(task.unwrap().with_actions(ComparisonSlot::actions()).unwrap())
}

/// What all releases of one run say.
fn run(task: &Arc<TaskConfig>, seed: u64) -> Uplift {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut below =
        |share: f64| f64::from(rand_core::Rng::next_u32(&mut rng)) < share * 4_294_967_296.0;
    let mut rounds = Rounds::new(task.clone(), Path::Wire, seed);
    let mut bandit = Bandit::new(task.clone());
    let timed = task.mechanism().window(1).unwrap().is_some();
    for round in 1..=u64::from(ROUNDS) {
        let opens = (round - 1) * u64::from(HOUR);
        let mut releases = Vec::new();
        if timed {
            while let Some(sums) = rounds.close(opens).unwrap() {
                releases.push(sums);
            }
        }
        for _ in 0..PEOPLE {
            let slot = ComparisonSlot::ALL[usize::from(below(0.5))].number();
            let reward = f64::from(u8::from(below(MEANS[slot as usize])));
            let arm = Arm { slot, features: &[BOUND] };
            releases.extend(rounds.add(arm, reward).unwrap());
        }
        releases.iter().for_each(|sums| drop(bandit.absorb(sums).unwrap()));
    }
    while let Some(sums) = timed.then(|| rounds.close(u64::from(ROUNDS * HOUR)).unwrap()).flatten()
    {
        bandit.absorb(&sums).unwrap();
    }
    assert_eq!(bandit.statistics().round(), ROUNDS);
    bandit.uplift(0.95).unwrap()
}

/// The interval of somebody who forgets the noise of the mechanism.
fn without_noise(found: &Uplift) -> (f64, f64) {
    let variance = |group: incrowd_bandit::MeanReward| {
        let mean = group.mean.unwrap_or(0.5);
        mean * (1.0 - mean) / group.reports.max(1.0)
    };
    let half = 1.96 * (variance(found.incumbent) + variance(found.model)).sqrt();
    let difference = found.difference.unwrap_or(0.0);
    (difference - half, difference + half)
}

fn covers(name: &str, law: Law, pads: Option<u32>) {
    let task = task(law, pads);
    let found: Vec<Uplift> = (0..RUNS).into_par_iter().map(|seed| run(&task, seed)).collect();
    let truth = MEANS[1] - MEANS[0];
    let misses = |interval: fn(&Uplift) -> (f64, f64)| {
        let misses = |(lower, upper): (f64, f64)| !(lower..=upper).contains(&truth);
        found.iter().filter(|found| misses(interval(found))).count()
    };
    let (missed, broken) = (misses(|found| (found.lower, found.upper)), misses(without_noise));
    let width = found.iter().map(|found| found.upper - found.lower).sum::<f64>() / RUNS as f64;
    println!(
        "{name}: {missed} of {RUNS} missed, {broken} without noise, half width {}",
        width / 2.0
    );
    assert!(missed <= MOST_MISSES, "{name}: {missed} of {RUNS} miss");
    assert!(broken > MOST_MISSES, "{name}: the test does not see that noise is left out");
    let known = found.iter().filter(|found| found.difference.is_some()).count();
    assert!(known as u64 > RUNS * 9 / 10, "{name}: {known} of {RUNS} differences are known");
}

fn bits() -> Law {
    Law::bits(2, FlipProbability::from_keep(0.6).unwrap())
}

/// Most of a word is about the reward, so most of the noise is in the number of reports.
fn words() -> Law {
    let outside = OutsideProbability::from_keep(0.75).unwrap();
    Law::Codebook(CodebookLaw { words: 16, chosen: 2, outside, moment_weight: 176 })
}

#[test]
fn intervals_from_bits_cover() {
    covers("bits", bits(), None);
}

#[test]
fn intervals_from_bits_with_pads_cover() {
    covers("bits with pads", bits(), Some(300));
}

#[test]
fn intervals_from_words_cover() {
    covers("words", words(), None);
}

#[test]
fn intervals_from_words_with_pads_cover() {
    covers("words with pads", words(), Some(300));
}
