//! Local privacy of one report: adversary (a), on the wire. Proofs: `docs/privacy-proofs.md`, section 1.

use libm::{atanh, log, log1p, sqrt};

use crate::{Bound, BoundName, PrivacyError, rounding::up};

/// Largest shift of a value v by rounding a threshold, times c (`docs/formats.md`, Coins).
const QUANTISATION: f64 = 1.0 / (1u64 << 30) as f64;

pub(crate) fn check(dimension: u32, bits: u32, keep: f64) -> Result<(), PrivacyError> {
    if dimension == 0 || dimension > 1000 {
        return Err(PrivacyError::Dimension(dimension));
    }
    if bits == 0 || bits > incrowd_protocol::MAX_BITS {
        return Err(PrivacyError::Bits(bits));
    }
    if !(keep > 0.0 && keep < 1.0) {
        return Err(PrivacyError::Keep(keep));
    }
    Ok(())
}

/// The smallest proved local epsilon of one report with c = `keep`.
pub fn certify(dimension: u32, bits: u32, keep: f64) -> Result<Bound, PrivacyError> {
    let all = bounds(dimension, bits, keep)?;
    Ok(Bound::smallest(all)
        .unwrap_or(Bound { bound: BoundName::PaperProposition1, epsilon: f64::INFINITY }))
}

/// Every proved local epsilon.
pub fn bounds(dimension: u32, bits: u32, keep: f64) -> Result<Vec<Bound>, PrivacyError> {
    check(dimension, bits, keep)?;
    let mut bounds = vec![
        Bound {
            bound: BoundName::PaperProposition1,
            epsilon: up(proposition_1(dimension, bits, keep)),
        },
        Bound { bound: BoundName::L1DiameterChord, epsilon: up(chord(dimension, bits, keep)) },
    ];
    if bits == 1 {
        bounds.push(Bound { bound: BoundName::L1Diameter, epsilon: up(l1(dimension, keep)) });
    }
    Ok(bounds)
}

/// The largest c (to 30 bits) whose local epsilon is at most `epsilon_local`.
pub fn largest_keep(dimension: u32, bits: u32, epsilon_local: f64) -> Result<f64, PrivacyError> {
    if !(epsilon_local > 0.0 && epsilon_local.is_finite()) {
        return Err(PrivacyError::EpsilonLocal(epsilon_local));
    }
    check(dimension, bits, 0.5)?;
    let unit = 1.0 / f64::from(1u32 << 30);
    let (mut low, mut high) = (0u32, (1u32 << 30) - 1);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let epsilon = certify(dimension, bits, f64::from(middle) * unit)?.epsilon;
        if epsilon <= epsilon_local {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if low == 0 {
        return Err(PrivacyError::EpsilonLocal(epsilon_local));
    }
    Ok(f64::from(low) * unit)
}

fn coordinates(dimension: u32) -> f64 {
    incrowd_protocol::coordinates(dimension as usize) as f64
}

/// # Reference
/// Garcelon et al. 2021, Prop. 1: m D ln((1+c)/(1-c)). Thresholds never exceed (1 +- c)/2, so rounding costs nothing.
fn proposition_1(dimension: u32, bits: u32, c: f64) -> f64 {
    f64::from(bits) * coordinates(dimension) * 2.0 * atanh(c)
}

/// c Lambda + 2(-ln(1-c) - c), m = 1.
fn l1(dimension: u32, c: f64) -> f64 {
    c * diameter_1(dimension, c) + 2.0 * (-log1p(-c) - c) + shift_tail(dimension, c)
}

/// What rounding adds to the tail of the series: values move by at most q each, so |v|^k by at most k q (1+q)^{k-1} and the tail
/// sum over k >= 2 of c^k |v|^k / k by at most D q c^2/(1-c) (1 + tiny).
fn shift_tail(dimension: u32, c: f64) -> f64 {
    1.01 * coordinates(dimension) * (QUANTISATION / c) * c * c / (1.0 - c)
}

/// m atanh(c) Lambda + D B(c), every m.
fn chord(dimension: u32, bits: u32, c: f64) -> f64 {
    let a = atanh(c);
    let b = log(c / a) - 1.0 + a / c - log1p(-c * c) / 2.0;
    f64::from(bits) * a * diameter_1(dimension, c) + coordinates(dimension) * b.max(0.0)
}

/// L1 diameter of the values v of contexts in the unit ball and rewards in [0, 1], as the device rounds them.
pub fn diameter_1(dimension: u32, keep: f64) -> f64 {
    exact_diameter_1(dimension) + 2.0 * coordinates(dimension) * QUANTISATION / keep
}

fn exact_diameter_1(dimension: u32) -> f64 {
    let d = f64::from(dimension);
    let c = match dimension {
        1 => return 9.0 / 4.0,
        2 => sqrt(5.0),
        _ => 2.0 + sqrt((d - 1.0) * (d - 2.0) / 2.0),
    };
    let y = (sqrt(d + 8.0 * c * c) - sqrt(d)) / (4.0 * c);
    2.0 * sqrt(1.0 - y * y) * (sqrt(d) + c * y)
}

/// Squared L2 diameter of the same values.
pub fn squared_diameter_2(dimension: u32, keep: f64) -> f64 {
    let exact: f64 = if dimension == 1 { 4.0 } else { 4.5 };
    let shift = 2.0 * sqrt(coordinates(dimension)) * QUANTISATION / keep;
    let diameter = sqrt(exact) + shift;
    diameter * diameter
}
