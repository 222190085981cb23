//! Local privacy of one report: adversary (a), on the wire. Proofs: `docs/privacy-proofs.md`,
//! sections 1 and 11.

use incrowd_protocol::{Bits, Blocks, Keep, QUANTISATION};
use libm::{atanh, log, log1p, sqrt};

use crate::{
    Bound, BoundName, PrivacyError,
    numeric::{Ends, try_bisect, up, whole},
};

/// The smallest proved local epsilon of one report with c = `keep`.
pub fn certify(blocks: impl Into<Blocks>, bits: Bits, keep: Keep) -> Bound {
    Bound::smallest(bounds(blocks, bits, keep))
        .expect("invariant: the paper's bound holds for every randomizer")
}

/// Every proved local epsilon.
pub fn bounds(blocks: impl Into<Blocks>, bits: Bits, keep: Keep) -> Vec<Bound> {
    let blocks = blocks.into();
    let c = keep.get();
    let mut bounds = vec![
        Bound { bound: BoundName::PaperProposition1, epsilon: up(proposition_1(blocks, bits, c)) },
        Bound { bound: BoundName::L1DiameterChord, epsilon: up(chord(blocks, bits, keep)) },
    ];
    if bits == Bits::ONE {
        let epsilon = l1(blocks, keep);
        bounds.push(Bound { bound: BoundName::L1Diameter, epsilon: up(epsilon) });
        if let Some(gain) = refinement(blocks, c) {
            let epsilon = up(epsilon - gain);
            bounds.push(Bound { bound: BoundName::L1DiameterRefined, epsilon });
        }
    }
    bounds
}

/// The largest c (to 30 bits) whose local epsilon is at most `epsilon_local`.
pub fn largest_keep(
    blocks: impl Into<Blocks>,
    bits: Bits,
    epsilon_local: f64,
) -> Result<Keep, PrivacyError> {
    let blocks = blocks.into();
    if !(epsilon_local > 0.0 && epsilon_local.is_finite()) {
        return Err(PrivacyError::EpsilonLocal(epsilon_local));
    }
    let keep = |steps: u64| Keep::new(steps as f64 * QUANTISATION);
    let certified = |steps| keep(steps).map(|keep| certify(blocks, bits, keep).epsilon);
    let steps = try_bisect(Ends { holds: 0, fails: 1 << 30 }, whole, |steps| {
        certified(steps).map(|epsilon| epsilon <= epsilon_local)
    })?
    .holds;
    if steps == 0 {
        return Err(PrivacyError::EpsilonLocalTooSmall {
            epsilon: epsilon_local,
            dimension: blocks.features() as u32,
            smallest: certified(1)?,
        });
    }
    Ok(keep(steps)?)
}

/// Coordinates of a report (D), as a float.
pub fn coordinates(blocks: impl Into<Blocks>) -> f64 {
    blocks.into().coordinates() as f64
}

/// Coordinates in which two reports can differ: the shared ones and those of two slots. In all
/// others both have the value 0 and so the same law.
fn touched(blocks: Blocks) -> f64 {
    let slots = blocks.slots().min(2);
    (blocks.shared_coordinates() + slots * blocks.slot_coordinates()) as f64
}

/// # Reference
/// Garcelon et al. 2021, Prop. 1: m D ln((1+c)/(1-c)), D without what is 0 in both. Thresholds never
/// exceed (1 +- c)/2, so rounding costs nothing.
fn proposition_1(blocks: Blocks, bits: Bits, c: f64) -> f64 {
    f64::from(bits.get()) * touched(blocks) * 2.0 * atanh(c)
}

/// c Lambda + 2(-ln(1-c) - c), m = 1.
fn l1(blocks: Blocks, keep: Keep) -> f64 {
    let c = keep.get();
    c * diameter_1(blocks, keep) + 2.0 * (-log1p(-c) - c) + shift_tail(blocks, c)
}

/// How much ln(1+z) <= z - z^2/2 + z^3/3 in place of ln(1+z) <= z gains, where it is proved that
/// inputs of full norm are still the worst; m = 1.
fn refinement(blocks: Blocks, c: f64) -> Option<f64> {
    let d = blocks.parameters() as f64;
    if blocks.slots() > 1 || blocks.parameters() < 2 || c > 0.7 || !full_norm_is_worst(d, c) {
        return None;
    }
    // With q = y^2 the sum of u_i^4: -(c^2/2)(1 + (1+q)/2) + (c^3/3)(sqrt q + q), largest at the
    // vertex of a parabola in y.
    let y = (2.0 * c / (3.0 - 4.0 * c)).clamp(1.0 / sqrt(d), 1.0);
    let change = -0.75 * c * c + c * c * c / 3.0 * y + (c * c * c / 3.0 - c * c / 4.0) * y * y;
    let rounding = 2.1 * touched(blocks) * QUANTISATION * c;
    Some((-change - rounding).max(0.0))
}

/// Whether sqrt(d)/2 >= c (1 + s^2 (1+q)) - c^2 (s sqrt q + 2 s^4 q) for all s in [0, 1] and q in
/// [0, 1]: on a grid of s and sqrt q, with a margin for what lies between (for c <= 0.7 the right
/// side changes by at most 4.5 per unit of s and 2.5 per unit of sqrt q, and a grid point is within
/// half a step).
fn full_norm_is_worst(d: f64, c: f64) -> bool {
    const STEPS: u32 = 100;
    let step = 1.0 / f64::from(STEPS);
    let most = sqrt(d) / 2.0 - 4.0 * step;
    (0..=STEPS).all(|i| {
        let s = f64::from(i) * step;
        (0..=STEPS).all(|k| {
            let y = f64::from(k) * step;
            let q = y * y;
            c * (1.0 + s * s * (1.0 + q)) - c * c * (s * y + 2.0 * s * s * s * s * q) <= most
        })
    })
}

/// What rounding adds to the tail of the series: values move by at most q each, so |v|^k by at most
/// k q (1+q)^{k-1} and the tail sum over k >= 2 of c^k |v|^k / k by at most D q c^2/(1-c) (1 +
/// tiny).
fn shift_tail(blocks: Blocks, c: f64) -> f64 {
    1.01 * touched(blocks) * (QUANTISATION / c) * c * c / (1.0 - c)
}

/// m atanh(c) Lambda + D B(c), every m; D without what is 0 in both.
fn chord(blocks: Blocks, bits: Bits, keep: Keep) -> f64 {
    let c = keep.get();
    let a = atanh(c);
    let b = log(c / a) - 1.0 + a / c - log1p(-c * c) / 2.0;
    f64::from(bits.get()) * a * diameter_1(blocks, keep) + touched(blocks) * b.max(0.0)
}

/// L1 diameter of the values v of contexts in the unit ball and rewards in [0, 1], as the device
/// rounds them.
pub fn diameter_1(blocks: Blocks, keep: Keep) -> f64 {
    exact_diameter_1(blocks) + 2.0 * touched(blocks) * QUANTISATION / keep.get()
}

/// With several slots two people may be in different ones. Each then has at most the L1 norm of a
/// value, sqrt(d) + (d+1)/2, and the bound for one long vector of all parameters holds too.
fn exact_diameter_1(blocks: Blocks) -> f64 {
    let together = diameter_1_of_one(blocks.parameters());
    if blocks.slots() <= 1 {
        return together;
    }
    let d = blocks.features() as f64;
    together.min(2.0 * sqrt(d) + d + 1.0)
}

/// The L1 diameter with one parameter for all actions.
fn diameter_1_of_one(dimension: usize) -> f64 {
    let d = dimension as f64;
    let c = match dimension {
        1 => return 9.0 / 4.0,
        2 => sqrt(5.0),
        _ => 2.0 + sqrt((d - 1.0) * (d - 2.0) / 2.0),
    };
    let y = (sqrt(d + 8.0 * c * c) - sqrt(d)) / (4.0 * c);
    2.0 * sqrt(1.0 - y * y) * (sqrt(d) + c * y)
}

/// Squared L2 diameter of the same values.
pub fn squared_diameter_2(blocks: Blocks, keep: Keep) -> f64 {
    let shift = 2.0 * sqrt(touched(blocks)) * QUANTISATION / keep.get();
    let diameter = exact_diameter_2(blocks) + shift;
    diameter * diameter
}

/// Squared L2 distance of such a value from v = 0, which takes the place of a report that is not
/// there: |v|^2 <= r^2 |u|^2 + |u|^4 <= 2.
pub fn squared_radius_2(blocks: Blocks, keep: Keep) -> f64 {
    let radius = sqrt(2.0) + 2.0 * sqrt(touched(blocks)) * QUANTISATION / keep.get();
    radius * radius
}

/// L2 diameter of the values v of contexts in the unit ball and rewards in [0, 1], before any
/// rounding.
pub fn exact_diameter_2(blocks: impl Into<Blocks>) -> f64 {
    if blocks.into().parameters() == 1 { 2.0 } else { sqrt(4.5) }
}
