//! A baseline, which takes features of norm at most 1, among people with another bound.

use incrowd_device::Arm;
use incrowd_protocol::Blocks;
use incrowd_sim::{Algorithm, Choice, ParameterEstimate, Progress, SimulationError};

/// Divides features by L before they are shown to an algorithm.
pub(super) struct InUnitsOf {
    bound: f64,
    algorithm: Box<dyn Algorithm + Send>,
    scaled: Vec<f64>,
}

impl InUnitsOf {
    /// `algorithm` itself if the bound is 1.
    pub fn wrap(bound: f64, algorithm: Box<dyn Algorithm + Send>) -> Box<dyn Algorithm + Send> {
        if bound.total_cmp(&1.0).is_eq() {
            return algorithm;
        }
        Box::new(Self { bound, algorithm, scaled: Vec::new() })
    }

    fn scale(&mut self, features: &[f64]) {
        self.scaled.clear();
        self.scaled.extend(features.iter().map(|entry| entry / self.bound));
    }
}

impl Algorithm for InUnitsOf {
    fn blocks(&self) -> Option<Blocks> {
        self.algorithm.blocks()
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        self.scale(arms);
        self.algorithm.choose(&self.scaled)
    }

    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError> {
        self.scale(arm.features);
        self.algorithm.learn(Arm { features: &self.scaled, ..arm }, reward)
    }

    fn wait_until(&mut self, now: u64) -> Result<(), SimulationError> {
        self.algorithm.wait_until(now)
    }

    fn progress(&self) -> Progress {
        self.algorithm.progress()
    }

    fn noise_std(&self) -> Option<f64> {
        self.algorithm.noise_std()
    }

    fn estimate(&self) -> Option<ParameterEstimate> {
        self.algorithm.estimate().map(|estimate| estimate.scaled(self.bound))
    }
}
