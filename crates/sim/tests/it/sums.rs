//! Sums of batches of many bits, by wire and in bulk, where the equal coins of a batch are tossed
//! together: both have the stated law.

use std::sync::Arc;

use incrowd_device::Device;
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy, Stage, TaskConfig,
    coordinates,
};
use incrowd_shuffler::{Batch, Outcome};
use incrowd_sim::{Bulk, Path, Rounds};
use rand_chacha::{ChaCha8Rng, ChaCha20Rng, rand_core::SeedableRng};

/// People of a batch, over and over: values inside, on the grid and at both ends.
const PEOPLE: [([f64; 2], f64); 3] =
    [([0.61, -0.43], 0.8), ([-1.0, 0.0], 1.0), ([0.25, 0.09], 0.37)];
const KEEP: f64 = 0.7;
/// False alarms of one comparison: fewer than 300 are made, together less than 1e-9.
const ALARM: f64 = 1e-12;

/// Milliseconds of a round that closes by time.
const WINDOW: u32 = 10;

/// One stage for each number of bits.
fn task(size: u32, bits: &[u32], rounds: u32, closes: Closes) -> Arc<TaskConfig> {
    let flip = FlipProbability::new(3, 10).unwrap();
    let window = matches!(closes, Closes::Time { .. }).then_some(WINDOW);
    let stage = |&bits: &u32| Stage { rounds, size, window, law: Law::bits(bits, flip) };
    let mechanism = MechanismConfig {
        dimension: 2,
        context_bound: 1.0,
        schedule: bits.iter().map(stage).collect(),
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

/// How often the sum of a coordinate had each value.
type Histogram = Vec<u32>;

/// The sums of all rounds, for each stage and coordinate; `next` counts one person's report.
fn play(
    task: &TaskConfig,
    mut next: impl FnMut(&mut Batch, &[f64], f64) -> Outcome,
) -> Vec<Vec<Histogram>> {
    let mechanism = Arc::new(task.mechanism().clone());
    let mut batch = Batch::new(mechanism.clone());
    let stages = mechanism.schedule().stages();
    let empty = |stage: &Stage| {
        vec![
            vec![0; (stage.size * stage.law.as_bits().unwrap().bits) as usize + 1];
            mechanism.coordinates()
        ]
    };
    let mut histograms: Vec<Vec<Histogram>> = stages.iter().map(empty).collect();
    while let Some(round) = batch.round() {
        let mut outcome = Outcome::Counted;
        for i in 0..round.size as usize {
            assert_eq!(outcome, Outcome::Counted);
            let (context, reward) = &PEOPLE[i % PEOPLE.len()];
            outcome = next(&mut batch, context, *reward);
        }
        let Outcome::Released(sums) = outcome else { panic!("{outcome:?}") };
        let stage = stages.iter().position(|stage| stage.law == round.law).unwrap();
        for (histogram, &sum) in histograms[stage].iter_mut().zip(sums.sums()) {
            histogram[sum as usize] += 1;
        }
    }
    histograms
}

fn by_wire(task: &Arc<TaskConfig>) -> Vec<Vec<Histogram>> {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    play(task, |batch, context, reward| {
        let round = batch.round().unwrap().number;
        let answer = Device::simulated(task.clone(), &mut rng).report(round, context, reward);
        batch.accept_bytes(&answer.unwrap().report.encode(task.mechanism()).unwrap())
    })
}

fn in_bulk(task: &Arc<TaskConfig>) -> Vec<Vec<Histogram>> {
    let mut bulk = Bulk::new(task.mechanism(), ChaCha8Rng::seed_from_u64(2));
    play(task, |batch, context, reward| bulk.add(batch, context.into(), reward))
}

/// The law of a coordinate's sum by the formula, coin after coin; pads have the value 0.
fn stated(coordinate: usize, size: u32, pads: u32, bits: u32) -> Vec<f64> {
    let m = f64::from(bits);
    let mut law = vec![1.0];
    let reports = (0..size as usize).map(|i| PEOPLE[i % PEOPLE.len()]);
    for ([x, y], r) in reports.chain((0..pads).map(|_| ([0.0; 2], 0.0))) {
        let value = [r * x, r * y, x * x, x * y, y * y][coordinate];
        for q in 0..bits {
            let tau = m * value + m - 1.0 - 2.0 * f64::from(q);
            let one = 0.5 + 0.5 * KEEP * tau.clamp(-1.0, 1.0);
            law.push(0.0);
            for k in (1..law.len()).rev() {
                law[k] = law[k] * (1.0 - one) + law[k - 1] * one;
            }
            law[0] *= 1.0 - one;
        }
    }
    law
}

/// Whether the mean of n numbers with this law (pairs of a number and its probability) may be
/// `found`. Bernstein: it is off by more than sqrt(2 v L/n) + b L/(3 n), L = ln(2/a), with
/// probability at most a, where v is the variance and b the largest distance from the mean.
fn mean_fits(found: f64, law: &[(f64, f64)], n: f64) -> bool {
    let mean: f64 = law.iter().map(|(x, p)| x * p).sum();
    let variance: f64 = law.iter().map(|(x, p)| (x - mean).powi(2) * p).sum();
    let furthest = law.iter().map(|(x, _)| (x - mean).abs()).fold(0.0, f64::max);
    let log = (2.0 / ALARM).ln();
    (found - mean).abs() <= (2.0 * variance * log / n).sqrt() + furthest * log / (3.0 * n)
}

/// What of n sums does not have this law. The distribution function may be off by sqrt(ln(2/a)/2n)
/// (Dvoretzky, Kiefer, Wolfowitz; Massart), mean and variance by [`mean_fits`].
fn misfits(found: &Histogram, law: &[f64]) -> Vec<&'static str> {
    let n: f64 = found.iter().map(|&times| f64::from(times)).sum();
    let (mut below, mut expected, mut furthest) = (0.0, 0.0, 0.0f64);
    for (&times, p) in found.iter().zip(law) {
        below += f64::from(times) / n;
        expected += p;
        furthest = furthest.max((below - expected).abs());
    }
    let mean: f64 = law.iter().enumerate().map(|(k, p)| k as f64 * p).sum();
    let average = |of: fn(f64) -> f64| {
        let all = found.iter().enumerate();
        all.map(|(k, &times)| of(k as f64) * f64::from(times)).sum::<f64>() / n
    };
    let second = average(|k| k * k) - 2.0 * mean * average(|k| k) + mean * mean;
    // Sums outside are seen less often than 1e-20 times their number in all.
    let inside = || law.iter().enumerate().filter(|(_, p)| **p > 1e-20);
    let sums: Vec<_> = inside().map(|(k, p)| (k as f64, *p)).collect();
    let squares: Vec<_> = inside().map(|(k, p)| ((k as f64 - mean).powi(2), *p)).collect();
    let checks = [
        ("distribution", furthest <= ((2.0 / ALARM).ln() / (2.0 * n)).sqrt()),
        ("mean", mean_fits(average(|k| k), &sums, n)),
        ("variance", mean_fits(second, &squares, n)),
    ];
    checks.into_iter().filter(|(_, fits)| !fits).map(|(what, _)| what).collect()
}

fn sums_have_the_stated_law(size: u32, bits: &[u32], rounds: u32) {
    let task = task(size, bits, rounds, Closes::Count { grace: 0 });
    let (wire, bulk) = (by_wire(&task), in_bulk(&task));
    for (stage, &bits) in bits.iter().enumerate() {
        for j in 0..coordinates(2) {
            let law = stated(j, size, 0, bits);
            for (path, found) in [("wire", &wire), ("bulk", &bulk)] {
                let misfits = misfits(&found[stage][j], &law);
                assert!(misfits.is_empty(), "{path} m={bits} coordinate {j}: {misfits:?}");
            }
        }
    }
}

/// One person in a batch: what one coin less or more does is largest.
#[test]
fn sums_of_one_person_have_the_stated_law() {
    sums_have_the_stated_law(1, &[8, 3, 256], 100_000);
}

#[test]
fn sums_of_a_few_people_have_the_stated_law() {
    sums_have_the_stated_law(4, &[256, 8], 40_000);
}

/// Thousands of coins for each binomial number.
#[test]
fn sums_of_a_large_batch_have_the_stated_law() {
    sums_have_the_stated_law(60, &[256], 10_000);
}

/// Rounds that close by time, with four reports and two pads each: `Rounds` as a simulation drives
/// it, where each round has generators of its own.
#[test]
fn sums_with_pads_have_the_stated_law() {
    let (size, reports, all_bits, rounds) = (6, 4, [3, 64], 20_000);
    let task = task(size, &all_bits, rounds, Closes::Time { opens: 0 });
    for path in [Path::Wire, Path::Bulk] {
        let mut run = Rounds::new(task.clone(), path, 5);
        let mut now = 0;
        for bits in all_bits {
            let mut histograms = vec![vec![0; (size * bits) as usize + 1]; coordinates(2)];
            for _ in 0..rounds {
                assert_eq!(run.close(now).unwrap(), None, "its time has not come");
                for i in 0..reports as usize {
                    let (context, reward) = &PEOPLE[i % PEOPLE.len()];
                    assert_eq!(run.add(context.into(), *reward).unwrap(), None);
                }
                now += u64::from(WINDOW);
                let sums = run.close(now).unwrap().unwrap();
                for (histogram, &sum) in histograms.iter_mut().zip(sums.sums()) {
                    histogram[sum as usize] += 1;
                }
            }
            for (j, histogram) in histograms.iter().enumerate() {
                let misfits = misfits(histogram, &stated(j, reports, size - reports, bits));
                assert!(misfits.is_empty(), "{path:?} m={bits} coordinate {j}: {misfits:?}");
            }
        }
        let progress = run.progress();
        assert_eq!(progress.reports, u64::from(2 * rounds * reports));
        assert_eq!(progress.pads, u64::from(2 * rounds * (size - reports)));
    }
}
