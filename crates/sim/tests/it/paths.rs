//! Reports by wire and in bulk have the same law, and it is the stated one.

use std::sync::Arc;

use incrowd_device::{BitsRandomizer, Device};
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy, Stage, TaskConfig,
    add_counts, coordinates,
};
use incrowd_shuffler::{Batch, Outcome};
use incrowd_sim::{Environment, Path, Person, Sblb, Simulation};
use rand_chacha::{ChaCha8Rng, ChaCha20Rng, rand_core::SeedableRng};

const REPORTS: u32 = 160_000;
const DIMENSION: u32 = 4;
const X: [f64; 4] = [0.7, -0.4, 0.1, -0.55];
const REWARD: f64 = 0.8;

fn task(bits: u32) -> Arc<TaskConfig> {
    let mechanism = MechanismConfig {
        dimension: DIMENSION,
        context_bound: 1.0,
        schedule: vec![Stage {
            rounds: 1,
            size: REPORTS,
            window: None,
            law: Law::bits(bits, FlipProbability::new(3, 10).unwrap()),
        }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(
        TaskConfig::new(mechanism.check().unwrap(), Learner::default(), Policy::default()).unwrap(),
    )
}

/// How often each coordinate had each count.
type Histogram = Vec<Vec<u32>>;

fn empty(bits: u32) -> Histogram {
    vec![vec![0; bits as usize + 1]; coordinates(DIMENSION as usize)]
}

fn note(histogram: &mut Histogram, counts: &[u16]) {
    for (row, &count) in histogram.iter_mut().zip(counts) {
        row[usize::from(count)] += 1;
    }
}

/// Devices, bytes, batch: counts are read from the decoded bytes, and must add up to the release.
fn by_wire(bits: u32) -> Histogram {
    let task = task(bits);
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut batch = Batch::new(Arc::new(task.mechanism().clone()));
    let mut histogram = empty(bits);
    for i in 1..=REPORTS {
        let answer = Device::simulated(task.clone(), &mut rng).report(1, &X, REWARD).unwrap();
        note(&mut histogram, answer.report.payload().counts().unwrap());
        match batch.accept_bytes(&answer.report.encode(task.mechanism()).unwrap()) {
            Outcome::Counted => assert!(i < REPORTS),
            Outcome::Released(sums) => {
                assert_eq!(i, REPORTS);
                assert_eq!(sums.sums(), totals(&histogram));
            }
            other => panic!("{other:?}"),
        }
    }
    histogram
}

fn in_bulk(bits: u32) -> Histogram {
    let task = task(bits);
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut randomizer = BitsRandomizer::new(task.mechanism());
    let mut histogram = empty(bits);
    let mut batch = Batch::new(Arc::new(task.mechanism().clone()));
    let outcome = batch.fill(|round, sums| {
        while !sums.is_full() {
            let (counts, _) =
                randomizer.randomize(round.law.as_bits().unwrap(), &X, REWARD, &mut rng);
            note(&mut histogram, counts);
            sums.add(|sums| add_counts(counts, sums));
        }
    });
    let Outcome::Released(sums) = outcome else { panic!("{outcome:?}") };
    assert_eq!(sums.sums(), totals(&histogram));
    histogram
}

fn totals(histogram: &Histogram) -> Vec<i64> {
    let total =
        |row: &Vec<u32>| row.iter().enumerate().map(|(k, &n)| k as i64 * i64::from(n)).sum();
    histogram.iter().map(total).collect()
}

/// Whether two histograms of n reports each can come from one law. Hoeffding for a difference of
/// two means of n indicators: a cell differs by more than sqrt(n ln(2/a)) with probability at most
/// a; a is 1e-10 over the number of cells, and a test compares fewer than ten times.
fn differ(a: &Histogram, b: &Histogram) -> bool {
    let cells = a.iter().map(Vec::len).sum::<usize>() as f64;
    let bound = (f64::from(REPORTS) * (2.0 * cells / 1e-10).ln()).sqrt();
    let far = |(x, y): (&u32, &u32)| (f64::from(*x) - f64::from(*y)).abs() > bound;
    a.iter().zip(b).any(|(a, b)| a.iter().zip(b).any(far))
}

/// Probability of each count of each coordinate, by the formula: a bit of the thermometer code of v
/// has the mean (1 + tau)/2, and the coin after the flip 1/2 + c tau/2.
fn stated(bits: u32) -> Vec<Vec<f64>> {
    let (m, keep) = (f64::from(bits), 0.7);
    let gram = (0..4).flat_map(|i| (0..=i).map(move |k| X[i] * X[k]));
    let values = X.iter().map(|x| x * REWARD).chain(gram);
    let coin = |value: f64, q: u32| {
        let tau = m * value + m - 1.0 - 2.0 * f64::from(q);
        0.5 + 0.5 * keep * tau.clamp(-1.0, 1.0)
    };
    let with_coin = |law: Vec<f64>, one: f64| {
        let at = |k: usize| law.get(k).copied().unwrap_or(0.0);
        let grows = |k: usize| if k > 0 { at(k - 1) * one } else { 0.0 };
        (0..=law.len()).map(|k| at(k) * (1.0 - one) + grows(k)).collect()
    };
    values.map(|v| (0..bits).fold(vec![1.0], |law, q| with_coin(law, coin(v, q)))).collect()
}

/// Whether n reports cannot come from this law, by the same bound as [`differ`], which is wider
/// than one histogram alone needs.
fn strays(found: &Histogram, law: &[Vec<f64>]) -> bool {
    let expected = |row: &Vec<f64>| row.iter().map(|p| (f64::from(REPORTS) * p) as u32).collect();
    differ(found, &law.iter().map(expected).collect())
}

#[test]
fn wire_and_bulk_have_the_stated_law_for_one_bit() {
    wire_and_bulk_have_the_stated_law(1);
}

#[test]
fn wire_and_bulk_have_the_stated_law_for_three_bits() {
    wire_and_bulk_have_the_stated_law(3);
}

fn wire_and_bulk_have_the_stated_law(bits: u32) {
    let (wire, bulk, law) = (by_wire(bits), in_bulk(bits), stated(bits));
    assert!(!differ(&wire, &bulk));
    assert!(!strays(&wire, &law));
    assert!(!strays(&bulk, &law));
}

/// Everyone has the same single choice and the same reward, so both paths estimate the same sums.
struct Constant;

impl Environment for Constant {
    fn dimension(&self) -> usize {
        DIMENSION as usize
    }

    fn next_person(&mut self, person: &mut Person) {
        *person = Person { arms: X.to_vec(), means: vec![REWARD] };
    }

    fn reward(&mut self, _: usize) -> Option<f64> {
        Some(REWARD)
    }
}

/// The simulator's own two paths, end to end: the bandit's statistics estimate n r x and n x x'.
/// Hoeffding: an entry strays by more than sqrt(2 n/m ln(2/a))/c with probability at most a =
/// 1e-10/D.
#[test]
fn the_simulators_paths_estimate_the_truth() {
    for bits in [1, 3, 64] {
        for path in [Path::Wire, Path::Bulk] {
            let mut simulation = Simulation::new(Constant, Sblb::new(task(bits), path, 3)).unwrap();
            simulation.run(u64::from(REPORTS)).unwrap();
            let statistics = simulation.algorithm().bandit().statistics();
            let found = statistics.sums().iter();
            let moment = X.iter().map(|x| x * REWARD);
            let gram = (0..4).flat_map(|i| (0..=i).map(move |k| X[i] * X[k]));
            let n = f64::from(REPORTS);
            let bound = (2.0 * n / f64::from(bits) * (2.0 * 14.0 / 1e-10f64).ln()).sqrt() / 0.7;
            for (found, truth) in found.zip(moment.chain(gram)) {
                assert!(
                    (found - n * truth).abs() < bound,
                    "m={bits} {path:?}: {found} {}",
                    n * truth
                );
            }
            assert!(bound < 0.05 * n * 0.56, "a reward off by 5% is noticed");
        }
    }
}
