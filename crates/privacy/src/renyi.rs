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
}

impl RenyiBound {
    /// At least the epsilon at its delta.
    pub fn epsilon(self) -> f64 {
        epsilon_upper(self.divergence, self.order, self.delta * (1.0 - self.spent))
    }

    /// At least the delta at `epsilon`: the same formula, solved for delta.
    pub fn delta(self, epsilon: f64) -> f64 {
        let divergence = Upper::of(self.divergence).value() + slack::CANCELLATION;
        let (a, b) = (self.order, self.order - 1.0);
        let rest = exp(b * (divergence - epsilon + log(b / a)) - log(a));
        (Upper::of(rest) + Upper::of(self.delta * self.spent)).value()
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
