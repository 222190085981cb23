use incrowd_bandit::{Estimate, NoisySums};
use incrowd_protocol::{LearnerConfig, MechanismHash, Model, ModelParts, Selection};

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
        let player = Player::new(aggregator.dimension(), selection, seed);
        let server = Server::new(aggregator.dimension(), mechanism, learner);
        Self { player, aggregator, server }
    }
}

impl<C: Aggregator> Algorithm for Untrusted<C> {
    fn dimension(&self) -> Option<usize> {
        Some(self.player.dimension)
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        self.player.choose(arms)
    }

    fn learn(&mut self, context: &[f64], reward: f64) -> Result<(), SimulationError> {
        if let Some(release) = self.aggregator.add(context, reward) {
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
    moment: Vec<f64>,
    gram: Vec<f64>,
    moment_variance: f64,
    gram_variance: f64,
    progress: Progress,
}

impl Server {
    fn new(dimension: usize, mechanism: MechanismHash, learner: LearnerConfig) -> Self {
        Self {
            mechanism,
            learner,
            moment: vec![0.0; dimension],
            gram: vec![0.0; incrowd_protocol::triangle(dimension)],
            moment_variance: 0.0,
            gram_variance: 0.0,
            progress: Progress::default(),
        }
    }

    fn absorb(&mut self, release: &Release) -> Option<Model> {
        for (sum, value) in self.moment.iter_mut().chain(&mut self.gram).zip(release.sums()) {
            *sum += value;
        }
        self.moment_variance += release.moment_variance();
        self.gram_variance += release.gram_variance();
        self.progress.batches += 1;
        let sums = NoisySums {
            moment: &self.moment,
            gram: &self.gram,
            moment_std: self.moment_variance.sqrt(),
            gram_std: self.gram_variance.sqrt(),
            releases: self.progress.batches as u32,
            floor: 1.0,
        };
        let estimate = Estimate::calibrated(&self.learner, &sums)?;
        let model = model(estimate, self.mechanism, self.progress)?;
        self.progress.models += 1;
        Some(model)
    }
}

/// The next model after `progress`; none if it could not be published.
pub(super) fn model(
    estimate: Estimate,
    mechanism: MechanismHash,
    progress: Progress,
) -> Option<Model> {
    let parts = ModelParts {
        mechanism,
        version: progress.models + 1,
        round: progress.batches as u32,
        theta: estimate.theta,
        width_factor: estimate.width_factor,
        confidence_width: estimate.ellipsoid.confidence_width,
    };
    parts.check().ok()
}
