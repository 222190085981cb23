use incrowd_protocol::{BitsLaw, Mechanism};
use rand_core::Rng;

use crate::{
    Arm, InputProblem,
    coins::{self, Coins},
    values::Values,
};

/// Context and reward to the counts of one report of bits. It keeps its buffers, so that a report
/// allocates nothing.
///
/// # Privacy
/// The counts are `epsilon_local`-differentially private for every context and reward, whatever
/// their values; see `docs/privacy-proofs.md`. Fresh randomness is used at every call: sending two
/// results for one person's data costs privacy twice.
pub struct BitsRandomizer {
    coins: Option<(BitsLaw, Coins)>,
    values: Values,
    /// Of all coins, unless they are tossed in runs.
    thresholds: Vec<u32>,
    /// Of the one coin of each coordinate that [`BitsRandomizer::split`] tosses.
    #[cfg(feature = "simulation")]
    between: Vec<u32>,
    /// A byte for every coin.
    tossed: Vec<u8>,
    counts: Vec<u16>,
}

impl BitsRandomizer {
    /// A randomizer for this mechanism.
    pub fn new(mechanism: &Mechanism) -> Self {
        Self {
            coins: None,
            values: Values::new(mechanism),
            thresholds: Vec::new(),
            #[cfg(feature = "simulation")]
            between: Vec::new(),
            tossed: Vec::new(),
            counts: vec![0; mechanism.coordinates()],
        }
    }

    /// Randomized counts for an arm and its reward, brought into their range first, and what was
    /// wrong with them.
    pub fn randomize<'a, R: Rng + ?Sized>(
        &mut self,
        law: BitsLaw,
        arm: impl Into<Arm<'a>>,
        reward: f64,
        rng: &mut R,
    ) -> (&[u16], Option<InputProblem>) {
        let problem = self.values.set(arm.into(), reward);
        let coins = self.prepare(law);
        let number = self.counts.len() * coins.bits as usize;
        rng.fill_bytes(&mut self.tossed[..number]);
        let values = self.values.all();
        if coins.in_runs() {
            let bytes = self.tossed.chunks_exact(coins.bits as usize);
            for ((count, runs), bytes) in self.counts.iter_mut().zip(coins.runs(values)).zip(bytes)
            {
                *count = coins::toss_runs(runs, bytes, || rest(rng));
            }
        } else {
            coins.thresholds(values, &mut self.thresholds[..number]);
            coins::toss(&self.thresholds, &mut self.tossed, || rest(rng));
            coins.count(&self.tossed, &mut self.counts);
        }
        (&self.counts, problem)
    }

    /// Splits a report into its coins whose tilt may be between -1 and 1, one for each coordinate,
    /// and all others. Gives the counts of the former; adds to `ones` how many of the latter have
    /// the first of [`BitsRandomizer::ends`], the rest have the second. For the simulator, which
    /// tosses those of a whole batch together.
    #[cfg(feature = "simulation")]
    pub fn split<'a, R: Rng + ?Sized>(
        &mut self,
        law: BitsLaw,
        arm: impl Into<Arm<'a>>,
        reward: f64,
        ones: &mut [u64],
        rng: &mut R,
    ) -> (&[u16], Option<InputProblem>) {
        let problem = self.values.set(arm.into(), reward);
        let coins = self.prepare(law);
        let number = self.counts.len();
        if self.between.is_empty() {
            self.between = coins::room_for(number);
        }
        let values = self.values.all();
        for ((ones, threshold), &value) in ones.iter_mut().zip(&mut self.between).zip(values) {
            let (before, between) = coins.split(value);
            *ones += u64::from(before);
            *threshold = between;
        }
        rng.fill_bytes(&mut self.tossed[..number]);
        self.tossed[number..self.between.len()].fill(0);
        coins::toss(&self.between, &mut self.tossed, || rest(rng));
        for (count, &coin) in self.counts.iter_mut().zip(&self.tossed) {
            *count = u16::from(coin);
        }
        (&self.counts, problem)
    }

    /// Thresholds of a law's coins of tilt 1 and of tilt -1: P(coin = 1) = threshold / 2^32.
    #[cfg(feature = "simulation")]
    pub fn ends(law: BitsLaw) -> [u32; 2] {
        Coins::new(law).ends()
    }

    /// Thresholds of all coins: P(coin = 1) = threshold / 2^32, coordinate after coordinate. For
    /// tests of the law.
    #[cfg(feature = "simulation")]
    pub fn thresholds<'a>(
        &mut self,
        law: BitsLaw,
        arm: impl Into<Arm<'a>>,
        reward: f64,
    ) -> (Vec<u32>, Option<InputProblem>) {
        let problem = self.values.set(arm.into(), reward);
        let coins = self.prepare(law);
        let values = self.values.all();
        let mut thresholds = vec![0; values.len() * coins.bits as usize];
        if coins.in_runs() {
            let runs = coins.runs(values).flatten();
            thresholds = runs.flat_map(|run| vec![run.threshold; run.coins]).collect();
        } else {
            coins.thresholds(values, &mut thresholds);
        }
        (thresholds, problem)
    }

    /// The coins of a law, and room for them.
    fn prepare(&mut self, law: BitsLaw) -> Coins {
        match self.coins {
            Some((known, coins)) if known == law => coins,
            _ => {
                let coins = Coins::new(law);
                self.coins = Some((law, coins));
                let number = self.counts.len() * law.bits as usize;
                self.thresholds = coins::room_for(if coins.in_runs() { 0 } else { number });
                self.tossed = vec![0; coins::whole_lanes(number)];
                coins
            }
        }
    }
}

/// The last three random bytes of a tied coin.
fn rest<R: Rng + ?Sized>(rng: &mut R) -> [u8; 3] {
    let mut rest = [0; 3];
    rng.fill_bytes(&mut rest);
    rest
}
