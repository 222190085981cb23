use incrowd_bandit::{Estimate, NoisySums};
use incrowd_protocol::{LearnerConfig, MechanismHash, Model, coordinates};
use rand_chacha::ChaCha8Rng;

use super::{Progress, TrustedServer, aggregator::for_each_coordinate, stream, untrusted::model};

/// Noise of one prefix sum after the other.
pub trait PrefixNoise {
    /// Draws what the next prefix needs.
    fn advance(&mut self, rng: &mut ChaCha8Rng);

    /// Adds the noise of the current prefix to its sums.
    fn add_to(&self, sums: &mut [f64]);

    /// Variance of the noise of the current prefix, for each sum.
    fn variance(&self) -> f64;
}

/// LinUCB on noisy prefix sums.
///
/// # Reference
/// Shariff, Sheffet 2018, Algorithms 1 and 2.
/// # Deviation
/// The noise is on (r u, tril(u u')), not on the matrix of (x, r) with itself, whose last entry
/// nobody needs; a prefix ends with a leaf, which is a batch of people.
pub struct PrefixServer<N> {
    noise: N,
    learner: LearnerConfig,
    mechanism: MechanismHash,
    dimension: usize,
    /// People of the leaves; the last one is repeated.
    sizes: Vec<u32>,
    releases: u32,
    sums: Vec<f64>,
    count: u32,
    progress: Progress,
    rng: ChaCha8Rng,
}

impl<N: PrefixNoise> PrefixServer<N> {
    /// Before the first person: leaves of `sizes` people, the last of which is repeated, and a
    /// prefix after each of the first `releases` of them.
    pub fn new(
        noise: N,
        dimension: usize,
        (sizes, releases): (Vec<u32>, u32),
        learner: LearnerConfig,
        mechanism: MechanismHash,
        seed: u64,
    ) -> Self {
        Self {
            noise,
            learner,
            mechanism,
            dimension,
            sizes,
            releases,
            sums: vec![0.0; coordinates(dimension)],
            count: 0,
            progress: Progress::default(),
            rng: stream(seed, 2),
        }
    }

    fn is_full(&self) -> bool {
        let size = self.sizes.get(self.progress.batches as usize).or(self.sizes.last());
        size.is_some_and(|&size| self.count >= size)
    }

    /// What is released: the sums of the leaves so far, with their noise.
    pub(super) fn prefix(&self) -> Vec<f64> {
        let mut noisy = self.sums.clone();
        self.noise.add_to(&mut noisy);
        noisy
    }

    /// The model after one more leaf.
    fn publish(&mut self) -> Option<Model> {
        self.progress.batches += 1;
        self.noise.advance(&mut self.rng);
        let noisy = self.prefix();
        let (moment, gram) = noisy.split_at(self.dimension);
        let std = self.noise.variance().sqrt();
        let releases = self.progress.batches as u32;
        let sums = NoisySums { moment, gram, moment_std: std, gram_std: std, releases, floor: 1.0 };
        let model =
            model(Estimate::calibrated(&self.learner, &sums)?, self.mechanism, self.progress)?;
        self.progress.models += 1;
        Some(model)
    }
}

impl<N: PrefixNoise> TrustedServer for PrefixServer<N> {
    fn observe(&mut self, context: &[f64], reward: f64) -> Option<Model> {
        for_each_coordinate(context, reward, |i, value| self.sums[i] += value);
        self.count += 1;
        // The noise is calibrated to this number of releases.
        if !self.is_full() || self.progress.batches >= u64::from(self.releases) {
            return None;
        }
        self.count = 0;
        self.publish()
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn noise_std(&self) -> Option<f64> {
        Some(self.noise.variance().sqrt())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Tree;

    /// The first prefixes of nobody's data, which are nothing but noise.
    pub fn noise_of<N: PrefixNoise>(noise: N, prefixes: u32, seed: u64) -> Vec<Vec<f64>> {
        let hash = MechanismHash::of("test");
        let leaves = (vec![1], prefixes);
        let mut server = PrefixServer::new(noise, 5, leaves, LearnerConfig::default(), hash, seed);
        let prefix = |_| {
            server.observe(&[0.0; 5], 0.0);
            server.prefix()
        };
        (0..prefixes).map(prefix).collect()
    }

    #[test]
    fn leaves_have_their_sizes_and_only_so_many_prefixes_are_released() {
        let hash = MechanismHash::of("test");
        let models = |sizes: Vec<u32>, releases: u32| -> Vec<u32> {
            let (noise, learner) = (Tree::new(2, releases, 1.0), LearnerConfig::default());
            let mut server = PrefixServer::new(noise, 2, (sizes, releases), learner, hash, 1);
            (1..=30).filter(|_| server.observe(&[0.5, 0.5], 1.0).is_some()).collect()
        };
        assert_eq!(models(vec![10], 2), [10, 20]);
        assert_eq!(models(vec![2, 5, 10], 3), [2, 7, 17]);
        assert_eq!(models(vec![2, 5, 10], 9), [2, 7, 17, 27]);
    }
}
