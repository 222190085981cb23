use std::sync::Arc;

use incrowd_bandit::Bandit;
use incrowd_device::{Device, DeviceError};
use incrowd_protocol::{Model, Report, TaskConfig};
use incrowd_shuffler::{Batch, Outcome, Refusal};
use rand_chacha::ChaCha8Rng;

use super::{Algorithm, Bulk, Choice, Progress, stream};
use crate::SimulationError;

/// How reports travel in a simulation. Both have the same law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Every person has a device whose report is encoded, decoded and counted, as in production.
    Wire,
    /// Counts go straight to the batch's sums, for long simulations.
    Bulk,
}

/// Everybody's devices in a simulation: they choose from the model that is published, and each
/// person answers once.
pub struct Devices {
    task: Arc<TaskConfig>,
    /// Chooses for everyone; reports come from devices of their own.
    chooser: Device<ChaCha8Rng>,
    coins: ChaCha8Rng,
    model: Option<Model>,
}

impl Devices {
    /// Before the first model. All coins come from `seed`.
    pub fn new(task: Arc<TaskConfig>, seed: u64) -> Self {
        let chooser = Device::simulated(task.clone(), stream(seed, 1));
        Self { task, chooser, coins: stream(seed, 2), model: None }
    }

    /// A newer model.
    pub fn take(&mut self, model: Model) {
        self.model = Some(model);
    }

    /// What the next person plays: `arms` holds the features of the arms, one row after the other.
    pub fn choose(&mut self, arms: &[f64]) -> Result<usize, DeviceError> {
        let arms = arms.chunks_exact(self.task.mechanism().dimension());
        self.chooser.choose(self.model.as_ref(), arms)
    }

    /// The report of a new person's device.
    pub fn report(
        &mut self,
        round: u32,
        context: &[f64],
        reward: f64,
    ) -> Result<Report, DeviceError> {
        let mut device = Device::simulated(self.task.clone(), &mut self.coins);
        Ok(device.report(round, context, reward)?.report)
    }
}

/// The product itself: real devices, a real batch and a real bandit.
pub struct Sblb {
    task: Arc<TaskConfig>,
    path: Path,
    devices: Devices,
    bulk: Bulk,
    batch: Batch,
    bandit: Bandit,
    progress: Progress,
}

impl Sblb {
    /// Before the first person. All coins come from `seed`.
    pub fn new(task: Arc<TaskConfig>, path: Path, seed: u64) -> Self {
        Self {
            path,
            devices: Devices::new(task.clone(), seed),
            bulk: Bulk::new(task.mechanism(), stream(seed, 2)),
            batch: Batch::new(Arc::new(task.mechanism().clone())),
            bandit: Bandit::new(task.clone()),
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
        let report = self.devices.report(round.number, context, reward)?;
        let bytes = report.encode(self.task.mechanism()).map_err(DeviceError::from)?;
        Ok(self.batch.accept_bytes(&bytes))
    }
}

impl Algorithm for Sblb {
    fn dimension(&self) -> Option<usize> {
        Some(self.task.mechanism().dimension())
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        Ok(Choice::Arm(self.devices.choose(arms)?))
    }

    fn learn(&mut self, context: &[f64], reward: f64) -> Result<(), SimulationError> {
        let outcome = match self.path {
            Path::Wire => self.by_wire(context, reward)?,
            Path::Bulk => self.bulk.add(&mut self.batch, context, reward),
        };
        match outcome {
            Outcome::Released(sums) => {
                self.progress.batches += 1;
                if let Some(model) = self.bandit.absorb(&sums)? {
                    self.progress.models += 1;
                    self.devices.take(model);
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
