use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    Learner, Mechanism, Policy, Prior, ProtocolError, TaskConfig, hex32::hex32, task::TaskParts,
};

/// A public Ed25519 key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VerificationKey(pub [u8; 32]);
hex32!(VerificationKey, "a verification key");

/// A public X25519 key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SealingPublicKey(pub [u8; 32]);
hex32!(SealingPublicKey, "a sealing key");

/// Who may speak for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerificationKeys {
    /// Signs the task's notice, the rounds and the releases.
    pub shuffler: VerificationKey,
    /// Signs the models.
    pub bandit: VerificationKey,
}

/// Identity of a task: the hash of its mechanism and of the keys that may speak for it. A device
/// pins it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId([u8; 32]);
hex32!(TaskId, "a task id");

impl TaskId {
    /// SHA-256 over the canonical bytes of `docs/formats.md`.
    pub fn of(mechanism: &Mechanism, keys: &VerificationKeys) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"incrowd/task/v1\0");
        hash.update(mechanism.hash().bytes());
        hash.update(keys.shuffler.bytes());
        hash.update(keys.bandit.bytes());
        Self(hash.finalize().into())
    }
}

/// A task that services run: what the planner wrote, and who may speak for it. The same type in a
/// TOML file and as JSON on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Task {
    #[serde(flatten)]
    config: TaskConfig,
    keys: VerificationKeys,
    #[serde(skip)]
    id: TaskId,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    mechanism: Mechanism,
    #[serde(default)]
    learner: Learner,
    #[serde(default)]
    policy: Policy,
    #[serde(default)]
    actions: Vec<String>,
    #[serde(default)]
    prior: Option<Prior>,
    keys: VerificationKeys,
}

impl Task {
    /// The task with its id.
    pub fn new(config: TaskConfig, keys: VerificationKeys) -> Self {
        let id = TaskId::of(config.mechanism(), &keys);
        Self { config, keys, id }
    }

    /// What a device pins.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// What the planner wrote.
    pub fn config(&self) -> &TaskConfig {
        &self.config
    }

    /// What every privacy guarantee depends on.
    pub fn mechanism(&self) -> &Mechanism {
        self.config.mechanism()
    }

    /// Who may speak for the task.
    pub fn keys(&self) -> &VerificationKeys {
        &self.keys
    }
}

impl TryFrom<Parts> for Task {
    type Error = ProtocolError;
    fn try_from(parts: Parts) -> Result<Self, ProtocolError> {
        let Parts { mechanism, learner, policy, actions, prior, keys } = parts;
        let parts = TaskParts { mechanism, learner, policy, actions, prior };
        Ok(Self::new(parts.try_into()?, keys))
    }
}
