//! Sums of codebook rounds, by wire and in bulk, where what the reports of a batch share is drawn
//! together: both have the stated law.
//!
//! Rounding of words to sixteenths adds 1/3072 to a variance of 1. It is part of the stated law,
//! but leaving it out would move nothing here by a hundredth of a tolerance.

use std::sync::Arc;

use incrowd_protocol::{
    Closes, CodebookLaw, Law, Layout, Learner, MechanismConfig, OutsideProbability, Policy, STEPS,
    Stage, TaskConfig, coordinates, triangle,
};
use incrowd_sim::{Path, Rounds};
use libm::{erfc, lgamma};

/// ln(2/a) for false alarms of a = 1e-14 in one comparison. Fewer than 10,000 are made: together
/// less than 1e-10.
const LOG: f64 = 32.93;
/// Milliseconds of a round that closes by time.
const WINDOW: u32 = 10;

/// N, k, 1 - p and 256 w.
type Numbers = (u32, u32, f64, u32);
/// One word in a few hundred, with much left to chance: the variance along a statistic is over 2.
const ONE: Numbers = (256, 1, 0.4, 128);
const MANY: Numbers = (256, 17, 0.4, 128);
const FEW: Numbers = (5, 2, 0.3, 90);

fn law((words, chosen, outside, moment_weight): Numbers) -> CodebookLaw {
    let outside = OutsideProbability::from_keep(1.0 - outside).unwrap();
    CodebookLaw { words, chosen, outside, moment_weight }
}

fn task(d: u32, numbers: Numbers, size: u32, rounds: u32, closes: Closes) -> Arc<TaskConfig> {
    let window = matches!(closes, Closes::Time { .. }).then_some(WINDOW);
    let mechanism = MechanismConfig {
        dimension: d,
        context_bound: 1.0,
        schedule: vec![Stage { rounds, size, window, law: Law::Codebook(law(numbers)) }],
        layout: Layout::Shared,
        closes,
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(
        TaskConfig::new(mechanism.check().unwrap(), Learner::default(), Policy::default()).unwrap(),
    )
}

type People = Vec<(Vec<f64>, f64)>;

/// Statistics of norm 1, shorter ones and none.
fn people(d: usize) -> People {
    let side = 1.0 / (d as f64).sqrt();
    let mut mixed: Vec<f64> = (0..d).map(|i| 0.6 - 0.3 * i as f64).collect();
    let norm = mixed.iter().map(|x| x * x).sum::<f64>().sqrt() / 0.9;
    mixed.iter_mut().for_each(|x| *x /= norm);
    let same = (vec![side; d], 1.0);
    vec![same.clone(), same.clone(), (mixed, 0.3), same, (vec![0.0; d], 1.0)]
}

/// The released sums of all rounds, in standard deviations of an entry.
fn play(task: &Arc<TaskConfig>, path: Path, people: &People) -> Vec<Vec<f64>> {
    let mut run = Rounds::new(task.clone(), path, 11);
    let stage = task.mechanism().schedule().stages()[0];
    let mut now = 0;
    let round = |_| {
        assert_eq!(run.close(now).unwrap(), None, "its time has not come");
        let mut released = None;
        for (context, reward) in people {
            assert_eq!(released, None);
            released = run.add(context.into(), *reward).unwrap();
        }
        now += u64::from(WINDOW);
        if stage.window.is_some() {
            assert_eq!(released, None);
            released = run.close(now).unwrap();
        }
        released.unwrap().sums().iter().map(|&sum| sum as f64 / f64::from(STEPS)).collect()
    };
    (0..stage.rounds).map(round).collect()
}

/// z by the formula.
fn statistic(weight: f64, context: &[f64], reward: f64) -> Vec<f64> {
    let moment = context.iter().map(|x| weight.sqrt() * reward * x);
    let gram = (0..context.len()).flat_map(|i| {
        (0..=i).map(move |j| {
            let twice = if i == j { 1.0 } else { 2.0 };
            ((1.0 - weight) * twice).sqrt() * context[i] * context[j]
        })
    });
    moment.chain(gram).collect()
}

/// The law of the word that is sent along z+, as densities on a grid.
struct Along {
    density: Vec<f64>,
}

const STEP: f64 = 1.0 / 256.0;
const END: i32 = 9 * 256;

impl Along {
    /// phi(y) (gamma + (1-gamma) (N/k) P(Bin(N-1, 1 - Phi(y)) <= k-1)), gamma = o N/(N-k).
    fn new((words, chosen, outside, _): Numbers) -> Self {
        let (n, k) = (f64::from(words), f64::from(chosen));
        let blind = outside * n / (n - k);
        let density = |i: i32| {
            let y = f64::from(i) * STEP;
            let tail = |y: f64| erfc(y / 2f64.sqrt()) / 2.0;
            let (above, below) = (tail(y), tail(-y));
            let others = |j: u32| {
                let j = f64::from(j);
                let choose = lgamma(n) - lgamma(j + 1.0) - lgamma(n - j);
                let below = if n - 1.0 - j > 0.0 { (n - 1.0 - j) * below.ln() } else { 0.0 };
                (choose + if j > 0.0 { j * above.ln() } else { 0.0 } + below).exp()
            };
            let chosen: f64 = (0..chosen).map(others).sum();
            let phi = (-y * y / 2.0).exp() / std::f64::consts::TAU.sqrt();
            phi * (blind + (1.0 - blind) * n / k * chosen)
        };
        Self { density: (-END..=END).map(density).collect() }
    }

    fn sum(&self, of: impl Fn(f64) -> f64) -> f64 {
        let grid = (-END..=END).zip(&self.density);
        grid.map(|(i, density)| of(f64::from(i) * STEP) * density * STEP).sum()
    }

    fn mean(&self) -> f64 {
        self.sum(|y| y)
    }

    fn variance(&self) -> f64 {
        let mean = self.mean();
        self.sum(|y| (y - mean).powi(2))
    }

    /// Where its distribution function is 1/20, ..., 19/20.
    fn quantiles(&self) -> Vec<f64> {
        let mut below = 0.0;
        let mut quantiles = Vec::new();
        for (i, density) in (-END..=END).zip(&self.density) {
            let next = below + density * STEP;
            let wanted = (quantiles.len() + 1) as f64 / 20.0;
            if next >= wanted && quantiles.len() < 19 {
                // A node stands for the half steps beside it.
                quantiles.push((f64::from(i) - 0.5 + (wanted - below) / (next - below)) * STEP);
            }
            below = next;
        }
        quantiles
    }
}

/// Mean and covariance of the sums of a batch.
struct Stated {
    /// The first person's z.
    direction: Vec<f64>,
    mean: Vec<f64>,
    covariance: Vec<Vec<f64>>,
}

impl Stated {
    /// The mean is mu times the sum of z, the covariance that of (1 + 1/(12 16^2)) I + (v - 1) z
    /// z'. A pad is a word of its own.
    fn new(numbers: Numbers, people: &People, pads: u32, [mu, v]: [f64; 2]) -> Self {
        let weight = f64::from(numbers.3) / 256.0;
        let all = coordinates(people[0].0.len());
        let reports = people.len() as f64 + f64::from(pads);
        let rounding = 1.0 / (12.0 * f64::from(STEPS * STEPS));
        let mut stated = Self {
            direction: statistic(weight, &people[0].0, people[0].1),
            mean: vec![0.0; all],
            covariance: vec![vec![0.0; all]; all],
        };
        (0..all).for_each(|i| stated.covariance[i][i] = reports * (1.0 + rounding));
        for (context, reward) in people {
            let z = statistic(weight, context, *reward);
            for i in 0..all {
                stated.mean[i] += mu * z[i];
                (0..all).for_each(|j| stated.covariance[i][j] += (v - 1.0) * z[i] * z[j]);
            }
        }
        stated
    }

    /// What of these sums does not fit. Sums are made white: then each entry has mean 0, variance 1
    /// and tails not heavier than a normal variable of variance 2, products of two have variance at
    /// most 4; Bernstein's inequality.
    fn misfits(&self, sums: &[Vec<f64>]) -> Vec<String> {
        let (all, n) = (self.mean.len(), sums.len() as f64);
        let packed: Vec<f64> =
            (0..all).flat_map(|i| self.covariance[i][..=i].iter().copied()).collect();
        let factor = incrowd_bandit::cholesky(&packed, all).unwrap();
        let solve = |mut white: Vec<f64>| {
            for i in 0..all {
                for j in 0..i {
                    white[i] -= factor[triangle(i) + j] * white[j];
                }
                white[i] /= factor[triangle(i) + i];
            }
            white
        };
        let centred = |sum: &Vec<f64>| sum.iter().zip(&self.mean).map(|(s, m)| s - m).collect();
        let mut along = solve(self.direction.clone());
        let norm = along.iter().map(|z| z * z).sum::<f64>().sqrt();
        along.iter_mut().for_each(|z| *z /= norm);
        // After the entries, what is along the first person's statistic.
        let white = sums.iter().map(|sum| {
            let mut white = solve(centred(sum));
            white.push(white.iter().zip(&along).map(|(w, z)| w * z).sum());
            white
        });
        let white: Vec<Vec<f64>> = white.collect();
        along.push(1.0);
        let mut misfits = Vec::new();
        for i in 0..=all {
            let mean = white.iter().map(|w| w[i]).sum::<f64>() / n;
            if mean.abs() > (4.0 * LOG / n).sqrt() {
                misfits.push(format!("mean of {i}: {mean}"));
            }
            for j in 0..=i {
                let found = white.iter().map(|w| w[i] * w[j]).sum::<f64>() / n;
                let same = if i == j { 1.0 } else { 0.0 };
                let off = (found - if i == all { along[j] } else { same }).abs();
                if off > (8.0 * LOG / n).sqrt() + 4.0 * LOG / n {
                    misfits.push(format!("covariance of {i} and {j}: off by {off}"));
                }
            }
        }
        misfits
    }
}

/// Both paths have the stated mean and covariance, and neither has that of a law whose variance
/// along is 1, nor that of one with a tenth more words picked blindly.
fn sums_have_the_stated_moments(d: u32, numbers: Numbers, pads: u32, rounds: u32) {
    let people = people(d as usize);
    let size = people.len() as u32 + pads;
    let closes = if pads > 0 { Closes::Time { opens: 0 } } else { Closes::Count { grace: 0 } };
    let task = task(d, numbers, size, rounds, closes);
    let along = Along::new(numbers);
    let moments = [along.mean(), along.variance()];
    let stated = |moments| Stated::new(numbers, &people, pads, moments);
    for path in [Path::Wire, Path::Bulk] {
        let sums = play(&task, path, &people);
        let misfits = stated(moments).misfits(&sums);
        assert!(misfits.is_empty(), "{path:?} d={d} {numbers:?}: {misfits:?}");
        let ones = stated([moments[0], 1.0]).misfits(&sums);
        assert!(!ones.is_empty(), "{path:?}: the variance along is {}", moments[1]);
        let blind = Along::new((numbers.0, numbers.1, 1.1 * numbers.2, numbers.3));
        let blind = stated([blind.mean(), blind.variance()]).misfits(&sums);
        assert!(!blind.is_empty(), "{path:?}: a tenth more are picked blindly");
    }
}

#[test]
fn sums_of_one_word_of_256_have_the_stated_moments_d2() {
    sums_have_the_stated_moments(2, ONE, 0, 25_000);
}

#[test]
fn sums_of_17_words_of_256_have_the_stated_moments_d2() {
    sums_have_the_stated_moments(2, MANY, 0, 25_000);
}

#[test]
fn sums_of_few_words_have_the_stated_moments_d2() {
    sums_have_the_stated_moments(2, FEW, 0, 200_000);
}

#[test]
fn sums_of_one_word_of_256_have_the_stated_moments_d5() {
    sums_have_the_stated_moments(5, ONE, 0, 25_000);
}

#[test]
fn sums_of_few_words_have_the_stated_moments_d5() {
    sums_have_the_stated_moments(5, FEW, 0, 200_000);
}

#[test]
fn sums_with_pads_have_the_stated_moments_d2() {
    sums_have_the_stated_moments(2, ONE, 3, 25_000);
}

#[test]
fn sums_with_pads_have_the_stated_moments_d5() {
    sums_have_the_stated_moments(5, (32, 1, 0.4, 150), 2, 60_000);
}

/// Pearson's statistic of how often numbers fall between quantiles of 1/20 each. Its limit is
/// chi-square with 19 degrees of freedom, which is above 19 + 2 sqrt(19 x) + 2 x with probability
/// at most e^-x (Laurent, Massart 2000); x = 30 is for 1e-13. There are more than 1000 in each
/// cell.
fn fits(numbers: impl Iterator<Item = f64>, quantiles: &[f64]) -> bool {
    let mut cells = [0.0; 20];
    numbers.for_each(|y| cells[quantiles.partition_point(|&quantile| quantile <= y)] += 1.0);
    let expected = cells.iter().sum::<f64>() / 20.0;
    assert!(expected > 1000.0);
    let statistic: f64 = cells.iter().map(|found| (found - expected).powi(2) / expected).sum();
    let x: f64 = 30.0;
    statistic <= 19.0 + 2.0 * (19.0 * x).sqrt() + 2.0 * x
}

/// The word of one report along its statistic, which has norm 1, and across it. Sums are steps of
/// 1/16 along each axis; along these directions, which are on no axis, that is as good as none.
fn words_have_the_stated_law(numbers: Numbers, rounds: u32) {
    let d = 2;
    let (context, reward) = (vec![0.8, 0.6], 1.0);
    let z = statistic(f64::from(numbers.3) / 256.0, &context, reward);
    // Orthogonal to z.
    let across: Vec<f64> = {
        let e = [0.3, -0.7, 0.2, 0.5, 0.35];
        let along: f64 = e.iter().zip(&z).map(|(e, z)| e * z).sum();
        let rest: Vec<f64> = e.iter().zip(&z).map(|(e, z)| e - along * z).collect();
        let norm = rest.iter().map(|x| x * x).sum::<f64>().sqrt();
        rest.iter().map(|x| x / norm).collect()
    };
    let normal = Along::new((2, 1, 0.5, 128)).quantiles();
    let stated = Along::new(numbers).quantiles();
    let blind = Along::new((numbers.0, numbers.1, 1.1 * numbers.2, numbers.3)).quantiles();
    let people = vec![(context, reward)];
    let task = task(d, numbers, 1, rounds, Closes::Count { grace: 0 });
    for path in [Path::Wire, Path::Bulk] {
        let sums = play(&task, path, &people);
        let project = |direction: &[f64]| -> Vec<f64> {
            let dot = |sum: &Vec<f64>| sum.iter().zip(direction).map(|(s, z)| s * z).sum();
            sums.iter().map(dot).collect()
        };
        let (y, rest) = (project(&z), project(&across));
        assert!(fits(y.iter().copied(), &stated), "{path:?} along");
        assert!(fits(rest.iter().copied(), &normal), "{path:?} across");
        assert!(!fits(y.iter().copied(), &blind), "{path:?}: a tenth more are picked blindly");
        assert!(!fits(rest.iter().map(|y| 1.1 * y), &normal), "{path:?}: a tenth wider");
        // The right mean and variance, but normal.
        let along = Along::new(numbers);
        let scaled = normal.iter().map(|y| along.mean() + along.variance().sqrt() * y);
        let is_normal = fits(y.iter().copied(), &scaled.collect::<Vec<_>>());
        assert!(!is_normal, "{path:?}");
    }
}

#[test]
fn one_word_of_256_has_the_stated_law() {
    words_have_the_stated_law(ONE, 60_000);
}

#[test]
fn one_of_17_words_of_256_has_the_stated_law() {
    words_have_the_stated_law(MANY, 60_000);
}

#[test]
fn one_of_two_words_of_5_has_the_stated_law() {
    words_have_the_stated_law(FEW, 400_000);
}
