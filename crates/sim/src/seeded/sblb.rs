use std::sync::Arc;

use incrowd_bandit::Bandit;
use incrowd_protocol::{BatchSums, TaskConfig};

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
        let (rounds, bandit) = (Rounds::new(task.clone(), path, seed), Bandit::new(task.clone()));
        Self { task, rounds, bandit, models: 0 }
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
    fn dimension(&self) -> Option<usize> {
        Some(self.task.mechanism().dimension())
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        Ok(Choice::Arm(self.rounds.devices().choose(arms)?))
    }

    fn learn(&mut self, context: &[f64], reward: f64) -> Result<(), SimulationError> {
        match self.rounds.add(context, reward)? {
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
        Some(incrowd_bandit::noise_variances(self.task.mechanism(), round).0.sqrt())
    }

    fn estimate(&self) -> Option<ParameterEstimate> {
        self.rounds.model().map(ParameterEstimate::from)
    }
}
