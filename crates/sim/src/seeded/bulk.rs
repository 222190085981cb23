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
    /// Coins of tilt 1 in the batch that are not tossed yet, for each coordinate.
    high: Vec<u64>,
    tossed: Vec<u64>,
    rng: ChaCha8Rng,
}

impl Bulk {
    /// For batches of this mechanism.
    pub fn new(mechanism: &Mechanism, rng: ChaCha8Rng) -> Self {
        let none = vec![0; mechanism.coordinates()];
        Self { randomizer: Randomizer::new(mechanism), high: none.clone(), tossed: none, rng }
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
    pub fn finish(&mut self, batch: &mut Batch) -> Outcome {
        batch.fill(|round, sums| {
            if round.law.bits >= TOGETHER_FROM {
                self.toss(round, sums);
            }
        })
    }

    /// Tosses what the reports in `sums` left.
    fn toss(&mut self, round: &Round, sums: &mut Accumulator) {
        let ends = Randomizer::ends(round).map(|threshold| f64::from(threshold) / 2f64.powi(32));
        let all = u64::from(sums.count()) * u64::from(round.law.bits - 1);
        for (tossed, high) in self.tossed.iter_mut().zip(&mut self.high) {
            let coins = [*high, all - *high];
            *tossed = coins
                .into_iter()
                .zip(ends)
                .map(|(coins, chance)| {
                    let law = Binomial::new(coins, chance);
                    law.expect("invariant: a threshold is below 2^32").sample(&mut self.rng)
                })
                .sum();
            *high = 0;
        }
        sums.add_coins(&self.tossed);
    }
}
