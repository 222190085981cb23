//! Several releases about the same person: k batches with one report each, or k reports in one
//! batch.
//!
//! Every rule here holds for adaptive releases: what is released next may depend on what was
//! released before.

use incrowd_protocol::{Delta, Participations};
use libm::{exp, expm1, log, log1p, sqrt};

use crate::{
    PrivacyError,
    numeric::{Binomial, Ends, Upper, bisect, relative, slack, up},
};

/// Beyond it only the closed forms are tried.
const MOST_EXACT: u32 = 100_000;
/// Smaller deltas of one report are not tried: floats end soon below.
const SMALLEST_DELTA: f64 = 1e-280;
/// How far above the smallest epsilon the search may stop, relatively.
const SEARCH: f64 = 1e-12;

/// An upper bound on the epsilon, at `delta_total`, of `times` releases that are (`epsilon`,
/// `delta`)-DP each: the smallest of basic, advanced and optimal composition. `delta` and
/// `delta_total` may be zero.
///
/// # Reference
/// Dwork, Rothblum, Vadhan 2010, Thm III.3; Kairouz, Oh, Viswanath 2015, Thm 3.3.
pub fn compose(
    epsilon: f64,
    delta: f64,
    times: Participations,
    delta_total: f64,
) -> Result<f64, PrivacyError> {
    check(epsilon, delta, delta_total)?;
    let times = times.get();
    let k = f64::from(times);
    // The probability that at least one release fails outright, 1 - (1-delta)^k, at most k delta.
    let failure = if times == 1 { delta } else { (-expm1(k * log1p(-delta))).min(k * delta) };
    if failure > delta_total {
        return Err(PrivacyError::OutsideRegime {
            theorem: "composition",
            condition: format!(
                "{times} releases with delta {delta} need a total delta of at least {failure}, not {delta_total}"
            ),
        });
    }
    let mut best = k * epsilon;
    if delta_total > k * delta {
        best = best.min(advanced(epsilon, k, delta_total - k * delta));
    }
    if times <= MOST_EXACT && delta_total > failure {
        best = best.min(optimal(epsilon, times, (delta_total - failure) / (1.0 - failure), best));
    }
    Ok(up(best))
}

fn check(epsilon: f64, delta: f64, delta_total: f64) -> Result<(), PrivacyError> {
    if !(epsilon > 0.0 && epsilon.is_finite()) {
        return Err(PrivacyError::EpsilonCentral(epsilon));
    }
    for value in [delta, delta_total] {
        if !(0.0..1.0).contains(&value) {
            return Err(PrivacyError::DeltaOrZero(value));
        }
    }
    Ok(())
}

/// # Reference
/// Dwork, Rothblum, Vadhan 2010, Thm III.3, with its exact second term.
fn advanced(epsilon: f64, k: f64, slack: f64) -> f64 {
    sqrt(2.0 * k * log(1.0 / slack)) * epsilon + k * epsilon * expm1(epsilon)
}

/// The smallest epsilon at which k-fold randomized response has divergence `delta`, at most
/// `limit`.
///
/// # Reference
/// Kairouz, Oh, Viswanath 2015: every (epsilon, delta)-DP release is a function of randomized
/// response that fails with probability delta, so k of them are a function of k of those. Their
/// loss is (k - 2j) epsilon with probability Bin(k, 1/(1+e^epsilon))(j).
fn optimal(epsilon: f64, times: u32, delta: f64, limit: f64) -> f64 {
    let odds = exp(-epsilon);
    let lies = Binomial::complementary(u64::from(times), odds / (1.0 + odds), 1.0 / (1.0 + odds));
    let losses: Vec<(f64, f64)> = (0..=times / 2)
        .map(|j| (f64::from(times - j) - f64::from(j), lies.point(u64::from(j))))
        .map(|(net, mass)| (net * epsilon, mass))
        .collect();
    let is_enough = |at: f64| {
        let positive = losses.iter().take_while(|loss| loss.0 > at);
        let divergence = positive.map(|&(loss, mass)| mass * -expm1(at - loss)).sum();
        Upper::of(divergence).is_at_most(delta)
    };
    if !is_enough(limit) {
        return f64::INFINITY;
    }
    if is_enough(0.0) {
        return 0.0;
    }
    bisect(Ends { holds: limit, fails: 0.0 }, relative(SEARCH), is_enough).holds
}

/// The smallest composed epsilon of `times` releases over a small grid of deltas for each:
/// `epsilon_at` gives the epsilon of one release at a delta.
pub fn best_for(
    epsilon_at: impl Fn(Delta) -> Result<f64, PrivacyError>,
    times: Participations,
    delta_total: Delta,
) -> Result<f64, PrivacyError> {
    if times == Participations::ONE {
        return epsilon_at(delta_total);
    }
    let mut best = f64::INFINITY;
    for share in [1.0 - slack::PRODUCT, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.03] {
        let delta = Delta::new(share * delta_total.get() / f64::from(times.get()))?;
        let epsilon = epsilon_at(delta)?;
        if epsilon == 0.0 {
            // The deltas add up to less than delta_total.
            return Ok(0.0);
        }
        best = best.min(compose(epsilon, delta.get(), times, delta_total.get())?);
    }
    Ok(best)
}

/// An upper bound on the epsilon, at `delta_total`, of one person with `reports` reports in one
/// batch, where `epsilon_at` gives the epsilon of one report at a delta.
///
/// Group privacy: changing the reports one after the other gives (k eps, delta (e^{k eps} -
/// 1)/(e^eps - 1)). The delta of one step is found by going down from delta_total; what is returned
/// has been checked against the formula. If `epsilon_at` is capped by a local epsilon, k times that
/// one is a bound too, which the caller may compare with.
pub fn same_batch(
    epsilon_at: impl Fn(Delta) -> Result<f64, PrivacyError>,
    reports: Participations,
    delta_total: Delta,
) -> Result<f64, PrivacyError> {
    let (reports, delta_total) = (reports.get(), delta_total.get());
    let k = f64::from(reports);
    // The growth is at least k.
    let mut delta = if reports == 1 { delta_total } else { 0.9 * delta_total / k };
    for _ in 0..1000 {
        let epsilon = epsilon_at(Delta::new(delta)?)?;
        let most = if reports == 1 { delta_total } else { delta_total / up(growth(epsilon, k)) };
        if delta <= most {
            return Ok(if reports == 1 { epsilon } else { up(k * epsilon) });
        }
        // `most` falls with delta, so the largest solution lies below it; a tenth less ends the
        // approach soon, and hardly changes epsilon.
        delta = 0.9 * most;
        if delta < SMALLEST_DELTA {
            break;
        }
    }
    Err(PrivacyError::OutsideRegime {
        theorem: "group privacy",
        condition: format!(
            "{reports} reports in one batch need a delta per report below {SMALLEST_DELTA:e}"
        ),
    })
}

/// (e^{k eps} - 1)/(e^eps - 1).
fn growth(epsilon: f64, k: f64) -> f64 {
    if epsilon == 0.0 { k } else { expm1(k * epsilon) / expm1(epsilon) }
}
