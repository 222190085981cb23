use incrowd_protocol::Blocks;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::PrefixNoise;
use crate::baseline::{prefix_variances, square_root_coefficients};

/// Noise of prefix sums that is correlated by the square root of the matrix that adds up: prefix t
/// has f_0 z_t + ... + f_{t-1} z_1, f_k = C(2k, k)/4^k. Takes the number of prefixes in memory and
/// its square in time.
///
/// # Reference
/// Denisov, McMahan, Rush, Smith, Guha Thakurta 2022; Fichtenberger, Henzinger, Upadhyay 2023.
pub struct Factorized {
    noise_std: f64,
    coefficients: Vec<f64>,
    /// Variance of prefix t, in units of that of a z.
    variances: Vec<f64>,
    /// Each z so far, one row of D numbers after the other.
    drawn: Vec<f64>,
    /// Of the current prefix.
    noise: Vec<f64>,
}

impl Factorized {
    /// Before the first of `releases` prefixes: N(0, `noise_std`^2) on each coordinate of each z.
    pub fn new(blocks: Blocks, releases: u32, noise_std: f64) -> Self {
        Self {
            noise_std,
            coefficients: square_root_coefficients(releases),
            variances: prefix_variances(releases),
            drawn: Vec::new(),
            noise: vec![0.0; blocks.coordinates()],
        }
    }

    fn prefix(&self) -> usize {
        self.drawn.len() / self.noise.len()
    }
}

impl PrefixNoise for Factorized {
    fn advance(&mut self, rng: &mut ChaCha8Rng) {
        let width = self.noise.len();
        for _ in 0..width {
            let normal: f64 = StandardNormal.sample(rng);
            self.drawn.push(self.noise_std * normal);
        }
        self.noise.fill(0.0);
        let newest_first = self.drawn.rchunks_exact(width);
        for (coefficient, row) in self.coefficients.iter().zip(newest_first) {
            self.noise.iter_mut().zip(row).for_each(|(noise, z)| *noise += coefficient * z);
        }
    }

    fn add_to(&self, sums: &mut [f64]) {
        sums.iter_mut().zip(&self.noise).for_each(|(sum, noise)| *sum += noise);
    }

    fn variance(&self) -> f64 {
        let before = self.prefix().checked_sub(1);
        let share = before.and_then(|t| self.variances.get(t)).copied().unwrap_or(0.0);
        share * self.noise_std * self.noise_std
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::prefix::tests::{noise_of, shared},
        *,
    };

    /// Variances and covariances of 8 prefixes, in units of the noise that is drawn, against the
    /// exact ones: sum over k of f_k f_{k + t - s}, from C(2k, k) as integers. Over 2000 runs with
    /// D = 20 coordinates a mean of n = 40,000 products of normals with variances a, b and
    /// covariance c has standard deviation sqrt((a b + c^2)/n), and strays by more than 7 of them
    /// with probability below 1e-11 (2.6e-12 for a normal, times e^0.8 for a skewness of
    /// sqrt(8/n)): a false alarm in 36 pairs below 4e-10. Taking f_k = 1/2^k, or the coefficients
    /// in the other order, or fresh noise for each prefix, moves one of them by more than 20.
    #[test]
    fn prefixes_have_the_covariance_of_the_square_root() {
        let choose = |k: u64| (1..=k).fold(1u64, |product, i| product * (k + i) / i);
        let f: Vec<f64> = (0..8).map(|k| choose(k) as f64 / 4f64.powi(k as i32)).collect();
        assert_eq!(f[..4], [1.0, 0.5, 0.375, 0.3125]);
        let (runs, prefixes, std) = (2000, 8, 1.5);
        let mut products = [[0.0; 8]; 8];
        for seed in 0..runs {
            let noise = noise_of(Factorized::new(shared(5), prefixes, std), prefixes, seed);
            for (t, row) in products.iter_mut().enumerate() {
                for (s, total) in row.iter_mut().enumerate() {
                    *total += noise[t].iter().zip(&noise[s]).map(|(x, y)| x * y).sum::<f64>();
                }
            }
        }
        let n = runs as f64 * 20.0;
        let exact = |t: usize, s: usize| -> f64 {
            let (first, last) = (t.min(s), t.max(s));
            (0..=first).map(|k| std * std * f[k] * f[k + last - first]).sum()
        };
        for (t, row) in products.iter().enumerate() {
            for (s, total) in row.iter().enumerate() {
                let error = 7.0 * ((exact(t, t) * exact(s, s) + exact(t, s).powi(2)) / n).sqrt();
                assert!((total / n - exact(t, s)).abs() < error, "{t} {s}: {}", total / n);
            }
        }
    }

    /// What the learner is told is what is drawn.
    #[test]
    fn the_stated_variance_is_that_of_the_prefix() {
        let mut noise = Factorized::new(shared(2), 3, 2.0);
        assert!(noise.variance().abs() < 1e-12, "nothing is released yet");
        let mut rng = super::super::stream(1, 2);
        for expected in [4.0, 5.0, 5.5625] {
            noise.advance(&mut rng);
            assert!((noise.variance() - expected).abs() < 1e-12, "{}", noise.variance());
        }
    }
}
