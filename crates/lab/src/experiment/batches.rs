//! Batches of a baseline with the least predicted regret, by the same formula as our own.

use std::iter;

use incrowd_planner::{SMALLEST_BATCH, random_regret, rank_with, sizes};
use incrowd_protocol::Blocks;
use incrowd_sim::baseline::{Baseline, BaselineError, prefix_variances};

use super::prepare::Preparation;

impl Preparation<'_> {
    /// Growing batches with the least predicted regret: `variance` tells, for a number of batches,
    /// the variance of the sums after the first, the second, ... of them.
    pub fn best_growing<V>(&self, variance: impl Fn(usize) -> V) -> Vec<u32>
    where
        V: Fn(usize) -> f64,
    {
        let horizon = self.setting.horizon;
        let largest = u32::try_from(horizon).unwrap_or(u32::MAX);
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
                let variance = variance(sizes.len());
                let models = sizes.iter().enumerate().scan(0.0, |people, (i, &batch)| {
                    *people += f64::from(batch);
                    Some((*people, error_size(variance(i + 1).sqrt(), self.blocks)))
                });
                let regret = rank_with(self.blocks, horizon as f64, models);
                if regret < least {
                    (best, least) = (sizes, regret);
                }
            }
            first = (first * sizes::FIRST_STEP).floor();
        }
        best
    }

    /// The mechanism and its batch size: the one asked for, or from `smallest` on the one with the
    /// least predicted regret.
    pub fn with_best_batch(
        &self,
        smallest: u32,
        calibrate: impl Fn(u32) -> Result<Baseline, BaselineError>,
    ) -> Result<(Baseline, u32), BaselineError> {
        let horizon = self.setting.horizon as f64;
        if let Some(size) = self.batch_size() {
            return Ok((calibrate(size)?, size));
        }
        let mut best = None;
        let mut least = f64::INFINITY;
        let mut size = f64::from(smallest).min(horizon);
        while size <= horizon / 2.0 || best.is_none() {
            let baseline = calibrate(size as u32)?;
            let regret = predicted(&baseline, self.blocks, horizon, size);
            if regret < least {
                (best, least) = (Some((baseline, size as u32)), regret);
            }
            // From here on the first batch alone costs more than that.
            if random_regret(self.blocks) * size > least {
                break;
            }
            size = (size * sizes::FIRST_STEP).floor();
        }
        Ok(best.expect("invariant: the search goes on until a size is found"))
    }
}

fn predicted(baseline: &Baseline, blocks: Blocks, horizon: f64, batch: f64) -> f64 {
    let size = error_size(baseline.noise_std(), blocks);
    let shares = match *baseline {
        Baseline::GaussianFactorized { releases, .. } => prefix_variances(releases),
        _ => Vec::new(),
    };
    let noise = |releases: f64| match baseline {
        // On average half of the digits of n are 1.
        Baseline::GaussianTree { .. } => size * (1.0 + releases.log2() / 2.0).sqrt(),
        // The prefix after the last leaf is not released.
        Baseline::GaussianFactorized { .. } => {
            let share = shares.get(releases as usize - 1).or(shares.last());
            size * share.copied().unwrap_or(0.0).sqrt()
        }
        _ => size * releases.sqrt(),
    };
    // Looking at every fiftieth is enough later on.
    let next = |&releases: &f64| Some(releases + (releases / 50.0).floor().max(1.0));
    let models = iter::successors(Some(1.0), next)
        .take_while(|releases| releases * batch <= horizon)
        .map(|releases| (releases * batch, noise(releases)));
    rank_with(blocks, horizon, models)
}

/// Size of a vector of d errors, as in the calibrated widths: about its 95% quantile.
fn error_size(std: f64, blocks: Blocks) -> f64 {
    std * (2.0 * blocks.features() as f64).sqrt()
}
