//! The binomial law: its masses, tails, quantiles, and all of it at once.

use libm::{exp, floor, log, log1p, sqrt};

use super::{
    Ends, Pmf, Upper, bisect, slack,
    special::{deviance, ln_choose, ln_complementary, stirling_error},
    whole,
};
use crate::PrivacyError;

/// Number of successes in `trials` independent ones. The chances of success and failure are kept
/// separately, because one may be tiny.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Binomial {
    trials: u64,
    yes: f64,
    no: f64,
}

impl Binomial {
    /// From a chance of success, above 0 and below 1.
    pub fn new(trials: u64, chance: f64) -> Self {
        Self::complementary(trials, chance, 1.0 - chance)
    }

    /// From the chances of success and failure, both positive, which add up to 1.
    pub fn complementary(trials: u64, yes: f64, no: f64) -> Self {
        Self { trials, yes, no }
    }

    /// The number of failures.
    #[must_use]
    pub fn mirrored(self) -> Self {
        Self { trials: self.trials, yes: self.no, no: self.yes }
    }

    /// P(X = count + 1)/P(X = count), zero at the last count.
    pub(crate) fn ratio(self, count: u64) -> f64 {
        (self.trials - count) as f64 * self.yes / ((count + 1) as f64 * self.no)
    }

    /// P(X = count) for count <= trials, to a share of 2e-13 and an ulp for each count from the
    /// mean (whose own rounding moves the exponent): below [`slack::ROUNDING`] within a million of
    /// the mean.
    ///
    /// # Reference
    /// Loader 2000, *Fast and accurate computation of binomial probabilities*.
    pub fn point(self, count: u64) -> f64 {
        let (n, x, y) = (self.trials as f64, count as f64, (self.trials - count) as f64);
        if count == 0 {
            return exp(n * ln_complementary(self.no, self.yes));
        }
        if count == self.trials {
            return exp(n * ln_complementary(self.yes, self.no));
        }
        let deviance = deviance(x, n * self.yes) + deviance(y, n * self.no);
        let stirling = stirling_error(n) - stirling_error(x) - stirling_error(y);
        exp(stirling - deviance) * sqrt(n / (std::f64::consts::TAU * x * y))
    }

    /// P(X <= count) for count < trials. Meant for the lower tail; right everywhere.
    pub fn at_most_upper(self, count: u64) -> Upper {
        let (mut at, mut mass) = (count, self.point(count));
        let mut sum = mass;
        while at > 0 {
            let ratio = at as f64 * self.no / ((self.trials - at + 1) as f64 * self.yes);
            if ratio < 1.0 && mass * ratio / (1.0 - ratio) <= slack::SERIES_REST * sum {
                sum += mass * ratio / (1.0 - ratio);
                break;
            }
            mass *= ratio;
            at -= 1;
            sum += mass;
        }
        Upper::of(sum).min(1.0)
    }

    /// ln P(X >= count) for 0 < count < trials and a chance of at most count/trials, so that the
    /// terms fall from `count` on. Off by the error of [`ln_choose`]; what is left out of the sum
    /// is added.
    pub fn ln_at_least(self, count: u64) -> f64 {
        let (n, k) = (self.trials as f64, count as f64);
        let first = ln_choose(n, k) + k * log(self.yes) + (n - k) * log1p(-self.yes);
        let odds = self.yes / self.no;
        let (mut term, mut sum, mut i) = (1.0, 1.0, k);
        while i < n {
            let ratio = (n - i) / (i + 1.0) * odds;
            term *= ratio;
            sum += term;
            i += 1.0;
            if term < sum * slack::TAIL_REST {
                // What is left falls at least as fast as a geometric series.
                sum += if ratio < 1.0 { term * ratio / (1.0 - ratio) } else { term * (n - i) };
                break;
            }
        }
        first + log(sum)
    }

    /// The largest count up to the mean with P(X < count) <= tail, and that probability.
    pub(crate) fn cut(self, tail: f64) -> (u64, Upper) {
        let most = floor(self.trials as f64 * self.yes) as u64;
        let rare = |count: u64| self.at_most_upper(count - 1).is_at_most(tail);
        let count = bisect(Ends { holds: 0, fails: most + 1 }, whole, rare).holds;
        (count, if count == 0 { Upper::ZERO } else { self.at_most_upper(count - 1) })
    }

    /// The largest q with P(X < q) <= miss, or a little less: Chernoff's bound in its exact
    /// (relative entropy) form.
    pub fn lower_quantile(self, miss: f64) -> u64 {
        let (n, chance) = (self.trials as f64, self.yes);
        // P(X <= q) <= exp(-n KL(q/n, chance)) for q <= n chance.
        let exponent = |q: f64| {
            let x = q / n;
            let one = if x > 0.0 { x * log(x / chance) } else { 0.0 };
            let zero = if x < 1.0 { (1.0 - x) * (log1p(-x) - log1p(-chance)) } else { 0.0 };
            n * (one + zero)
        };
        // The exponent is a difference of terms as large as n.
        let needed = -log(miss) * (1.0 + slack::ROUNDING) + 8.0 * f64::EPSILON * n;
        let most = floor(n * chance) as u64;
        // The largest q whose lower neighbour is rare enough.
        let rare = |q: u64| exponent((q - 1) as f64) >= needed;
        bisect(Ends { holds: 0, fails: most + 1 }, whole, rare).holds
    }

    /// The whole law.
    pub fn pmf(self) -> Pmf {
        self.pmf_with_start().1
    }

    /// The whole law, and the integer of its first entry. The ratio of neighbours is exact, so
    /// start at the mode and walk both ways.
    pub fn pmf_with_start(self) -> (u64, Pmf) {
        let n = self.trials as f64;
        let odds = self.yes / self.no;
        let mode = ((n + 1.0) * self.yes).floor().min(n);
        let mut above = Vec::new();
        let (mut k, mut value) = (mode, 1.0);
        while value > slack::NEGLIGIBLE {
            above.push(value);
            value *= (n - k) / (k + 1.0) * odds;
            k += 1.0;
        }
        let mut values = Vec::new();
        (k, value) = (mode, 1.0);
        while k > 0.0 {
            value *= k / (n - k + 1.0) / odds;
            if value <= slack::NEGLIGIBLE {
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
        (first, Pmf { values })
    }
}

/// P(Bin(`trials`, `probability`) <= `count`), rounded up, for any numbers.
pub fn binomial_at_most_upper(
    trials: u64,
    probability: f64,
    count: u64,
) -> Result<f64, PrivacyError> {
    if !(probability > 0.0 && probability < 1.0) {
        return Err(PrivacyError::Probability(probability));
    }
    let law = Binomial::new(trials, probability);
    Ok(if count >= trials { 1.0 } else { law.at_most_upper(count).value() })
}
