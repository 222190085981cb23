use incrowd_bandit::{Estimates, NoisySums};
use incrowd_device::Arm;
use incrowd_protocol::{Blocks, LearnerConfig, MechanismHash, Model, Selection};

use super::{Aggregator, Algorithm, Choice, Player, Progress, Release};
use crate::{ParameterEstimate, SimulationError};

/// People, what protects them, and a server that takes nothing but releases.
pub struct Untrusted<C> {
    player: Player,
    aggregator: C,
    server: Server,
}

impl<C: Aggregator> Untrusted<C> {
    /// Before the first person. Models carry the hash of the aggregator's mechanism.
    pub fn new(
        aggregator: C,
        mechanism: MechanismHash,
        learner: LearnerConfig,
        selection: Selection,
        seed: u64,
    ) -> Self {
        let player = Player::new(aggregator.blocks(), selection, seed);
        let server = Server::new(aggregator.blocks(), mechanism, learner);
        Self { player, aggregator, server }
    }
}

impl<C: Aggregator> Algorithm for Untrusted<C> {
    fn blocks(&self) -> Option<Blocks> {
        Some(self.player.blocks)
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        self.player.choose(arms)
    }

    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError> {
        if let Some(release) = self.aggregator.add(arm, reward) {
            self.player.take(self.server.absorb(&release));
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        self.server.progress
    }

    fn noise_std(&self) -> Option<f64> {
        Some(self.server.moment_variance.sqrt())
    }

    fn estimate(&self) -> Option<ParameterEstimate> {
        self.player.model().map(ParameterEstimate::from)
    }
}

/// Adds up releases; a model from each.
struct Server {
    mechanism: MechanismHash,
    learner: LearnerConfig,
    blocks: Blocks,
    sums: Vec<f64>,
    moment_variance: f64,
    gram_variance: f64,
    progress: Progress,
}

impl Server {
    fn new(blocks: Blocks, mechanism: MechanismHash, learner: LearnerConfig) -> Self {
        Self {
            mechanism,
            learner,
            blocks,
            sums: vec![0.0; blocks.coordinates()],
            moment_variance: 0.0,
            gram_variance: 0.0,
            progress: Progress::default(),
        }
    }

    fn absorb(&mut self, release: &Release) -> Option<Model> {
        self.sums.iter_mut().zip(release.sums()).for_each(|(sum, value)| *sum += value);
        self.moment_variance += release.moment_variance();
        self.gram_variance += release.gram_variance();
        self.progress.batches += 1;
        let sums = NoisySums {
            blocks: self.blocks,
            sums: &self.sums,
            moment_std: self.moment_variance.sqrt(),
            gram_std: self.gram_variance.sqrt(),
            releases: self.progress.batches as u32,
            floor: 1.0,
        };
        let estimates = Estimates::calibrated(&self.learner, &sums)?;
        let model = model(estimates, self.blocks, self.mechanism, self.progress)?;
        self.progress.models += 1;
        Some(model)
    }
}

/// The next model after `progress`; none if it could not be published.
pub(super) fn model(
    estimates: Estimates,
    blocks: Blocks,
    mechanism: MechanismHash,
    progress: Progress,
) -> Option<Model> {
    let number = (progress.models + 1, progress.batches as u32);
    let actions: Vec<_> = (0..blocks.slots()).map(|slot| Some(slot.to_string())).collect();
    estimates.into_parts(mechanism, number, &actions).check().ok()
}
