//! From a Renyi divergence to an epsilon. Proof: `docs/privacy-proofs.md`, section 3.1.

use libm::{exp, log};

use crate::numeric::{Upper, slack};

/// A Renyi divergence of all that a person changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RenyiBound {
    /// Of all releases together.
    pub divergence: f64,
    /// alpha.
    pub order: f64,
    /// The delta that it was made for.
    pub delta: f64,
    /// The share of that delta that is already spent.
    pub spent: f64,
    /// What the releases have to do with those that this is about.
    pub ideal: Ideal,
}

/// How far real releases are from ideal ones that a bound is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ideal {
    /// Likelihood ratios of real to ideal laws are between e^-x and e^x, this is 2x.
    pub epsilon: f64,
    /// And either law is at most so far from such a one, in total variation.
    pub distance: f64,
}

impl Ideal {
    /// Real releases are ideal.
    pub const NONE: Self = Self { epsilon: 0.0, distance: 0.0 };
    /// Share of delta that may pay for the distance.
    const SHARE: f64 = 0.01;

    /// The same for so many releases.
    pub fn times(self, releases: f64) -> Self {
        Self { epsilon: releases * self.epsilon, distance: releases * self.distance }
    }

    /// At least the numbers of both.
    pub fn max(self, other: Self) -> Self {
        Self {
            epsilon: self.epsilon.max(other.epsilon),
            distance: self.distance.max(other.distance),
        }
    }

    /// At least the epsilon at `delta` of real releases, from that of ideal ones.
    pub fn epsilon(self, delta: f64, ideal: impl Fn(f64) -> Option<f64>) -> Option<f64> {
        if self == Self::NONE {
            return ideal(delta);
        }
        let share = Self::SHARE * delta;
        let left = (delta - share) * exp(-self.epsilon) * (1.0 - slack::PRODUCT);
        let epsilon = Upper::of(ideal(left)? + self.epsilon).value();
        Upper::of(self.distance * (1.0 + exp(epsilon))).is_at_most(share).then_some(epsilon)
    }

    /// At least the delta at `epsilon` of real releases, from that of ideal ones. The distance
    /// costs more the larger epsilon is: at most `floor`, and from there on delta stays as it is.
    pub fn delta(self, epsilon: f64, floor: f64, ideal: impl Fn(f64) -> f64) -> f64 {
        if self == Self::NONE {
            return ideal(epsilon);
        }
        let most = log((floor / self.distance - 1.0).max(f64::MIN_POSITIVE));
        let epsilon = epsilon.min(most * (1.0 - slack::PRODUCT));
        if epsilon < self.epsilon {
            return 1.0;
        }
        let near = exp(self.epsilon) * ideal(epsilon - self.epsilon);
        (Upper::of(near) + Upper::of(floor)).value()
    }
}

impl RenyiBound {
    /// At least the epsilon at its delta.
    pub fn epsilon(self) -> f64 {
        let at = |delta: f64| {
            Some(epsilon_upper(self.divergence, self.order, delta - self.delta * self.spent))
        };
        if self.ideal == Ideal::NONE {
            return epsilon_upper(self.divergence, self.order, self.delta * (1.0 - self.spent));
        }
        self.ideal.epsilon(self.delta, at).unwrap_or(f64::INFINITY)
    }

    /// At least the delta at `epsilon`: the same formula, solved for delta.
    pub fn delta(self, epsilon: f64) -> f64 {
        let divergence = Upper::of(self.divergence).value() + slack::CANCELLATION;
        let (a, b) = (self.order, self.order - 1.0);
        self.ideal.delta(epsilon, self.delta * self.spent, |epsilon| {
            let rest = exp(b * (divergence - epsilon + log(b / a)) - log(a));
            (Upper::of(rest) + Upper::of(self.delta * self.spent)).value()
        })
    }
}

/// Epsilon at `delta` of two laws with this Renyi divergence of this order.
pub fn epsilon_upper(divergence: f64, order: f64, delta: f64) -> f64 {
    let divergence = Upper::of(divergence).value();
    let epsilon =
        divergence + log((order - 1.0) / order) - (log(delta) + log(order)) / (order - 1.0);
    if epsilon.is_nan() { f64::INFINITY } else { (epsilon + slack::CANCELLATION).max(0.0) }
}

/// The smallest first component of `at` over ln(alpha - 1), by golden section, for orders from 1.05
/// to a million.
pub fn best_exponent(at: impl Fn(f64) -> (f64, f64)) -> (f64, f64) {
    const RATIO: f64 = 0.618_033_988_749_894_8;
    let (mut low, mut high) = (log(0.05), log(1e6));
    let (mut left, mut right) = (high - RATIO * (high - low), low + RATIO * (high - low));
    let (mut at_left, mut at_right) = (at(left), at(right));
    for _ in 0..16 {
        if at_left.0 <= at_right.0 {
            (high, right, at_right) = (right, left, at_left);
            left = high - RATIO * (high - low);
            at_left = at(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + RATIO * (high - low);
            at_right = at(right);
        }
    }
    if at_left.0 <= at_right.0 { at_left } else { at_right }
}
