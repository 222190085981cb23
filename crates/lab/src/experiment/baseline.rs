//! Baselines: the least certified noise, and the batches with the least predicted regret.

use std::iter;

use incrowd_planner::{LocalLimit, SMALLEST_BATCH, predicted_regret_with, random_regret, sizes};
use incrowd_protocol::{LearnerConfig, Selection};
use serde_json::json;

use super::{
    Accounting, AlgorithmName, ExperimentError, Prepared,
    prepare::{Kind, Preparation},
};
use incrowd_sim::{
    Algorithm, BinomialAggregator, GaussianAggregator, GaussianNoise, Guarantee, Tree, Trusted,
    Untrusted,
    baseline::{self, Baseline, BaselineError},
};

const CENTRAL: &str = "a central epsilon\nhint: --central-epsilon 1, or central_epsilons = [1]";
/// People between two models where nothing else sets it.
const LOCAL_INTERVAL: u32 = 100;
/// Noise of a tuned variant, as a share of what its guarantee needs.
const TUNED_NOISE: f64 = 0.1;

/// A run of a baseline's mechanism, with batches of these sizes where it has none of its own.
pub(super) fn start_baseline(
    baseline: &Baseline,
    sizes: &[u32],
    learner: LearnerConfig,
    selection: Selection,
    seed: u64,
) -> Box<dyn Algorithm + Send> {
    let (d, hash) = (baseline.dimension() as usize, baseline.hash());
    match *baseline {
        Baseline::GaussianTree { leaf_size, leaves, noise_std, .. } => {
            let tree = Tree::new(d, (leaf_size, leaves), noise_std, learner, hash, seed);
            Box::new(Trusted::new(tree, d, selection, seed))
        }
        Baseline::GaussianBatches { noise_std, .. } => {
            let noise = GaussianNoise::PerBatch(noise_std);
            let aggregator = GaussianAggregator::new(d, sizes.to_vec(), noise, seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
        Baseline::LocalGaussian { noise_std, .. } => {
            let noise = GaussianNoise::PerPerson(noise_std);
            let aggregator = GaussianAggregator::new(d, sizes.to_vec(), noise, seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
        Baseline::ShuffledGaussian { batch_size, noise_std, .. } => {
            let noise = GaussianNoise::PerPerson(noise_std);
            let aggregator = GaussianAggregator::new(d, vec![batch_size], noise, seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
        Baseline::ShuffledBinomial { batch_size, levels, coins, .. } => {
            let aggregator = BinomialAggregator::new(d, batch_size, (levels, coins), seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
    }
}

impl Preparation<'_> {
    /// A baseline: the least certified noise, and the batches with the least predicted regret.
    pub fn baseline(&self) -> Result<Prepared, ExperimentError> {
        use AlgorithmName as Name;
        let epsilon = self.epsilon()?;
        let paper = self.algorithm.accounting == Accounting::Paper;
        let (d, delta) = (self.setting.dimension, self.delta);
        let calibrated = match self.algorithm.name {
            Name::LdpGaussian => baseline::local_gaussian(d, epsilon, delta),
            Name::JdpGrowing => baseline::gaussian_batches(d, epsilon, delta),
            Name::JdpTree => self.with_best_batch(|size| {
                let leaves = self.setting.horizon.div_ceil(u64::from(size));
                let leaves = u32::try_from(leaves).unwrap_or(u32::MAX).max(2);
                if paper {
                    baseline::gaussian_tree_as_printed(d, size, leaves, epsilon, delta)
                } else {
                    baseline::gaussian_tree(d, size, leaves, epsilon, delta)
                }
            }),
            Name::SdpAmp | Name::SdpAmpTuned => self.with_best_batch(|size| {
                if paper {
                    baseline::shuffled_gaussian_as_printed(d, size, epsilon, delta)
                } else {
                    baseline::shuffled_gaussian(d, size, epsilon, delta)
                }
            }),
            _ => self.with_best_batch(|size| {
                if paper {
                    baseline::shuffled_binomial_as_printed(d, size, epsilon, delta)
                } else {
                    baseline::shuffled_binomial(d, size, epsilon, delta)
                }
            }),
        };
        let certified = calibrated.map_err(|error| self.privacy(error))?;
        let certificate = baseline::certify(&certified).map_err(|error| self.privacy(error))?;
        let tuned = matches!(self.algorithm.name, Name::SdpAmpTuned | Name::SdpVecTuned);
        let running = if tuned {
            less_noise(certified, self.algorithm.noise_scale.unwrap_or(TUNED_NOISE))
        } else {
            certified
        };
        // The certificate is not of a tuned variant, which promises nothing.
        let guarantee = Guarantee::of_baseline(&running, &certificate);
        let certificate = guarantee.is_certified().then_some(certificate);
        let sizes = match self.algorithm.name {
            Name::JdpGrowing => self.best_growing(running.noise_std()),
            Name::LdpGaussian => vec![LOCAL_INTERVAL],
            // Part of the mechanism.
            _ => Vec::new(),
        };
        let value =
            json!({ "mechanism": running, "batch_sizes": sizes, "certificate": certificate });
        Ok(self.finish(guarantee, value, Kind::Baseline(running, sizes)))
    }

    /// A local algorithm gives its people the epsilon that the others give behind a shuffler or a
    /// trusted server, unless told otherwise.
    fn epsilon(&self) -> Result<f64, ExperimentError> {
        if self.algorithm.name == AlgorithmName::LdpGaussian {
            if let Some(LocalLimit::AtMost(epsilon)) = self.algorithm.local_epsilon {
                return Ok(epsilon);
            }
            let asked = self.central().or(self.setting.local_epsilon);
            return asked.ok_or_else(|| self.needs("an epsilon"));
        }
        self.central().ok_or_else(|| self.needs(CENTRAL))
    }

    /// Growing batches with the least predicted regret.
    fn best_growing(&self, noise_std: f64) -> Vec<u32> {
        let horizon = self.setting.horizon;
        let largest = u32::try_from(horizon).unwrap_or(u32::MAX);
        let dimension = self.setting.dimension as usize;
        let size = error_size(noise_std, dimension);
        let (mut best, mut least) = (Vec::new(), f64::INFINITY);
        let mut first = f64::from(SMALLEST_BATCH).min(horizon as f64);
        while first <= horizon as f64 / 2.0 || best.is_empty() {
            for growth in sizes::GROWTHS {
                let stages = sizes::growing(first as u32, growth, largest, horizon)
                    .expect("invariant: a checked horizon is at most a few largest batches");
                let sizes: Vec<u32> = stages
                    .into_iter()
                    .flat_map(|(rounds, size)| iter::repeat_n(size, rounds as usize))
                    .collect();
                let models = sizes.iter().enumerate().scan(0.0, |people, (i, &batch)| {
                    *people += f64::from(batch);
                    Some((*people, size * (i as f64 + 1.0).sqrt()))
                });
                let regret = predicted_regret_with(dimension, horizon as f64, models);
                if regret < least {
                    (best, least) = (sizes, regret);
                }
            }
            first = (first * sizes::FIRST_STEP).floor();
        }
        best
    }

    /// The batch size asked for, or the one with the least predicted regret.
    fn with_best_batch(
        &self,
        calibrate: impl Fn(u32) -> Result<Baseline, BaselineError>,
    ) -> Result<Baseline, BaselineError> {
        let horizon = self.setting.horizon as f64;
        if let Some(size) = self.batch_size() {
            return calibrate(size);
        }
        let mut best = None;
        let mut least = f64::INFINITY;
        let mut size = f64::from(SMALLEST_BATCH).min(horizon);
        while size <= horizon / 2.0 || best.is_none() {
            let baseline = calibrate(size as u32)?;
            let regret = predicted(&baseline, horizon, size);
            if regret < least {
                (best, least) = (Some(baseline), regret);
            }
            // From here on the first batch alone costs more than that.
            if random_regret(self.setting.dimension as usize) * size > least {
                break;
            }
            size = (size * sizes::FIRST_STEP).floor();
        }
        Ok(best.expect("invariant: the search goes on until a size is found"))
    }
}

fn predicted(baseline: &Baseline, horizon: f64, batch: f64) -> f64 {
    let dimension = baseline.dimension() as usize;
    let size = error_size(baseline.noise_std(), dimension);
    let noise = |releases: f64| match baseline {
        // On average half of the digits of n are 1.
        Baseline::GaussianTree { .. } => size * (1.0 + releases.log2() / 2.0).sqrt(),
        _ => size * releases.sqrt(),
    };
    // Looking at every fiftieth is enough later on.
    let next = |&releases: &f64| Some(releases + (releases / 50.0).floor().max(1.0));
    let models = iter::successors(Some(1.0), next)
        .take_while(|releases| releases * batch <= horizon)
        .map(|releases| (releases * batch, noise(releases)));
    predicted_regret_with(dimension, horizon, models)
}

/// Size of a vector of d errors, as in the calibrated widths: about its 95% quantile.
fn error_size(std: f64, dimension: usize) -> f64 {
    std * (2.0 * dimension as f64).sqrt()
}

fn less_noise(baseline: Baseline, scale: f64) -> Baseline {
    match baseline {
        Baseline::ShuffledGaussian { dimension, batch_size, noise_std, delta } => {
            let noise_std = noise_std * scale;
            Baseline::ShuffledGaussian { dimension, batch_size, noise_std, delta }
        }
        Baseline::ShuffledBinomial { dimension, batch_size, levels, coins, delta } => {
            let coins = ((f64::from(coins) * scale * scale).round() as u32).max(1);
            Baseline::ShuffledBinomial { dimension, batch_size, levels, coins, delta }
        }
        other => other,
    }
}
