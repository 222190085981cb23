//! The coins of a report: the paper's encoder and randomizer as one integer threshold per bit.

use incrowd_protocol::Round;

/// Coins that are compared at once.
const LANES: usize = 16;

/// Room for the thresholds of this many coins, filled up to whole lanes with coins that are never
/// tied.
pub(crate) fn room_for(coins: usize) -> Vec<u32> {
    vec![u32::MAX; coins.next_multiple_of(LANES)]
}

/// Compares the first bytes with the thresholds' top bytes; whether any of them is equal.
fn compare(thresholds: &[u32; LANES], coins: &mut [u8; LANES]) -> bool {
    let mut tied = 0;
    for (coin, &threshold) in coins.iter_mut().zip(thresholds) {
        let top = (threshold >> 24) as u8;
        tied |= u8::from(*coin == top);
        *coin = u8::from(*coin < top);
    }
    tied != 0
}

/// Turns the first random byte of every coin into the coin, 0 or 1; `rest` gives the other three
/// bytes of a tied one. Both slices are whole [`LANES`], filled up as [`room_for`] does.
pub(crate) fn toss(thresholds: &[u32], coins: &mut [u8], mut rest: impl FnMut() -> [u8; 3]) {
    let lanes = coins.as_chunks_mut::<LANES>().0.iter_mut().zip(thresholds.as_chunks().0);
    for (coins, thresholds) in lanes {
        let bytes = *coins;
        let tied = compare(thresholds, coins);
        if !tied {
            continue;
        }
        for lane in 0..LANES {
            if bytes[lane] == (thresholds[lane] >> 24) as u8 {
                let [a, b, c] = rest();
                let uniform = u32::from_be_bytes([bytes[lane], a, b, c]);
                coins[lane] = u8::from(uniform < thresholds[lane]);
            }
        }
    }
}

/// The law of a round's coins: P(1) = 1/2 + c tau / 2, rounded toward 1/2 to a multiple of 2^-32.
///
/// # Reference
/// Garcelon et al. 2021, Algorithms 2 and 3: a thermometer code of m bits whose bit q has the mean
/// (1 + tau_q)/2, then R_p^{0/1}. Both together are one coin with P(1) = p/2 + (1-p)(1 + tau_q)/2 =
/// 1/2 + c tau_q / 2, c = 1 - p.
///
/// # Privacy
/// The threshold is an integer and so is what it is compared with; the clamp makes the ratio of two
/// probabilities at most (1+c)/(1-c) for every input, also where floats round.
#[derive(Clone, Copy)]
pub(crate) struct Coins {
    bits: u32,
    keep: f64,
    /// floor(c 2^31) / 2^31: no threshold is further from 1/2.
    limit: f64,
}

impl Coins {
    pub fn new(round: &Round) -> Self {
        let flip = round.law.flip;
        let (kept, of) =
            (u64::from(flip.denominator() - flip.numerator()), u64::from(flip.denominator()));
        let keep = kept as f64 / of as f64;
        let limit = ((u128::from(kept) << 31) / u128::from(of)) as f64 / (1u64 << 31) as f64;
        Self { bits: round.law.bits, keep, limit }
    }

    /// Thresholds of all coins, coordinate after coordinate.
    pub fn thresholds(&self, values: &[f64], thresholds: &mut [u32]) {
        if self.bits == 1 {
            for (threshold, &value) in thresholds.iter_mut().zip(values) {
                *threshold = self.threshold(value);
            }
        } else {
            let m = f64::from(self.bits);
            for (thresholds, &value) in thresholds.chunks_exact_mut(self.bits as usize).zip(values)
            {
                let scaled = m * value;
                for (q, threshold) in (0i32..).zip(thresholds) {
                    let shift = self.bits as i32 - 1 - 2 * q;
                    *threshold = self.threshold(scaled + f64::from(shift));
                }
            }
        }
    }

    /// 2^31 + c tau 2^31, the product rounded toward zero.
    fn threshold(&self, tilt: f64) -> u32 {
        let size = self.keep * tilt.abs();
        let size = if size < self.limit { size } else { self.limit };
        // 3 + size is a double in [3, 4): the 32 bits after its leading one are 2^31 + size 2^31,
        // rounded down.
        let threshold = ((3.0 + size).to_bits() >> 20) as u32;
        // All ones for a negative tilt: then the threshold is the negative, modulo 2^32.
        let sign = ((tilt.to_bits() >> 32) as i32 >> 31) as u32;
        (threshold ^ sign).wrapping_sub(sign)
    }

    /// Ones of each coordinate.
    pub fn count(&self, coins: &[u8], counts: &mut [u16]) {
        if self.bits == 1 {
            for (count, &coin) in counts.iter_mut().zip(coins) {
                *count = u16::from(coin);
            }
        } else {
            for (count, coins) in counts.iter_mut().zip(coins.chunks_exact(self.bits as usize)) {
                *count = coins.iter().map(|&coin| u16::from(coin)).sum();
            }
        }
    }
}
