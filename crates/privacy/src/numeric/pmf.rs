//! Laws of sums of coins on a window of the integers, every entry with a small relative error.

use libm::{log, log1p};

/// Entries below this share of the largest one are left out of a binomial: their mass is below a millionth of every tail that is paid for, which
/// is at least [`SMALLEST_TAIL`].
const NEGLIGIBLE: f64 = 1e-50;
/// Smaller tails are refused.
pub const SMALLEST_TAIL: f64 = 1e-26;

/// Probabilities of consecutive integers; positions do not matter, only order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pmf {
    /// The probabilities.
    pub values: Vec<f64>,
}

impl Pmf {
    /// Bin(trials, chance): the ratio of neighbours is exact, so start at the mode and walk both ways.
    pub fn binomial(trials: u64, chance: f64) -> Self {
        Self::binomial_at(trials, chance).1
    }

    /// The same, and the integer of its first entry.
    pub fn binomial_at(trials: u64, chance: f64) -> (u64, Self) {
        let n = trials as f64;
        let odds = chance / (1.0 - chance);
        let mode = ((n + 1.0) * chance).floor().min(n);
        let mut above = Vec::new();
        let (mut k, mut value) = (mode, 1.0);
        while value > NEGLIGIBLE {
            above.push(value);
            value *= (n - k) / (k + 1.0) * odds;
            k += 1.0;
        }
        let mut values = Vec::new();
        (k, value) = (mode, 1.0);
        while k > 0.0 {
            value *= k / (n - k + 1.0) / odds;
            if value <= NEGLIGIBLE {
                break;
            }
            values.push(value);
            k -= 1.0;
        }
        values.reverse();
        let first = mode as u64 - values.len() as u64;
        values.extend(above);
        let total: f64 = values.iter().sum();
        values.iter_mut().for_each(|value| *value /= total);
        (first, Self { values })
    }

    /// The law of the sum of two independent ones, four weights at a time.
    #[must_use]
    pub fn convolve(&self, other: &Self) -> Self {
        let (long, short) =
            if self.values.len() >= other.values.len() { (self, other) } else { (other, self) };
        let padded = [&[0.0; 3], &long.values[..], &[0.0; 3]].concat();
        let length = long.values.len() + short.values.len() - 1;
        let mut values = vec![0.0; length + 3];
        for (start, weights) in short.values.chunks(4).enumerate() {
            let mut w = [0.0; 4];
            w[..weights.len()].copy_from_slice(weights);
            for (sum, near) in values[4 * start..].iter_mut().zip(padded.windows(4)) {
                *sum += w[0] * near[3] + w[1] * near[2] + w[2] * near[1] + w[3] * near[0];
            }
        }
        values.truncate(length);
        Self { values }
    }

    /// The law after one more coin.
    #[must_use]
    pub fn with_coin(&self, chance: f64) -> Self {
        let mut values = vec![0.0; self.values.len() + 1];
        for (i, &value) in self.values.iter().enumerate() {
            values[i] += value * (1.0 - chance);
            values[i + 1] += value * chance;
        }
        Self { values }
    }
}

/// The largest q with P(Bin(trials, chance) < q) <= miss, or a little less: Chernoff's bound in its exact (relative entropy) form.
pub(crate) fn binomial_lower_quantile(trials: u64, chance: f64, miss: f64) -> u64 {
    let n = trials as f64;
    // P(Bin <= q) <= exp(-n KL(q/n, chance)) for q <= n chance.
    let exponent = |q: f64| {
        let x = q / n;
        let one = if x > 0.0 { x * log(x / chance) } else { 0.0 };
        let zero = if x < 1.0 { (1.0 - x) * (log1p(-x) - log1p(-chance)) } else { 0.0 };
        n * (one + zero)
    };
    // The exponent is a difference of terms as large as n.
    let needed = -log(miss) * (1.0 + 1e-9) + 8.0 * f64::EPSILON * n;
    let (mut low, mut high) = (0u64, (n * chance).floor() as u64);
    // The largest q whose lower neighbour is rare enough.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if exponent((middle - 1) as f64) >= needed {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolution_adds_coins() {
        for (a, b) in [(1, 1), (5, 2), (7, 20), (10, 11)] {
            let sum = Pmf::binomial(a, 0.3).convolve(&Pmf::binomial(b, 0.3));
            let wanted = Pmf::binomial(a + b, 0.3);
            assert_eq!(sum.values.len(), wanted.values.len());
            for (found, wanted) in sum.values.iter().zip(&wanted.values) {
                assert!((found / wanted - 1.0).abs() < 1e-12, "{a} + {b}: {found} {wanted}");
            }
        }
        let coin = Pmf::binomial(9, 0.3).with_coin(0.3);
        assert!(
            coin.values
                .iter()
                .zip(&Pmf::binomial(10, 0.3).values)
                .all(|(a, b)| (a / b - 1.0).abs() < 1e-12)
        );
    }

    /// P(Bin(10, 1/2) < 2) = 11/1024 = 0.0107; P(Bin < 1) = 0.00098. Chernoff is a little more careful, never less.
    #[test]
    fn a_quantile_is_rare_enough() {
        let q = binomial_lower_quantile(10, 0.5, 0.0107);
        assert!(q <= 1);
        let below =
            |n: u64, q: u64| Pmf::binomial(n, 0.3).values.iter().take(q as usize).sum::<f64>();
        for miss in [1e-2, 1e-4, 1e-8] {
            let q = binomial_lower_quantile(200, 0.3, miss);
            assert!(below(200, q) <= miss && below(200, q + 8) > miss / 100.0, "{q} {miss}");
        }
        assert_eq!(binomial_lower_quantile(3, 0.5, 1e-9), 0);
    }
}
