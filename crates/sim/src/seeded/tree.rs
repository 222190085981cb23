use incrowd_protocol::Blocks;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::PrefixNoise;

/// Noise of prefix sums from a binary tree over the leaves: the prefix of n leaves is made of one
/// node for each digit 1 of n.
///
/// # Reference
/// Dwork, Naor, Pitassi, Rothblum 2010 and Chan, Shi, Song 2010.
pub struct Tree {
    noise_std: f64,
    /// Noise of the node of each level that is in the current prefix.
    nodes: Vec<Vec<f64>>,
    prefix: u32,
}

impl Tree {
    /// Before the first of `releases` prefixes: N(0, `noise_std`^2) on each coordinate of each
    /// node.
    pub fn new(blocks: Blocks, releases: u32, noise_std: f64) -> Self {
        let levels = (u32::BITS - releases.leading_zeros()) as usize;
        let nodes = vec![vec![0.0; blocks.coordinates()]; levels];
        Self { noise_std, nodes, prefix: 0 }
    }
}

impl PrefixNoise for Tree {
    /// n - 1 to n changes the node of the lowest digit 1 of n, and drops those below it.
    fn advance(&mut self, rng: &mut ChaCha8Rng) {
        self.prefix += 1;
        let level = self.prefix.trailing_zeros() as usize;
        self.nodes[..level].iter_mut().for_each(|node| node.fill(0.0));
        for value in &mut self.nodes[level] {
            let normal: f64 = StandardNormal.sample(rng);
            *value = self.noise_std * normal;
        }
    }

    fn add_to(&self, sums: &mut [f64]) {
        for node in &self.nodes {
            sums.iter_mut().zip(node).for_each(|(sum, noise)| *sum += noise);
        }
    }

    fn variance(&self) -> f64 {
        f64::from(self.prefix.count_ones()) * self.noise_std * self.noise_std
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::prefix::tests::{noise_of, shared},
        *,
    };

    /// Over 2000 trees with D = 20 coordinates, the mean of n = 40,000 squares over their variance
    /// strays from 1 by more than 7 sqrt(2/n) = 0.05 with probability below 1e-10; two nodes more
    /// or less change it by at least a fifth. Prefixes 6 and 7 share two nodes, 7 and 8 none: their
    /// noise must be correlated so.
    #[test]
    fn a_prefix_has_the_noise_of_its_nodes() {
        let mut squares = [0.0; 8];
        let (mut common, mut apart) = (0.0, 0.0);
        let (trees, coordinates) = (2000, 20);
        for seed in 0..trees {
            let prefixes = noise_of(Tree::new(shared(5), 8, 2.0), 8, seed);
            for (total, prefix) in squares.iter_mut().zip(&prefixes) {
                *total += prefix.iter().map(|x| x * x).sum::<f64>();
            }
            let product = |a: usize, b: usize| -> f64 {
                prefixes[a - 1].iter().zip(&prefixes[b - 1]).map(|(x, y)| x * y).sum()
            };
            common += product(6, 7);
            apart += product(7, 8);
        }
        let n = trees as f64 * f64::from(coordinates);
        for (leaves, total) in (1u32..).zip(squares) {
            let expected = 4.0 * f64::from(leaves.count_ones());
            assert!((total / n / expected - 1.0).abs() < 0.05, "{leaves}: {}", total / n);
        }
        assert!((common / n / 8.0 - 1.0).abs() < 0.07, "{}", common / n);
        assert!((apart / n).abs() < 0.5, "{}", apart / n);
    }
}
