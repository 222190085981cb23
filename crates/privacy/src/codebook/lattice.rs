//! Words are integers, scores are floats, and the generator's tables end: what that changes. Proof:
//! `docs/privacy-proofs.md`, section 10.3, steps 7 and 8.

use libm::{cos, exp, expm1, log, sin, sqrt};

use super::odds::Odds;
use crate::numeric::{
    Upper,
    special::{normal_density, normal_tail},
};

/// Steps of an entry in one standard deviation.
const STEPS: f64 = incrowd_protocol::words::STEPS as f64;
/// By how much contours are shifted into the complex plane.
const SHIFTS: [f64; 2] = [0.2, 0.3];
/// Points of a standard deviation at which psi is bounded, and how far they go.
const POINTS: i32 = 128;
const REACH: i32 = 9;
/// A point of the lattice of frequencies that is near a line through zero, and not zero, has at
/// least this component along it.
const NEAREST: f64 = 0.953;

/// The largest relative error of a likelihood ratio for which the bound is offered.
pub(crate) const MOST_ROUNDING: f64 = 1e-4;

/// At least the relative change of a likelihood ratio when normal words become integers: the sum
/// over a lattice differs from an integral by what the Fourier transform has at its frequencies.
/// `variance` is at most that of a word given the sum.
pub(crate) fn rounding(odds: &Odds, variance: f64) -> f64 {
    let beyond = odds.gain() / odds.blind;
    let at = |shift: f64| {
        let rate = std::f64::consts::TAU * STEPS * shift;
        let ln = ln_largest(odds, shift) + shift * shift / (2.0 * variance) - NEAREST * rate;
        2.1 * exp(ln)
    };
    Upper::of(beyond * SHIFTS.map(at).into_iter().fold(f64::INFINITY, f64::min)).value()
}

/// At least ln of the largest |psi(y + ib)| over all real y.
fn ln_largest(odds: &Odds, shift: f64) -> f64 {
    let (n, top) = (f64::from(odds.words) - 1.0, f64::from(odds.chosen) - 1.0);
    // |Q'| <= phi(0) e^(b^2/2) on the line, and a point is within half a step.
    let between = 0.5 / f64::from(POINTS) * normal_density(0.0) * exp(shift * shift / 2.0) + 1e-6;
    let mut largest = 0.01;
    for i in -REACH * POINTS..=REACH * POINTS {
        let (above, below) = absolute(f64::from(i) / f64::from(POINTS), shift);
        let (above, below) = (above + between, below + between);
        // sum over j <= k-1 of C(n,j) A^j B^(n-j) <= t^(1-k) (t A + B)^n for every t in (0, 1].
        let t = (top * below / ((n - top) * above)).min(1.0);
        let ln_t = if top > 0.0 { top * log(t) } else { 0.0 };
        largest = f64::max(largest, n * log(t * above + below) - ln_t);
    }
    largest
}

/// |Q| and |1 - Q| at y + ib, Q(y + ib) = P(Z > y) - i phi(y) int_0^b e^(t^2/2 - iyt) dt, by
/// Simpson's rule: off by less than 1e-7.
fn absolute(y: f64, shift: f64) -> (f64, f64) {
    const HALVES: i32 = 4;
    let step = shift / f64::from(2 * HALVES);
    let (mut real, mut imaginary) = (0.0, 0.0);
    for i in 0..=2 * HALVES {
        let t = f64::from(i) * step;
        let weight = match i {
            0 => 1.0,
            i if i == 2 * HALVES => 1.0,
            i if i % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let grown = weight * step / 3.0 * exp(t * t / 2.0);
        real += grown * sin(y * t);
        imaginary += grown * cos(y * t);
    }
    let density = normal_density(y);
    let (real, imaginary) = (density * real, density * imaginary);
    let size = |re: f64| sqrt(re * re + imaginary * imaginary);
    (size(normal_tail(y) - real), size(normal_tail(-y) + real))
}

/// At most so much is a device's score off, for words of so many entries: each of them is right to
/// 2^-20, and the statistic is a unit vector.
pub(crate) fn score_error(entries: f64) -> f64 {
    Upper::of(sqrt(entries) / 1_048_576.0).value()
}

/// At least the relative change of a likelihood ratio by wrong scores, where its logarithm grows by
/// at most `slope`: two scores are compared, so it is that at a place moved by twice the error.
pub(crate) fn scores(entries: f64, slope: f64) -> f64 {
    Upper::of(expm1(2.0 * score_error(entries) * slope)).value()
}

/// At least the chance that one of so many words is not what an ideal generator would make of its
/// bits: 2^-54 for each entry.
pub(crate) fn table(words: f64, entries: f64) -> f64 {
    Upper::of(words * entries / 18_014_398_509_481_984.0).value()
}
