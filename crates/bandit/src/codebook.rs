//! The law of a decoded codebook report: how far its mean is drawn towards the statistic, and its
//! noise. `docs/confidence.md`, Codebook reports.

use std::sync::{LazyLock, OnceLock};

use incrowd_protocol::{CodebookLaw, STEPS};
use libm::{erfc, exp, lgamma, log, sqrt};

/// Steps of the sums behind the integrals, in one standard deviation: the integrands are analytic
/// and vanish at both ends, so that the error is far below that of floats.
const NODES: i32 = 64;
/// Where the integrals end.
const END: i32 = 10;

/// Moments of the word that a report sends, in standard deviations of an entry.
///
/// # Reference
/// By the rotational symmetry of normal words the mean of the word sent is mu z+, and what is
/// orthogonal to z+ is standard normal, whatever the dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WordMoments {
    /// mu: mean of the word along z+.
    pub gain: f64,
    /// Variance of the word along z+. Across it the variance is 1.
    pub variance_along: f64,
    /// Variance proxy along z+: E exp(t (y - mu)) <= exp(t^2 proxy / 2).
    pub proxy_along: f64,
}

impl WordMoments {
    /// The moments of a law.
    pub fn of(law: CodebookLaw) -> Self {
        Self::new(law.words, law.chosen, law.outside.value())
    }

    /// The moments of a law whose `outside` is not rounded to a fraction yet.
    pub fn new(words: u32, chosen: u32, outside: f64) -> Self {
        let (n, k, inside) = (f64::from(words), f64::from(chosen), 1.0 - outside);
        let (mean, square) = largest_normals(words, chosen);
        let gain = (inside - outside * k / (n - k)) * mean;
        let second = inside * square + outside * (n - k * square) / (n - k);
        // The word is one of the k largest with probability 1 - gamma and any one otherwise. Both
        // laws are log-concave next to the normal law, so their proxies are at most 1; which of
        // them it is adds that of a coin times the squared distance of their means.
        let blind = outside * n / (n - k);
        Self {
            gain,
            variance_along: second - gain * gain,
            proxy_along: 1.0 + mean * mean * coin_proxy(blind),
        }
    }

    /// Upper bound on the variance of an entry of the decoded statistic, word/mu: rounding adds
    /// that of a uniform variable.
    pub fn entry_variance(&self) -> f64 {
        let step = 1.0 / f64::from(STEPS);
        (self.variance_along.max(1.0) + step * step / 12.0) / (self.gain * self.gain)
    }
}

/// Mean, and mean square, of the k largest of n standard normal variables, n at most 256 and k at
/// most n/2. Each pair is computed once.
pub fn largest_normals(n: u32, k: u32) -> (f64, f64) {
    const WORDS: u32 = 256;
    static KNOWN: LazyLock<Vec<OnceLock<(f64, f64)>>> = LazyLock::new(|| {
        std::iter::repeat_with(OnceLock::new)
            .take(((WORDS + 1) * (WORDS / 2 + 1)) as usize)
            .collect()
    });
    let known = KNOWN.get((n * (WORDS / 2 + 1) + k) as usize).filter(|_| k <= WORDS / 2);
    known.map_or_else(|| largest(n, k), |known| *known.get_or_init(|| largest(n, k)))
}

/// Mean, and mean square, of the k largest of n standard normal variables.
///
/// With psi(y) the chance that a variable y is among them, E[y psi] = E[psi'] and E[y^2 psi] =
/// E[psi] + E[y psi'] (Stein); psi' = (n-1) C(n-2, k-1) Q^{k-1} (1-Q)^{n-1-k} phi, Q = P(X > y).
fn largest(n: u32, k: u32) -> (f64, f64) {
    let (n, k) = (f64::from(n), f64::from(k));
    // (n/k) (n-1) C(n-2, k-1)
    let scale = lgamma(n + 1.0) - lgamma(k) - lgamma(n - k) - log(k);
    let (mut mean, mut square) = (0.0, 0.0);
    for node in -END * NODES..=END * NODES {
        let y = f64::from(node) / f64::from(NODES);
        let above = erfc(y / std::f64::consts::SQRT_2) / 2.0;
        let below = erfc(-y / std::f64::consts::SQRT_2) / 2.0;
        let log_weight = scale + power(k - 1.0, above) + power(n - 1.0 - k, below);
        let weight = exp(log_weight - y * y) / std::f64::consts::TAU;
        mean += weight;
        square += y * weight;
    }
    let step = 1.0 / f64::from(NODES);
    (mean * step, 1.0 + square * step)
}

/// ln(base^exponent), also for 0^0.
fn power(exponent: f64, base: f64) -> f64 {
    if exponent == 0.0 { 0.0 } else { exponent * log(base) }
}

/// Variance proxy of a coin that is 1 with probability p.
///
/// # Reference
/// Kearns, Saul 1998: (1 - 2p)/(2 ln((1-p)/p)), 1/4 at p = 1/2.
fn coin_proxy(p: f64) -> f64 {
    if (p - 0.5).abs() < 1e-3 || p <= 0.0 || p >= 1.0 {
        return 0.25;
    }
    (1.0 - 2.0 * p) / (2.0 * log((1.0 - p) / p))
}

/// Bound on the bias of an entry of the word, in standard deviations, for statistics of
/// `coordinates` entries: scores are right to 2^-24 for each entry, and the mean moves by at most 8
/// times the error of a score. Rounding and clipping move it by less than 2^-40.
pub(crate) fn bias(coordinates: usize) -> f64 {
    sqrt(coordinates as f64 + 1.0) / f64::from(1u32 << 20)
}

#[cfg(test)]
mod tests {
    use incrowd_protocol::OutsideProbability;

    use super::*;

    fn law(words: u32, chosen: u32, inside: f64) -> CodebookLaw {
        let outside = OutsideProbability::from_keep(inside).unwrap();
        CodebookLaw { words, chosen, outside, moment_weight: 128 }
    }

    /// Known means of the largest of n: 1/sqrt(pi), 3/(2 sqrt(pi)) and, for 256, Harter 1961.
    #[test]
    fn the_largest_normals_have_their_known_means() {
        let pi = std::f64::consts::PI;
        assert!((largest(2, 1).0 - 1.0 / sqrt(pi)).abs() < 1e-14);
        assert!((largest(2, 1).1 - 1.0).abs() < 1e-14, "the square of the larger of two");
        assert!((largest(3, 1).0 - 1.5 / sqrt(pi)).abs() < 1e-14);
        // All of them together have mean 0 and mean square 1.
        for (n, k) in [(64, 32), (256, 17), (256, 128), (7, 3)] {
            let (top, top_square) = largest(n, k);
            let (rest, rest_square) = largest(n, n - k);
            let (n, k) = (f64::from(n), f64::from(k));
            assert!((k * top - (n - k) * rest).abs() < 1e-11, "the smallest mirror the largest");
            assert!((k * top_square + (n - k) * rest_square - n).abs() < 1e-10);
        }
    }

    /// Theory: N = 256 at local epsilon 2, 4, 8.
    #[test]
    fn gains_are_the_published_ones() {
        for (chosen, inside, gain) in [(59, 0.689, 0.783), (17, 0.795, 1.505), (1, 0.921, 2.603)] {
            let found = WordMoments::of(law(256, chosen, inside));
            assert!((found.gain - gain).abs() < 2e-3, "{chosen}: {found:?}");
            assert!(found.variance_along > 0.0 && found.proxy_along >= found.variance_along);
        }
    }
}
