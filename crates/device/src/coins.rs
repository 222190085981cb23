//! The coins of a report: the paper's encoder and randomizer as one integer threshold per bit.

use incrowd_protocol::Round;

use crate::mutant::{self, Mutant};

const HALF: f64 = (1u32 << 31) as f64;

/// The law of a round's coins: P(1) = 1/2 + c tau / 2, rounded toward 1/2 to a multiple of 2^-32.
///
/// # Reference
/// [GCPP21] Algorithms 2 and 3: a thermometer code of m bits whose bit q has the mean (1 + tau_q)/2, then R_p^{0/1}. Both together are one
/// coin with P(1) = p/2 + (1-p)(1 + tau_q)/2 = 1/2 + c tau_q / 2, c = 1 - p.
///
/// # Privacy
/// The threshold is an integer and so is what it is compared with; the clamp makes the ratio of two probabilities at most
/// (1+c)/(1-c) for every input, also where floats round.
pub(crate) struct Coins {
    bits: u32,
    keep: f64,
    limit: i32,
    mutant: Option<Mutant>,
}

impl Coins {
    pub fn new(round: &Round, mutant: Option<Mutant>) -> Self {
        let flip = round.flip;
        let (mut kept, mut of) =
            (u64::from(flip.denominator() - flip.numerator()), u64::from(flip.denominator()));
        if mutant::is(mutant, Mutant::HalfFlip) {
            (kept, of) = (kept + of, 2 * of);
        }
        let keep = kept as f64 / of as f64;
        let limit = ((u128::from(kept) << 31) / u128::from(of)) as i32;
        Self { bits: round.bits, keep, limit, mutant }
    }

    /// Thresholds of all coins, coordinate after coordinate.
    pub fn thresholds(&self, values: &[f64], thresholds: &mut Vec<u32>) {
        thresholds.clear();
        if self.bits == 1 {
            thresholds.extend(values.iter().map(|&value| self.threshold(value.clamp(-1.0, 1.0))));
        } else {
            let m = f64::from(self.bits);
            for &value in values {
                let top = m * value;
                thresholds.extend((0..self.bits).map(|q| {
                    let shift = f64::from(self.bits as i32 - 1 - 2 * q as i32);
                    self.threshold((top + shift).clamp(-1.0, 1.0))
                }));
            }
        }
        if mutant::is(self.mutant, Mutant::LastCoordinateBare) {
            let last = thresholds.len() - self.bits as usize;
            for threshold in &mut thresholds[last..] {
                *threshold = if *threshold >= 1 << 31 { u32::MAX } else { 0 };
            }
        }
        if mutant::is(self.mutant, Mutant::CoarseThresholds) {
            thresholds.iter_mut().for_each(|threshold| *threshold &= 0xff00_0000);
        }
    }

    fn threshold(&self, tilt: f64) -> u32 {
        let offset = ((self.keep * tilt) * HALF) as i32;
        offset.clamp(-self.limit, self.limit) as u32 ^ (1 << 31)
    }

    /// Ones of each coordinate when `first` holds the first random byte of every coin and `rest` gives the other three of a tied one.
    pub fn count(
        &self,
        thresholds: &[u32],
        first: &[u8],
        counts: &mut [u16],
        mut rest: impl FnMut() -> [u8; 3],
    ) {
        let bits = self.bits as usize;
        let mut ties = 0u32;
        if bits == 1 {
            for ((count, &threshold), &byte) in counts.iter_mut().zip(thresholds).zip(first) {
                let top = (threshold >> 24) as u8;
                *count = u16::from(byte < top);
                ties += u32::from(byte == top);
            }
        } else {
            let coins = thresholds.chunks_exact(bits).zip(first.chunks_exact(bits));
            for (count, (thresholds, bytes)) in counts.iter_mut().zip(coins) {
                let mut ones = 0;
                for (&threshold, &byte) in thresholds.iter().zip(bytes) {
                    let top = (threshold >> 24) as u8;
                    ones += u16::from(byte < top);
                    ties += u32::from(byte == top);
                }
                *count = ones;
            }
        }
        if ties == 0 || mutant::is(self.mutant, Mutant::TiesAreZero) {
            return;
        }
        for (coin, (&threshold, &byte)) in thresholds.iter().zip(first).enumerate() {
            if byte == (threshold >> 24) as u8 {
                let [a, b, c] = rest();
                let low = u32::from_be_bytes([0, a, b, c]);
                counts[coin / bits] += u16::from(low < threshold & 0x00ff_ffff);
            }
        }
    }
}
