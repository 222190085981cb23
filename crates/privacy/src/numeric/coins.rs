//! The sum of coins of two kinds that mirror each other, on the part of the integers that matters.
//!
//! A convolution of two binomials takes time quadratic in its window. The masses T(k) of the sum
//! also satisfy a recurrence of three terms, in which every term is positive on one side of a
//! crossing, so that it is walked from outside towards the crossing without cancellation. Proof:
//! `docs/privacy-proofs.md`, section 7.

use libm::{ceil, floor, log, sqrt};

use super::{Pmf, slack};

/// The sum of `ups` coins with chance (1+c)/2 and `downs` coins with chance (1-c)/2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coins {
    /// Coins that lean up.
    pub ups: u64,
    /// Coins that lean down.
    pub downs: u64,
    /// c, above 0 and below 1.
    pub keep: f64,
}

impl Coins {
    /// The law of the sum but for a mass of at most `missing` on each side. Masses are right to a
    /// share of [`slack::STEP`] for each entry of the result.
    pub fn law(self, missing: f64) -> Pmf {
        let (low, high) = self.range(missing);
        let n = self.ups + self.downs;
        let pivot = (floor(self.crossing()) as u64).clamp(low, high);
        let above = self.ratios(pivot, high);
        let below = self.mirrored().ratios(n - pivot, n - low);
        let walk = |ratios: &[f64]| -> Vec<f64> {
            ratios
                .iter()
                .scan(1.0, |mass, ratio| {
                    *mass /= ratio;
                    Some(*mass)
                })
                .collect()
        };
        let mut values = walk(&below);
        values.reverse();
        values.push(1.0);
        values.extend(walk(&above));
        let total: f64 = values.iter().sum();
        values.iter_mut().for_each(|value| *value /= total);
        Pmf { values }
    }

    /// The number of zeros.
    fn mirrored(self) -> Self {
        Self { ups: self.downs, downs: self.ups, ..self }
    }

    /// Bernstein's inequality: outside of these ends there is at most `missing` on each side.
    fn range(self, missing: f64) -> (u64, u64) {
        let (up, down) = (f64::midpoint(1.0, self.keep), f64::midpoint(1.0, -self.keep));
        let (a, b) = (self.ups as f64, self.downs as f64);
        let (mean, variance) = (a * up + b * down, (a + b) * up * down);
        let y = -log(missing);
        let reach = y / 3.0 + sqrt(y * y / 9.0 + 2.0 * y * variance) + 1.0;
        let high = (ceil(mean + reach) as u64).min(self.ups + self.downs);
        (floor((mean - reach).max(0.0)) as u64, high)
    }

    /// (1+c)/(1-c).
    fn odds(self) -> f64 {
        f64::midpoint(1.0, self.keep) / f64::midpoint(1.0, -self.keep)
    }

    /// Where the middle term of the recurrence changes its sign.
    fn crossing(self) -> f64 {
        let square = self.odds() * self.odds();
        (self.ups as f64 * square + self.downs as f64) / (square + 1.0)
    }

    /// T(k-1)/T(k) for `bottom` < k <= `top`, all above the crossing, where
    ///
    /// (n-k+1) T(k-1) = (k+1) T(k+1) + ((w + 1/w) k - w a - b/w) T(k)
    ///
    /// has positive terms only. The walk starts above `top`, from an interval that holds the ratio,
    /// and far enough for the interval to have shrunk to a point.
    fn ratios(self, bottom: u64, top: u64) -> Vec<f64> {
        let n = self.ups + self.downs;
        if bottom == top {
            return Vec::new();
        }
        if self.ups == 0 {
            let ratio = |k: u64| k as f64 * self.odds() / (n - k + 1) as f64;
            return (bottom + 1..=top).map(ratio).collect();
        }
        if self.downs == 0 {
            let ratio = |k: u64| k as f64 / (self.odds() * (n - k + 1) as f64);
            return (bottom + 1..=top).map(ratio).collect();
        }
        let (odds, inverse) = (self.odds(), 1.0 / self.odds());
        let (a, b) = (self.ups as f64, self.downs as f64);
        // The middle term is negative by rounding only.
        let middle = |k: f64| (odds * (k - a) + (k - b) * inverse).max(0.0);
        let step = |k: u64, next: f64| {
            let (share, k) = (1.0 / (n - k + 1) as f64, k as f64);
            middle(k) * share + (k + 1.0) * share / next
        };
        // Without the term of T(k+1) the ratio is too small; T(n+1) = 0.
        let least = |k: u64| middle(k as f64) / (n - k + 1) as f64;
        let mut more = 64 + (top - bottom) / 4;
        let mut ratio = loop {
            let start = top.saturating_add(more).min(n);
            let (mut low, mut high) = (least(start), least(start));
            if start < n {
                high = step(start, least(start + 1));
            }
            for k in (top..start).rev() {
                (low, high) = (step(k, high), step(k, low));
            }
            if start == n || high <= low * (1.0 + slack::STEP) {
                break f64::midpoint(low, high);
            }
            more *= 2;
        };
        let mut ratios = vec![0.0; (top - bottom) as usize];
        for k in (bottom + 1..=top).rev() {
            if k < top {
                ratio = step(k, ratio);
            }
            ratios[(k - bottom - 1) as usize] = ratio;
        }
        ratios
    }
}
