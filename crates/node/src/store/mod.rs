//! What survives a restart. Two traits, coarse and atomic: a call either happened and is durable, or nothing changed.

mod error;
mod memory;
mod sqlite;
mod sqlite_bandit;
mod sqlite_shuffler;

use incrowd_bandit::Statistics;
use incrowd_protocol::{Report, Task, TaskId};
use incrowd_shuffler::{Outcome, Refusal};

pub use error::StoreError;
pub use memory::{MemoryBanditStore, MemoryShufflerStore};
pub use sqlite::{backup, verify};
pub use sqlite_bandit::SqliteBanditStore;
pub use sqlite_shuffler::SqliteShufflerStore;

/// Reports of one request, all for one task.
pub struct Upload {
    /// The task they were sent to.
    pub task: TaskId,
    /// Decoded and valid reports.
    pub reports: Vec<Report>,
}

/// What became of a report, once that is durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Receipt {
    /// It counts.
    Counted,
    /// It counted before: to its sender this is the same.
    Duplicate,
    /// It does not count.
    Refused(Refusal),
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The round being filled; none when the task is finished or closed.
    pub round: Option<u32>,
    /// Reports in the unfinished batch.
    pub count: u32,
    /// Ids that may still come again.
    pub remembered: usize,
    /// Whether the operator ended the task.
    pub closed: bool,
}

/// The shuffler's memory.
///
/// # Privacy
/// Holds the sums of unfinished batches, the ids of the grace window and the releases; never a report, a time or an address.
pub trait ShufflerStore: Send + Sync {
    /// Makes the task known, or picks up where it was.
    fn open(&self, task: &Task) -> Result<Progress, StoreError>;

    /// Counts the reports of several requests, in order, in one durable step. After an error none of them counts.
    fn accept(&self, uploads: &[Upload]) -> Result<Vec<Vec<Receipt>>, StoreError>;

    /// How far a task is.
    fn progress(&self, task: &TaskId) -> Result<Progress, StoreError>;

    /// The bytes of a round's release: the same ones for the life of the task. None until its batch is full.
    fn release(&self, task: &TaskId, round: u32) -> Result<Option<Vec<u8>>, StoreError>;

    /// Ends a task: the unfinished batch and its ids are destroyed, the releases stay.
    fn close(&self, task: &TaskId) -> Result<Progress, StoreError>;

    /// Destroys what is left of earlier states of the sums. To be called when there is nothing else to do, and again if the answer is false: then
    /// somebody was reading.
    fn tidy(&self) -> Result<bool, StoreError>;

    /// Whether a report could be stored now.
    fn probe(&self) -> Result<(), StoreError>;
}

/// A published model as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredModel {
    /// Its version, from 1.
    pub version: u64,
    /// The exact bytes.
    pub bytes: Vec<u8>,
}

/// What the bandit learned from one release.
pub struct Step<'a> {
    /// The round of the release.
    pub round: u32,
    /// The exact bytes of the release.
    pub release: &'a [u8],
    /// The statistics with it.
    pub statistics: &'a Statistics,
    /// The model it led to, if there is a new one.
    pub model: Option<&'a StoredModel>,
}

/// The bandit's memory.
pub trait BanditStore: Send + Sync {
    /// Makes the task known, or picks up where it was: the statistics, if there are any.
    fn open(&self, task: &Task) -> Result<Option<Statistics>, StoreError>;

    /// Writes down a release, the statistics with it and the model, in one durable step. Each round comes once and in order.
    fn absorb(&self, task: &TaskId, step: &Step<'_>) -> Result<(), StoreError>;

    /// The newest model.
    fn model(&self, task: &TaskId) -> Result<Option<StoredModel>, StoreError>;

    /// Every model, oldest first.
    fn models(&self, task: &TaskId) -> Result<Vec<StoredModel>, StoreError>;

    /// Every absorbed release with its round, in order.
    fn releases(&self, task: &TaskId) -> Result<Vec<(u32, Vec<u8>)>, StoreError>;

    /// Whether a step could be stored now.
    fn probe(&self) -> Result<(), StoreError>;
}

/// A batch's outcome without the sums, which stay in the store.
pub(crate) fn receipt(outcome: Outcome) -> (Receipt, Option<incrowd_protocol::BatchSums>) {
    match outcome {
        Outcome::Counted => (Receipt::Counted, None),
        Outcome::Released(sums) => (Receipt::Counted, Some(sums)),
        Outcome::Duplicate => (Receipt::Duplicate, None),
        Outcome::Refused(refusal) => (Receipt::Refused(refusal), None),
    }
}
