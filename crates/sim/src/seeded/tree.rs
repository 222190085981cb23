use incrowd_bandit::{Estimate, NoisySums};
use incrowd_protocol::{LearnerConfig, MechanismHash, Model, coordinates};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::{Progress, TrustedServer, aggregator::for_each_coordinate, stream, untrusted::model};

/// LinUCB on noisy prefix sums from a binary tree.
///
/// # Reference
/// Shariff, Sheffet 2018, Algorithms 1 and 2; the tree mechanism is Dwork, Naor, Pitassi, Rothblum
/// 2010 and Chan, Shi, Song 2010.
/// # Deviation
/// The noise is on (r u, tril(u u')), not on the matrix of (x, r) with itself, whose last entry
/// nobody needs; a leaf is a batch of people.
pub struct Tree {
    learner: LearnerConfig,
    mechanism: MechanismHash,
    dimension: usize,
    leaf_size: u32,
    leaves: u32,
    noise_std: f64,
    sums: Vec<f64>,
    count: u32,
    /// Noise of the node of each level that is in the current prefix.
    nodes: Vec<Vec<f64>>,
    progress: Progress,
    rng: ChaCha8Rng,
}

impl Tree {
    /// Before the first person: `leaves` leaves of `leaf_size` people, N(0, `noise_std`^2) on each
    /// coordinate of each node.
    pub fn new(
        dimension: usize,
        (leaf_size, leaves): (u32, u32),
        noise_std: f64,
        learner: LearnerConfig,
        mechanism: MechanismHash,
        seed: u64,
    ) -> Self {
        let levels = (u32::BITS - leaves.leading_zeros()) as usize;
        Self {
            learner,
            mechanism,
            dimension,
            leaf_size,
            leaves,
            noise_std,
            sums: vec![0.0; coordinates(dimension)],
            count: 0,
            nodes: vec![vec![0.0; coordinates(dimension)]; levels],
            progress: Progress::default(),
            rng: stream(seed, 2),
        }
    }

    /// What is released: the sums of the leaves so far, with the noise of the nodes they are made
    /// of.
    fn prefix(&self) -> Vec<f64> {
        let mut noisy = self.sums.clone();
        for node in &self.nodes {
            noisy.iter_mut().zip(node).for_each(|(sum, noise)| *sum += noise);
        }
        noisy
    }

    fn variance(&self) -> f64 {
        f64::from((self.progress.batches as u32).count_ones()) * self.noise_std * self.noise_std
    }

    /// The model after one more leaf: the prefix of n leaves is made of one node for each digit 1
    /// of n, and n - 1 to n changes the lowest of them.
    fn publish(&mut self) -> Option<Model> {
        self.progress.batches += 1;
        let n = self.progress.batches as u32;
        let level = n.trailing_zeros() as usize;
        self.nodes[..level].iter_mut().for_each(|node| node.fill(0.0));
        for value in &mut self.nodes[level] {
            let normal: f64 = StandardNormal.sample(&mut self.rng);
            *value = self.noise_std * normal;
        }
        let noisy = self.prefix();
        let (moment, gram) = noisy.split_at(self.dimension);
        let std = self.variance().sqrt();
        let sums =
            NoisySums { moment, gram, moment_std: std, gram_std: std, releases: n, floor: 1.0 };
        let model =
            model(Estimate::calibrated(&self.learner, &sums)?, self.mechanism, self.progress)?;
        self.progress.models += 1;
        Some(model)
    }
}

impl TrustedServer for Tree {
    fn observe(&mut self, context: &[f64], reward: f64) -> Option<Model> {
        for_each_coordinate(context, reward, |i, value| self.sums[i] += value);
        self.count += 1;
        // The last leaf is not released: nobody comes after it, and the noise is calibrated to
        // that.
        if self.count < self.leaf_size || self.progress.batches as u32 + 1 >= self.leaves {
            return None;
        }
        self.count = 0;
        self.publish()
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn noise_std(&self) -> Option<f64> {
        Some(self.variance().sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With empty contexts a prefix is nothing but noise. Over 2000 trees with D = 20 coordinates,
    /// the mean of n = 40,000 squares over their variance strays from 1 by more than 7 sqrt(2/n) =
    /// 0.05 with probability below 1e-10; two nodes more or less change it by at least a fifth.
    /// Prefixes 6 and 7 share two nodes, 7 and 8 none: their noise must be correlated so.
    #[test]
    fn a_prefix_has_the_noise_of_its_nodes() {
        let mut squares = [0.0; 9];
        let (mut shared, mut apart) = (0.0, 0.0);
        let (trees, coordinates) = (2000, 20);
        for seed in 0..trees {
            let hash = MechanismHash::of("test");
            let learner = LearnerConfig::default();
            let mut tree = Tree::new(5, (1, 9), 2.0, learner, hash, seed);
            let mut prefixes = vec![vec![0.0; coordinates]];
            for _ in 1..=8 {
                tree.observe(&[0.0; 5], 0.0);
                prefixes.push(tree.prefix());
            }
            for (total, prefix) in squares.iter_mut().zip(&prefixes) {
                *total += prefix.iter().map(|x| x * x).sum::<f64>();
            }
            let product = |a: usize, b: usize| -> f64 {
                prefixes[a].iter().zip(&prefixes[b]).map(|(x, y)| x * y).sum()
            };
            shared += product(6, 7);
            apart += product(7, 8);
        }
        let n = trees as f64 * coordinates as f64;
        for (leaves, total) in squares.iter().enumerate().skip(1) {
            let expected = 4.0 * f64::from((leaves as u32).count_ones());
            assert!((total / n / expected - 1.0).abs() < 0.05, "{leaves}: {}", total / n);
        }
        assert!((shared / n / 8.0 - 1.0).abs() < 0.07, "{}", shared / n);
        assert!((apart / n).abs() < 0.5, "{}", apart / n);
    }

    #[test]
    fn the_last_leaf_is_not_released() {
        let hash = MechanismHash::of("test");
        let mut tree = Tree::new(2, (10, 3), 1.0, LearnerConfig::default(), hash, 1);
        let models = (0..30).filter(|_| tree.observe(&[0.5, 0.5], 1.0).is_some()).count();
        assert_eq!((models, tree.progress().batches), (2, 2));
    }
}
