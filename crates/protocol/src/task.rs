use serde::{Deserialize, Serialize};

use crate::{Confidence, Layout, Learner, Mechanism, Prior, ProtocolError, model::check_actions};

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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prior: Option<Prior>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskParts {
    pub mechanism: Mechanism,
    #[serde(default)]
    pub learner: Learner,
    #[serde(default)]
    pub policy: Policy,
    #[serde(default)]
    pub actions: Vec<String>,
    #[serde(default)]
    pub prior: Option<Prior>,
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
            return Err(ProtocolError::BelowPolicy { smallest, policy: policy.smallest_batch() });
        }
        let paper = matches!(learner.config().confidence, Confidence::Paper { .. });
        if paper && mechanism.schedule().stages().iter().any(|s| s.law.as_bits().is_none()) {
            return Err(ProtocolError::PaperWidths);
        }
        if paper && mechanism.layout() != Layout::Shared {
            return Err(ProtocolError::PaperLayout);
        }
        Ok(Self { mechanism, learner, policy, actions: Vec::new(), prior: None })
    }

    /// The same with the actions that its slots stand for, in the order of the slots. Slots beyond
    /// them are spare, and so are those whose name is empty. Without a list slot 0 is the action
    /// "0", and so on.
    pub fn with_actions(mut self, actions: Vec<String>) -> Result<Self, ProtocolError> {
        let slots = self.mechanism.blocks().slots();
        if actions.len() > slots {
            return Err(ProtocolError::Actions { found: actions.len(), slots });
        }
        check_actions(actions.iter().map(String::as_str).filter(|action| !action.is_empty()))?;
        self.actions = actions;
        Ok(self)
    }

    /// The same with another policy.
    pub fn with_policy(self, policy: Policy) -> Result<Self, ProtocolError> {
        let task = Self::new(self.mechanism, self.learner, policy)?;
        Ok(Self { actions: self.actions, prior: self.prior, ..task })
    }

    /// The same with what is known before the first report.
    pub fn with_prior(mut self, prior: Prior) -> Result<Self, ProtocolError> {
        prior.check_for(self.mechanism.blocks())?;
        match self.learner.config().confidence {
            Confidence::Paper { .. } => return Err(ProtocolError::PaperLayout),
            Confidence::Proven {} => return Err(ProtocolError::ProvenPrior),
            Confidence::Calibrated { .. } => {}
        }
        self.prior = Some(prior);
        Ok(self)
    }

    /// What every privacy guarantee depends on.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// How the bandit learns.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// The action of each slot; none for spare ones.
    pub fn actions(&self) -> Vec<Option<String>> {
        let slots = self.mechanism.blocks().slots();
        let action = |slot: usize| match self.actions.get(slot) {
            Some(action) => Some(action.clone()).filter(|action| !action.is_empty()),
            None => self.actions.is_empty().then(|| slot.to_string()),
        };
        (0..slots).map(action).collect()
    }

    /// What is known before the first report.
    pub fn prior(&self) -> Option<&Prior> {
        self.prior.as_ref()
    }

    /// Selection rule and limits.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

impl TryFrom<TaskParts> for TaskConfig {
    type Error = ProtocolError;
    fn try_from(parts: TaskParts) -> Result<Self, ProtocolError> {
        let task = Self::new(parts.mechanism, parts.learner, parts.policy)?;
        let task = task.with_actions(parts.actions)?;
        match parts.prior {
            Some(prior) => task.with_prior(prior),
            None => Ok(task),
        }
    }
}
