//! The tidy table an experiment leaves behind: one row per run, and one per point of its curve.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::{Assumptions, ExperimentError, cell::digest, file};

/// What makes a run comparable with others: everything but the algorithm and the seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Kind of environment.
    pub environment: String,
    /// Number of features (d).
    pub dimension: u32,
    /// Arms of a person (K); the most, if it differs.
    pub arms: u32,
    /// People (T).
    pub horizon: u64,
    /// Limit asked for; none: no limit.
    pub central_epsilon: Option<f64>,
    /// Limit asked for; none: no limit.
    pub local_epsilon: Option<f64>,
    /// Batch size asked for; none: the planner's.
    pub batch_size: Option<u32>,
    /// What learner and mechanism are told.
    #[serde(flatten)]
    pub assumptions: Assumptions,
}

/// One run: an algorithm in a setting with a seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Label of the algorithm.
    pub algorithm: String,
    /// `default` or `tuned`: where `exploration` comes from.
    pub variant: String,
    /// See [`Setting`].
    pub environment: String,
    /// See [`Setting`].
    pub dimension: u32,
    /// See [`Setting`].
    pub arms: u32,
    /// See [`Setting`].
    pub horizon: u64,
    /// See [`Setting`].
    pub central_epsilon: Option<f64>,
    /// See [`Setting`].
    pub local_epsilon: Option<f64>,
    /// See [`Setting`].
    pub batch_size: Option<u32>,
    /// Seed of the run.
    pub seed: u64,
    /// Factor on the confidence width.
    pub exploration: Option<f64>,
    /// Expected reward lost against the best arm; none if the environment does not know the means.
    pub regret: Option<f64>,
    /// The same for a uniformly random choice.
    pub regret_random: Option<f64>,
    /// Sum of the rewards.
    pub reward: f64,
    /// People who counted.
    pub people: u64,
    /// Batches released.
    pub batches: u64,
    /// Models published.
    pub model_versions: u64,
    /// Proved about one report on the wire.
    pub epsilon_local_certified: Option<f64>,
    /// Proved about releases and models.
    pub epsilon_central_certified: Option<f64>,
    /// Delta of what is proved.
    pub delta: Option<f64>,
    /// Whether the two epsilons are proved for the very mechanism that ran.
    pub certified: bool,
    /// Standard deviation of the noise of the final sums, per coordinate.
    pub noise_std: Option<f64>,
    /// Reports in released batches; none for baselines.
    #[serde(default)]
    pub reports: Option<u64>,
    /// Pads in released batches; none where they close by count.
    #[serde(default)]
    pub pads: Option<u64>,
    /// Reports beyond the capacity of their round; none where batches close by count.
    #[serde(default)]
    pub surplus: Option<u64>,
    /// People whose report was never sent.
    #[serde(default)]
    pub dropped: u64,
    /// Sum of the rewards of all other people.
    #[serde(default)]
    pub reward_sent: f64,
    /// Standard error of the mean reward per person, from the rewards of this run; none with one
    /// person.
    #[serde(default)]
    pub reward_stderr: Option<f64>,
    /// |theta - theta*| of the last model; none without one, or if nobody knows theta*.
    #[serde(default)]
    pub theta_error: Option<f64>,
    /// Whether |theta - theta*|_V was at most the width that the last model was used with.
    #[serde(default)]
    pub covered: Option<bool>,
    /// See [`Assumptions`].
    #[serde(default = "usual::parameter_bound")]
    pub parameter_bound: f64,
    /// See [`Assumptions`].
    #[serde(default = "usual::context_bound")]
    pub context_bound: f64,
    /// See [`Assumptions`].
    #[serde(default = "usual::reward_noise")]
    pub reward_noise: f64,
    /// See [`Assumptions`].
    #[serde(default = "usual::determinant_growth")]
    pub determinant_growth: f64,
    /// See [`Assumptions`].
    #[serde(default = "usual::failure_probability")]
    pub failure_probability: f64,
    /// See [`Assumptions`].
    #[serde(default = "usual::honest_fraction")]
    pub honest_fraction: f64,
    /// See [`Assumptions`].
    #[serde(default = "usual::participations")]
    pub participations: u32,
    /// Name of the run in `curves.csv`: a hash of algorithm, variant, setting and seed. Empty in
    /// tables of earlier versions.
    #[serde(default)]
    pub key: String,
}

/// What tables of earlier versions do not say.
mod usual {
    use super::Assumptions;

    macro_rules! usual {
        ($($field:ident: $number:ty),*) => {
            $(pub fn $field() -> $number { Assumptions::default().$field })*
        };
    }
    usual!(
        parameter_bound: f64,
        context_bound: f64,
        reward_noise: f64,
        determinant_growth: f64,
        failure_probability: f64,
        honest_fraction: f64,
        participations: u32
    );
}

/// One point of a run's curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Index of the run in the table, from 0.
    pub run: u64,
    /// People so far.
    pub people: u64,
    /// Regret so far; the sum of rewards where regret is unknown.
    pub regret: f64,
    /// Key of the run in the table. Empty in files of earlier versions, where `run` is all there
    /// is.
    #[serde(default)]
    pub key: String,
}

impl Row {
    /// Whether the certified central epsilon keeps to the setting's limit.
    pub fn keeps_the_limit(&self) -> bool {
        let proved = self.epsilon_central_certified;
        self.central_epsilon.is_none_or(|limit| proved.is_some_and(|epsilon| epsilon <= limit))
    }

    /// Share of pads in released batches; none where they close by count.
    pub fn padding(&self) -> Option<f64> {
        let (pads, reports) = (self.pads? as f64, self.reports? as f64);
        (pads + reports > 0.0).then(|| pads / (pads + reports))
    }

    /// Share of the people whose report its round had no room for; none where batches close by
    /// count.
    pub fn surplus_share(&self) -> Option<f64> {
        Some(self.surplus? as f64 / self.people as f64)
    }

    /// What its key should be.
    pub(super) fn make_key(&self) -> String {
        let identity = (&self.algorithm, &self.variant, self.setting(), self.seed);
        let mut key = digest(&identity);
        key.truncate(16);
        key
    }

    /// The setting it was run in.
    pub fn setting(&self) -> Setting {
        Setting {
            environment: self.environment.clone(),
            dimension: self.dimension,
            arms: self.arms,
            horizon: self.horizon,
            central_epsilon: self.central_epsilon,
            local_epsilon: self.local_epsilon,
            batch_size: self.batch_size,
            assumptions: Assumptions {
                parameter_bound: self.parameter_bound,
                context_bound: self.context_bound,
                reward_noise: self.reward_noise,
                determinant_growth: self.determinant_growth,
                failure_probability: self.failure_probability,
                honest_fraction: self.honest_fraction,
                participations: self.participations,
            },
        }
    }
}

/// Writes rows as CSV with a header.
pub(super) fn write<T: Serialize>(path: &Path, rows: &[T]) -> Result<(), ExperimentError> {
    file::replace(path, |file| {
        let mut writer = csv::Writer::from_writer(file);
        for row in rows {
            writer.serialize(row).map_err(io::Error::from)?;
        }
        writer.flush()
    })
}
