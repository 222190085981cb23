//! Baselines: the least certified noise, and the batches with the least predicted regret.

use incrowd_planner::{LocalLimit, SMALLEST_BATCH};
use incrowd_protocol::{Blocks, LearnerConfig, Selection};
use serde_json::json;

use super::{
    Accounting, AlgorithmName, ExperimentError, Prepared,
    prepare::{Kind, Preparation},
};
use incrowd_sim::{
    Algorithm, BinomialAggregator, Factorized, GaussianAggregator, GaussianNoise, Guarantee,
    PrefixServer, PrivUnitAggregator, Tree, Trusted, Untrusted,
    baseline::{self, Baseline, BaselineError, MOST_RELEASES, PrivUnit, prefix_variances},
};

const CENTRAL: &str = "a central epsilon\nhint: --central-epsilon 1, or central_epsilons = [1]";
/// People between two models where nothing else sets it.
const LOCAL_INTERVAL: u32 = 100;

/// A run of a baseline's mechanism, with batches of these sizes where it has none of its own.
pub(super) fn start_baseline(
    baseline: &Baseline,
    blocks: Blocks,
    sizes: &[u32],
    learner: LearnerConfig,
    selection: Selection,
    seed: u64,
) -> Box<dyn Algorithm + Send> {
    let hash = baseline.hash();
    match *baseline {
        Baseline::GaussianTree { leaf_size, leaves, noise_std, .. } => {
            // Nobody comes after the last leaf.
            let releases = leaves - 1;
            let noise = Tree::new(blocks, releases, noise_std);
            let leaves = (vec![leaf_size], releases);
            let server = PrefixServer::new(noise, blocks, leaves, learner, hash, seed);
            Box::new(Trusted::new(server, blocks, selection, seed))
        }
        Baseline::GaussianFactorized { releases, noise_std, .. } => {
            let noise = Factorized::new(blocks, releases, noise_std);
            let leaves = (sizes.to_vec(), releases);
            let server = PrefixServer::new(noise, blocks, leaves, learner, hash, seed);
            Box::new(Trusted::new(server, blocks, selection, seed))
        }
        Baseline::GaussianBatches { noise_std, .. } => {
            let noise = GaussianNoise::PerBatch(noise_std);
            let aggregator = GaussianAggregator::new(blocks, sizes.to_vec(), noise, seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
        Baseline::LocalGaussian { noise_std, .. } => {
            let noise = GaussianNoise::PerPerson(noise_std);
            let aggregator = GaussianAggregator::new(blocks, sizes.to_vec(), noise, seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
        Baseline::LocalPrivUnit { outside, above, moment_weight, .. } => {
            let law = PrivUnit::new(outside, above);
            let law = law.expect("invariant: it is certified, so its numbers are in range");
            let interval = sizes.first().copied().unwrap_or(LOCAL_INTERVAL);
            let aggregator = PrivUnitAggregator::new(blocks, interval, law, moment_weight, seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
        Baseline::ShuffledGaussian { batch_size, noise_std, .. } => {
            let noise = GaussianNoise::PerPerson(noise_std);
            let aggregator = GaussianAggregator::new(blocks, vec![batch_size], noise, seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
        Baseline::ShuffledBinomial { ref batches, .. } => {
            let aggregator = BinomialAggregator::new(blocks, batches.clone(), seed);
            Box::new(Untrusted::new(aggregator, hash, learner, selection, seed))
        }
    }
}

impl Preparation<'_> {
    /// A baseline: the least certified noise, and the batches with the least predicted regret.
    pub fn baseline(&self) -> Result<Prepared, ExperimentError> {
        let (running, sizes) = self.mechanism()?;
        let certificate = baseline::certify(&running).map_err(|error| self.privacy(error))?;
        let guarantee = Guarantee::of_baseline(&running, &certificate);
        let value =
            json!({ "mechanism": running, "batch_sizes": sizes, "certificate": certificate });
        Ok(self.finish(guarantee, value, Kind::Baseline(running, sizes)))
    }

    /// Baselines are certified for one long vector of all parameters, which every layout is a part
    /// of.
    fn parameters(&self) -> u32 {
        self.blocks.parameters() as u32
    }

    /// The mechanism, and the sizes of its batches where they are not part of it.
    fn mechanism(&self) -> Result<(Baseline, Vec<u32>), ExperimentError> {
        use AlgorithmName as Name;
        let epsilon = self.epsilon()?;
        let paper = self.algorithm.accounting == Accounting::Paper;
        let (d, delta) = (self.parameters(), self.delta);
        let without_sizes = |(baseline, _)| (baseline, Vec::new());
        let calibrated = match self.algorithm.name {
            Name::LdpGaussian => baseline::local_gaussian(d, epsilon, delta)
                .map(|baseline| (baseline, vec![LOCAL_INTERVAL])),
            Name::LdpPrivunit => baseline::local_privunit(d, epsilon)
                .map(|baseline| (baseline, vec![LOCAL_INTERVAL])),
            Name::JdpGrowing => baseline::gaussian_batches(d, epsilon, delta).map(|baseline| {
                let one = baseline.noise_std() * baseline.noise_std();
                let sizes = self.best_growing(|_| move |released| one * released as f64);
                (baseline, sizes)
            }),
            Name::JdpTree => self
                .with_best_batch(SMALLEST_BATCH, |size| {
                    let leaves = self.leaves(size).max(2);
                    if paper {
                        baseline::gaussian_tree_as_printed(d, size, leaves, epsilon, delta)
                    } else {
                        baseline::gaussian_tree(d, size, leaves, epsilon, delta)
                    }
                })
                .map(without_sizes),
            Name::JdpFactorized => {
                let smallest = self.setting.horizon.div_ceil(u64::from(MOST_RELEASES) + 1);
                let smallest = u32::try_from(smallest).unwrap_or(u32::MAX).max(SMALLEST_BATCH);
                self.with_best_batch(smallest, |size| {
                    let releases = releases(self.leaves(size));
                    baseline::gaussian_factorized(d, releases, epsilon, delta)
                })
                .map(|(baseline, size)| (baseline, vec![size]))
            }
            Name::JdpFactorizedGrowing => self.growing_factorized(epsilon),
            Name::SdpAmp => self
                .with_best_batch(SMALLEST_BATCH, |size| {
                    if paper {
                        baseline::shuffled_gaussian_as_printed(d, size, epsilon, delta)
                    } else {
                        baseline::shuffled_gaussian(d, size, epsilon, delta)
                    }
                })
                .map(without_sizes),
            Name::SdpVecGrowing => self.growing_binomial(epsilon),
            _ => self
                .with_best_batch(SMALLEST_BATCH, |size| {
                    if paper {
                        baseline::shuffled_binomial_as_printed(d, size, epsilon, delta)
                    } else {
                        baseline::shuffled_binomial(d, &[size], epsilon, delta)
                    }
                })
                .map(without_sizes),
        };
        calibrated.map_err(|error| self.privacy(error))
    }

    /// Correlated noise over growing leaves: the fewer prefixes, the less noise each.
    fn growing_factorized(&self, epsilon: f64) -> Result<(Baseline, Vec<u32>), BaselineError> {
        let (d, delta) = (self.parameters(), self.delta);
        let one = baseline::gaussian_factorized(d, 1, epsilon, delta)?.noise_std();
        let sizes = self.best_growing(|leaves| {
            let shares = prefix_variances(releases(leaves as u32));
            let column = shares.last().copied().unwrap_or(0.0);
            move |released| {
                let share = shares.get(released - 1).copied().unwrap_or(column);
                one * one * column * share
            }
        });
        let releases = releases(sizes.len() as u32);
        Ok((baseline::gaussian_factorized(d, releases, epsilon, delta)?, sizes))
    }

    /// Everyone's coins in growing batches, each certified by itself. Sizes are chosen with the
    /// noise that the smallest batch needs: at the same epsilon that of a larger one is a little
    /// less.
    fn growing_binomial(&self, epsilon: f64) -> Result<(Baseline, Vec<u32>), BaselineError> {
        let (d, delta) = (self.parameters(), self.delta);
        let smallest = u64::from(SMALLEST_BATCH).min(self.setting.horizon) as u32;
        let one = baseline::shuffled_binomial(d, &[smallest], epsilon, delta)?.noise_std();
        let sizes = self.best_growing(|_| move |released| one * one * released as f64);
        Ok((baseline::shuffled_binomial(d, &sizes, epsilon, delta)?, Vec::new()))
    }

    /// Leaves of `size` people.
    fn leaves(&self, size: u32) -> u32 {
        u32::try_from(self.setting.horizon.div_ceil(u64::from(size))).unwrap_or(u32::MAX)
    }

    /// A local algorithm gives its people the epsilon that the others give behind a shuffler or a
    /// trusted server, unless told otherwise.
    fn epsilon(&self) -> Result<f64, ExperimentError> {
        if self.algorithm.name.is_local() {
            if let Some(LocalLimit::AtMost(epsilon)) = self.algorithm.local_epsilon {
                return Ok(epsilon);
            }
            let asked = self.central().or(self.setting.local_epsilon);
            return asked.ok_or_else(|| self.needs("an epsilon"));
        }
        self.central().ok_or_else(|| self.needs(CENTRAL))
    }
}

/// Prefixes of so many leaves: nobody comes after the last.
fn releases(leaves: u32) -> u32 {
    leaves.saturating_sub(1).max(1)
}
