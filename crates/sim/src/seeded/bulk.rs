use incrowd_device::{Arm, BitsRandomizer};
use incrowd_protocol::{BitsLaw, Law, Mechanism, Round, add_counts};
use incrowd_shuffler::{Accumulator, Batch, Outcome};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Binomial, Distribution};

use super::words::WordSums;

/// Rounds with this many bits toss the equal coins of a batch together. With fewer bits that gains
/// little, and nothing in small batches.
const TOGETHER_FROM: u32 = 8;

/// Reports that go straight to the sums of a batch, with the law of single ones.
pub struct Bulk {
    coins: CoinSums,
    words: WordSums,
    rng: ChaCha8Rng,
}

impl Bulk {
    /// For batches of this mechanism.
    pub fn new(mechanism: &Mechanism, rng: ChaCha8Rng) -> Self {
        Self { coins: CoinSums::new(mechanism), words: WordSums::new(mechanism), rng }
    }

    /// Draws with another generator from now on. Nothing of a batch may be left to draw.
    pub fn toss_with(&mut self, rng: ChaCha8Rng) {
        self.rng = rng;
    }

    /// Counts the report of one more person.
    pub fn add(&mut self, batch: &mut Batch, arm: Arm<'_>, reward: f64) -> Outcome {
        if batch.round().is_some() && batch.missing() == 0 {
            return Outcome::Surplus;
        }
        batch.fill(|round, sums| {
            match round.law {
                Law::Bits(law) => self.coins.add(law, sums, arm, reward, &mut self.rng),
                Law::Codebook(law) => self.words.add(law, sums, arm, reward, &mut self.rng),
            }
            if sums.is_full() && round.window.is_none() {
                self.draw(round, sums);
            }
        })
    }

    /// Draws what the reports of a batch that closes by time left; to be called once, before it is
    /// closed.
    pub fn finish(&mut self, batch: &mut Batch) {
        // No report is added, so nothing is released.
        let _ = batch.fill(|round, sums| self.draw(round, sums));
    }

    /// The sums of this many pads, drawn from `rng`.
    pub fn pads(&mut self, round: &Round, number: u32, rng: ChaCha8Rng) -> Vec<i64> {
        match round.law {
            Law::Bits(law) => self.coins.pads(law, number, rng),
            Law::Codebook(_) => self.words.pads(number, rng),
        }
    }

    /// Draws what the reports in `sums` left.
    fn draw(&mut self, round: &Round, sums: &mut Accumulator) {
        match round.law {
            Law::Bits(law) if law.bits < TOGETHER_FROM => {}
            Law::Bits(law) => self.coins.toss(law, sums, &mut self.rng),
            Law::Codebook(_) => self.words.draw(sums, &mut self.rng),
        }
    }
}

/// Sums of coins.
///
/// All but one of a coordinate's m coins have tilt 1 or -1, so only two thresholds. The coins of a
/// batch are independent and only their sum is released: the ones among all N coins of a threshold
/// T have the law Bin(N, T/2^32), whoever they belong to. So each person's report tosses the coin
/// between, and whatever closes the batch, its last report or its time, all others: two binomial
/// numbers for each coordinate.
/// T/2^32 is exactly a double; the law is exact up to the floats of the binomial sampler.
struct CoinSums {
    randomizer: BitsRandomizer,
    dimension: usize,
    /// Coins of tilt 1 in the batch that are not tossed yet, for each coordinate.
    high: Vec<u64>,
    tossed: Vec<i64>,
}

impl CoinSums {
    fn new(mechanism: &Mechanism) -> Self {
        let coordinates = mechanism.coordinates();
        Self {
            randomizer: BitsRandomizer::new(mechanism),
            dimension: mechanism.dimension(),
            high: vec![0; coordinates],
            tossed: vec![0; coordinates],
        }
    }

    fn add(
        &mut self,
        law: BitsLaw,
        sums: &mut Accumulator,
        arm: Arm<'_>,
        reward: f64,
        rng: &mut ChaCha8Rng,
    ) {
        let (counts, _) = if law.bits < TOGETHER_FROM {
            self.randomizer.randomize(law, arm, reward, rng)
        } else {
            self.randomizer.split(law, arm, reward, &mut self.high, rng)
        };
        sums.add(|sums| add_counts(counts, sums));
    }

    /// Coins of equal thresholds, which the device's own code tells for a report of x = 0 and r =
    /// 0, are one binomial number for each coordinate.
    fn pads(&mut self, law: BitsLaw, number: u32, mut rng: ChaCha8Rng) -> Vec<i64> {
        let nothing = vec![0.0; self.dimension];
        let (mut thresholds, _) = self.randomizer.thresholds(law, Arm::from(&nothing), 0.0);
        // Each coordinate has the value 0, so all have the thresholds of the first.
        thresholds.truncate(law.bits as usize);
        thresholds.sort_unstable();
        let mut coordinate = || {
            let equal = thresholds.chunk_by(u32::eq);
            equal
                .map(|coins| toss(u64::from(number) * coins.len() as u64, coins[0], &mut rng))
                .sum()
        };
        (0..self.high.len()).map(|_| coordinate()).collect()
    }

    /// Tosses what the reports in `sums` left.
    fn toss(&mut self, law: BitsLaw, sums: &mut Accumulator, rng: &mut ChaCha8Rng) {
        let ends = BitsRandomizer::ends(law);
        let all = u64::from(sums.count()) * u64::from(law.bits - 1);
        for (tossed, high) in self.tossed.iter_mut().zip(&mut self.high) {
            let coins = [*high, all - *high];
            let ones = coins.into_iter().zip(ends);
            *tossed = ones.map(|(coins, threshold)| toss(coins, threshold, rng)).sum();
            *high = 0;
        }
        sums.add_drawn(&self.tossed);
    }
}

/// Ones among this many coins of one threshold.
fn toss(coins: u64, threshold: u32, rng: &mut ChaCha8Rng) -> i64 {
    let law = Binomial::new(coins, f64::from(threshold) / 2f64.powi(32));
    law.expect("invariant: a threshold is below 2^32").sample(rng) as i64
}
