//! What is audited: the real device and shuffler, by their own interfaces.

use std::sync::Arc;

use incrowd_device::{Device, Randomizer, simulated_pads};
use incrowd_protocol::{Closes, Mechanism, Report, Round, TaskConfig};
use incrowd_shuffler::{Accumulator, Batch, Outcome};
use rand_chacha::ChaCha8Rng;

use super::{
    AuditError,
    law::{Law, Others},
    search::Input,
};

/// The real code under audit.
pub(super) struct Subject {
    task: Arc<TaskConfig>,
    pub mechanism: Arc<Mechanism>,
    pub round: Round,
}

impl Subject {
    pub fn new(task: Arc<TaskConfig>, round: Round) -> Self {
        let mechanism = Arc::new(task.mechanism().clone());
        Self { task, mechanism, round }
    }

    pub fn dimension(&self) -> usize {
        self.mechanism.dimension()
    }

    pub fn device<'a>(&self, rng: &'a mut ChaCha8Rng) -> Device<&'a mut ChaCha8Rng> {
        Device::simulated(self.task.clone(), rng)
    }

    pub fn randomizer(&self) -> Randomizer {
        Randomizer::new(&self.mechanism)
    }

    pub fn batch(&self) -> Batch {
        Batch::new(self.mechanism.clone())
    }

    /// The law of a report, from the thresholds of the audited device itself.
    pub fn law(&self, randomizer: &mut Randomizer, input: &Input) -> Law {
        let (thresholds, _) = randomizer.thresholds(&self.round, &input.context, input.reward);
        Law::of_coins(&thresholds, self.round.law.bits)
    }

    /// The law of the sums of everyone but the victim.
    pub fn others(&self, randomizer: &mut Randomizer, input: &Input) -> Others {
        Others::new(&self.law(randomizer, input), self.round.size - 1)
    }

    /// The counts of one person's report as the shuffler reads them from its bytes.
    pub fn report(&self, input: &Input, rng: &mut ChaCha8Rng) -> Result<Vec<u16>, AuditError> {
        let answer = self.device(rng).report(self.round.number, &input.context, input.reward)?;
        let bytes = answer.report.encode(&self.mechanism)?;
        Ok(Report::decode(&bytes, &self.mechanism)?.counts().to_vec())
    }

    /// The next release: the victim first, unless absent, then the others until the batch is full.
    /// An absent victim leaves a place, which the clock fills with a pad.
    pub fn release(
        &self,
        batch: &mut Batch,
        randomizer: &mut Randomizer,
        victim: Option<&Input>,
        others: &Input,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<i64>, AuditError> {
        let outcome = batch.fill(|round, sums| {
            let mut report = |input: &Input, sums: &mut Accumulator| {
                let (counts, _) = randomizer.randomize(round, &input.context, input.reward, rng);
                sums.add(counts);
            };
            if let Some(victim) = victim {
                report(victim, sums);
            }
            let places = round.size - u32::from(victim.is_none());
            while sums.count() < places {
                report(others, sums);
            }
        });
        match outcome {
            Outcome::Released(sums) if !self.by_time() => Ok(sums.sums().to_vec()),
            Outcome::Refused(refusal) => Err(refusal.into()),
            Outcome::Counted if self.by_time() => {
                let pads = self.pads(batch.missing(), rng);
                Ok(batch.close(&pads)?.sums().to_vec())
            }
            _ => Err(AuditError::NotReleased(self.round.size)),
        }
    }

    /// Whether rounds close by the clock.
    pub fn by_time(&self) -> bool {
        matches!(self.mechanism.closes(), Closes::Time { .. })
    }

    /// The sums of this many pads, as the shuffler makes them.
    pub fn pads(&self, number: u32, rng: &mut ChaCha8Rng) -> Vec<u64> {
        simulated_pads(&self.mechanism, &self.round, number, rng)
    }
}
