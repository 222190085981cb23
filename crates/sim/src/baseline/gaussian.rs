//! The Gaussian mechanism, exactly, and how often a binary tree uses a leaf. Proof: `docs/privacy-proofs.md`, sections 8.1 and 8.2.

use incrowd_privacy::numeric::up;
use libm::{erfc, exp, log, sqrt};

/// Mills ratios are right to this share.
const RATIO_ERROR: f64 = 1e-13;

/// At least the delta at which two Gaussians `shift` standard deviations apart are epsilon-close.
///
/// # Reference
/// Balle, Wang 2018, *Improving the Gaussian mechanism for differential privacy*, Thm 8: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu). With
/// a = eps/mu - mu/2, b = eps/mu + mu/2 and Mills' ratio R(x) = Phi(-x)/phi(x) it is phi(a) (R(a) - R(b)): no e^eps, no difference of tails
/// that are both tiny.
pub(super) fn delta_upper(shift: f64, epsilon: f64) -> f64 {
    let (a, b) = (epsilon / shift - shift / 2.0, epsilon / shift + shift / 2.0);
    let density = exp(-a * a / 2.0) / sqrt(std::f64::consts::TAU);
    let far = density * mills(b);
    let near = if a < 0.0 { erfc(a / std::f64::consts::SQRT_2) / 2.0 } else { density * mills(a) };
    ((near - far) + RATIO_ERROR * (near + far)) * (1.0 + 1e-9) + f64::MIN_POSITIVE
}

/// At least the epsilon, at `delta`, of two Gaussians `shift` standard deviations apart.
pub(super) fn epsilon_upper(shift: f64, delta: f64) -> f64 {
    // There a = sqrt(2 ln(1/delta)), and Phi(-a) <= e^{-a^2/2}/2.
    let (mut low, mut high) = (0.0, shift * shift / 2.0 + shift * sqrt(2.0 * log(1.0 / delta)));
    if delta_upper(shift, low) <= delta {
        return up(low);
    }
    while high - low > 1e-12 * high {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if delta_upper(shift, middle) <= delta { high = middle } else { low = middle }
    }
    // a is a difference: its rounding is that of an epsilon larger by a few ulp of mu^2.
    up(high + 1e-15 * shift * shift)
}

/// Phi(-x)/phi(x) for x >= 0: Laplace's continued fraction, all terms positive, or the error function where that converges slowly.
fn mills(x: f64) -> f64 {
    if x < 3.0 {
        let tail = erfc(x / std::f64::consts::SQRT_2) / 2.0;
        return tail * exp(x * x / 2.0) * sqrt(std::f64::consts::TAU);
    }
    let fraction = (1..=120).rev().fold(x, |rest, k| x + f64::from(k) / rest);
    1.0 / fraction
}

/// How many noisy nodes a person of the worst leaf is in, when the prefixes after 1, ..., `leaves` - 1 leaves are released.
///
/// A prefix of t leaves is the sum of one node for each binary digit of t. The node of 2^k leaves that contains leaf x (from zero) is used if and only if
/// digit k of x is zero and the node ends by `leaves` - 1; so there are at most as many as digits of `leaves` - 1, and leaf 0 is in that many. After the last
/// leaf there is nobody left to choose for, so that prefix is not released.
pub fn tree_levels(leaves: u32) -> u32 {
    u32::BITS - leaves.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From mpmath with 50 digits: Phi(-x)/phi(x).
    #[test]
    fn mills_ratios() {
        for (x, wanted) in MILLS {
            assert!((mills(x) / wanted - 1.0).abs() < RATIO_ERROR / 4.0, "{x}");
        }
    }

    const MILLS: [(f64, f64); 6] = [
        (0.0, 1.253_314_137_315_5),
        (0.5, 0.876_364_456_453_692),
        (2.9999, 0.304_598_921_850_011),
        (3.0, 0.304_590_298_710_103),
        (7.25, 0.135_444_053_096_763),
        (35.0, 0.028_548_161_843_509_3),
    ];
}
