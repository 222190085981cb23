use serde::{Deserialize, Serialize};

use crate::ProtocolError;

/// How wide the bandit believes its error to be; see `docs/confidence.md`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Confidence {
    /// The paper's equations with the slips repaired that can be without changing them; for
    /// reproduction, does not cover at small c.
    Paper {
        /// The paper's lambda, 1e-20 to 1e20.
        ridge: f64,
    },
    /// Covers the true parameter at every release with probability at least 1 -
    /// `failure_probability`; wide.
    Proven {},
    /// Widths from the law of the noise, scaled; the one to use.
    Calibrated {
        /// Factor on the width, 0 to 100.
        exploration: f64,
    },
}

/// When a release becomes a new model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum UpdateRule {
    /// When det V has grown by the factor 1 + `growth` since the last model (the paper's Algorithm
    /// 1).
    Determinant {
        /// The paper's eta, 1e-20 to 1e20.
        growth: f64,
    },
    /// At every release (the paper's FixedBatchedShuffling-LinUCB).
    EveryBatch {},
}

/// The unchecked form of a [`Learner`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnerConfig {
    /// Bound on the norm of the true parameter (S), 1e-20 to 1e20.
    pub parameter_bound: f64,
    /// Sub-Gaussian size of the reward noise (sigma), 1e-20 to 1e20; 1/2 is always valid for
    /// rewards in [0, 1].
    pub reward_noise: f64,
    /// Probability that the confidence fails (the paper's delta), above 0 and below 1.
    pub failure_probability: f64,
    /// How wide the confidence is.
    pub confidence: Confidence,
    /// When a release becomes a new model.
    pub update: UpdateRule,
    /// What earlier releases count for when the next one comes, above 0 and at most 1: below 1 the
    /// bandit forgets, and follows tastes that change.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub discount: f64,
}

fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(discount: &f64) -> bool {
    discount.to_bits() == 1f64.to_bits()
}

impl Default for LearnerConfig {
    /// Calibrated widths with exploration 0.2, the determinant rule with growth 0.5, S = 1, sigma =
    /// 1/2, delta = 0.05.
    fn default() -> Self {
        Self {
            parameter_bound: 1.0,
            reward_noise: 0.5,
            failure_probability: 0.05,
            confidence: Confidence::Calibrated { exploration: 0.2 },
            update: UpdateRule::Determinant { growth: 0.5 },
            discount: 1.0,
        }
    }
}

impl LearnerConfig {
    /// The valid learner, or the first rule that is violated.
    pub fn check(self) -> Result<Learner, ProtocolError> {
        let positive = |value: f64| (1e-20..=1e20).contains(&value);
        if !positive(self.parameter_bound) {
            return Err(ProtocolError::ParameterBound(self.parameter_bound));
        }
        if !positive(self.reward_noise) {
            return Err(ProtocolError::RewardNoise(self.reward_noise));
        }
        if !(self.failure_probability > 0.0 && self.failure_probability < 1.0) {
            return Err(ProtocolError::FailureProbability(self.failure_probability));
        }
        match self.confidence {
            Confidence::Paper { ridge } if !positive(ridge) => {
                return Err(ProtocolError::Ridge(ridge));
            }
            Confidence::Calibrated { exploration } if !(0.0..=100.0).contains(&exploration) => {
                return Err(ProtocolError::Exploration(exploration));
            }
            _ => {}
        }
        match self.update {
            UpdateRule::Determinant { growth } if !positive(growth) => {
                return Err(ProtocolError::DeterminantGrowth(growth));
            }
            _ => {}
        }
        self.check_discount()?;
        Ok(Learner(self))
    }
}

impl LearnerConfig {
    /// Discounted sums need not grow, so that det V may never grow again; and no width is proved
    /// for them.
    fn check_discount(&self) -> Result<(), ProtocolError> {
        let discount = self.discount;
        if !(discount > 0.0 && discount <= 1.0) {
            return Err(ProtocolError::Discount(discount));
        }
        let with = match (self.confidence, self.update) {
            _ if is_one(&discount) => return Ok(()),
            (Confidence::Proven {}, _) => "confidence mode \"proven\"",
            (Confidence::Paper { .. }, _) => "confidence mode \"paper\"",
            (_, UpdateRule::Determinant { .. }) => "update rule \"determinant\"",
            _ => return Ok(()),
        };
        Err(ProtocolError::DiscountWith { discount, with })
    }
}

/// Valid parameters of the bandit. They are post-processing: no privacy guarantee depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "LearnerConfig", into = "LearnerConfig")]
pub struct Learner(LearnerConfig);

impl Learner {
    /// The parameters, all within their ranges.
    pub fn config(&self) -> &LearnerConfig {
        &self.0
    }
}

impl TryFrom<LearnerConfig> for Learner {
    type Error = ProtocolError;
    fn try_from(config: LearnerConfig) -> Result<Self, ProtocolError> {
        config.check()
    }
}

impl From<Learner> for LearnerConfig {
    fn from(learner: Learner) -> Self {
        learner.0
    }
}
