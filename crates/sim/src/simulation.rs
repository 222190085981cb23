use std::sync::Arc;

use incrowd_bandit::{Bandit, BanditError};
use incrowd_device::{Device, DeviceError, Randomizer};
use incrowd_protocol::{BatchSums, Model, TaskConfig};
use incrowd_shuffler::{Batch, Outcome, Refusal};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_core::Rng;
use serde::Serialize;
use thiserror::Error;

use crate::Environment;

/// How reports travel in a simulation. Both have the same law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Every person has a device whose report is encoded, decoded and counted, as in production.
    Wire,
    /// Counts go straight to the batch's sums, for long simulations.
    Bulk,
}

/// What a simulation can stumble over; each is a mistake in the set-up.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// Features of another dimension than the task's.
    #[error("the environment has dimension {found}, must be the task's {needed}")]
    Dimension {
        /// Of the environment.
        found: usize,
        /// Of the task.
        needed: usize,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The shuffler refused.
    #[error(transparent)]
    Shuffler(#[from] Refusal),
    /// The bandit refused.
    #[error(transparent)]
    Bandit(#[from] BanditError),
}

/// How a simulation went.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// People who took part.
    pub users: u64,
    /// Batches released.
    pub batches: u32,
    /// Models published.
    pub models: u32,
    /// Sum of the rewards people got.
    pub reward: f64,
    /// Expected sum of rewards of a uniformly random choice.
    pub reward_random: f64,
    /// Expected sum of rewards of the best choice.
    pub reward_best: f64,
    /// Expected reward lost against the best choice.
    pub regret: f64,
}

impl Summary {
    /// Expected regret of a uniformly random choice.
    pub fn regret_random(&self) -> f64 {
        self.reward_best - self.reward_random
    }

    /// Regret as a share of the random choice's.
    pub fn regret_share(&self) -> f64 {
        self.regret / self.regret_random()
    }
}

/// One run of a task with synthetic people, a batch at a time.
pub struct Simulation<E> {
    task: Arc<TaskConfig>,
    people: People<E>,
    batch: Batch,
    bandit: Bandit,
    model: Option<Model>,
    path: Path,
    /// What devices draw from; in bulk only for their choices.
    rng: ChaCha8Rng,
    /// What reports are randomized with in bulk.
    coins: ChaCha8Rng,
}

impl<E: Environment> Simulation<E> {
    /// Before the first person. The devices' coins come from `seed`.
    pub fn new(
        task: Arc<TaskConfig>,
        environment: E,
        path: Path,
        seed: u64,
    ) -> Result<Self, SimulationError> {
        let (found, needed) = (environment.dimension(), task.mechanism().dimension());
        if found != needed {
            return Err(SimulationError::Dimension { found, needed });
        }
        // The environment may have the same seed, so it has stream 0 for itself.
        let stream = |number| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number);
            rng
        };
        let people = People { environment, arms: Vec::new(), summary: Summary::default() };
        let batch = Batch::new(Arc::new(task.mechanism().clone()));
        let bandit = Bandit::new(task.clone());
        Ok(Self {
            task,
            people,
            batch,
            bandit,
            model: None,
            path,
            rng: stream(1),
            coins: stream(2),
        })
    }

    /// How it went so far.
    pub fn summary(&self) -> &Summary {
        &self.people.summary
    }

    /// The bandit, to look at its estimate.
    pub fn bandit(&self) -> &Bandit {
        &self.bandit
    }

    /// Runs the next batch and absorbs its release; false when the schedule is over.
    pub fn next_batch(&mut self) -> Result<bool, SimulationError> {
        let Some(round) = self.batch.round() else {
            return Ok(false);
        };
        let sums = match self.path {
            Path::Wire => self.by_wire(round.number)?,
            Path::Bulk => self.in_bulk()?,
        };
        self.people.summary.batches += 1;
        if let Some(model) = self.bandit.absorb(&sums)? {
            self.people.summary.models += 1;
            self.model = Some(model);
        }
        Ok(true)
    }

    fn by_wire(&mut self, round: u32) -> Result<BatchSums, SimulationError> {
        loop {
            let mut device = Device::simulated(self.task.clone(), &mut self.rng);
            let (context, reward) = self.people.serve_next(&mut device, self.model.as_ref())?;
            let answer = device.report(round, context, reward)?;
            let bytes = answer.report.encode(self.task.mechanism()).map_err(DeviceError::from)?;
            match self.batch.accept_bytes(&bytes) {
                Outcome::Released(sums) => return Ok(sums),
                Outcome::Refused(refusal) => return Err(refusal.into()),
                Outcome::Counted | Outcome::Duplicate => {}
            }
        }
    }

    fn in_bulk(&mut self) -> Result<BatchSums, SimulationError> {
        let mut randomizer = Randomizer::new(self.task.mechanism());
        let mut device = Device::simulated(self.task.clone(), &mut self.rng);
        let (people, model, coins) = (&mut self.people, self.model.as_ref(), &mut self.coins);
        let mut result = Ok(());
        let outcome = self.batch.fill(|round, sums| {
            while !sums.is_full() && result.is_ok() {
                result = people.serve_next(&mut device, model).map(|(context, reward)| {
                    let (counts, _) = randomizer.randomize(round, context, reward, coins);
                    sums.add(counts);
                });
            }
        });
        result?;
        match outcome {
            Outcome::Released(sums) => Ok(sums),
            Outcome::Refused(refusal) => Err(refusal.into()),
            Outcome::Counted | Outcome::Duplicate => Err(Refusal::Finished.into()),
        }
    }
}

struct People<E> {
    environment: E,
    arms: Vec<f64>,
    summary: Summary,
}

impl<E: Environment> People<E> {
    /// The next person plays what `device` chooses: the features of that arm, and the reward.
    fn serve_next<R: Rng>(
        &mut self,
        device: &mut Device<R>,
        model: Option<&Model>,
    ) -> Result<(&[f64], f64), SimulationError> {
        let d = self.environment.dimension();
        self.environment.next_person(&mut self.arms);
        let chosen = device.choose(model, self.arms.chunks_exact(d))?;
        let (mut best, mut sum, mut mean) = (f64::NEG_INFINITY, 0.0, 0.0);
        for (index, arm) in self.arms.chunks_exact(d).enumerate() {
            let reward = self.environment.mean_reward(arm);
            best = best.max(reward);
            sum += reward;
            if index == chosen {
                mean = reward;
            }
        }
        let context = &self.arms[chosen * d..(chosen + 1) * d];
        let reward = self.environment.draw_reward(context);
        let summary = &mut self.summary;
        summary.users += 1;
        summary.reward += reward;
        summary.reward_best += best;
        summary.reward_random += sum * d as f64 / self.arms.len() as f64;
        summary.regret += best - mean;
        Ok((context, reward))
    }
}
