use std::sync::Arc;

use incrowd_protocol::{BatchSums, Model, ModelParts, ProtocolError, TaskConfig, UpdateRule};
use libm::log;
use thiserror::Error;

use crate::{
    Estimate, Statistics,
    confidence::{Frame, Setting},
    noise::Noise,
};

/// Why a release or a saved state is not taken. Nothing changed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum BanditError {
    /// Not a release of this mechanism.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Not the next round's release: releases are absorbed in order, each once.
    #[error("release is of round {found}, must be of round {next}")]
    Order {
        /// Round of the release.
        found: u32,
        /// Round that comes next.
        next: u32,
    },
    /// Statistics of another task, or damaged.
    #[error("the statistics are not of this task")]
    WrongStatistics,
}

/// The bandit of one task.
#[derive(Debug, Clone)]
pub struct Bandit {
    task: Arc<TaskConfig>,
    statistics: Statistics,
}

impl Bandit {
    /// Before the first release.
    pub fn new(task: Arc<TaskConfig>) -> Self {
        let statistics = Statistics::new(task.mechanism());
        Self { task, statistics }
    }

    /// Where it was when `statistics` were written down.
    pub fn resume(task: Arc<TaskConfig>, statistics: Statistics) -> Result<Self, BanditError> {
        if !statistics.fits(task.mechanism()) {
            return Err(BanditError::WrongStatistics);
        }
        Ok(Self { task, statistics })
    }

    /// What to write down.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Takes the next round's release; gives the new model when the update rule asks for one and V
    /// is positive definite.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Algorithm 1, step (b), and FixedBatchedShuffling-LinUCB of its
    /// appendix.
    /// # Deviation
    /// The first release always gives a model: before it there is none, and devices choose
    /// uniformly.
    pub fn absorb(&mut self, sums: &BatchSums) -> Result<Option<Model>, BanditError> {
        let mechanism = self.task.mechanism();
        let next = self.statistics.round + 1;
        if sums.mechanism() == mechanism.hash() && sums.round() != next {
            return Err(BanditError::Order { found: sums.round(), next });
        }
        sums.check(mechanism)?;
        let round = mechanism.round(next)?;
        self.statistics.add(mechanism, &round, sums);
        Ok(self.publish())
    }

    fn publish(&mut self) -> Option<Model> {
        let Estimate { theta, width_factor, ellipsoid } = self.estimate()?;
        let due = match (self.task.learner().config().update, self.statistics.published_log_det) {
            (UpdateRule::Determinant { growth }, Some(last)) => {
                ellipsoid.log_det >= last + log(1.0 + growth)
            }
            _ => true,
        };
        if !due {
            return None;
        }
        let parts = ModelParts {
            mechanism: self.statistics.mechanism,
            version: u64::from(self.statistics.models) + 1,
            round: self.statistics.round,
            theta,
            width_factor,
            confidence_width: ellipsoid.confidence_width,
        };
        // Checked like a device does: what is not finite or not positive definite is not published.
        let model = parts.check().ok()?;
        self.statistics.models += 1;
        self.statistics.published_log_det = Some(ellipsoid.log_det);
        Some(model)
    }

    /// Estimate and confidence after the releases so far; none before the first one, or if V is not
    /// positive definite in floats.
    pub fn estimate(&self) -> Option<Estimate> {
        let mechanism = self.task.mechanism();
        let releases = self.statistics.round;
        let setting = Setting {
            frame: Frame {
                learner: self.task.learner().config(),
                dimension: mechanism.dimension(),
                releases,
            },
            context_bound: mechanism.context_bound(),
            round: mechanism.round(releases).ok()?,
            noise: Noise::after(mechanism, releases),
        };
        let Statistics { moment, gram, .. } = &self.statistics;
        Estimate::new(&setting.frame, &setting.sizes(), moment, gram)
    }
}
