//! The worst split of the others' bits into those that lean up and those that lean down. Proof:
//! `docs/privacy-proofs.md`, section 2.

use crate::numeric::{Binomial, Pmf};

/// How much above the unanimous others' kappa an interval may be before it is split.
const SLACK: f64 = 0.01;
/// Most evaluations; intervals that are left are taken as they are, which is sound.
const BUDGET: usize = 160;

/// At least kappa(S_a) for every a from 0 to `bits`, where S_a is the sum of a coins with chance
/// (1+c)/2 and bits - a with (1-c)/2.
///
/// For a in [low, high], S_a is S' plus independent coins, with S' the sum of `low` coins of the
/// one kind and `bits - high` of the other; so kappa(S_a) <= kappa(S'). Exchanging the kinds
/// mirrors the sum, so a <= bits/2 is enough.
pub(super) fn worst_kappa(
    bits: u64,
    keep: f64,
    kappa: impl Fn(&Pmf) -> Option<f64>,
) -> Option<f64> {
    let (up, down) = (f64::midpoint(1.0, keep), f64::midpoint(1.0, -keep));
    let of = |low: u64, high: u64| {
        let sums = Binomial::new(bits - high, down).pmf();
        kappa(&if low == 0 { sums } else { sums.convolve(&Binomial::new(low, up).pmf()) })
    };
    let mut worst = of(0, 0)?;
    // A convolution takes time quadratic in the window, so large batches get a coarser cover: 1% up
    // to 10,000 bits, 6% at a million.
    let slack = SLACK * libm::pow((bits as f64 / 1e4).max(1.0), 0.39);
    let limit = worst * (1.0 + slack);
    let step = ((bits as f64 * slack * 0.8) as u64).max(1);
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut low = 0;
    while low <= bits / 2 {
        let high = (low + step).min(bits / 2);
        open.push((low, high));
        low = high + 1;
    }
    let mut spent = 0;
    while let Some((low, high)) = open.pop() {
        let found = of(low, high)?;
        spent += 1;
        if found <= limit || low == high || spent + open.len() >= BUDGET {
            worst = worst.max(found);
        } else {
            let middle = low + (high - low) / 2;
            open.push((low, middle));
            open.push((middle + 1, high));
        }
    }
    Some(worst)
}
