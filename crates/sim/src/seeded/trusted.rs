use incrowd_protocol::{Model, Selection};

use super::{Algorithm, Choice, Player, Progress};
use crate::{ParameterEstimate, SimulationError};

/// A server that is shown everybody's raw data.
pub trait TrustedServer {
    /// Takes one person's data; gives the new model when there is one.
    fn observe(&mut self, context: &[f64], reward: f64) -> Option<Model>;

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
    pub fn new(server: S, dimension: usize, selection: Selection, seed: u64) -> Self {
        Self { player: Player::new(dimension, selection, seed), server }
    }
}

impl<S: TrustedServer> Algorithm for Trusted<S> {
    fn dimension(&self) -> Option<usize> {
        Some(self.player.dimension)
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        self.player.choose(arms)
    }

    fn learn(&mut self, context: &[f64], reward: f64) -> Result<(), SimulationError> {
        self.player.take(self.server.observe(context, reward));
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
