use serde::{Deserialize, Serialize};

use crate::{Mechanism, ProtocolError, Round, SealingPublicKey, Task, TaskId, wire};

/// What the shuffler tells everyone about a task. It is signed, so that a device that pins the
/// task's id can trust the keys in it.
///
/// Other fields, such as the certificate for people, are ignored by devices, which compute their
/// own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskNotice {
    /// The task's id, which follows from the rest.
    pub id: TaskId,
    /// The task.
    pub task: Task,
    /// Keys to seal reports to.
    pub sealing_keys: Vec<SealingKey>,
    /// Where the models are, when it is not where this notice is.
    pub model_url: Option<String>,
    /// Hex of the Oblivious HTTP key configurations, when the shuffler has a gateway.
    pub gateway_keys: Option<String>,
}

/// A public X25519 key that reports are sealed to (`docs/formats.md`, Sealed report).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealingKey {
    /// Its number within the shuffler, 0 to 255.
    pub id: u8,
    /// The key, 64 hex digits.
    pub key: SealingPublicKey,
    /// What it is for.
    pub state: KeyState,
}

/// Where a sealing key is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyState {
    /// Published ahead of its use: opens reports, but none are sealed to it yet.
    Pending,
    /// Reports are sealed to the last active key of the list; the others still open.
    Active,
    /// Opens nothing any more: its secret is erased.
    Expired,
}

impl TaskNotice {
    /// The key to seal the next report to.
    pub fn sealing_key(&self) -> Option<&SealingKey> {
        self.sealing_keys.iter().rfind(|key| key.state == KeyState::Active)
    }
}

/// The round whose batch is being filled, and what its reports are made with. Signed by the
/// shuffler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundNotice {
    /// The task.
    pub task: TaskId,
    /// The round. Required; `null` once the task is over, and before the first window opens.
    #[serde(deserialize_with = "Option::deserialize")]
    pub round: Option<Round>,
    /// The shuffler's clock where batches close by time, in milliseconds since 1970, cut to whole
    /// seconds; `null` where they close by count. Required.
    #[serde(with = "wire::nullable_integer")]
    pub time: Option<u64>,
}

impl RoundNotice {
    /// The notice of a task's current round.
    pub fn new(task: TaskId, round: Option<Round>, time: Option<u64>) -> Self {
        Self { task, round, time }
    }

    /// The round, if it is one of this task's mechanism with the law that the mechanism says;
    /// nothing when the task is over.
    pub fn check(
        &self,
        task: TaskId,
        mechanism: &Mechanism,
    ) -> Result<Option<Round>, ProtocolError> {
        if self.task != task {
            return Err(ProtocolError::Task);
        }
        let Some(round) = self.round else { return Ok(None) };
        if round != mechanism.round(round.number)? {
            return Err(ProtocolError::RoundLaw(round.number));
        }
        Ok(self.round)
    }
}
