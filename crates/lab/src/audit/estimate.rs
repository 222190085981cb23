//! Estimators for audits: what a number of hits in a number of runs proves about a probability, and
//! about an epsilon.
//!
//! Unlike certificates these are lower bounds on an epsilon, and statistical ones: each is wrong
//! with at most the failure probability the caller states.

use incrowd_privacy::numeric::{Binomial, Ends, Lower, bisect, relative, slack};
use libm::{exp, log};
use thiserror::Error;

/// The most trials these functions answer for: with more, the arithmetic would need a wider margin.
pub const MAX_TRIALS: u64 = 1_000_000_000;

/// How far below the largest valid probability the search may stop, relatively.
const SEARCH: f64 = 1e-13;

/// A rule for the numbers of an estimate that is violated.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// No trials, or too many.
    #[error("trials are {0}, must be from 1 to 1000000000")]
    Trials(u64),
    /// More successes than trials.
    #[error("successes are {0}, must be at most the {1} trials")]
    Successes(u64, u64),
    /// The failure probability is out of range.
    #[error("failure probability is {0}, must be above 0 and below 0.5")]
    FailureProbability(f64),
    /// `delta` is no probability.
    #[error("delta is {0}, must be from 0 to 1")]
    Delta(f64),
}

/// Lower end of the exact one-sided interval for a probability: above the truth with at most
/// `failure_probability`.
///
/// # Reference
/// Clopper and Pearson 1934: the p at which P(X >= successes) is the failure probability, X
/// binomial.
pub fn binomial_lower(
    successes: u64,
    trials: u64,
    failure_probability: f64,
) -> Result<f64, EstimateError> {
    check(successes, trials, failure_probability)?;
    Ok(lower(successes, trials, failure_probability).value())
}

/// The lower end for numbers that are checked.
fn lower(successes: u64, trials: u64, failure_probability: f64) -> Lower {
    if successes == 0 {
        return Lower::ZERO;
    }
    let target = log(failure_probability * (1.0 - slack::LN_GAMMA));
    if successes == trials {
        return Lower::of(exp(target / trials as f64));
    }
    // The tail grows with p, and at p = successes / trials it is at least 1/2, for the median of X
    // is its mean there.
    let is_rare = |p: f64| Binomial::new(trials, p).ln_at_least(successes) <= target;
    let mean = successes as f64 / trials as f64;
    let p = bisect(Ends { holds: 0.0, fails: mean }, relative(SEARCH), is_rare).holds;
    Lower::of(p).max(0.0)
}

/// Upper end of the exact one-sided interval for a probability: below the truth with at most
/// `failure_probability`.
///
/// # Reference
/// Clopper and Pearson 1934; the mirror image of [`binomial_lower`].
pub fn binomial_upper(
    successes: u64,
    trials: u64,
    failure_probability: f64,
) -> Result<f64, EstimateError> {
    check(successes, trials, failure_probability)?;
    Ok(lower(trials - successes, trials, failure_probability).complement().value())
}

/// A lower bound on the epsilon of every (epsilon, `delta`) claim that holds for the pair: an event
/// that was fixed beforehand was hit `p_hits` times in `p_trials` runs with one input and `q_hits`
/// times in `q_trials` runs with its neighbour.
///
/// The claim says P(event) <= e^epsilon Q(event) + delta, so epsilon >= ln((P - delta) / Q). P is
/// replaced by its lower and Q by its upper bound, each at half of the failure probability; the
/// result is at least 0, which is true of every epsilon. With at most `failure_probability` it is
/// above an epsilon for which the claim holds. The event must not be chosen from these runs.
pub fn epsilon_lower(
    p_hits: u64,
    p_trials: u64,
    q_hits: u64,
    q_trials: u64,
    delta: f64,
    failure_probability: f64,
) -> Result<f64, EstimateError> {
    if !(0.0..=1.0).contains(&delta) {
        return Err(EstimateError::Delta(delta));
    }
    let each = failure_probability / 2.0;
    let p = binomial_lower(p_hits, p_trials, each)? - delta;
    let q = binomial_upper(q_hits, q_trials, each)?;
    // The margin covers the rounding of the difference, the quotient and the logarithm.
    Ok(if p > q { (log(Lower::of(p).value() / q) - slack::ROUNDING).max(0.0) } else { 0.0 })
}

fn check(successes: u64, trials: u64, failure_probability: f64) -> Result<(), EstimateError> {
    if trials == 0 || trials > MAX_TRIALS {
        return Err(EstimateError::Trials(trials));
    }
    if successes > trials {
        return Err(EstimateError::Successes(successes, trials));
    }
    if !(failure_probability > 0.0 && failure_probability < 0.5) {
        return Err(EstimateError::FailureProbability(failure_probability));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64, tolerance: f64) {
        assert!((found - wanted).abs() <= tolerance * wanted, "{found} is not {wanted}");
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        for (k, n, a, lower, upper) in TABLE {
            close(binomial_lower(k, n, a).unwrap(), lower, 2e-4);
            close(binomial_upper(k, n, a).unwrap(), upper, 2e-4);
            assert!(binomial_lower(k, n, a).unwrap() <= lower);
            assert!(binomial_upper(k, n, a).unwrap() >= upper);
        }
    }

    #[test]
    fn none_and_all_have_closed_forms() {
        for n in [1u64, 7, 1000, 1_000_000] {
            let edge = 1e-9_f64.powf(1.0 / n as f64);
            assert_eq!(binomial_lower(0, n, 1e-9), Ok(0.0));
            assert_eq!(binomial_upper(n, n, 1e-9), Ok(1.0));
            close(binomial_upper(0, n, 1e-9).unwrap(), 1.0 - edge, 2e-4);
            close(binomial_lower(n, n, 1e-9).unwrap(), edge, 2e-4);
        }
    }

    /// Exact, by enumeration: the chance that the bound is on the wrong side of the true p.
    #[test]
    fn bounds_fail_no_more_often_than_stated() {
        let (n, a) = (40u64, 0.05);
        for p in [0.01, 0.2, 0.5, 0.77, 0.99_f64] {
            let (mut above, mut below, mut pmf) = (0.0, 0.0, (1.0 - p).powi(40));
            for k in 0..=n {
                above += if binomial_lower(k, n, a).unwrap() > p { pmf } else { 0.0 };
                below += if binomial_upper(k, n, a).unwrap() < p { pmf } else { 0.0 };
                pmf *= (n - k) as f64 / (k + 1) as f64 * p / (1.0 - p);
            }
            assert!(above <= a && below <= a, "p={p}: {above} {below}");
        }
    }

    #[test]
    fn the_bound_on_epsilon_is_below_the_ratio_and_near_it_with_many_runs() {
        let n = 100_000_000;
        let bound = epsilon_lower(n / 4, n, n / 12, n, 0.0, 1e-9).unwrap();
        assert!(bound < 3f64.ln() && bound > 3f64.ln() - 0.005, "{bound}");
        let with_delta = epsilon_lower(n / 4, n, n / 12, n, 0.05, 1e-9).unwrap();
        assert!(with_delta < (0.2f64 * 12.0).ln() && with_delta > (0.2f64 * 12.0).ln() - 0.005);
        assert_eq!(epsilon_lower(5, 100, 5, 100, 0.0, 1e-9), Ok(0.0));
        assert_eq!(epsilon_lower(0, 100, 0, 100, 1.0, 1e-9), Ok(0.0));
    }

    #[test]
    fn bad_numbers_are_errors() {
        assert_eq!(binomial_lower(0, 0, 0.1), Err(EstimateError::Trials(0)));
        assert_eq!(
            binomial_upper(1, MAX_TRIALS + 1, 0.1),
            Err(EstimateError::Trials(MAX_TRIALS + 1))
        );
        assert_eq!(binomial_lower(3, 2, 0.1), Err(EstimateError::Successes(3, 2)));
        for bad in [0.0, -1.0, 0.5, f64::NAN] {
            assert!(binomial_lower(1, 2, bad).is_err() && binomial_upper(1, 2, bad).is_err());
        }
        for bad in [-0.1, 1.1, f64::NAN] {
            assert!(epsilon_lower(1, 2, 1, 2, bad, 0.1).is_err());
        }
    }

    /// Successes, trials, failure probability, lower, upper: mpmath, the incomplete beta function
    /// solved by bisection at 40 digits.
    const TABLE: [(u64, u64, f64, f64, f64); 6] = [
        (5, 10, 0.025, 0.187_086_028_447_398_5, 0.812_913_971_552_601_5),
        (1, 10, 0.025, 0.002_528_578_544_461_785, 0.445_016_117_028_195_4),
        (9, 10, 0.05, 0.605_836_697_563_495_2, 0.994_883_803_108_176_3),
        (3, 1000, 1e-9, 1.819_765_318_698_926e-6, 0.028_775_592_774_300_76),
        (50, 2000, 1e-9, 0.009_298_598_670_813_169, 0.052_296_707_258_420_61),
        (1234, 20_000, 1e-9, 0.052_002_480_271_019_51, 0.072_466_238_519_813_84),
    ];
}
