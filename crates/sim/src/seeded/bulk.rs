use incrowd_device::Randomizer;
use incrowd_protocol::{Mechanism, Round};
use incrowd_shuffler::{Accumulator, Batch, Outcome};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Binomial, Distribution};

/// Rounds with this many bits toss the equal coins of a batch together. With fewer bits that gains
/// little, and nothing in small batches.
const TOGETHER_FROM: u32 = 8;

/// Reports that go straight to the sums of a batch, with the law of single ones.
///
/// All but one of a coordinate's m coins have tilt 1 or -1, so only two thresholds. The coins of a
/// batch are independent and only their sum is released: the ones among all N coins of a threshold
/// T have the law Bin(N, T/2^32), whoever they belong to. So each person's report tosses the coin
/// between, and whatever closes the batch, its last report or its time, all others: two binomial
/// numbers for each coordinate.
/// T/2^32 is exactly a double; the law is exact up to the floats of the binomial sampler.
pub struct Bulk {
    randomizer: Randomizer,
    dimension: usize,
    /// Coins of tilt 1 in the batch that are not tossed yet, for each coordinate.
    high: Vec<u64>,
    tossed: Vec<u64>,
    rng: ChaCha8Rng,
}

impl Bulk {
    /// For batches of this mechanism.
    pub fn new(mechanism: &Mechanism, rng: ChaCha8Rng) -> Self {
        let none = vec![0; mechanism.coordinates()];
        let (randomizer, dimension) = (Randomizer::new(mechanism), mechanism.dimension());
        Self { randomizer, dimension, high: none.clone(), tossed: none, rng }
    }

    /// Tosses with another generator from now on. Nothing of a batch may be left to toss.
    pub fn toss_with(&mut self, rng: ChaCha8Rng) {
        self.rng = rng;
    }

    /// Counts the report of one more person.
    pub fn add(&mut self, batch: &mut Batch, context: &[f64], reward: f64) -> Outcome {
        if batch.round().is_some() && batch.missing() == 0 {
            return Outcome::Surplus;
        }
        batch.fill(|round, sums| {
            if round.law.bits < TOGETHER_FROM {
                sums.add(self.randomizer.randomize(round, context, reward, &mut self.rng).0);
                return;
            }
            let (high, rng) = (&mut self.high, &mut self.rng);
            sums.add(self.randomizer.split(round, context, reward, high, rng).0);
            if sums.is_full() && round.window.is_none() {
                self.toss(round, sums);
            }
        })
    }

    /// Tosses what the reports of a batch that closes by time left; to be called once, before it is
    /// closed.
    pub fn finish(&mut self, batch: &mut Batch) {
        // No report is added, so nothing is released.
        let _ = batch.fill(|round, sums| {
            if round.law.bits >= TOGETHER_FROM {
                self.toss(round, sums);
            }
        });
    }

    /// The sums of this many pads, whose coins come from `rng`: their coins of equal thresholds,
    /// which the device's own code tells for a report of x = 0 and r = 0, are one binomial number
    /// for each coordinate.
    pub fn pads(&mut self, round: &Round, number: u32, mut rng: ChaCha8Rng) -> Vec<u64> {
        let nothing = vec![0.0; self.dimension];
        let (mut thresholds, _) = self.randomizer.thresholds(round, &nothing, 0.0);
        // Each coordinate has the value 0, so all have the thresholds of the first.
        thresholds.truncate(round.law.bits as usize);
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
    fn toss(&mut self, round: &Round, sums: &mut Accumulator) {
        let ends = Randomizer::ends(round);
        let all = u64::from(sums.count()) * u64::from(round.law.bits - 1);
        for (tossed, high) in self.tossed.iter_mut().zip(&mut self.high) {
            let coins = [*high, all - *high];
            let ones = coins.into_iter().zip(ends);
            *tossed = ones.map(|(coins, threshold)| toss(coins, threshold, &mut self.rng)).sum();
            *high = 0;
        }
        sums.add_coins(&self.tossed);
    }
}

/// Ones among this many coins of one threshold.
fn toss(coins: u64, threshold: u32, rng: &mut ChaCha8Rng) -> u64 {
    let law = Binomial::new(coins, f64::from(threshold) / 2f64.powi(32));
    law.expect("invariant: a threshold is below 2^32").sample(rng)
}
