//! What learner and mechanism are told, beside the limits on privacy.

use incrowd_protocol::{
    HonestFraction, LearnerConfig, MechanismConfig, Participations, UpdateRule,
};
use serde::{Deserialize, Serialize};

use super::{AlgorithmConfig, AlgorithmName, ExperimentConfig, ExperimentError, cross, range};

/// Numbers that a user must know or guess. Defaults are those of a task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Assumptions {
    /// Bound on the norm of the parameter that the learner is told (S).
    pub parameter_bound: f64,
    /// Bound on the norm of contexts (L): the mechanism's; people's features are scaled to it.
    pub context_bound: f64,
    /// Sub-Gaussian size of the reward noise that the learner is told (sigma).
    pub reward_noise: f64,
    /// A model is published when det V has grown by 1 plus this (eta); sblb and sblb-growing.
    pub determinant_growth: f64,
    /// Probability that the confidence fails.
    pub failure_probability: f64,
    /// Share of the reports that are surely honest; sblb.
    pub honest_fraction: f64,
    /// Reports that one person may send, which the guarantee covers; sblb.
    pub participations: u32,
}

impl Default for Assumptions {
    fn default() -> Self {
        let learner = LearnerConfig::default();
        Self {
            parameter_bound: learner.parameter_bound,
            context_bound: 1.0,
            reward_noise: learner.reward_noise,
            determinant_growth: match learner.update {
                UpdateRule::Determinant { growth } => growth,
                UpdateRule::EveryBatch {} => 0.0,
            },
            failure_probability: learner.failure_probability,
            honest_fraction: HonestFraction::ALL.get(),
            participations: Participations::ONE.get(),
        }
    }
}

impl Assumptions {
    /// Every combination that an experiment lists.
    pub(super) fn grid(config: &ExperimentConfig) -> Vec<Self> {
        let mut all = vec![Self::default()];
        all = cross(all, &config.parameter_bounds, |one, value| one.parameter_bound = value);
        all = cross(all, &config.context_bounds, |one, value| one.context_bound = value);
        all = cross(all, &config.reward_noises, |one, value| one.reward_noise = value);
        all = cross(all, &config.determinant_growths, |one, value| one.determinant_growth = value);
        all = cross(all, &config.failure_probabilities, |one, value| {
            one.failure_probability = value;
        });
        all = cross(all, &config.honest_fractions, |one, value| one.honest_fraction = value);
        cross(all, &config.participations, |one, value| one.participations = value)
    }

    /// Refuses a number out of its range.
    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        for (what, value) in [
            ("parameter_bound", self.parameter_bound),
            ("reward_noise", self.reward_noise),
            ("determinant_growth", self.determinant_growth),
        ] {
            let fits = |value: f64| (1e-20..=1e20).contains(&value);
            range::check(what, Some(value), fits, "from 1e-20 to 1e20")?;
        }
        let (what, value) = ("failure_probability", self.failure_probability);
        range::check(what, Some(value), |p| p > 0.0 && p < 1.0, "above 0 and below 1")?;
        HonestFraction::new(self.honest_fraction)
            .map_err(|error| error.named("honest_fraction"))?;
        Participations::new(self.participations)?;
        Ok(())
    }

    /// Refuses what an algorithm's certificate does not cover.
    pub(super) fn check_with(&self, algorithm: &AlgorithmConfig) -> Result<(), ExperimentError> {
        let needs =
            |needs| Err(ExperimentError::Needs { algorithm: algorithm.label().into(), needs });
        let name = algorithm.name;
        if name.is_sblb() || !name.is_private() {
            return Ok(());
        }
        if self.participations != Participations::ONE.get() {
            return needs("participations = [1]: its certificate is about one report of a person");
        }
        let everyone = HonestFraction::new(self.honest_fraction)? == HonestFraction::ALL;
        if !everyone && name.has_shared_noise() {
            return needs("honest_fractions = [1]: its noise is made by everyone together");
        }
        Ok(())
    }

    /// Without what does not matter to an algorithm.
    pub(super) fn relevant_to(self, name: AlgorithmName) -> Self {
        let mut relevant = self.of_plan(name);
        relevant.context_bound = self.context_bound;
        if name.explores() {
            relevant.parameter_bound = self.parameter_bound;
            relevant.reward_noise = self.reward_noise;
            relevant.failure_probability = self.failure_probability;
        }
        if matches!(name, AlgorithmName::Sblb | AlgorithmName::SblbGrowing) {
            relevant.determinant_growth = self.determinant_growth;
        }
        relevant
    }

    /// Without what no plan and no certificate of an algorithm depends on: what the learner is told
    /// is post-processing, and the baselines' mechanisms are in units of L.
    pub(super) fn of_plan(self, name: AlgorithmName) -> Self {
        if !name.is_sblb() {
            return Self::default();
        }
        let Self { context_bound, honest_fraction, participations, .. } = self;
        Self { context_bound, honest_fraction, participations, ..Self::default() }
    }

    /// The mechanism with these numbers.
    pub(super) fn mechanism(&self, mechanism: MechanismConfig) -> MechanismConfig {
        MechanismConfig {
            context_bound: self.context_bound,
            honest_fraction: self.honest_fraction,
            participations: self.participations,
            ..mechanism
        }
    }

    /// The learner with these numbers.
    pub(super) fn learner(&self, learner: LearnerConfig) -> LearnerConfig {
        let update = match learner.update {
            UpdateRule::Determinant { .. } => {
                UpdateRule::Determinant { growth: self.determinant_growth }
            }
            UpdateRule::EveryBatch {} => UpdateRule::EveryBatch {},
        };
        LearnerConfig {
            parameter_bound: self.parameter_bound,
            reward_noise: self.reward_noise,
            failure_probability: self.failure_probability,
            update,
            ..learner
        }
    }

    /// What is not as usual, in words; empty if all is.
    pub fn words(&self) -> String {
        let usual = Self::default();
        let number = |name: &str, value: f64, usual: f64| {
            value.total_cmp(&usual).is_ne().then(|| format!("{name} = {value}"))
        };
        let participations = f64::from(self.participations);
        let words = [
            number("S", self.parameter_bound, usual.parameter_bound),
            number("L", self.context_bound, usual.context_bound),
            number("sigma", self.reward_noise, usual.reward_noise),
            number("eta", self.determinant_growth, usual.determinant_growth),
            number("failure probability", self.failure_probability, usual.failure_probability),
            number("honest fraction", self.honest_fraction, usual.honest_fraction),
            number("participations", participations, f64::from(usual.participations)),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
