//! The mechanisms of the algorithms that a simulator compares with, each with a certificate.
//! Proofs: `docs/privacy-proofs.md`, section 8.
//!
//! All numbers are for contexts of norm at most L = 1 and rewards in [0, 1]: one person's datum is
//! v = (r u, lower triangle of u u') with D = d(d+3)/2 coordinates, and another datum in its place
//! moves v by at most sqrt(4.5) (2 for d = 1). One person is in one leaf, sends one report, is in
//! one batch.
//!
//! # Privacy
//! These are baselines in a simulation, not a product. The certificates are about Gaussians over
//! the real numbers; Gaussians computed in floats can reveal which inputs are possible at all from
//! the last digits of a release (Mironov 2012, *On significance of the least significant bits for
//! differential privacy*). The binomial mechanism is about integers and does not have this gap.

mod binomial;
mod calibrate;
mod certificate;
mod error;
mod factorized;
mod gaussian;
mod privunit;

pub use calibrate::{
    gaussian_batches, gaussian_factorized, gaussian_tree, gaussian_tree_as_printed, local_gaussian,
    shuffled_binomial, shuffled_binomial_as_printed, shuffled_gaussian,
    shuffled_gaussian_as_printed,
};
pub use certificate::{BaselineCertificate, certify};
pub use error::BaselineError;
pub use factorized::{MOST_RELEASES, prefix_variances, square_root_coefficients};
pub use gaussian::tree_levels;
use incrowd_protocol::{BatchSize, Delta, Dimension, MechanismHash};
use libm::sqrt;
pub(crate) use privunit::statistic_scales;
pub use privunit::{PrivUnit, local_privunit};
use serde::{Deserialize, Serialize};
use std::iter;

/// Most steps of fixed-point rounding.
const MOST_LEVELS: u32 = 100_000;
/// Smallest and largest standard deviation of Gaussian noise.
const NOISE_RANGE: (f64, f64) = (1e-3, 1e12);

/// One batch of the shuffled binomial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinomialBatch {
    /// People in the batch, all with honest devices: everybody's coins count.
    pub batch_size: u32,
    /// Steps from v = -1 to v = 1.
    pub levels: u32,
    /// Noise bits per person and coordinate.
    pub coins: u32,
}

impl BinomialBatch {
    /// Coins of the whole batch, for each coordinate.
    pub fn all_coins(&self) -> u64 {
        u64::from(self.coins) * u64::from(self.batch_size)
    }

    /// At least the variance of the noise of its sum, for each coordinate of v: rounding a person's
    /// value at random adds at most 1/levels^2, the coins of a batch add (2/levels)^2 coins
    /// batch_size 3/16.
    pub fn variance(&self) -> f64 {
        let coin = binomial::CHANCE * (1.0 - binomial::CHANCE);
        // In steps of 2/levels; random rounding has a variance of at most 1/4.
        let person = f64::from(self.coins) * coin + 0.25;
        let step = 2.0 / f64::from(self.levels);
        f64::from(self.batch_size) * person * step * step
    }

    fn check(&self) -> Result<(), BaselineError> {
        BatchSize::new(u64::from(self.batch_size))?;
        check_levels(self.levels)?;
        if self.coins == 0 { Err(BaselineError::Coins(0.0)) } else { Ok(()) }
    }

    /// Epsilon of what one person sends, and of the sums; none where nothing is proved.
    fn epsilons(&self, dimension: Dimension, delta: f64) -> (Option<f64>, Option<f64>) {
        let of = |coins| binomial::epsilon_upper(dimension, self.levels, coins, delta);
        let local = of(u64::from(self.coins));
        // Sums are a post-processing of what people send.
        (local, of(self.all_coins()).into_iter().chain(local).reduce(f64::min))
    }
}

/// What a baseline adds to people's data. The numbers are not checked here: [`certify`] refuses
/// what makes no sense.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Baseline {
    /// A trusted server keeps a binary tree over consecutive leaves of people and releases noisy
    /// prefix sums, after 1, ..., `leaves` - 1 leaves.
    ///
    /// A prefix of t leaves is the sum of one node for each binary digit of t, from the largest;
    /// each node that is used has its own noise, drawn once. The prefix after the last leaf is not
    /// released, since nobody comes after it.
    ///
    /// # Reference
    /// Shariff, Sheffet 2018, *Differentially private contextual linear bandits*; the tree is that
    /// of Dwork et al. 2010 and Chan, Shi, Song 2010.
    GaussianTree {
        /// Dimension of the contexts (d).
        dimension: u32,
        /// People in a leaf. The guarantee does not depend on it.
        leaf_size: u32,
        /// Leaves, at least 2.
        leaves: u32,
        /// Standard deviation of the noise of a node, for each of the D coordinates.
        noise_std: f64,
        /// Delta of the guarantee.
        delta: f64,
    },
    /// A trusted server releases noisy prefix sums over consecutive leaves of public sizes, with
    /// noise that is correlated from prefix to prefix: prefix t has the noise f_0 z_t + ... +
    /// f_{t-1} z_1, with independent z and f_k = C(2k, k)/4^k.
    ///
    /// # Reference
    /// Denisov, McMahan, Rush, Smith, Guha Thakurta 2022, *Improved differential privacy for SGD
    /// via optimal private linear operators on adaptive streams*; the factor is that of
    /// Fichtenberger, Henzinger, Upadhyay 2023, *Constant matters: fine-grained error bound on
    /// differentially private continual observation*.
    GaussianFactorized {
        /// Dimension of the contexts (d).
        dimension: u32,
        /// Prefixes that are released (n). The sizes of the leaves do not matter.
        releases: u32,
        /// Standard deviation of each z, for each of the D coordinates.
        noise_std: f64,
        /// Delta of the guarantee.
        delta: f64,
    },
    /// A trusted server adds up batches of a public size and releases each sum once with fresh
    /// noise.
    GaussianBatches {
        /// Dimension of the contexts (d).
        dimension: u32,
        /// Standard deviation of the noise of a batch, for each of the D coordinates.
        noise_std: f64,
        /// Delta of the guarantee.
        delta: f64,
    },
    /// Every person adds independent Gaussian noise to each of the D coordinates before sending.
    ///
    /// # Reference
    /// Zheng, Cai, Huang, Li, Wang 2020, *Locally differentially private (contextual) bandits
    /// learning*.
    LocalGaussian {
        /// Dimension of the contexts (d).
        dimension: u32,
        /// Standard deviation of the noise of a coordinate.
        noise_std: f64,
        /// Delta of the guarantee.
        delta: f64,
    },
    /// Every person sends [`PrivUnit`] of a unit vector: of z = (sqrt(w) r u, sqrt(1-w) svec(u
    /// u')), svec with its off-diagonal entries times sqrt(2), and of one more entry that makes |z|
    /// = 1.
    LocalPrivUnit {
        /// Dimension of the contexts (d).
        dimension: u32,
        /// Chance that the vector is on the far side of the threshold (1 - p).
        outside: f64,
        /// Chance that a standard normal variable is above the threshold (1 - q).
        above: f64,
        /// Share of the squared norm that the moment may have (w), in 256ths.
        moment_weight: u32,
    },
    /// The same reports as of [`Baseline::LocalGaussian`] behind a shuffler that releases the sum
    /// of a batch, as ours does.
    ///
    /// # Reference
    /// Chowdhury, Zhou 2022, *Shuffle private linear contextual bandits*, SDP-Amp.
    ShuffledGaussian {
        /// Dimension of the contexts (d).
        dimension: u32,
        /// Reports in a batch, all of honest devices.
        batch_size: u32,
        /// Standard deviation of the noise of a coordinate of one report.
        noise_std: f64,
        /// Delta of the guarantee.
        delta: f64,
    },
    /// Each coordinate (v+1)/2 is rounded at random to a multiple of 1/`levels`, up or down so that
    /// its mean is right, and each person adds `coins` bits that are one with probability 1/4; the
    /// shuffler releases, for each coordinate, the number of ones of a batch.
    ///
    /// # Reference
    /// Chowdhury, Zhou 2022, SDP-Vec, after Cheu, Joseph, Mao, Peng 2022, *Shuffle private
    /// stochastic convex optimization*. They write g for half of `levels`: v + 1 is rounded to
    /// multiples of 1/g.
    ShuffledBinomial {
        /// Dimension of the contexts (d).
        dimension: u32,
        /// The batches in order; the last one is repeated.
        batches: Vec<BinomialBatch>,
        /// Delta of the guarantee.
        delta: f64,
    },
}

impl Baseline {
    /// SHA-256 over the tag `incrowd/baseline/v1`, the variant's name, each with a zero byte after
    /// it, and its numbers, big-endian.
    pub fn hash(&self) -> MechanismHash {
        let (name, words, reals) = match *self {
            Self::GaussianTree { dimension, leaf_size, leaves, noise_std, delta } => {
                ("gaussian-tree", vec![dimension, leaf_size, leaves], vec![noise_std, delta])
            }
            Self::GaussianFactorized { dimension, releases, noise_std, delta } => {
                ("gaussian-factorized", vec![dimension, releases], vec![noise_std, delta])
            }
            Self::GaussianBatches { dimension, noise_std, delta } => {
                ("gaussian-batches", vec![dimension], vec![noise_std, delta])
            }
            Self::LocalGaussian { dimension, noise_std, delta } => {
                ("local-gaussian", vec![dimension], vec![noise_std, delta])
            }
            Self::LocalPrivUnit { dimension, outside, above, moment_weight } => {
                ("local-privunit", vec![dimension, moment_weight], vec![outside, above])
            }
            Self::ShuffledGaussian { dimension, batch_size, noise_std, delta } => {
                ("shuffled-gaussian", vec![dimension, batch_size], vec![noise_std, delta])
            }
            Self::ShuffledBinomial { dimension, ref batches, delta } => {
                let numbers = batches.iter().flat_map(|b| [b.batch_size, b.levels, b.coins]);
                ("shuffled-binomial", iter::once(dimension).chain(numbers).collect(), vec![delta])
            }
        };
        let mut bytes = b"incrowd/baseline/v1\0".to_vec();
        bytes.extend(name.bytes().chain([0]));
        bytes.extend(words.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend(reals.into_iter().flat_map(f64::to_be_bytes));
        MechanismHash::of(bytes)
    }

    /// Dimension of the contexts (d).
    pub fn dimension(&self) -> u32 {
        match *self {
            Self::GaussianTree { dimension, .. }
            | Self::GaussianFactorized { dimension, .. }
            | Self::GaussianBatches { dimension, .. }
            | Self::LocalGaussian { dimension, .. }
            | Self::LocalPrivUnit { dimension, .. }
            | Self::ShuffledGaussian { dimension, .. }
            | Self::ShuffledBinomial { dimension, .. } => dimension,
        }
    }

    /// Delta of the guarantee; 0 where it has none.
    pub fn delta(&self) -> f64 {
        match *self {
            Self::LocalPrivUnit { .. } => 0.0,
            Self::GaussianTree { delta, .. }
            | Self::GaussianFactorized { delta, .. }
            | Self::GaussianBatches { delta, .. }
            | Self::LocalGaussian { delta, .. }
            | Self::ShuffledGaussian { delta, .. }
            | Self::ShuffledBinomial { delta, .. } => delta,
        }
    }

    /// Standard deviation of the noise of one released sum (a node of the tree, the first prefix of
    /// a factorization, one person's report, a batch), for each coordinate of v. For the binomial
    /// it is that of the noisiest batch, and an upper bound; for vectors that of the moment, and an
    /// upper bound.
    pub fn noise_std(&self) -> f64 {
        match *self {
            Self::LocalPrivUnit { outside, above, moment_weight, .. } => {
                let law = PrivUnit::new(outside, above);
                law.map_or(f64::NAN, |law| sqrt(law.variances(moment_weight).0))
            }
            Self::GaussianTree { noise_std, .. }
            | Self::GaussianFactorized { noise_std, .. }
            | Self::GaussianBatches { noise_std, .. }
            | Self::LocalGaussian { noise_std, .. } => noise_std,
            Self::ShuffledGaussian { batch_size, noise_std, .. } => {
                noise_std * sqrt(f64::from(batch_size))
            }
            Self::ShuffledBinomial { ref batches, .. } => {
                sqrt(batches.iter().map(BinomialBatch::variance).fold(0.0, f64::max))
            }
        }
    }

    fn check(&self) -> Result<(), BaselineError> {
        Dimension::new(self.dimension())?;
        if !matches!(self, Self::LocalPrivUnit { .. }) {
            Delta::new(self.delta())?;
        }
        match *self {
            Self::LocalPrivUnit { outside, above, moment_weight, .. } => {
                PrivUnit::new(outside, above)?;
                check_weight(moment_weight)
            }
            Self::GaussianTree { leaf_size, leaves, noise_std, .. } => {
                check_tree(leaf_size, leaves)?;
                check_noise(noise_std)
            }
            Self::GaussianFactorized { releases, noise_std, .. } => {
                check_releases(releases)?;
                check_noise(noise_std)
            }
            Self::GaussianBatches { noise_std, .. } | Self::LocalGaussian { noise_std, .. } => {
                check_noise(noise_std)
            }
            Self::ShuffledGaussian { batch_size, noise_std, .. } => {
                BatchSize::new(u64::from(batch_size))?;
                check_noise(noise_std)
            }
            Self::ShuffledBinomial { ref batches, .. } => {
                if batches.is_empty() {
                    return Err(BaselineError::NoBatches);
                }
                batches.iter().try_for_each(BinomialBatch::check)
            }
        }
    }
}

fn check_levels(levels: u32) -> Result<u32, BaselineError> {
    if (1..=MOST_LEVELS).contains(&levels) {
        Ok(levels)
    } else {
        Err(BaselineError::Levels(levels))
    }
}

fn check_weight(moment_weight: u32) -> Result<(), BaselineError> {
    if (1..=255).contains(&moment_weight) {
        Ok(())
    } else {
        Err(BaselineError::MomentWeight(moment_weight))
    }
}

fn check_tree(leaf_size: u32, leaves: u32) -> Result<(), BaselineError> {
    if leaf_size == 0 {
        return Err(BaselineError::LeafSize(leaf_size));
    }
    if leaves < 2 { Err(BaselineError::Leaves(leaves)) } else { Ok(()) }
}

fn check_releases(releases: u32) -> Result<(), BaselineError> {
    if (1..=MOST_RELEASES).contains(&releases) {
        Ok(())
    } else {
        Err(BaselineError::Releases(releases))
    }
}

fn check_noise(noise_std: f64) -> Result<(), BaselineError> {
    let (least, most) = NOISE_RANGE;
    if (least..=most).contains(&noise_std) {
        Ok(())
    } else {
        Err(BaselineError::NoiseStd(noise_std))
    }
}
