use incrowd_device::Arm;
use incrowd_protocol::{Blocks, Model, Selection};

use super::{Algorithm, Choice, Player, Progress};
use crate::{ParameterEstimate, SimulationError};

/// A server that is shown everybody's raw data.
pub trait TrustedServer {
    /// Takes one person's data; gives the new model when there is one.
    fn observe(&mut self, arm: Arm<'_>, reward: f64) -> Option<Model>;

    /// How far it has come.
    fn progress(&self) -> Progress;

    /// See [`Algorithm::noise_std`].
    fn noise_std(&self) -> Option<f64>;
}

/// People who send raw data to a server.
pub struct Trusted<S> {
    player: Player,
    server: S,
}

impl<S: TrustedServer> Trusted<S> {
    /// Before the first person.
    pub fn new(server: S, blocks: Blocks, selection: Selection, seed: u64) -> Self {
        Self { player: Player::new(blocks, selection, seed), server }
    }
}

impl<S: TrustedServer> Algorithm for Trusted<S> {
    fn blocks(&self) -> Option<Blocks> {
        Some(self.player.blocks)
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        self.player.choose(arms)
    }

    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError> {
        self.player.take(self.server.observe(arm, reward));
        Ok(())
    }

    fn progress(&self) -> Progress {
        self.server.progress()
    }

    fn noise_std(&self) -> Option<f64> {
        self.server.noise_std()
    }

    fn estimate(&self) -> Option<ParameterEstimate> {
        self.player.model().map(ParameterEstimate::from)
    }
}
