use incrowd_bandit::{Estimates, NoisySums};
use incrowd_device::Arm;
use incrowd_protocol::{Blocks, LearnerConfig, MechanismHash, Model};
use rand_chacha::ChaCha8Rng;

use super::{Progress, TrustedServer, stream, untrusted::model};
use crate::coordinates::for_each_coordinate;

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
    blocks: Blocks,
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
        blocks: Blocks,
        (sizes, releases): (Vec<u32>, u32),
        learner: LearnerConfig,
        mechanism: MechanismHash,
        seed: u64,
    ) -> Self {
        Self {
            noise,
            learner,
            mechanism,
            blocks,
            sizes,
            releases,
            sums: vec![0.0; blocks.coordinates()],
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
        let std = self.noise.variance().sqrt();
        let releases = self.progress.batches as u32;
        let blocks = self.blocks;
        let sums = NoisySums {
            blocks,
            sums: &noisy,
            moment_std: std,
            gram_std: std,
            releases,
            floor: 1.0,
        };
        let estimates = Estimates::calibrated(&self.learner, &sums)?;
        let model = model(estimates, blocks, self.mechanism, self.progress)?;
        self.progress.models += 1;
        Some(model)
    }
}

impl<N: PrefixNoise> TrustedServer for PrefixServer<N> {
    fn observe(&mut self, arm: Arm<'_>, reward: f64) -> Option<Model> {
        for_each_coordinate(self.blocks, arm, reward, |i, value| self.sums[i] += value);
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

    /// One parameter for all actions.
    pub fn shared(dimension: u32) -> Blocks {
        incrowd_protocol::Dimension::new(dimension).unwrap().into()
    }

    /// The first prefixes of nobody's data, which are nothing but noise.
    pub fn noise_of<N: PrefixNoise>(noise: N, prefixes: u32, seed: u64) -> Vec<Vec<f64>> {
        let hash = MechanismHash::of("test");
        let leaves = (vec![1], prefixes);
        let mut server =
            PrefixServer::new(noise, shared(5), leaves, LearnerConfig::default(), hash, seed);
        let prefix = |_| {
            server.observe(Arm::from(&[0.0; 5]), 0.0);
            server.prefix()
        };
        (0..prefixes).map(prefix).collect()
    }

    #[test]
    fn leaves_have_their_sizes_and_only_so_many_prefixes_are_released() {
        let hash = MechanismHash::of("test");
        let models = |sizes: Vec<u32>, releases: u32| -> Vec<u32> {
            let (noise, learner) = (Tree::new(shared(2), releases, 1.0), LearnerConfig::default());
            let mut server =
                PrefixServer::new(noise, shared(2), (sizes, releases), learner, hash, 1);
            (1..=30).filter(|_| server.observe(Arm::from(&[0.5, 0.5]), 1.0).is_some()).collect()
        };
        assert_eq!(models(vec![10], 2), [10, 20]);
        assert_eq!(models(vec![2, 5, 10], 3), [2, 7, 17]);
        assert_eq!(models(vec![2, 5, 10], 9), [2, 7, 17, 27]);
    }
}
