use serde::{Deserialize, Serialize};

use crate::{Confidence, Learner, Mechanism, ProtocolError};

/// How a device picks its action from a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selection {
    /// The largest upper confidence bound (the paper's rule).
    Ucb {},
    /// The largest reward under a parameter drawn on the device from N(theta, (scale * confidence
    /// width)^2 V^-1): explores within a batch where equal arms would all get the same choice.
    Sampled {
        /// Factor on the confidence width, 0 to 100.
        scale: f64,
    },
}

impl Default for Selection {
    fn default() -> Self {
        Self::Ucb {}
    }
}

/// The unchecked form of a [`Policy`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// How devices pick actions.
    #[serde(default)]
    pub selection: Selection,
    /// No batch of the schedule may be smaller.
    #[serde(default = "one")]
    pub smallest_batch: u32,
    /// Whether the shuffler also takes reports that are not sealed to its key.
    #[serde(default)]
    pub plain_reports: bool,
}

fn one() -> u32 {
    1
}

/// Valid limits and rules that are neither privacy mechanism nor learner.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "PolicyConfig", into = "PolicyConfig")]
pub struct Policy(PolicyConfig);

impl PolicyConfig {
    /// The valid policy, or the rule that is violated.
    pub fn check(self) -> Result<Policy, ProtocolError> {
        match self.selection {
            Selection::Sampled { scale } if !(0.0..=100.0).contains(&scale) => {
                Err(ProtocolError::Scale(scale))
            }
            _ => Ok(Policy(self)),
        }
    }
}

impl Policy {
    /// How devices pick actions.
    pub fn selection(&self) -> Selection {
        self.0.selection
    }

    /// Whether the shuffler also takes reports that are not sealed to its key.
    pub fn plain_reports(&self) -> bool {
        self.0.plain_reports
    }

    /// No batch of the schedule is smaller.
    pub fn smallest_batch(&self) -> u32 {
        self.0.smallest_batch
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { selection: Selection::Ucb {}, smallest_batch: 1, plain_reports: false }
    }
}

impl TryFrom<PolicyConfig> for Policy {
    type Error = ProtocolError;
    fn try_from(config: PolicyConfig) -> Result<Self, ProtocolError> {
        config.check()
    }
}

impl From<Policy> for PolicyConfig {
    fn from(policy: Policy) -> Self {
        policy.0
    }
}

/// A whole task: what is private, how it learns, and what is allowed. The same type in a TOML file
/// and as JSON on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TaskParts")]
pub struct TaskConfig {
    mechanism: Mechanism,
    learner: Learner,
    policy: Policy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskParts {
    mechanism: Mechanism,
    #[serde(default)]
    learner: Learner,
    #[serde(default)]
    policy: Policy,
}

impl TaskConfig {
    /// A task whose schedule keeps to its policy.
    pub fn new(
        mechanism: Mechanism,
        learner: Learner,
        policy: Policy,
    ) -> Result<Self, ProtocolError> {
        let smallest = mechanism.schedule().smallest_batch();
        if smallest < policy.smallest_batch() {
            return Err(ProtocolError::Size(smallest, policy.smallest_batch()));
        }
        let paper = matches!(learner.config().confidence, Confidence::Paper { .. });
        if paper && mechanism.schedule().stages().iter().any(|s| s.law.as_bits().is_none()) {
            return Err(ProtocolError::PaperWidths);
        }
        Ok(Self { mechanism, learner, policy })
    }

    /// What every privacy guarantee depends on.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// How the bandit learns.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// Selection rule and limits.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

impl TryFrom<TaskParts> for TaskConfig {
    type Error = ProtocolError;
    fn try_from(parts: TaskParts) -> Result<Self, ProtocolError> {
        Self::new(parts.mechanism, parts.learner, parts.policy)
    }
}
