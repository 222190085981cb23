//! Two Gaussians at a distance, exactly: from mu to delta and epsilon. Proof:
//! `docs/privacy-proofs.md`, section 8.1.

use libm::{exp, log, sqrt};

use crate::numeric::{
    Ends, Upper, bisect, relative, slack,
    special::{mills, normal_tail},
    up,
};

/// How far above the smallest epsilon the search may stop, relatively.
const SEARCH: f64 = 1e-12;

/// The delta at which two Gaussians `shift` standard deviations apart are epsilon-close.
///
/// # Reference
/// Balle, Wang 2018, *Improving the Gaussian mechanism for differential privacy*, Thm 8: Phi(mu/2 -
/// eps/mu) - e^eps Phi(-mu/2 - eps/mu). With a = eps/mu - mu/2, b = eps/mu + mu/2 and Mills' ratio
/// R(x) = Phi(-x)/phi(x) it is phi(a) (R(a) - R(b)): no e^eps, no difference of tails that are both
/// tiny.
pub fn delta_upper(shift: f64, epsilon: f64) -> Upper {
    let (a, b) = (epsilon / shift - shift / 2.0, epsilon / shift + shift / 2.0);
    let density = exp(-a * a / 2.0) / sqrt(std::f64::consts::TAU);
    let far = density * mills(b);
    let near = if a < 0.0 { normal_tail(a) } else { density * mills(a) };
    Upper::of((near - far) + slack::MILLS * (near + far))
}

/// At least the epsilon, at `delta`, of two Gaussians `shift` standard deviations apart.
pub fn epsilon_upper(shift: f64, delta: f64) -> f64 {
    let is_enough = |epsilon: f64| delta_upper(shift, epsilon).is_at_most(delta);
    if is_enough(0.0) {
        return 0.0;
    }
    // There a = sqrt(2 ln(1/delta)), and Phi(-a) <= e^{-a^2/2}/2.
    let most = shift * shift / 2.0 + shift * sqrt(2.0 * log(1.0 / delta));
    let epsilon = bisect(Ends { holds: most, fails: 0.0 }, relative(SEARCH), is_enough).holds;
    // a is a difference: its rounding is that of an epsilon larger by a few ulp of mu^2.
    up(epsilon + slack::DIFFERENCE * shift * shift)
}
