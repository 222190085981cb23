use incrowd_bandit::{Estimates, NoisySums};
use incrowd_device::Arm;
use incrowd_protocol::{Blocks, LearnerConfig, MechanismHash, Model};

use super::{Progress, TrustedServer, untrusted::model};
use crate::coordinates::for_each_coordinate;

/// Ridge of the regression without noise.
const RIDGE: f64 = 1.0;

/// LinUCB without privacy: a model after every person, or only when det V has doubled.
///
/// # Reference
/// Abbasi-Yadkori, Pal, Szepesvari 2011, OFUL and its rarely switching form.
pub struct LinUcb {
    learner: LearnerConfig,
    blocks: Blocks,
    rarely_switching: bool,
    /// Sums of r x and tril(x x').
    sums: Vec<f64>,
    people: u64,
    models: u64,
    published_log_det: f64,
}

impl LinUcb {
    /// Before the first person. Exploration 0 is the greedy algorithm.
    pub fn new(blocks: Blocks, learner: LearnerConfig, rarely_switching: bool) -> Self {
        Self {
            learner,
            blocks,
            rarely_switching,
            sums: vec![0.0; blocks.coordinates()],
            people: 0,
            models: 0,
            published_log_det: f64::NEG_INFINITY,
        }
    }
}

/// What models carry where no mechanism protects anyone: the hash of a name.
fn no_mechanism() -> MechanismHash {
    MechanismHash::of(b"incrowd/no-privacy")
}

impl TrustedServer for LinUcb {
    fn observe(&mut self, arm: Arm<'_>, reward: f64) -> Option<Model> {
        for_each_coordinate(self.blocks, arm, reward, |i, value| self.sums[i] += value);
        self.people += 1;
        let sums = NoisySums {
            blocks: self.blocks,
            sums: &self.sums,
            moment_std: 0.0,
            gram_std: 0.0,
            releases: 1,
            floor: RIDGE,
        };
        let estimates = Estimates::calibrated(&self.learner, &sums)?;
        let log_det = estimates.log_det();
        if self.rarely_switching && log_det < self.published_log_det + std::f64::consts::LN_2 {
            return None;
        }
        let batches = self.people.min(u64::from(u32::MAX));
        let progress = Progress { batches, models: self.models, ..Progress::default() };
        let model = model(estimates, self.blocks, no_mechanism(), progress)?;
        self.published_log_det = log_det;
        self.models += 1;
        Some(model)
    }

    fn progress(&self) -> Progress {
        Progress { batches: self.people, models: self.models, ..Progress::default() }
    }

    fn noise_std(&self) -> Option<f64> {
        None
    }
}
