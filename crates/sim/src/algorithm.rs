//! What every algorithm does: choose for one person after the other, and learn.

use incrowd_device::Arm;
use incrowd_protocol::Blocks;

use crate::{ParameterEstimate, SimulationError};

/// What a person plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The arm with this index.
    Arm(usize),
    /// The arm with the largest expected reward, which only the simulation knows.
    Best,
}

/// How far an algorithm has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Batches released.
    pub batches: u64,
    /// Models published.
    pub models: u64,
    /// Reports in released batches; 0 where none are sent.
    pub reports: u64,
    /// Pads in released batches, where they close by time.
    pub pads: u64,
    /// Reports beyond the capacity of their round, which were dropped, where rounds close by time.
    pub surplus: u64,
}

/// Chooses for one person after the other, and learns.
pub trait Algorithm {
    /// The layout it is made for; none if any will do.
    fn blocks(&self) -> Option<Blocks>;

    /// What the next person plays, chosen on the person's device from the published model: `arms`
    /// holds the features of the arms, one row after the other. Where there are slots, arm i has
    /// slot i.
    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError>;

    /// Learns the reward of the choice. Whoever implements this hands the raw values to whom its
    /// trust model names, and to nobody else.
    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError>;

    /// Time goes on to `now`, in milliseconds since the first round opens: whatever closes until
    /// then is closed. Called before everything else that happens at that time, if there is a
    /// clock.
    fn wait_until(&mut self, _now: u64) -> Result<(), SimulationError> {
        Ok(())
    }

    /// How far it has come.
    fn progress(&self) -> Progress;

    /// Standard deviation of the noise in the sums behind the newest model, per coordinate and in
    /// units of L; none without noise.
    fn noise_std(&self) -> Option<f64>;

    /// What the newest published model says about the parameter; none without a model.
    fn estimate(&self) -> Option<ParameterEstimate> {
        None
    }
}

impl<T: Algorithm + ?Sized> Algorithm for Box<T> {
    fn blocks(&self) -> Option<Blocks> {
        (**self).blocks()
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        (**self).choose(arms)
    }

    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError> {
        (**self).learn(arm, reward)
    }

    fn wait_until(&mut self, now: u64) -> Result<(), SimulationError> {
        (**self).wait_until(now)
    }

    fn progress(&self) -> Progress {
        (**self).progress()
    }

    fn noise_std(&self) -> Option<f64> {
        (**self).noise_std()
    }

    fn estimate(&self) -> Option<ParameterEstimate> {
        (**self).estimate()
    }
}
