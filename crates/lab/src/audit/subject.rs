//! What is audited: the real device and shuffler, by their own interfaces.

use std::sync::Arc;

use incrowd_device::{Arm, BitsRandomizer, CodebookRandomizer, Device, simulated_pads};
use incrowd_protocol::{
    BitsLaw, Closes, CodebookLaw, Mechanism, Payload, Report, Round, TaskConfig, add_counts,
};
use incrowd_shuffler::{Accumulator, Batch, Outcome};
use rand_chacha::ChaCha8Rng;

use super::{
    AuditError,
    law::{Law, Others},
    search::Input,
};

/// The real code under audit, with the stated law of its rounds.
pub(super) struct Subject<L> {
    task: Arc<TaskConfig>,
    pub mechanism: Arc<Mechanism>,
    pub round: Round,
    pub stated: L,
}

impl<L> Subject<L> {
    pub fn new(task: Arc<TaskConfig>, round: Round, stated: L) -> Self {
        let mechanism = Arc::new(task.mechanism().clone());
        Self { task, mechanism, round, stated }
    }

    pub fn task(&self) -> Arc<TaskConfig> {
        self.task.clone()
    }

    pub fn dimension(&self) -> usize {
        self.mechanism.dimension()
    }

    pub fn device<'a>(&self, rng: &'a mut ChaCha8Rng) -> Device<&'a mut ChaCha8Rng> {
        Device::simulated(self.task.clone(), rng)
    }

    pub fn batch(&self) -> Batch {
        Batch::new(self.mechanism.clone())
    }

    /// One person's report as the shuffler reads it from its bytes.
    pub fn payload(&self, input: &Input, rng: &mut ChaCha8Rng) -> Result<Payload, AuditError> {
        let answer =
            self.device(rng).report(self.round.number, Arm::from(&input.context), input.reward)?;
        let bytes = answer.report.encode(&self.mechanism)?;
        Ok(Report::decode(&bytes, &self.mechanism)?.payload().clone())
    }

    /// The next release: the victim first, unless absent, then the others until the batch is full.
    /// An absent victim leaves a place, which the clock fills with a pad. `report` adds one
    /// person's report.
    fn release_of(
        &self,
        batch: &mut Batch,
        victim: Option<&Input>,
        others: &Input,
        rng: &mut ChaCha8Rng,
        mut report: impl FnMut(&Input, &mut Accumulator, &mut ChaCha8Rng),
    ) -> Result<Vec<i64>, AuditError> {
        let outcome = batch.fill(|round, sums| {
            if let Some(victim) = victim {
                report(victim, sums, rng);
            }
            let places = round.size - u32::from(victim.is_none());
            while sums.count() < places {
                report(others, sums, rng);
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
    pub fn pads(&self, number: u32, rng: &mut ChaCha8Rng) -> Vec<i64> {
        simulated_pads(&self.mechanism, &self.round, number, rng)
    }
}

impl Subject<BitsLaw> {
    pub fn randomizer(&self) -> BitsRandomizer {
        BitsRandomizer::new(&self.mechanism)
    }

    /// The law of a report, from the thresholds of the audited device itself.
    pub fn law(&self, randomizer: &mut BitsRandomizer, input: &Input) -> Law {
        let (thresholds, _) =
            randomizer.thresholds(self.stated, Arm::from(&input.context), input.reward);
        Law::of_coins(&thresholds, self.stated.bits)
    }

    /// The law of the sums of everyone but the victim.
    pub fn others(&self, randomizer: &mut BitsRandomizer, input: &Input) -> Others {
        Others::new(&self.law(randomizer, input), self.round.size - 1)
    }

    /// The counts of one person's report as the shuffler reads them from its bytes.
    pub fn report(&self, input: &Input, rng: &mut ChaCha8Rng) -> Result<Vec<u16>, AuditError> {
        Ok(self.payload(input, rng)?.counts().map(<[u16]>::to_vec).unwrap_or_default())
    }

    /// The next release of the victim, if there, and of others.
    pub fn release(
        &self,
        batch: &mut Batch,
        randomizer: &mut BitsRandomizer,
        victim: Option<&Input>,
        others: &Input,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<i64>, AuditError> {
        self.release_of(batch, victim, others, rng, |input, sums, rng| {
            let (counts, _) =
                randomizer.randomize(self.stated, Arm::from(&input.context), input.reward, rng);
            sums.add(|sums| add_counts(counts, sums));
        })
    }
}

impl Subject<CodebookLaw> {
    pub fn randomizer(&self) -> CodebookRandomizer {
        CodebookRandomizer::new(&self.mechanism)
    }

    /// Seed and index of one person's report as the shuffler reads them from its bytes.
    pub fn word(&self, input: &Input, rng: &mut ChaCha8Rng) -> Result<([u8; 16], u8), AuditError> {
        match self.payload(input, rng)? {
            Payload::Word { seed, index } => Ok((seed, index)),
            Payload::Counts(_) => Err(AuditError::NoWord),
        }
    }

    /// The next release of the victim, if there, and of others.
    pub fn release(
        &self,
        batch: &mut Batch,
        randomizer: &mut CodebookRandomizer,
        victim: Option<&Input>,
        others: &Input,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<i64>, AuditError> {
        self.release_of(batch, victim, others, rng, |input, sums, rng| {
            let (word, _) =
                randomizer.randomize(self.stated, Arm::from(&input.context), input.reward, rng);
            sums.add(|sums| word.add_to(sums));
        })
    }
}
