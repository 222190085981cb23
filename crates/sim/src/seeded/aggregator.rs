//! What stands between people and a server nobody trusts.
//!
//! Noise that many people add, each a little, is drawn once for all of them where the law of the
//! sum is the same: nothing but the sum leaves an aggregator.

use incrowd_device::Arm;
use incrowd_protocol::Blocks;
use rand_chacha::ChaCha8Rng;
use rand_core::Rng;
use rand_distr::{Binomial, Distribution, StandardNormal};

use super::{directed::DirectedSums, stream, uniform};
use crate::{
    baseline::{BinomialBatch, PrivUnit, statistic_scales},
    coordinates::for_each_coordinate,
};

/// Noisy sums of r u and tril(u u') over some people, u = x/L. Only an aggregator makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    sums: Vec<f64>,
    moment_variance: f64,
    gram_variance: f64,
}

impl Release {
    /// With noise of one variance everywhere.
    fn uniform(sums: Vec<f64>, variance: f64) -> Self {
        Self { sums, moment_variance: variance, gram_variance: variance }
    }

    /// The sums.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Variance of the noise of each of the first d, the sum of r u; or an upper bound.
    pub fn moment_variance(&self) -> f64 {
        self.moment_variance
    }

    /// Variance of the noise of each of the others, the sum of u u', off the diagonal; or an upper
    /// bound.
    pub fn gram_variance(&self) -> f64 {
        self.gram_variance
    }
}

/// People whose data leave only as noisy sums.
pub trait Aggregator {
    /// The layout of the arms.
    fn blocks(&self) -> Blocks;

    /// One more person; a release when the batch is full.
    fn add(&mut self, arm: Arm<'_>, reward: f64) -> Option<Release>;
}

/// Who adds the Gaussian noise, and its standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GaussianNoise {
    /// Everyone to their own data (Zheng et al. 2020; Chowdhury, Zhou 2022, SDP-Amp).
    PerPerson(f64),
    /// Someone everyone trusts, to the sum of a batch.
    PerBatch(f64),
}

/// Sums with Gaussian noise.
pub struct GaussianAggregator {
    blocks: Blocks,
    /// Sizes of the batches; the last one is repeated.
    sizes: Vec<u32>,
    noise: GaussianNoise,
    sums: Vec<f64>,
    count: u32,
    batches: usize,
    rng: ChaCha8Rng,
}

impl GaussianAggregator {
    /// The server hears of batches of `sizes` people, the last of which is repeated.
    pub fn new(blocks: Blocks, sizes: Vec<u32>, noise: GaussianNoise, seed: u64) -> Self {
        let sums = vec![0.0; blocks.coordinates()];
        Self { blocks, sizes, noise, sums, count: 0, batches: 0, rng: stream(seed, 2) }
    }

    fn is_full(&self) -> bool {
        let size = self.sizes.get(self.batches).or(self.sizes.last());
        size.is_some_and(|&size| self.count >= size)
    }
}

impl Aggregator for GaussianAggregator {
    fn blocks(&self) -> Blocks {
        self.blocks
    }

    fn add(&mut self, arm: Arm<'_>, reward: f64) -> Option<Release> {
        for_each_coordinate(self.blocks, arm, reward, |i, value| self.sums[i] += value);
        self.count += 1;
        if !self.is_full() {
            return None;
        }
        let variance = match self.noise {
            // A sum of n normal variables is one normal variable with n times the variance.
            GaussianNoise::PerPerson(std) => f64::from(self.count) * std * std,
            GaussianNoise::PerBatch(std) => std * std,
        };
        let empty = vec![0.0; self.sums.len()];
        let mut sums = std::mem::replace(&mut self.sums, empty);
        for sum in &mut sums {
            let normal: f64 = StandardNormal.sample(&mut self.rng);
            *sum += variance.sqrt() * normal;
        }
        self.count = 0;
        self.batches += 1;
        Some(Release::uniform(sums, variance))
    }
}

/// Everyone rounds their data to a grid and adds coins (Chowdhury, Zhou 2022, SDP-Vec, after Cheu
/// et al. 2021).
pub struct BinomialAggregator {
    blocks: Blocks,
    /// In order; the last one is repeated.
    batches: Vec<BinomialBatch>,
    released: usize,
    sums: Vec<u64>,
    count: u32,
    rng: ChaCha8Rng,
}

impl BinomialAggregator {
    /// In each batch every person rounds to one of its levels and adds its coins to each
    /// coordinate, each 1 with probability 1/4. The last batch is repeated.
    pub fn new(blocks: Blocks, batches: Vec<BinomialBatch>, seed: u64) -> Self {
        let sums = vec![0; blocks.coordinates()];
        Self { blocks, batches, released: 0, sums, count: 0, rng: stream(seed, 2) }
    }
}

impl Aggregator for BinomialAggregator {
    fn blocks(&self) -> Blocks {
        self.blocks
    }

    fn add(&mut self, arm: Arm<'_>, reward: f64) -> Option<Release> {
        let batch = *self.batches.get(self.released).or(self.batches.last())?;
        let (levels, rng, sums) = (f64::from(batch.levels), &mut self.rng, &mut self.sums);
        for_each_coordinate(self.blocks, arm, reward, |i, value| {
            let scaled = f64::midpoint(value.clamp(-1.0, 1.0), 1.0) * levels;
            let up = f64::from(rng.next_u32()) < (scaled - scaled.floor()) * 4_294_967_296.0;
            sums[i] += scaled as u64 + u64::from(up);
        });
        self.count += 1;
        if self.count < batch.batch_size {
            return None;
        }
        let coins = batch.all_coins();
        // 1/4 is a probability.
        let law = Binomial::new(coins, 0.25).ok()?;
        let (people, mean) = (f64::from(self.count), coins as f64 / 4.0);
        let mut estimates = Vec::with_capacity(self.sums.len());
        for sum in &mut self.sums {
            let noisy = *sum as f64 + law.sample(&mut self.rng) as f64 - mean;
            estimates.push(2.0 / levels * noisy - people);
            *sum = 0;
        }
        self.count = 0;
        self.released += 1;
        Some(Release::uniform(estimates, batch.variance()))
    }
}

/// Everyone sends a vector that points along their own (Asi, Feldman, Talwar 2022, PrivUnitG).
pub struct PrivUnitAggregator {
    blocks: Blocks,
    /// People between two releases.
    interval: u32,
    law: PrivUnit,
    moment_weight: u32,
    scales: Vec<f64>,
    statistic: Vec<f64>,
    sums: DirectedSums,
    count: u32,
    rng: ChaCha8Rng,
}

impl PrivUnitAggregator {
    /// The server hears of `interval` people at a time. `moment_weight` is in 256ths, 1 to 255.
    pub fn new(
        blocks: Blocks,
        interval: u32,
        law: PrivUnit,
        moment_weight: u32,
        seed: u64,
    ) -> Self {
        let scales = statistic_scales(blocks, moment_weight);
        Self {
            blocks,
            interval,
            law,
            moment_weight,
            statistic: vec![0.0; scales.len()],
            sums: DirectedSums::new(scales.len()),
            scales,
            count: 0,
            rng: stream(seed, 2),
        }
    }
}

impl Aggregator for PrivUnitAggregator {
    fn blocks(&self) -> Blocks {
        self.blocks
    }

    fn add(&mut self, arm: Arm<'_>, reward: f64) -> Option<Release> {
        let (statistic, scales) = (&mut self.statistic, &self.scales);
        statistic.fill(0.0);
        for_each_coordinate(self.blocks, arm, reward, |i, value| statistic[i] = scales[i] * value);
        let along = self.law.component(uniform(&mut self.rng), uniform(&mut self.rng));
        // The entry that makes it a unit vector is not needed again: across, all are independent.
        self.sums.add(&self.statistic, along, &mut self.rng);
        self.count += 1;
        if self.count < self.interval {
            return None;
        }
        let (people, gain) = (f64::from(self.count), self.law.gain());
        self.count = 0;
        let mut sums = self.sums.take(0.0, &mut self.rng);
        sums.iter_mut().zip(&self.scales).for_each(|(sum, scale)| *sum /= gain * scale);
        let (moment, gram) = self.law.variances(self.moment_weight);
        let (moment_variance, gram_variance) = (people * moment, people * gram);
        Some(Release { sums, moment_variance, gram_variance })
    }
}
