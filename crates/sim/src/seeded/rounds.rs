use std::sync::Arc;

use incrowd_device::{Arm, Device, DeviceError, simulated_pads};
use incrowd_protocol::{BatchSums, Closes, Model, OpenRound, Report, TaskConfig};
use incrowd_shuffler::{Batch, Outcome, Refusal};
use rand_chacha::ChaCha8Rng;

use super::{Bulk, Progress, rows, stream};
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
        let arms = rows(self.task.mechanism().blocks(), arms);
        self.chooser.choose(self.model.as_ref(), arms)
    }

    /// The report of a new person's device.
    pub fn report(&mut self, round: u32, arm: Arm<'_>, reward: f64) -> Result<Report, DeviceError> {
        let mut device = Device::simulated(self.task.clone(), &mut self.coins);
        Ok(device.report(round, arm, reward)?.report)
    }
}

/// Everything between people and the bandit: real devices and a real batch, closed by count or by a
/// virtual clock.
///
/// Where rounds close by time, each has its own generators for the coins of its reports and for its
/// pads: what happens in one round leaves the coins of all others alone, as on real devices.
pub struct Rounds {
    task: Arc<TaskConfig>,
    path: Path,
    seed: u64,
    devices: Devices,
    bulk: Bulk,
    batch: Batch,
    /// Milliseconds since the first round opened.
    now: Option<u64>,
    /// Of batches; models are counted by whoever makes them.
    progress: Progress,
}

/// Streams of the seed for the rounds that close by time: these plus the round's number.
const COINS: u64 = 1 << 32;
const PADS: u64 = 2 << 32;

impl Rounds {
    /// Before the first person. All coins come from `seed`.
    pub fn new(task: Arc<TaskConfig>, path: Path, seed: u64) -> Self {
        let mut rounds = Self {
            path,
            seed,
            devices: Devices::new(task.clone(), seed),
            bulk: Bulk::new(task.mechanism(), stream(seed, 2)),
            batch: Batch::new(Arc::new(task.mechanism().clone())),
            now: None,
            progress: Progress::default(),
            task,
        };
        if rounds.opens().is_some() {
            rounds.toss_for(1);
        }
        rounds
    }

    /// The devices.
    pub fn devices(&mut self) -> &mut Devices {
        &mut self.devices
    }

    /// The newest model, if there is one.
    pub fn model(&self) -> Option<&Model> {
        self.devices.model.as_ref()
    }

    /// What was released so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// When the first round opens, where rounds close by time.
    fn opens(&self) -> Option<u64> {
        match self.task.mechanism().closes() {
            Closes::Time { opens } => Some(opens),
            Closes::Count { .. } => None,
        }
    }

    fn toss_for(&mut self, round: u32) {
        let coins = stream(self.seed, COINS + u64::from(round));
        self.devices.coins = coins.clone();
        self.bulk.toss_with(coins);
    }

    /// The release of the next round that is over at `now`, in milliseconds since the first one
    /// opens; to be repeated until there is none. Where batches close by count there is never one.
    pub fn close(&mut self, now: u64) -> Result<Option<BatchSums>, SimulationError> {
        let (Some(opens), Some(round)) = (self.opens(), self.batch.round()) else {
            return Ok(None);
        };
        self.now = self.now.max(Some(now));
        let mechanism = self.task.mechanism();
        let window = mechanism.window(round.number).map_err(DeviceError::from)?;
        if window.is_none_or(|window| opens.saturating_add(now) < window.closes) {
            return Ok(None);
        }
        let missing = self.batch.missing();
        let rng = stream(self.seed, PADS + u64::from(round.number));
        let pads = match self.path {
            Path::Wire => simulated_pads(mechanism, &round, missing, rng),
            Path::Bulk => {
                self.bulk.finish(&mut self.batch);
                self.bulk.pads(&round, missing, rng)
            }
        };
        let sums = self.batch.close(&pads)?;
        self.toss_for(round.number + 1);
        self.progress.batches += 1;
        self.progress.pads += u64::from(missing);
        self.progress.reports += u64::from(round.size - missing);
        Ok(Some(sums))
    }

    /// The report of one more person; the release, if that closes the batch. After the last round
    /// of those that close by time no device reports, and nothing happens.
    pub fn add(&mut self, arm: Arm<'_>, reward: f64) -> Result<Option<BatchSums>, SimulationError> {
        let Some(round) = self.open_round()? else { return Ok(None) };
        let outcome = match self.path {
            Path::Wire => {
                let report = self.devices.report(round, arm, reward)?;
                let bytes = report.encode(self.task.mechanism()).map_err(DeviceError::from)?;
                self.batch.accept_bytes(&bytes)
            }
            Path::Bulk => self.bulk.add(&mut self.batch, arm, reward),
        };
        match outcome {
            Outcome::Released(sums) => {
                self.progress.batches += 1;
                let size = self.task.mechanism().round(round).map_err(DeviceError::from)?.size;
                self.progress.reports += u64::from(size);
                Ok(Some(sums))
            }
            Outcome::Refused(refusal) => Err(refusal.into()),
            Outcome::Surplus => {
                self.progress.surplus += 1;
                Ok(None)
            }
            Outcome::Counted | Outcome::Duplicate => Ok(None),
        }
    }

    /// The round that a device reports in now: by the clock, or the one whose batch is filled.
    fn open_round(&self) -> Result<Option<u32>, SimulationError> {
        let Some(opens) = self.opens() else {
            let round = self.batch.round().ok_or(Refusal::Finished)?;
            return Ok(Some(round.number));
        };
        let now = self.now.ok_or(SimulationError::NoClock)?;
        Ok(match self.task.mechanism().round_at(opens.saturating_add(now)) {
            Some(OpenRound::Open(round)) => Some(round),
            _ => None,
        })
    }
}
