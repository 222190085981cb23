use std::sync::Arc;

use incrowd_bandit::Bandit;
use incrowd_device::{Device, DeviceError, Randomizer};
use incrowd_protocol::{Model, TaskConfig};
use incrowd_shuffler::{Batch, Outcome, Refusal};
use rand_chacha::ChaCha8Rng;

use super::{Algorithm, Choice, Progress, stream};
use crate::SimulationError;

/// How reports travel in a simulation. Both have the same law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Every person has a device whose report is encoded, decoded and counted, as in production.
    Wire,
    /// Counts go straight to the batch's sums, for long simulations.
    Bulk,
}

/// The product itself: real devices, a real batch and a real bandit.
pub struct Sblb {
    task: Arc<TaskConfig>,
    path: Path,
    /// Chooses for everyone; reports come from devices of their own, or in bulk from `randomizer`.
    chooser: Device<ChaCha8Rng>,
    randomizer: Randomizer,
    coins: ChaCha8Rng,
    batch: Batch,
    bandit: Bandit,
    model: Option<Model>,
    progress: Progress,
}

impl Sblb {
    /// Before the first person. All coins come from `seed`.
    pub fn new(task: Arc<TaskConfig>, path: Path, seed: u64) -> Self {
        Self {
            path,
            chooser: Device::simulated(task.clone(), stream(seed, 1)),
            randomizer: Randomizer::new(task.mechanism()),
            coins: stream(seed, 2),
            batch: Batch::new(Arc::new(task.mechanism().clone())),
            bandit: Bandit::new(task.clone()),
            model: None,
            progress: Progress::default(),
            task,
        }
    }

    /// The bandit, to look at its estimate.
    pub fn bandit(&self) -> &Bandit {
        &self.bandit
    }

    fn by_wire(&mut self, context: &[f64], reward: f64) -> Result<Outcome, SimulationError> {
        let Some(round) = self.batch.round() else {
            return Err(Refusal::Finished.into());
        };
        let mut device = Device::simulated(self.task.clone(), &mut self.coins);
        let answer = device.report(round.number, context, reward)?;
        let bytes = answer.report.encode(self.task.mechanism()).map_err(DeviceError::from)?;
        Ok(self.batch.accept_bytes(&bytes))
    }

    fn in_bulk(&mut self, context: &[f64], reward: f64) -> Outcome {
        let (randomizer, coins) = (&mut self.randomizer, &mut self.coins);
        self.batch.fill(|round, sums| {
            let (counts, _) = randomizer.randomize(round, context, reward, coins);
            sums.add(counts);
        })
    }
}

impl Algorithm for Sblb {
    fn dimension(&self) -> Option<usize> {
        Some(self.task.mechanism().dimension())
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        let arms = arms.chunks_exact(self.task.mechanism().dimension());
        Ok(Choice::Arm(self.chooser.choose(self.model.as_ref(), arms)?))
    }

    fn learn(&mut self, context: &[f64], reward: f64) -> Result<(), SimulationError> {
        let outcome = match self.path {
            Path::Wire => self.by_wire(context, reward)?,
            Path::Bulk => self.in_bulk(context, reward),
        };
        match outcome {
            Outcome::Released(sums) => {
                self.progress.batches += 1;
                if let Some(model) = self.bandit.absorb(&sums)? {
                    self.progress.models += 1;
                    self.model = Some(model);
                }
                Ok(())
            }
            Outcome::Refused(refusal) => Err(refusal.into()),
            Outcome::Counted | Outcome::Duplicate => Ok(()),
        }
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn noise_std(&self) -> Option<f64> {
        let round = self.bandit.statistics().round();
        Some(incrowd_bandit::noise_variance(self.task.mechanism(), round).sqrt())
    }
}
