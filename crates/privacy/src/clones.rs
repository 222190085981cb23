//! Central privacy of a shuffled batch of reports, whatever their randomizer: hiding among the
//! clones, numeric form.
//!
//! Needs only that each of the n reports is epsilon_local-LDP and that nothing but their multiset
//! is released.
//!
//! # Reference
//! Feldman, McMillan, Talwar 2021, *Hiding among the clones*, Thm 3.1 and 3.2. With C ~ Bin(n-1,
//! e^{-eps0}), A ~ Bin(C, 1/2) and B ~ Ber(e^{eps0}/(e^{eps0}+1)) the release is a function of
//! (A+B, C-A+1-B) or of (A+1-B, C-A+B). With N = C+1 and k the first count, the two laws are
//! Bin(N,1/2)(k) (1 +- tanh(eps0/2) (2k/N - 1)), so that the hockey-stick divergence (the same in
//! both directions, by symmetry) is
//!
//! ```text
//! H(eps) = tanh(eps0/2) (1 + e^eps) E (Y_N - tau)_+,    tau = tanh(eps/2)/tanh(eps0/2),
//! ```
//!
//! Y_N the mean of N fair signs. It falls with N: the mean of N+1 signs is a conditional
//! expectation of the mean of N of them, and the function is convex (Jensen). So N may be rounded
//! down, and a batch may be taken as smaller than it is.

use incrowd_protocol::{BatchSize, Delta};
use libm::{exp, expm1, floor, log, sqrt, tanh};

use crate::{
    PrivacyError,
    numeric::{Binomial, Upper, slack, up},
};

/// Relative share of delta that is given away to the tails of C, which are counted as certain loss.
const TAIL_SHARE: f64 = 1e-8;
/// How far below delta, relatively, the divergence at the epsilon that is found may be.
const SEARCH: f64 = 1e-8;
/// Ends that differ by less, relatively, are not narrowed further.
const NARROW: f64 = 1e-11;
/// What [`delta_upper`] leaves out of the law of C on each side: far below every delta of interest.
const SMALLEST_DELTA: f64 = 1e-40;
/// Relative width of the ranges of N that are treated as their lower end.
const RANGE: f64 = 2e-5;
/// Larger batches are treated as of this size, which is sound.
const LARGEST_BATCH: u64 = 10_000_000_000;
/// Above it there are no clones to hide among and e^eps0 leaves the range of floats: the local
/// level is returned.
const LARGEST_LOCAL: f64 = 600.0;

/// An upper bound on the central epsilon, at `delta`, of `batch_size` shuffled reports that are
/// `epsilon_local`-LDP each.
///
/// Never above `epsilon_local`.
///
/// # Privacy
/// Protects one report against everyone who sees the batch without knowing who sent what; needs a
/// shuffler that does not collude and `batch_size` honest reports (an honest fraction h is a batch
/// of floor(h l)).
pub fn epsilon_upper(
    epsilon_local: f64,
    batch_size: BatchSize,
    delta: Delta,
) -> Result<f64, PrivacyError> {
    check(epsilon_local)?;
    let (batch_size, delta) = (batch_size.get(), delta.get());
    if batch_size == 1 || epsilon_local > LARGEST_LOCAL {
        return Ok(epsilon_local);
    }
    let clones = Clones::new(epsilon_local, batch_size, delta * TAIL_SHARE);
    Ok(up(clones.smallest_epsilon(delta)).min(epsilon_local))
}

/// An upper bound on the delta at which `batch_size` shuffled `epsilon_local`-LDP reports are
/// `epsilon_central`-DP. Resolves down to about 1e-40.
pub fn delta_upper(
    epsilon_local: f64,
    batch_size: BatchSize,
    epsilon_central: f64,
) -> Result<f64, PrivacyError> {
    check(epsilon_local)?;
    if !(epsilon_central > 0.0 && epsilon_central.is_finite()) {
        return Err(PrivacyError::EpsilonCentral(epsilon_central));
    }
    if epsilon_central >= epsilon_local {
        return Ok(0.0);
    }
    if epsilon_local > LARGEST_LOCAL {
        return Ok(up(-expm1(epsilon_central - epsilon_local)).min(1.0));
    }
    let clones = Clones::new(epsilon_local, batch_size.get(), SMALLEST_DELTA);
    Ok(clones.divergence(epsilon_central).min(1.0).value())
}

fn check(epsilon_local: f64) -> Result<(), PrivacyError> {
    if !(epsilon_local > 0.0 && epsilon_local.is_finite()) {
        return Err(PrivacyError::EpsilonLocal(epsilon_local));
    }
    Ok(())
}

/// The law of N, in ranges, each taken as its lower end.
struct Clones {
    epsilon_local: f64,
    /// (N, probability).
    ranges: Vec<(u64, f64)>,
    /// Probability of every N outside the ranges.
    truncated: Upper,
}

impl Clones {
    /// Leaves out at most `tail` of the law of C on each side.
    fn new(epsilon_local: f64, batch_size: u64, tail: f64) -> Self {
        let others = batch_size.min(LARGEST_BATCH) - 1;
        let law = Binomial::complementary(others, exp(-epsilon_local), -expm1(-epsilon_local));
        let (first, below) = law.cut(tail);
        let (last, above) = law.mirrored().cut(tail);
        let last = (others - last).max(first);
        let mut ranges: Vec<(u64, f64)> = Vec::new();
        let (mut end, mut mass) = (0, law.point(first));
        for count in first..=last {
            match ranges.last_mut() {
                Some(range) if count < end => range.1 += mass,
                _ => {
                    ranges.push((count + 1, mass));
                    end = count + 1 + (count as f64 * RANGE) as u64;
                }
            }
            mass *= law.ratio(count);
        }
        Self { epsilon_local, ranges, truncated: below + above }
    }

    /// H(epsilon).
    fn divergence(&self, epsilon: f64) -> Upper {
        let (a, gap) = (tanh(self.epsilon_local / 2.0), self.epsilon_local - epsilon);
        // (1 - tau)/2, without the difference of two numbers close to one.
        let below_one = exp(-epsilon) * -expm1(-gap)
            / ((1.0 + exp(-self.epsilon_local)) * (1.0 + exp(-epsilon)) * a);
        let share = below_one.clamp(0.0, 0.5);
        let factor = 2.0 * a * (1.0 + exp(epsilon));
        let one = |n: u64| (factor * shortfall(n, n as f64 * share) / n as f64).min(1.0);
        let sum: f64 = self.ranges.iter().map(|&(n, mass)| mass * one(n)).sum();
        Upper::raised(sum + self.truncated.value(), slack::CLONES)
    }

    /// An epsilon with H(epsilon) <= delta, and not much larger than the smallest. Regula falsi
    /// (Illinois) on ln H, close to a parabola.
    fn smallest_epsilon(&self, delta: f64) -> f64 {
        let value = |epsilon: f64| log(self.divergence(epsilon).value() / delta).max(-40.0);
        let (mut low, mut high) = (0.0, self.epsilon_local);
        let (mut pull_low, mut pull_high) = (value(low), value(high));
        if pull_low <= 0.0 {
            return low;
        }
        let (mut next, mut was_low) = (self.guess(delta), None);
        for _ in 0..200 {
            if !(next > low && next < high) {
                next = f64::midpoint(low, high);
            }
            let at_next = value(next) + SEARCH / 2.0;
            let is_low = at_next > SEARCH / 2.0;
            if is_low {
                (low, pull_low) = (next, at_next);
                pull_high *= if was_low == Some(true) { 0.5 } else { 1.0 };
            } else {
                (high, pull_high) = (next, at_next);
                pull_low *= if was_low == Some(false) { 0.5 } else { 1.0 };
            }
            if high - low <= NARROW * high || (!is_low && at_next > -SEARCH) {
                break;
            }
            was_low = Some(is_low);
            next = low + (high - low) * pull_low / (pull_low - pull_high);
        }
        high
    }

    /// Where Hoeffding's tail of Y_N is delta.
    fn guess(&self, delta: f64) -> f64 {
        let n: f64 = self.ranges.iter().map(|&(n, mass)| n as f64 * mass).sum();
        let tau = sqrt(2.0 * log(1.0 / delta) / n.max(1.0)).min(0.999);
        2.0 * libm::atanh(tau * tanh(self.epsilon_local / 2.0))
    }
}

/// E (x - X)_+ for X ~ Bin(n, 1/2) and 0 <= x <= n/2, rounded up: a sum of positive terms, with a
/// geometric bound on its rest.
fn shortfall(n: u64, x: f64) -> f64 {
    let law = Binomial::new(n, 0.5);
    let mut count = floor(x) as u64;
    let mut mass = law.point(count);
    let mut sum = mass * (x - count as f64);
    while count > 0 {
        mass *= count as f64 / (n - count + 1) as f64;
        count -= 1;
        let missing = x - count as f64;
        sum += mass * missing;
        if count.is_multiple_of(16) {
            // Ratios of masses fall from here on: r/(1-r) with r = count/(n - count + 1).
            let odds = count as f64 / (n + 1 - 2 * count) as f64;
            let rest = mass * odds * (missing + 1.0 + odds);
            if rest <= slack::SERIES_REST * sum {
                return sum + rest;
            }
        }
    }
    sum
}
