use std::sync::Arc;

use incrowd_bandit::Bandit;
use incrowd_device::Arm;
use incrowd_protocol::{BatchSums, Blocks, TaskConfig};

use super::{Algorithm, Choice, Path, Progress, Rounds};
use crate::{ParameterEstimate, SimulationError};

/// The product itself: real devices, a real batch and a real bandit.
pub struct Sblb {
    task: Arc<TaskConfig>,
    rounds: Rounds,
    bandit: Bandit,
    models: u64,
}

impl Sblb {
    /// Before the first person. All coins come from `seed`.
    pub fn new(task: Arc<TaskConfig>, path: Path, seed: u64) -> Self {
        let mut rounds = Rounds::new(task.clone(), path, seed);
        let mut bandit = Bandit::new(task.clone());
        let first = bandit.start();
        let models = u64::from(first.is_some());
        if let Some(model) = first {
            rounds.devices().take(model);
        }
        Self { task, rounds, bandit, models }
    }

    /// The bandit, to look at its estimate.
    pub fn bandit(&self) -> &Bandit {
        &self.bandit
    }

    fn absorb(&mut self, sums: &BatchSums) -> Result<(), SimulationError> {
        if let Some(model) = self.bandit.absorb(sums)? {
            self.models += 1;
            self.rounds.devices().take(model);
        }
        Ok(())
    }
}

impl Algorithm for Sblb {
    fn blocks(&self) -> Option<Blocks> {
        Some(self.task.mechanism().blocks())
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        Ok(Choice::Arm(self.rounds.devices().choose(arms)?))
    }

    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError> {
        match self.rounds.add(arm, reward)? {
            Some(sums) => self.absorb(&sums),
            None => Ok(()),
        }
    }

    fn wait_until(&mut self, now: u64) -> Result<(), SimulationError> {
        while let Some(sums) = self.rounds.close(now)? {
            self.absorb(&sums)?;
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        Progress { models: self.models, ..self.rounds.progress() }
    }

    fn noise_std(&self) -> Option<f64> {
        let round = self.bandit.statistics().round();
        Some(incrowd_bandit::released_noise(&self.task, round).moment_variance.sqrt())
    }

    fn estimate(&self) -> Option<ParameterEstimate> {
        self.rounds.model().map(ParameterEstimate::from)
    }
}
