//! Pads: what stands for the reports that a round which closes by time did not get.

use getrandom::SysRng;
use incrowd_protocol::{BitsLaw, Law, Mechanism, Round, Words};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::{DeviceError, coins::Coins};

/// Random words that are drawn at once.
const WORDS: usize = 512;

/// The sums of `number` reports that say nothing, with the round's law. With bits those are reports
/// of x = 0 and r = 0, exactly the law of as many devices that report nothing; with a codebook each
/// is a word picked blindly.
///
/// # Privacy
/// For m > 1 the coins of such a report are not fair: half of them have the tilt 1 and half -1, as
/// in every report, and pads of fair coins would be m per coordinate away. A word picked blindly
/// has in the released sums the law of a zero vector's word, whose ranking looks at the one entry
/// that is in no sum. The generator is seeded by the operating system for this call alone, so that
/// no later theft of memory brings the pads of a release back. No float decides a coin.
pub fn pads(mechanism: &Mechanism, round: &Round, number: u32) -> Result<Vec<i64>, DeviceError> {
    let rng = ChaCha20Rng::try_from_rng(&mut SysRng).map_err(DeviceError::Randomness)?;
    Ok(draw(mechanism, round, number, rng))
}

/// The same with a caller's generator: for simulations and tests, never for people's data.
#[cfg(feature = "simulation")]
pub fn simulated_pads<R: Rng>(
    mechanism: &Mechanism,
    round: &Round,
    number: u32,
    rng: R,
) -> Vec<i64> {
    draw(mechanism, round, number, rng)
}

fn draw<R: Rng>(mechanism: &Mechanism, round: &Round, number: u32, rng: R) -> Vec<i64> {
    match round.law {
        Law::Bits(law) => draw_bits(law, mechanism.coordinates(), number, rng),
        Law::Codebook(_) => draw_words(mechanism.coordinates(), number, rng),
    }
}

/// Words of one random seed: as independent as those of a seed each.
fn draw_words<R: Rng>(coordinates: usize, number: u32, mut rng: R) -> Vec<i64> {
    let mut seed = [0; 16];
    rng.fill_bytes(&mut seed);
    let mut words = Words::new(&seed, coordinates + 1);
    let mut sums = vec![0; coordinates];
    (0..number as usize).for_each(|word| words.add(word, &mut sums));
    sums
}

fn draw_bits<R: Rng>(law: BitsLaw, coordinates: usize, number: u32, rng: R) -> Vec<i64> {
    let groups = groups(law);
    let mut halves = Halves { rng, words: [0; 8 * WORDS] };
    let coordinate = |_| {
        let ones = groups.iter().map(|&(threshold, coins)| {
            binomial(u64::from(number) * coins, threshold, |coins| halves.among(coins))
        });
        // Below 2^32 reports of counts below 2^12.
        ones.sum::<u64>() as i64
    };
    (0..coordinates).map(coordinate).collect()
}

/// The thresholds of the coins of one coordinate whose value is 0, and how many coins have each.
fn groups(law: BitsLaw) -> Vec<(u32, u64)> {
    let mut thresholds = vec![0; law.bits as usize];
    Coins::new(law).thresholds(&[0.0], &mut thresholds);
    thresholds.sort_unstable();
    thresholds.chunk_by(u32::eq).map(|equal| (equal[0], equal.len() as u64)).collect()
}

/// Ones among `coins` coins that are 1 when a uniform 32-bit integer U is below `threshold`.
/// `among` tells how many of so many fair coins are 1.
///
/// U is compared from its highest bit. While its bits are those of the threshold a coin is
/// undecided; it does not matter which coins those are, only how many. Half of them are decided by
/// each bit, so about two random bits are drawn for a coin.
fn binomial(coins: u64, threshold: u32, mut among: impl FnMut(u64) -> u64) -> u64 {
    let (mut undecided, mut ones) = (coins, 0);
    // Below the threshold's last one, U cannot become smaller any more.
    for bit in (threshold.trailing_zeros()..u32::BITS).rev() {
        if undecided == 0 {
            break;
        }
        let set = among(undecided);
        if threshold >> bit & 1 == 1 {
            ones += undecided - set;
            undecided = set;
        } else {
            undecided -= set;
        }
    }
    ones
}

/// Fair coins.
struct Halves<R> {
    rng: R,
    words: [u8; 8 * WORDS],
}

impl<R: Rng> Halves<R> {
    /// Ones among so many fair coins.
    fn among(&mut self, mut coins: u64) -> u64 {
        let mut ones = 0;
        while coins > 0 {
            let words = coins.div_ceil(64).min(WORDS as u64);
            let bytes = &mut self.words[..8 * words as usize];
            self.rng.fill_bytes(bytes);
            for word in bytes.as_chunks().0 {
                let used = coins.min(64);
                // The lowest bits of the last word.
                let word = u64::from_le_bytes(*word) & (u64::MAX >> (64 - used));
                ones += u64::from(word.count_ones());
                coins -= used;
            }
        }
        ones
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use incrowd_protocol::FlipProbability;
    use num_bigint::BigUint;
    use num_traits::{One, Zero};

    use super::*;

    /// Gives the bytes of a tape, then fails.
    struct Tape<'a>(&'a [u8]);

    impl rand_core::TryRng for Tape<'_> {
        type Error = core::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            unreachable!()
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            unreachable!()
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            let (first, rest) = self.0.split_at(bytes.len());
            bytes.copy_from_slice(first);
            self.0 = rest;
            Ok(())
        }
    }

    fn choose(n: u64, k: u64) -> BigUint {
        (0..k).fold(BigUint::one(), |product, i| product * (n - i) / (i + 1))
    }

    /// The exact law of [`binomial`], times 2^(32 n): every sequence of answers that `among` can
    /// give, with its weight, through the code itself.
    fn law(coins: u64, threshold: u32) -> BTreeMap<u64, BigUint> {
        let mut law = BTreeMap::new();
        // Answers so far; each is followed by every possible next one.
        let mut paths: Vec<Vec<u64>> = vec![Vec::new()];
        while let Some(path) = paths.pop() {
            let (mut asked, mut weight, mut bits) = (Vec::new(), BigUint::one(), 0);
            let ones = binomial(coins, threshold, |n| {
                let answer = path.get(asked.len()).copied().unwrap_or(0);
                asked.push(n);
                weight *= choose(n, answer);
                bits += n;
                answer
            });
            if let Some(&n) = asked.get(path.len()) {
                paths.extend((0..=n).map(|next| [path.as_slice(), &[next]].concat()));
                continue;
            }
            *law.entry(ones).or_insert_with(BigUint::zero) += weight << (32 * coins - bits);
        }
        law
    }

    #[test]
    fn the_law_of_the_ones_is_exactly_binomial() {
        for threshold in [0, 1, 3 << 30, 1 << 31, 0x8000_0001, 0x9e37_79b9, 7, u32::MAX] {
            for coins in 0..=2 {
                let (yes, all) = (BigUint::from(threshold), BigUint::one() << 32u32);
                let no = &all - &yes;
                let law = law(coins, threshold);
                for ones in 0..=coins {
                    let rest = (coins - ones) as u32;
                    let expected = choose(coins, ones) * yes.pow(ones as u32) * no.pow(rest);
                    let found = law.get(&ones).cloned().unwrap_or_default();
                    assert_eq!(found, expected, "{ones} of {coins} coins below {threshold}");
                }
            }
        }
        // More coins, where the tree of answers is small.
        let found = law(6, 3 << 30);
        for (ones, weight) in found {
            let expected = choose(6, ones) * BigUint::from(3u32).pow(ones as u32);
            assert_eq!(weight, expected << 180u32);
        }
    }

    #[test]
    fn halves_are_the_ones_among_as_many_random_bits() {
        let tape: Vec<u8> = (0..30_000u64).map(|i| (i * i * 7 + i / 3) as u8).collect();
        for coins in [1u64, 7, 63, 64, 65, 128, 1000, 32_768, 32_769, 100_001] {
            let mut halves = Halves { rng: Tape(&tape), words: [0; 8 * WORDS] };
            let bit = |i: u64| u64::from(tape[i as usize / 8] >> (i % 8) & 1);
            assert_eq!(halves.among(coins), (0..coins).map(bit).sum::<u64>(), "{coins}");
            let drawn = tape.len() - halves.rng.0.len();
            assert_eq!(drawn as u64, coins.div_ceil(64) * 8, "no bit is used twice");
        }
        let mut halves = Halves { rng: Tape(&[]), words: [0; 8 * WORDS] };
        assert_eq!(halves.among(0), 0);
    }

    #[test]
    fn the_coins_of_a_pad_are_those_of_a_report_of_zero() {
        for (bits, flip) in [(1, (1, 2)), (2, (1, 5)), (3, (1, 3)), (256, (7, 8)), (4095, (1, 9))] {
            let law = BitsLaw { bits, flip: FlipProbability::new(flip.0, flip.1).unwrap() };
            // limit = floor((denominator - numerator) 2^31 / denominator)
            let limit = ((u64::from(flip.1 - flip.0) << 31) / u64::from(flip.1)) as u32;
            let half = u64::from(bits / 2);
            let mut expected = vec![((1 << 31) - limit, half), ((1 << 31) + limit, half)];
            if bits % 2 == 1 {
                expected.insert(1, (1 << 31, 1));
            }
            expected.retain(|(_, coins)| *coins > 0);
            assert_eq!(groups(law), expected, "m = {bits}");
        }
    }
}
