//! Exact laws of reports and of sums, coordinate by coordinate: coordinates are independent given
//! the inputs.
//!
//! The laws are not those of `incrowd_privacy::numeric`, on purpose: an audit must not inherit an
//! error of the certificate.

use incrowd_privacy::numeric::{Ends, bisect, halvings};

/// Log ratios are cut here, so that a coordinate that tells everything does not drown in
/// infinities.
const LARGEST_LOG_RATIO: f64 = 50.0;
/// The largest number of outcomes whose divergence is enumerated.
const MAX_OUTCOMES: usize = 1 << 21;

/// Per coordinate the probability of each count.
#[derive(Debug, Clone)]
pub(super) struct Law(Vec<Vec<f64>>);

/// The law of the sums of everyone but the victim.
#[derive(Debug, Clone)]
pub(super) struct Others(Law);

impl Law {
    /// From P(coin = 1) = threshold / 2^32.
    pub fn of_coins(thresholds: &[u32], bits: u32) -> Self {
        let coordinate = |coins: &[u32]| {
            coins.iter().fold(vec![1.0], |law, &threshold| {
                let one = f64::from(threshold) / 4_294_967_296.0;
                convolve(&law, &[1.0 - one, one])
            })
        };
        Self(thresholds.chunks_exact(bits as usize).map(coordinate).collect())
    }

    /// The same from the formula: P(coin q = 1) = 1/2 + c tau_q / 2.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Algorithms 2 and 3; tau_q is m v + m - 1 - 2 q, cut to [-1, 1].
    pub fn stated(values: &[f64], bits: u32, keep: f64) -> Self {
        let m = f64::from(bits);
        let coordinate = |&value: &f64| {
            (0..bits).fold(vec![1.0], |law, q| {
                let tilt = (m * value + m - 1.0 - 2.0 * f64::from(q)).clamp(-1.0, 1.0);
                let one = 0.5 + 0.5 * keep * tilt;
                convolve(&law, &[1.0 - one, one])
            })
        };
        Self(values.iter().map(coordinate).collect())
    }

    /// The coordinates.
    pub fn coordinates(&self) -> &[Vec<f64>] {
        &self.0
    }

    /// Per coordinate and count the log-likelihood ratio against `other`.
    pub fn log_ratios(&self, other: &Self) -> Vec<Vec<f64>> {
        let ratios = |(p, q): (&Vec<f64>, &Vec<f64>)| {
            p.iter().zip(q).map(|(&p, &q)| log_ratio(p, q)).collect()
        };
        self.0.iter().zip(&other.0).map(ratios).collect()
    }

    /// ln of the largest ratio of the probabilities of one outcome: the epsilon of this ordered
    /// pair at delta 0.
    pub fn largest_log_ratio(&self, other: &Self) -> f64 {
        let largest = |(p, q): (&Vec<f64>, &Vec<f64>)| {
            let ratio =
                |(&p, &q): (&f64, &f64)| if p > 0.0 { (p / q).ln() } else { f64::NEG_INFINITY };
            p.iter().zip(q).map(ratio).fold(f64::NEG_INFINITY, f64::max)
        };
        self.0.iter().zip(&other.0).map(largest).sum()
    }

    /// An upper bound on the pair's epsilon at `delta`, for ranking pairs: the best of some Renyi
    /// orders.
    pub fn renyi_score(&self, other: &Self, delta: f64) -> f64 {
        let orders = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
        let mut divergences = [0.0; 6];
        for (p, q) in self.0.iter().zip(&other.0) {
            for (slot, sum) in divergences.iter_mut().zip(power_sums(p, q, &orders)) {
                *slot += sum.ln();
            }
        }
        let epsilon = |(&order, divergence): (&f64, f64)| {
            let conversion =
                ((order - 1.0) / order).ln() - (delta.ln() + order.ln()) / (order - 1.0);
            divergence / (order - 1.0) + conversion
        };
        orders.iter().zip(divergences).map(epsilon).fold(f64::INFINITY, f64::min)
    }

    /// The smallest epsilon with sum over outcomes of max(0, P - e^epsilon Q) <= delta, if the
    /// outcomes can be enumerated.
    pub fn exact_epsilon(&self, other: &Self, delta: f64) -> Option<f64> {
        let outcomes = self.0.iter().try_fold(1usize, |n, law| n.checked_mul(law.len()));
        if outcomes.is_none_or(|n| n > MAX_OUTCOMES) {
            return None;
        }
        let joint = self.0.iter().zip(&other.0).fold(vec![(1.0, 1.0)], |joint, (p, q)| {
            let extend = |&(a, b): &(f64, f64)| {
                p.iter().zip(q).map(move |(p, q)| (a * p, b * q)).collect::<Vec<_>>()
            };
            joint.iter().flat_map(extend).collect()
        });
        Some(smallest_epsilon(&joint, delta))
    }
}

impl Others {
    /// `number` people with the same input.
    pub fn new(one: &Law, number: u32) -> Self {
        Self(Law(one.0.iter().map(|law| power(law, number)).collect()))
    }

    /// The law of the sums with the victim's report.
    pub fn with(&self, victim: &Law) -> Law {
        let pairs = self.0.0.iter().zip(&victim.0);
        Law(pairs.map(|(others, victim)| convolve(others, victim)).collect())
    }

    /// Work of one look at the law.
    pub fn points(&self) -> usize {
        self.0.0.iter().map(Vec::len).sum()
    }
}

/// The sum of a table's entries at the outcome's counts.
pub(super) fn total(table: &[Vec<f64>], counts: impl Iterator<Item = usize>) -> f64 {
    table.iter().zip(counts).map(|(row, count)| row.get(count).copied().unwrap_or(0.0)).sum()
}

fn log_ratio(p: f64, q: f64) -> f64 {
    match (p > 0.0, q > 0.0) {
        (true, true) => (p / q).ln().clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO),
        (true, false) => LARGEST_LOG_RATIO,
        (false, true) => -LARGEST_LOG_RATIO,
        (false, false) => 0.0,
    }
}

/// Sum of p^order q^(1 - order) for each order. What has less than 1e-30 of the mass does not
/// matter to a ranking.
fn power_sums(p: &[f64], q: &[f64], orders: &[f64; 6]) -> [f64; 6] {
    let mut sums = [0.0; 6];
    for (&p, &q) in p.iter().zip(q).filter(|&(&p, &q)| p > 1e-30 || q > 1e-30) {
        let ratio = log_ratio(p, q);
        for (sum, order) in sums.iter_mut().zip(orders) {
            *sum += p * ((order - 1.0) * ratio).exp();
        }
    }
    sums
}

fn smallest_epsilon(joint: &[(f64, f64)], delta: f64) -> f64 {
    let excess = |epsilon: f64| -> f64 {
        let factor = epsilon.exp();
        joint.iter().map(|(p, q)| (p - factor * q).max(0.0)).sum()
    };
    if excess(LARGEST_LOG_RATIO) > delta {
        return f64::INFINITY;
    }
    if excess(0.0) <= delta {
        return 0.0;
    }
    // The end at which delta is still exceeded: an attack's epsilon is rounded down.
    let ends = Ends { holds: LARGEST_LOG_RATIO, fails: 0.0 };
    bisect(ends, halvings(50), |epsilon| excess(epsilon) <= delta).fails
}

fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; a.len() + b.len() - 1];
    for (i, x) in b.iter().enumerate() {
        for (slot, y) in sum[i..].iter_mut().zip(a) {
            *slot += x * y;
        }
    }
    sum
}

/// The law of the sum of `number` independent draws.
fn power(law: &[f64], mut number: u32) -> Vec<f64> {
    let (mut result, mut square) = (vec![1.0], law.to_vec());
    while number > 0 {
        if number & 1 == 1 {
            result = convolve(&result, &square);
        }
        number >>= 1;
        if number > 0 {
            square = convolve(&square, &square);
        }
    }
    result
}
