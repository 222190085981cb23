use incrowd_protocol::{Mechanism, Round};
use rand_core::Rng;

use crate::{
    InputProblem, clip,
    coins::Coins,
    mutant::{self, Mutant},
};

/// Context and reward to the counts of one report, for the rounds of one mechanism. It keeps its buffers, so that a report allocates
/// nothing.
///
/// # Privacy
/// The counts are `epsilon_local`-differentially private for every context and reward, whatever their values; see
/// `docs/privacy-proofs.md`. Fresh randomness is used at every call: sending two results for one person's data costs privacy twice.
pub struct Randomizer {
    context_bound: f64,
    coins: Option<(Round, Coins)>,
    unit: Vec<f64>,
    values: Vec<f64>,
    thresholds: Vec<u32>,
    first: Vec<u8>,
    counts: Vec<u16>,
    mutant: Option<Mutant>,
}

impl Randomizer {
    /// A randomizer for this mechanism.
    pub fn new(mechanism: &Mechanism) -> Self {
        Self {
            context_bound: mechanism.context_bound(),
            coins: None,
            unit: vec![0.0; mechanism.dimension()],
            values: vec![0.0; mechanism.coordinates()],
            thresholds: Vec::new(),
            first: Vec::new(),
            counts: vec![0; mechanism.coordinates()],
            mutant: None,
        }
    }

    /// The same, broken on purpose.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(mut self, mutant: Mutant) -> Self {
        self.mutant = Some(mutant);
        self.coins = None;
        self
    }

    /// Randomized counts for `context` and `reward`, brought into their range first, and what was wrong with them.
    pub fn randomize<R: Rng + ?Sized>(
        &mut self,
        round: &Round,
        context: &[f64],
        reward: f64,
        rng: &mut R,
    ) -> (&[u16], Option<InputProblem>) {
        let problem = self.law(round, context, reward);
        let Some((_, coins)) = &self.coins else { unreachable!("law() sets the coins") };
        rng.fill_bytes(&mut self.first);
        coins.count(&self.thresholds, &self.first, &mut self.counts, || {
            let mut rest = [0; 3];
            rng.fill_bytes(&mut rest);
            rest
        });
        (&self.counts, problem)
    }

    /// Thresholds of all coins: P(coin = 1) = threshold / 2^32, coordinate after coordinate. For tests of the law.
    #[cfg(feature = "simulation")]
    pub fn thresholds(
        &mut self,
        round: &Round,
        context: &[f64],
        reward: f64,
    ) -> (&[u32], Option<InputProblem>) {
        let problem = self.law(round, context, reward);
        (&self.thresholds, problem)
    }

    fn law(&mut self, round: &Round, context: &[f64], reward: f64) -> Option<InputProblem> {
        if self.coins.as_ref().is_none_or(|(known, _)| !known.same_law(round)) {
            self.coins = Some((*round, Coins::new(round, self.mutant)));
            self.first.resize(self.values.len() * round.bits as usize, 0);
        }
        let problem = if mutant::is(self.mutant, Mutant::NoClipping) {
            for (u, x) in self.unit.iter_mut().zip(context) {
                *u = x / self.context_bound;
            }
            fill_values(&self.unit, reward, &mut self.values);
            None
        } else {
            let (reward, problem) =
                clip::bound(context, reward, self.context_bound, &mut self.unit);
            fill_values(&self.unit, reward, &mut self.values);
            problem
        };
        if let Some((_, coins)) = &self.coins {
            coins.thresholds(&self.values, &mut self.thresholds);
        }
        problem
    }
}

/// v = (r u, lower triangle of u u' row by row).
fn fill_values(unit: &[f64], reward: f64, values: &mut [f64]) {
    let (moment, mut gram) = values.split_at_mut(unit.len());
    for (value, u) in moment.iter_mut().zip(unit) {
        *value = reward * u;
    }
    for (i, &u) in unit.iter().enumerate() {
        let (row, below) = gram.split_at_mut(i + 1);
        for (value, other) in row.iter_mut().zip(unit) {
            *value = u * other;
        }
        gram = below;
    }
}
