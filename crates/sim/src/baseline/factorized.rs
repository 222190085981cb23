//! Prefix sums with correlated noise: the square root of the matrix of prefix sums. Proof:
//! `docs/privacy-proofs.md`, section 8.5.

use incrowd_privacy::numeric::slack;
use libm::sqrt;

/// Most prefixes that are released: their noise takes time in the square of their number.
pub const MOST_RELEASES: u32 = 1 << 14;

/// The first `count` coefficients of (1 - x)^(-1/2), f_k = C(2k, k)/4^k: the Toeplitz matrix of
/// these is the square root of that of ones, which adds up.
pub fn square_root_coefficients(count: u32) -> Vec<f64> {
    let next = |&(k, f): &(u32, f64)| {
        let twice = 2.0 * f64::from(k + 1);
        Some((k + 1, f * (twice - 1.0) / twice))
    };
    std::iter::successors(Some((0, 1.0)), next).take(count as usize).map(|(_, f)| f).collect()
}

/// S_1, ..., S_count: S_t = f_0^2 + ... + f_{t-1}^2 is the variance of the noise of prefix t in
/// units of the noise that is drawn, and S_n the squared norm of a column of n coefficients.
pub fn prefix_variances(count: u32) -> Vec<f64> {
    let add = |sum: &mut f64, f: f64| {
        *sum += f * f;
        Some(*sum)
    };
    square_root_coefficients(count).into_iter().scan(0.0, add).collect()
}

/// At least the norm of what one person's change by a vector of norm 1 does to everything that
/// `releases` prefixes are made of.
pub(super) fn column_norm_upper(releases: u32) -> f64 {
    let variances = prefix_variances(releases);
    let squared = variances.last().copied().unwrap_or(0.0);
    // f_k is off by at most k ulp and the sum by n more: below 2e-11 for 2^14.
    sqrt(squared) * (1.0 + slack::ROUNDING)
}
