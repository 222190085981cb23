//! Keys that protect what the shuffler's log says of a round, kept outside of the store.
//!
//! Whoever reads the disk after a round's key is destroyed reads nothing of the round, whatever the
//! file system, the medium or a backup kept of deleted blocks. `docs/decisions/0008-round-keys.md`
//! says why, and what survives what.

mod command;
mod error;
mod folder;
mod guarded_store;
mod seal;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use getrandom::{SysRng, rand_core::TryRng};
use incrowd_protocol::{TaskId, VerificationKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::store::Seq;
use command::KeyCommand;
pub use error::RoundKeyError;
use folder::KeyFolder;
pub use guarded_store::{GuardedStore, Loss};

/// The key of one round of one task: 32 random bytes, erased when dropped. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RoundKey(Zeroizing<[u8; 32]>);

impl RoundKey {
    /// A new key.
    pub fn generate() -> Result<Self, RoundKeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        SysRng.try_fill_bytes(bytes.as_mut_slice()).map_err(RoundKeyError::Randomness)?;
        Ok(Self(bytes))
    }

    /// The key that these bytes are.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Where the keys of rounds are.
///
/// # Privacy
/// The medium must not be the store's, or a thief has both. What it promises is that a destroyed
/// key is gone.
pub trait RoundKeys: Send + Sync {
    /// The key of a round, made if there is none. It is on the medium when this returns.
    fn get_or_create(&self, task: &TaskId, round: u32) -> Result<RoundKey, RoundKeyError>;

    /// The key of a round, if the medium has it. An error is not an absence.
    fn get(&self, task: &TaskId, round: u32) -> Result<Option<RoundKey>, RoundKeyError>;

    /// Destroys the keys of all earlier rounds of a task.
    fn destroy_before(&self, task: &TaskId, round: u32) -> Result<(), RoundKeyError>;

    /// Destroys all keys of a task, and what was noted of it.
    fn forget(&self, task: &TaskId) -> Result<(), RoundKeyError> {
        self.destroy_before(task, u32::MAX)
    }

    /// Notes the last commit of a task, without waiting for the medium. A store that has fewer
    /// commits at the next start has lost some.
    fn note_commit(&self, _task: &TaskId, _seq: Seq) {}

    /// The last commit that was noted, if the medium has it.
    fn noted_commit(&self, _task: &TaskId) -> Option<Seq> {
        None
    }

    /// Where the keys are and what survives what, for the operator.
    fn describe(&self) -> String;
}

/// Where the keys of rounds are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RoundKeysConfig {
    /// Files on a file system in memory: a kill keeps them, a reboot discards the open round.
    MemoryFile {
        /// The folder; below `/dev/shm` if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
    /// Files on a disk: a reboot keeps them, and a thief of that disk has them.
    File {
        /// The folder; `round-keys` in the data folder if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
    /// A program that asks a KMS or a TPM.
    Command {
        /// Program and first arguments.
        command: Vec<String>,
    },
}

/// Names a shuffler by its signing key, which is the same wherever it runs: the keys of rounds of
/// several may be on one medium.
pub(crate) fn service(key: &VerificationKey) -> TaskId {
    hex::encode(key.bytes()).parse().expect("invariant: both have 32 bytes")
}

/// The configured medium, for the shuffler of a data folder. Without a setting it is a
/// `memory-file` where that is possible, and otherwise a `file`, with a warning.
pub fn open(
    config: Option<&RoundKeysConfig>,
    data: &Path,
) -> Result<Arc<dyn RoundKeys>, RoundKeyError> {
    let on_disk = || data.join("round-keys");
    Ok(match config {
        None => match folder::default_in_memory(data)? {
            Some(path) => Arc::new(KeyFolder::in_memory(&path)?),
            None => {
                tracing::warn!(
                    "no file system in memory was found: the keys of rounds are on the disk, where a thief finds them"
                );
                Arc::new(KeyFolder::on_disk(&on_disk())?)
            }
        },
        Some(RoundKeysConfig::MemoryFile { path: Some(path) }) => {
            Arc::new(KeyFolder::in_memory(path)?)
        }
        Some(RoundKeysConfig::MemoryFile { path: None }) => {
            let path = folder::default_in_memory(data)?;
            let none = || RoundKeyError::NotInMemory { path: folder::SHARED_MEMORY.into() };
            Arc::new(KeyFolder::in_memory(&path.ok_or_else(none)?)?)
        }
        Some(RoundKeysConfig::File { path }) => {
            let path = path.clone().unwrap_or_else(on_disk);
            Arc::new(KeyFolder::on_disk(&path)?)
        }
        Some(RoundKeysConfig::Command { command }) => Arc::new(KeyCommand::new(command)?),
    })
}
