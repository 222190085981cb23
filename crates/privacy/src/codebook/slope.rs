//! How fast the likelihood of a person's word grows along the statistic that picked it, once other
//! blind words are added: Lambda. Proof: `docs/privacy-proofs.md`, section 10.3.

use std::collections::BinaryHeap;

use libm::{ceil, exp, floor, log, log1p, sqrt};

use super::odds::Odds;
use crate::numeric::{
    Ends, Upper, bisect, halvings,
    special::{ln_choose, normal_density, normal_tail},
};

/// Cells of a standard deviation.
const CELLS: f64 = 1024.0;
/// What the cells leave out of psi at either end.
const OUTSIDE: f64 = 1e-14;
/// Rounding of the sums over cells, relatively.
const ROUNDING: f64 = 1e-6;
/// Ranges of variances that are wider are cut into pieces, up to so many.
const WIDEST: f64 = 3e-3;
const MOST_PIECES: f64 = 4.0;
/// Cells of m that are bounded together, from the most to one; each divides the one before.
const TOGETHER: [usize; 4] = [64, 16, 4, 1];

/// psi(y), the chance that a word with the score y is among the k best of N, as a law on cells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slope {
    odds: Odds,
    /// The first cell is [first, first + 1]/[`CELLS`].
    first: i64,
    /// By how much psi grows in each cell.
    steps: Vec<f64>,
}

impl Slope {
    pub fn new(odds: Odds) -> Self {
        let is_low = |y: f64| psi(&odds, y) < OUTSIDE;
        let is_high = |y: f64| 1.0 - psi(&odds, y) < OUTSIDE;
        let low = bisect(Ends { holds: -40.0, fails: 40.0 }, halvings(20), is_low).holds;
        let high = bisect(Ends { holds: 40.0, fails: -40.0 }, halvings(20), is_high).holds;
        let (first, last) = (floor(low * CELLS) as i64, ceil(high * CELLS) as i64);
        let values: Vec<f64> = (first..=last).map(|j| psi(&odds, j as f64 / CELLS)).collect();
        let steps = values.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect();
        Self { odds, first, steps }
    }

    /// At least the derivative of ln E H(m + sqrt(v) xi) in m, for |m| <= `reach` and v from
    /// `variance` to 1, in a few pieces.
    pub fn largest(&self, reach: f64, variance: f64) -> f64 {
        let pieces = ceil((1.0 - variance) / WIDEST).clamp(1.0, MOST_PIECES);
        let step = (1.0 - variance) / pieces;
        let ends = |i: u32| variance + f64::from(i) * step;
        let pieces = (0..pieces as u32).map(|i| (ends(i), ends(i + 1) * (1.0 + ROUNDING)));
        pieces.map(|piece| self.largest_in(reach, piece, &TOGETHER)).fold(0.0, f64::max)
    }

    /// The same for v in [low, high], cells of m bounded together as `together` says.
    ///
    /// psi grows, so for m and y in cells its mean is at least the sum over cells of steps times
    /// the least chance to be beyond the cell, and the mean of its derivative is at most the sum of
    /// steps times the largest density in the cell.
    fn largest_in(&self, reach: f64, (low, high): (f64, f64), together: &[usize]) -> f64 {
        let last = self.first + self.steps.len() as i64;
        let (left, right) = (floor(-reach * CELLS) as i64, ceil(reach * CELLS) as i64);
        let from = self.first - right;
        let distances = from..last - left + 1;
        let densities: Vec<f64> =
            distances.clone().map(|d| largest_density(d, low, high)).collect();
        let tails: Vec<f64> = distances.map(|d| least_tail(d, low, high)).collect();
        let outside = 2.0 * OUTSIDE * normal_density(0.0) / sqrt(low);
        let count = (right - left) as usize;
        // The largest densities and least tails that any of some cells sees: each term of the sums
        // is at least that of a cell alone, and so, rounded alike, are the sums.
        let extremes = |&together: &usize| {
            (extreme(&densities, together, f64::max), extreme(&tails, together, f64::min))
        };
        let levels: Vec<_> = together.iter().map(extremes).collect();
        // A later cell of m sees what is one place earlier. Bits of positive numbers are in order.
        let bounded = |level: usize, cell: usize| {
            let start = (count - cell).saturating_sub(together[level] - 1);
            let (densities, tails) = &levels[level];
            let bound = self.ratio(&densities[start..], &tails[start..], outside);
            (bound.to_bits(), level, cell)
        };
        let mut bounds: BinaryHeap<_> =
            (0..count).step_by(together[0]).map(|cell| bounded(0, cell)).collect();
        // The largest bound is split until it is that of one cell: no other cell has more.
        let largest = loop {
            let Some((bound, level, cell)) = bounds.pop() else { break 0.0 };
            if level + 1 == together.len() {
                break f64::from_bits(bound);
            }
            let end = (cell + together[level]).min(count);
            let parts = (cell..end).step_by(together[level + 1]);
            bounds.extend(parts.map(|cell| bounded(level + 1, cell)));
        };
        Upper::raised(largest, ROUNDING).value()
    }

    /// The derivative where the cells see these densities and tails.
    fn ratio(&self, densities: &[f64], tails: &[f64], outside: f64) -> f64 {
        let (gain, blind) = (self.odds.gain(), self.odds.blind);
        let slope = dot(&self.steps, densities) + outside;
        gain * slope / (blind + gain * dot(&self.steps, tails))
    }
}

/// psi at a few points: sums over them of an analytic function are nearly exact.
pub(crate) struct ApproxSlope {
    odds: Odds,
    values: Vec<f64>,
}

impl ApproxSlope {
    const STEP: f64 = 1.0 / 12.0;
    const START: f64 = -8.0;

    pub fn new(odds: Odds) -> Self {
        let at = |i: i32| psi(&odds, Self::START + f64::from(i) * Self::STEP);
        Self { odds, values: (0..=192).map(at).collect() }
    }

    /// About the derivative of ln E H(m + sqrt(v) xi) in m.
    pub fn at(&self, m: f64, variance: f64) -> f64 {
        let deviation = sqrt(variance);
        let (mut mean, mut slope) = (0.0, 0.0);
        for (i, value) in self.values.iter().enumerate() {
            let x = (Self::START + i as f64 * Self::STEP - m) / deviation;
            let weight = normal_density(x) * Self::STEP / deviation * value;
            mean += weight;
            slope += weight * x / deviation;
        }
        // Beyond the last point psi is one.
        self.odds.gain() * slope / (self.odds.blind + self.odds.gain() * mean)
    }
}

/// P(Bin(N-1, P(Z > y)) <= k-1), all terms positive.
pub(crate) fn psi(odds: &Odds, y: f64) -> f64 {
    let (n, k) = (f64::from(odds.words) - 1.0, f64::from(odds.chosen));
    let (above, below) = (normal_tail(y), normal_tail(-y));
    if above <= 0.0 {
        return 1.0;
    }
    if below <= 0.0 {
        return 0.0;
    }
    let ln_below = if above < 0.5 { log1p(-above) } else { log(below) };
    if above * n <= k {
        let (mut term, mut sum) = (exp(n * ln_below), 0.0);
        for j in 0..odds.chosen {
            sum += term;
            let j = f64::from(j);
            term *= (n - j) / (j + 1.0) * (above / below);
        }
        return sum.min(1.0);
    }
    let top = k - 1.0;
    let mut term = exp(ln_choose(n, top) + top * log(above) + (n - top) * ln_below);
    let mut sum = 0.0;
    for j in (0..odds.chosen).rev() {
        sum += term;
        let j = f64::from(j);
        term *= j / (n - j + 1.0) * (below / above);
    }
    sum.min(1.0)
}

/// The largest density of N(0, v), v in [low, high], where y and m are in cells d apart.
fn largest_density(d: i64, low: f64, high: f64) -> f64 {
    let nearest = (d.abs() - 1).max(0) as f64 / CELLS;
    let deviation = sqrt((nearest * nearest).clamp(low, high));
    normal_density(nearest / deviation) / deviation
}

/// The least chance of N(m, v) to be beyond the cell, likewise.
fn least_tail(d: i64, low: f64, high: f64) -> f64 {
    let farthest = (d + 1) as f64 / CELLS;
    normal_tail(farthest / sqrt(if farthest > 0.0 { low } else { high }))
}

/// For each place the extreme value of those that begin there.
fn extreme(values: &[f64], together: usize, of: fn(f64, f64) -> f64) -> Vec<f64> {
    let window = |i: usize| &values[i..values.len().min(i + together)];
    let fold = |window: &[f64]| window.iter().copied().reduce(of).unwrap_or_default();
    (0..values.len()).map(|i| fold(window(i))).collect()
}

/// The sum of products over all of `a`, which is not longer than `b`; positive terms in any order.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (whole, rest) = a.as_chunks::<8>();
    let (other, _) = b.as_chunks::<8>();
    for (a, b) in whole.iter().zip(other) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let start = 8 * whole.len();
    let rest: f64 = rest.iter().zip(&b[start..]).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounding_cells_together_changes_nothing() {
        for (words, chosen, blind) in [(256, 16, 0.3), (16, 4, 0.05), (4, 1, 0.9)] {
            let slope = Slope::new(Odds { words, chosen, inside: 2.0, blind, kappa: 1.0 });
            for (reach, piece) in [(0.4, (0.999, 1.0)), (0.02, (0.97, 0.98)), (1.5, (0.9, 0.95))] {
                let one_by_one = slope.largest_in(reach, piece, &[1]);
                for together in [&TOGETHER[..], &[1000, 10, 1]] {
                    let found = slope.largest_in(reach, piece, together);
                    assert_eq!(found.to_bits(), one_by_one.to_bits(), "{words} {reach}");
                }
            }
        }
    }
}
