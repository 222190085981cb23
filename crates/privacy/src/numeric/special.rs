//! Special functions, each with the error that the tests measure against mpmath.

use std::f64::consts::{SQRT_2, TAU};

use libm::{erfc, exp, expm1, lgamma, log, log1p, sqrt};

use super::slack;

/// ln of n choose k, for 0 <= k <= n: a difference of ln Gammas, so off by a few ulp of ln n!.
pub fn ln_choose(n: f64, k: f64) -> f64 {
    lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)
}

/// ln(a) where a + b = 1, right to a few ulp however close to one a is.
pub(super) fn ln_complementary(a: f64, b: f64) -> f64 {
    if b < 0.5 { log1p(-b) } else { log(a) }
}

/// x ln(x/mean) + mean - x, without cancellation: right to a share of 1e-13.
pub(super) fn deviance(x: f64, mean: f64) -> f64 {
    let v = (x - mean) / (x + mean);
    if v.abs() >= 0.1 {
        return x * log(x / mean) + mean - x;
    }
    let (mut sum, mut power) = ((x - mean) * v, 2.0 * x * v);
    for j in 1..100 {
        power *= v * v;
        sum += power / f64::from(2 * j + 1);
        if power.abs() <= 1e-17 * sum.abs() {
            break;
        }
    }
    sum
}

/// ln x! - ln(sqrt(2 pi x) (x/e)^x) for x >= 1: right to 1e-14, absolutely.
pub(super) fn stirling_error(x: f64) -> f64 {
    if x < 16.0 {
        return lgamma(x + 1.0) - (x + 0.5) * log(x) + x - 0.5 * log(TAU);
    }
    let s = 1.0 / (x * x);
    let series = 1.0 / 1260.0 - s * (1.0 / 1680.0 - s / 1188.0);
    (1.0 / 12.0 - s * (1.0 / 360.0 - s * series)) / x
}

/// P(Z > x) for a standard normal Z, right to a few ulp for x <= 3.
pub fn normal_tail(x: f64) -> f64 {
    erfc(x / SQRT_2) / 2.0
}

/// Mills' ratio P(Z > x)/density(x) for x >= 0, right to a quarter of [`slack::MILLS`]: Laplace's
/// continued fraction, all terms positive, or the error function where that converges slowly.
pub fn mills(x: f64) -> f64 {
    if x < 3.0 {
        return normal_tail(x) * exp(x * x / 2.0) * sqrt(TAU);
    }
    let fraction = (1..=120).rev().fold(x, |rest, k| x + f64::from(k) / rest);
    1.0 / fraction
}

/// The x >= 0 with P(Z > x) = `tail`, for a tail of at most 1/2 and at least 1e-290: right to a
/// share of 1e-12, and 1e-12 near zero. A rational guess (Abramowitz, Stegun 26.2.23, off by
/// 4.5e-4) and Newton's method on ln P, twice.
pub fn normal_quantile(tail: f64) -> f64 {
    let t = sqrt(-2.0 * log(tail));
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let mut x = t - above / below;
    for _ in 0..2 {
        let found = normal_tail(x);
        x += found / normal_density(x) * log(found / tail);
    }
    x.max(0.0)
}

/// The standard normal density.
pub fn normal_density(x: f64) -> f64 {
    exp(-x * x / 2.0) / sqrt(TAU)
}

/// The normal density where its tail is `tail`, from 1e-290 to 1/2: right to a share of 1e-11.
pub fn density_at_tail(tail: f64) -> f64 {
    normal_density(normal_quantile(tail))
}

/// At least (1+z)^b - 1 - b z for z > -1, without cancellation; above it by at most a share of 2
/// [`slack::ROUNDING`]. A power that is large has the rounding of its logarithm, below a share of
/// [`slack::PRODUCT`] up to e^1000, which is not added here: [`slack::KAPPA`] covers it.
pub fn power_excess_upper(z: f64, power: f64) -> f64 {
    let size = (power.abs() + 3.0) * z.abs();
    if size < 1e-2 {
        let b = power;
        let series = 1.0
            + (b - 2.0) / 3.0
                * z
                * (1.0
                    + (b - 3.0) / 4.0
                        * z
                        * (1.0 + (b - 4.0) / 5.0 * z * (1.0 + (b - 5.0) / 6.0 * z)));
        b * (b - 1.0) / 2.0 * z * z * series * (1.0 + slack::ROUNDING)
    } else {
        let grown = (power * z.ln_1p()).exp_m1() - power * z;
        // The rounding error of both terms, relative to their size.
        grown + 4.0 * f64::EPSILON * (power * z).abs()
    }
}

/// At least e^z - 1 - z, without cancellation; above it by at most a share of 2
/// [`slack::EXP_EXCESS`].
pub fn exp_excess_upper(z: f64) -> f64 {
    if z.abs() < 1e-2 {
        let series = 1.0 + z / 3.0 * (1.0 + z / 4.0 * (1.0 + z / 5.0));
        z * z / 2.0 * series * (1.0 + slack::EXP_EXCESS)
    } else {
        expm1(z) - z + 4.0 * f64::EPSILON * (z.abs() + exp(z))
    }
}
