//! A shuffled batch of Gaussian reports: hiding among the clones when reports are private up to a
//! delta. Proof: `docs/privacy-proofs.md`, section 8.3.

use incrowd_privacy::{
    PrivacyError, clones,
    numeric::{Ends, Upper, bisect, relative},
};
use incrowd_protocol::{BatchSize, Delta};
use libm::{exp, log, sqrt};

use super::gaussian;

/// Shares of delta that may be spent on reports that are not pure; each gives a valid bound.
const SHARES: [f64; 7] = [0.35, 0.2, 0.5, 0.1, 0.7, 0.05, 0.02];
/// How much above the last value the next limit on epsilon is, relatively.
const AHEAD: f64 = 1e-3;
/// How far above the smallest one the level of pure reports may be, relatively.
const PURE_SEARCH: f64 = 1e-6;
/// Most limits that are tried for a share.
const TRIES: usize = 12;

/// At least the epsilon, at `delta`, of the multiset of `batch_size` reports with Gaussian noise
/// that move by at most `shift` standard deviations. Never above that of one report.
pub(super) fn epsilon_upper(
    shift: f64,
    batch_size: BatchSize,
    delta: f64,
) -> Result<f64, PrivacyError> {
    let one = gaussian::epsilon_upper(shift, delta);
    let mut best = one;
    for share in SHARES {
        // What impurity costs grows with epsilon. So: what is found for a limit on epsilon holds if
        // it is below the limit; raise the limit until it is. A share that improves on another one
        // does so at that one's limit.
        let mut limit = if best < one { best } else { 0.0 };
        for _ in 0..TRIES {
            let pure = pure_level(shift, batch_size.get(), limit, share * delta);
            let epsilon =
                clones::epsilon_upper(pure, batch_size, Delta::new((1.0 - share) * delta)?)?;
            if epsilon <= limit {
                best = best.min(epsilon);
            }
            if epsilon <= limit || epsilon >= best {
                break;
            }
            limit = epsilon * (1.0 + AHEAD);
        }
    }
    Ok(best)
}

/// An eps0 whose impurity costs at most `budget` at every epsilon up to `epsilon`, and not much
/// larger than the smallest.
fn pure_level(shift: f64, batch_size: u64, epsilon: f64, budget: f64) -> f64 {
    let is_enough = |pure: f64| {
        impurity(gaussian::delta_upper(shift, pure), pure, batch_size, epsilon).is_at_most(budget)
    };
    // At the upper end delta0 <= budget/2/(1 + 2(n-1)(1+e^eps)).
    let spread = log(1.0 / budget) + log(batch_size as f64 + 1.0) + epsilon + 2.0;
    let most = shift * shift / 2.0 + shift * sqrt(2.0 * spread);
    bisect(Ends { holds: most, fails: 0.0 }, relative(PURE_SEARCH), is_enough).holds
}

/// What is added to the delta of the clones, at `epsilon`, when n reports are (`pure`,
/// `impure`)-LDP instead of `pure`-LDP: delta0 (1 + 2 (n-1) e^{-eps0} (1 + e^eps)).
fn impurity(impure: Upper, pure: f64, batch_size: u64, epsilon: f64) -> Upper {
    let others = (batch_size - 1) as f64;
    let factor = 1.0 + 2.0 * others * (exp(-pure) + exp(epsilon - pure));
    Upper::of(impure.value() * factor)
}
