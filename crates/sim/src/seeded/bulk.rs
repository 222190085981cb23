use incrowd_device::Randomizer;
use incrowd_protocol::{Mechanism, Round};
use incrowd_shuffler::{Batch, Outcome};
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
/// between, and the last one of a batch all others, two binomial numbers for each coordinate.
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

    /// Counts the report of one more person.
    pub fn add(&mut self, batch: &mut Batch, context: &[f64], reward: f64) -> Outcome {
        batch.fill(|round, sums| {
            if round.law.bits < TOGETHER_FROM {
                sums.add(self.randomizer.randomize(round, context, reward, &mut self.rng).0);
                return;
            }
            let (high, rng) = (&mut self.high, &mut self.rng);
            sums.add(self.randomizer.split(round, context, reward, high, rng).0);
            if sums.is_full() {
                self.toss(round);
                sums.add_coins(&self.tossed);
            }
        })
    }

    /// Tosses what a full batch left.
    fn toss(&mut self, round: &Round) {
        let ends = Randomizer::ends(round).map(|threshold| f64::from(threshold) / 2f64.powi(32));
        let all = u64::from(round.size) * u64::from(round.law.bits - 1);
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
    }
}
