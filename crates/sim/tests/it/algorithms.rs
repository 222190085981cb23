//! The baselines: their noise is what they say it is, and nobody sees more than they may.

use std::sync::Arc;

use crate::shared;
use incrowd_device::Arm;
use incrowd_privacy::certify;
use incrowd_protocol::{
    Blocks, Closes, FlipProbability, Law, Layout, LearnerConfig, Mechanism, MechanismConfig,
    Selection, Stage, coordinates,
};
use incrowd_sim::{
    Aggregator, Algorithm, BinomialAggregator, Choice, GaussianAggregator, GaussianNoise,
    Guarantee, LinUcb, Oracle, PrivUnitAggregator, Random, Release, Rewards, Simulation, Synthetic,
    Trusted,
    baseline::{self, Baseline, BinomialBatch, PrivUnit},
};

const X: [f64; 3] = [0.6, -0.5, 0.3];
const REWARD: f64 = 0.8;
const BATCH: u32 = 50;
const BATCHES: u32 = 4000;

/// (r u, tril(u u')) of the person everybody is.
fn truth() -> Vec<f64> {
    let moment = X.iter().map(|x| x * REWARD);
    moment.chain((0..3).flat_map(|i| (0..=i).map(move |k| X[i] * X[k]))).collect()
}

fn releases(mut aggregator: impl Aggregator) -> Vec<Release> {
    (0..BATCH * BATCHES).filter_map(|_| aggregator.add(Arm::from(&X), REWARD)).collect()
}

/// Mean and variance of each coordinate over 4000 batches. A nearly normal mean strays by 7
/// standard errors with probability below 1e-11; a sample variance by 7 sqrt(2/4000) = 16%
/// likewise. 9 coordinates, 3 aggregators: false alarms below 1e-9. An aggregator that forgets to
/// subtract the coins' mean, or to scale by the levels, is off by far more; one person more or less
/// in a batch is 2%, 20 standard errors.
fn check(releases: &[Release], rounding: f64) {
    assert_eq!(releases.len(), BATCHES as usize);
    let n = releases.len() as f64;
    for (k, truth) in truth().iter().enumerate() {
        let values = || releases.iter().map(|release| release.sums()[k]);
        let mean = values().sum::<f64>() / n;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let stated = releases[0].moment_variance();
        let expected = f64::from(BATCH) * truth;
        assert!((mean - expected).abs() < 7.0 * (stated / n).sqrt(), "{k}: {mean} {expected}");
        // Random rounding has at most its part of the stated variance.
        assert!(
            variance < 1.16 * stated && variance > 0.84 * (stated - rounding),
            "{k}: {variance} {stated}"
        );
    }
}

#[test]
fn crowds_release_unbiased_sums_with_the_stated_noise() {
    let noisy = |noise| releases(GaussianAggregator::new(shared(3), vec![BATCH], noise, 1));
    check(&noisy(GaussianNoise::PerPerson(0.4)), 0.0);
    check(&noisy(GaussianNoise::PerBatch(3.0)), 0.0);
    let rounding = f64::from(BATCH) / 14f64.powi(2);
    let batch = BinomialBatch { batch_size: BATCH, levels: 14, coins: 3 };
    check(&releases(BinomialAggregator::new(shared(3), vec![batch], 1)), rounding);
}

/// Everybody is the same person, so the moments of a sum follow from those of one report: mean l z,
/// covariance l (I + (v-1) z z')/m^2 over the scales, m the mean of y and v its variance, both
/// integrated here. As above 7 standard errors: no variance is above l, and that of a product of
/// two nearly normal sums is at most 2 l^2. 10 means and 55 products: false alarms below 1e-9. A
/// mean or threshold that is 10% off, or one and a half times the variance along z, must not fit.
#[test]
fn privunit_has_the_stated_law() {
    let (outside, above, weight) = (0.2, 0.15, 90);
    let law = PrivUnit::new(outside, above).unwrap();
    let found = releases(PrivUnitAggregator::new(shared(3), BATCH, law, weight, 1));
    let t = law.threshold();
    let moments = |t: f64| {
        let density = |y: f64| {
            let side = if y >= t { (1.0 - outside) / above } else { outside / (1.0 - above) };
            side * (-y * y / 2.0).exp() / std::f64::consts::TAU.sqrt()
        };
        let nodes = (0..200_000).map(|i| (f64::from(i) - 99_999.5) * 1e-4);
        let sum =
            |of: &dyn Fn(f64) -> f64| nodes.clone().map(|y| of(y) * density(y) * 1e-4).sum::<f64>();
        let mean = sum(&|y| y);
        [mean, sum(&|y| (y - mean).powi(2))]
    };
    let [mean, variance] = moments(t);
    assert!((mean - law.gain()).abs() < 1e-4 && (variance - law.variance_along()).abs() < 1e-4);
    let w = f64::from(weight) / 256.0;
    let scales: Vec<f64> =
        [w, w, w, 1.0 - w, 2.0 - 2.0 * w, 1.0 - w, 2.0 - 2.0 * w, 2.0 - 2.0 * w, 1.0 - w]
            .map(f64::sqrt)
            .to_vec();
    let z: Vec<f64> = truth().iter().zip(&scales).map(|(v, s)| v * s).collect();
    let norm = z.iter().map(|z| z * z).sum::<f64>().sqrt();
    // Sums of vectors again: their entries, and what they have along z.
    let vectors: Vec<Vec<f64>> = found
        .iter()
        .map(|release| {
            let scaled = release.sums().iter().zip(&scales);
            let mut entries: Vec<f64> = scaled.map(|(sum, s)| sum * law.gain() * s).collect();
            entries.push(entries.iter().zip(&z).map(|(entry, z)| entry * z / norm).sum());
            entries
        })
        .collect();
    let along = |i: usize| if i < 9 { z[i] } else { norm };
    let fits = |[mean, variance]: [f64; 2]| {
        let (n, l) = (f64::from(BATCHES), f64::from(BATCH));
        let centred = |vector: &Vec<f64>, i: usize| vector[i] - l * mean * along(i);
        (0..10).all(|i| {
            let average = vectors.iter().map(|vector| centred(vector, i)).sum::<f64>() / n;
            let covariances = (0..=i).all(|j| {
                let product = |vector| centred(vector, i) * centred(vector, j);
                let found = vectors.iter().map(product).sum::<f64>() / n;
                // The cosine of the two directions.
                let same = if i == j { 1.0 } else { 0.0 };
                let cosine = if i == 9 && j < 9 { z[j] / norm } else { same };
                let (a, b) = (along(i), along(j));
                let stated = l * (cosine + (variance - 1.0) * a * b);
                (found - stated).abs() < 7.0 * (2.0 / n).sqrt() * l
            });
            average.abs() < 7.0 * (l / n).sqrt() && covariances
        })
    };
    assert!(fits([mean, variance]));
    assert!(!fits([mean, 1.5 * variance]) && !fits([1.1 * mean, variance]));
    assert!(!fits(moments(1.1 * t)));
    let (moment, gram) = law.variances(weight);
    assert!((found[0].moment_variance() / f64::from(BATCH) - moment).abs() < 1e-9);
    assert!((found[0].gram_variance() / f64::from(BATCH) - gram).abs() < 1e-9);
}

#[test]
fn batches_have_their_sizes_and_the_last_is_repeated() {
    let mut aggregator =
        GaussianAggregator::new(shared(3), vec![2, 3], GaussianNoise::PerBatch(1.0), 1);
    let releases: Vec<u32> =
        (1..=11).filter(|_| aggregator.add(Arm::from(&X), REWARD).is_some()).collect();
    assert_eq!(releases, [2, 5, 8, 11]);

    // Each with its own levels and coins: 2/levels (coins batch_size 3/16 + batch_size/4)^(1/2).
    let batch = |batch_size, levels, coins| BinomialBatch { batch_size, levels, coins };
    let mut aggregator =
        BinomialAggregator::new(shared(3), vec![batch(2, 10, 4), batch(3, 40, 64)], 1);
    let releases: Vec<(u32, f64)> = (1..=11)
        .filter_map(|person| {
            Some((person, aggregator.add(Arm::from(&X), REWARD)?.moment_variance()))
        })
        .collect();
    let people: Vec<u32> = releases.iter().map(|release| release.0).collect();
    assert_eq!(people, [2, 5, 8, 11]);
    for (release, variance) in releases.iter().zip([0.08, 0.091_875, 0.091_875, 0.091_875]) {
        assert!((release.1 - variance).abs() < 1e-12, "{release:?}");
    }
}

#[test]
fn long_contexts_are_cut_to_the_ball() {
    let long = X.map(|x| 100.0 * x);
    let norm = X.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut aggregator =
        GaussianAggregator::new(shared(3), vec![1], GaussianNoise::PerPerson(0.0), 1);
    let release = aggregator.add(Arm::from(&long), 7.0).unwrap();
    for (k, x) in X.iter().enumerate() {
        assert!((release.sums()[k] - x / norm).abs() < 1e-12, "reward 7 counts as 1");
    }
    assert_eq!(release.sums().len(), coordinates(3));
}

fn mechanism(size: u32) -> Mechanism {
    let flip = FlipProbability::new(1, 2).unwrap();
    let config = MechanismConfig {
        dimension: 2,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 3, size, window: None, law: Law::bits(1, flip) }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    config.check().unwrap()
}

#[test]
fn only_the_certificate_of_what_ran_certifies() {
    let (ran, other) = (mechanism(300), mechanism(301));
    let guarantee = Guarantee::of_mechanism(&ran, &certify(&ran).unwrap());
    assert!(guarantee.is_certified() && guarantee.mechanism() == Some(ran.hash()));
    let claimed = Guarantee::of_mechanism(&ran, &certify(&other).unwrap());
    assert!(!claimed.is_certified());
    assert_eq!(
        (claimed.epsilon_local(), claimed.epsilon_central(), claimed.delta()),
        (None, None, None)
    );

    let ran = baseline::local_gaussian(2, 1.0, 1e-6).unwrap();
    let certificate = baseline::certify(&ran).unwrap();
    assert!(Guarantee::of_baseline(&ran, &certificate).is_certified());
    let Baseline::LocalGaussian { dimension, noise_std, delta } = ran else { panic!("{ran:?}") };
    let less = Baseline::LocalGaussian { dimension, noise_std: 0.99 * noise_std, delta };
    assert!(!Guarantee::of_baseline(&less, &certificate).is_certified());
    // Too few coins to prove anything.
    let batches = vec![BinomialBatch { batch_size: 100, levels: 40, coins: 1 }];
    let few = Baseline::ShuffledBinomial { dimension: 5, batches, delta: 1e-6 };
    let certificate = baseline::certify(&few).unwrap();
    assert_eq!(certificate.epsilon_central(), None);
    assert!(!Guarantee::of_baseline(&few, &certificate).is_certified());
    assert!(!Guarantee::none().is_certified() && !Guarantee::of_silence().is_certified());
}

/// Regret and models after 5000 people. The expected regret of random choices is the same whatever
/// is played: its own, within 3%.
fn regret(algorithm: impl Algorithm, seed: u64) -> (f64, u64) {
    let people = Synthetic::new(5, 10, Rewards::Bernoulli, seed).unwrap();
    let mut simulation = Simulation::new(people, algorithm).unwrap();
    simulation.run(5000).unwrap();
    let summary = simulation.summary();
    assert!((summary.regret_random() / 5000.0 - 0.3654).abs() < 0.01, "{summary:?}");
    (summary.regret, summary.models)
}

/// Seeds are fixed; the margins are several times what was measured.
#[test]
fn without_privacy_learning_is_fast_and_the_oracle_never_errs() {
    let learner = LearnerConfig::default();
    let linucb = |rarely| {
        Trusted::new(LinUcb::new(shared(5), learner, rarely), shared(5), Selection::Ucb {}, 3)
    };
    let (often, models) = regret(linucb(false), 3);
    assert!(often < 60.0 && models == 5000, "{often} {models}");
    let (rarely, models) = regret(linucb(true), 3);
    assert!(rarely < 120.0 && models < 100, "{rarely} {models}");
    assert!(regret(Oracle, 3).0.abs() < 1e-12);
    let (random, _) = regret(Random::new(shared(5), 3), 3);
    assert!((random / 5000.0 - 0.3654).abs() < 0.02, "{random}");
}

/// The rewards of a run come from its seed alone, so that two algorithms that play the same get the
/// same.
#[test]
fn algorithms_meet_the_same_people() {
    struct First(Vec<f64>);
    impl Algorithm for First {
        fn blocks(&self) -> Option<Blocks> {
            None
        }
        fn choose(&mut self, arms: &[f64]) -> Result<Choice, incrowd_sim::SimulationError> {
            self.0.extend(arms);
            Ok(Choice::Arm(0))
        }
        fn learn(&mut self, _: Arm<'_>, reward: f64) -> Result<(), incrowd_sim::SimulationError> {
            self.0.push(reward);
            Ok(())
        }
        fn progress(&self) -> incrowd_sim::Progress {
            incrowd_sim::Progress::default()
        }
        fn noise_std(&self) -> Option<f64> {
            None
        }
    }
    let run = |people: u64| {
        let synthetic = Synthetic::new(3, 2, Rewards::Bernoulli, 9).unwrap();
        let mut simulation = Simulation::new(synthetic, First(Vec::new())).unwrap();
        simulation.run(people).unwrap();
        Arc::new(simulation.algorithm().0.clone())
    };
    let (short, long) = (run(10), run(20));
    assert_eq!(short[..], long[..short.len()]);
}
