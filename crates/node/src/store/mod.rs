//! What survives a restart.
//!
//! A shuffler's store is a locked, append-only log of opaque bytes with its own clock: the node
//! decides what becomes of a report, the store makes that durable. A bandit's store is a chain of
//! steps, each bound to the release before it. One suite tests every store of a role
//! (`tests/it/conformance.rs`, `tests/it/store.rs`); `docs/decisions/0006-store-seam.md` says why
//! the seam is here.

mod error;
mod memory;
mod postgres;
mod release;
mod rows;
mod sqlite;
mod sqlite_bandit;
mod sqlite_shuffler;
mod stores;

use std::{sync::Arc, time::SystemTime};

use incrowd_bandit::Statistics;
use incrowd_protocol::{Task, TaskId};
use incrowd_shuffler::Entry;

pub use error::{CommitError, StoreError};
pub use incrowd_protocol::ReleaseHash;
pub use memory::{MemoryBanditStore, MemoryShufflerStore};
pub(crate) use postgres::PostgresSettings;
pub use postgres::{PostgresBanditStore, PostgresShufflerStore};
pub use release::SignedRelease;
pub use sqlite::{backup, verify};
pub use sqlite_bandit::SqliteBanditStore;
pub use sqlite_shuffler::SqliteShufflerStore;
pub use stores::Stores;

/// Tells the time in place of the system's clock, in tests.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The number of a commit of a task. Every commit has the next one, and its entries carry it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// The number of the next commit.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Where a task's log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last commit, 0 before the first.
    pub seq: Seq,
    /// The round being filled; one more than the last round when the task is finished.
    pub round: u32,
    /// The last release; none before the first.
    pub last: Option<ReleaseHash>,
    /// Whether the operator ended the task.
    pub state: TaskState,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: Seq(0), round: 1, last: None, state: TaskState::Open }
    }
}

/// Whether a task takes reports, apart from its schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Until its last round is released.
    Open,
    /// The operator ended it.
    Closed,
    /// It is on its way to another store, or from one to this. Nothing counts meanwhile.
    Moving,
    /// It is in another store now.
    Moved,
}

impl TaskState {
    /// Whether a task is counted in this store, if it is counted anywhere.
    pub(crate) fn is_here(self, task: &TaskId) -> Result<(), StoreError> {
        match self {
            Self::Open | Self::Closed => Ok(()),
            Self::Moving => Err(StoreError::Moving(*task)),
            Self::Moved => Err(StoreError::Moved(*task)),
        }
    }
}

/// What a commit does to one task: appends, then drops.
pub struct Change {
    /// Entries of this commit. At most one is a snapshot or a delta, and at most one has the ids of
    /// a round.
    pub append: Vec<Entry>,
    /// Releases by their round. A round is released once.
    pub releases: Vec<(u32, SignedRelease)>,
    /// Snapshots and deltas of earlier commits than this one go.
    pub drop_sums_before: Seq,
    /// Ids up to this commit that are of earlier rounds than this one go; 0 if none do. With a
    /// release of an open task, or at the end of one, it does not fall, and no ids of earlier
    /// rounds come later, until [`ShufflerStore::forget`] has removed what was dropped. Otherwise
    /// they may.
    pub drop_ids_before: u32,
    /// The head afterwards. Its `seq` must follow the current one, or nothing is committed.
    pub head: Head,
}

impl Change {
    /// A change that only moves the head.
    pub fn to(head: Head) -> Self {
        let (append, releases) = (Vec::new(), Vec::new());
        Self { append, releases, drop_sums_before: Seq(0), drop_ids_before: 0, head }
    }
}

/// The readable side of a shuffler's store.
pub trait Log {
    /// Where the log of a task stands.
    fn head(&self, task: &TaskId) -> Result<Head, StoreError>;

    /// What was appended after a commit, in order; within a commit the sums come first. Whole
    /// commits only: as many as have `max_bytes` together, and at least one if there is one.
    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError>;

    /// The store's clock, the same one for every process that uses the store. It may jump, back
    /// and forth.
    fn now(&self) -> SystemTime;

    /// Changes when another server answers than before: what was read from the earlier one may not
    /// be what this one has.
    fn incarnation(&self) -> u64 {
        0
    }
}

/// What a store does that several processes use at the same time.
pub trait Shared {
    /// Waits until everything that is visible now is as durable as a commit of one's own. What
    /// another process committed can be visible before a standby has it.
    fn confirm(&self) -> Result<(), StoreError>;

    /// The value that all nodes have of something: what the first one gave, or this one from now on
    /// with `replace`.
    fn agree(&self, name: &str, value: &[u8], replace: bool) -> Result<Vec<u8>, StoreError>;

    /// Which database it is, by whatever name it is reached.
    fn identity(&self) -> Result<String, StoreError>;

    /// What all nodes have of something; none if nobody gave it.
    fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;
}

/// The shuffler's memory.
///
/// # Privacy
/// Holds what [`Entry`] says and the releases; never a time or an address. What was dropped is
/// unreadable after [`ShufflerStore::forget`].
pub trait ShufflerStore: Log + Send + Sync {
    /// Makes the task known, or picks up where it was.
    fn open(&self, task: &TaskId) -> Result<Head, StoreError>;

    /// Waits until nobody else can commit to these tasks. They must be known and in ascending
    /// order, so that two callers never wait for each other.
    fn lock<'a>(&'a self, tasks: &[TaskId]) -> Result<Box<dyn Turn + 'a>, StoreError>;

    /// A round's release: the same bytes for the life of the task. None until its batch is full, or
    /// its time is over.
    fn release(&self, task: &TaskId, round: u32) -> Result<Option<SignedRelease>, StoreError>;

    /// Makes everything that was dropped unreadable, a bounded amount at a time. False if there is
    /// more, or a reader is in the way: call it again later.
    fn forget(&self) -> Result<bool, StoreError>;

    /// Whether a commit would work now.
    fn check_writable(&self) -> Result<(), StoreError>;

    /// The tasks in the store and where each stands.
    fn tasks(&self) -> Result<Vec<(TaskId, Head)>, StoreError>;

    /// Removes all of a task: sums, ids and releases. Whether there was something.
    fn purge(&self, task: &TaskId) -> Result<bool, StoreError>;

    /// What the store does for other processes; none if this one has it alone.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }
}

/// The right to commit to some tasks. Dropped, nothing happened.
pub trait Turn: Log {
    /// Makes all changes durable in one step, or none of them.
    fn commit(self: Box<Self>, changes: Vec<(TaskId, Change)>) -> Result<(), CommitError>;
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
    /// The release that was absorbed before it; none for the first.
    pub previous: Option<ReleaseHash>,
    /// The exact bytes of the release.
    pub release: &'a [u8],
    /// The statistics with it.
    pub statistics: &'a Statistics,
    /// The model it led to, if there is a new one.
    pub model: Option<&'a StoredModel>,
}

impl Learned {
    /// Whether there is nothing to be imported, because a store has it all among its releases and
    /// models.
    fn is_known(
        &self,
        task: &TaskId,
        releases: &[(u32, Vec<u8>)],
        models: usize,
    ) -> Result<bool, StoreError> {
        if releases.is_empty() && models == 0 {
            return Ok(false);
        }
        let same = self.releases.last().is_none_or(|last| releases.contains(last));
        if same && self.models.len() <= models { Ok(true) } else { Err(StoreError::Known(*task)) }
    }
}

impl Step<'_> {
    /// What this step follows.
    fn before(&self) -> Position {
        let models = models_before(self.statistics, self.model);
        Position { round: self.round.saturating_sub(1), last: self.previous, models }
    }
}

/// The version of the newest model before these statistics and their model.
fn models_before(statistics: &Statistics, model: Option<&StoredModel>) -> u64 {
    u64::from(statistics.models()).saturating_sub(model.is_some().into())
}

/// How far a bandit is with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// The last round that was absorbed, 0 before the first.
    round: u32,
    /// Its release.
    last: Option<ReleaseHash>,
    /// Version of the newest model, 0 before the first.
    models: u64,
}

impl Position {
    /// Whether what was computed from this position can be written down where a store is.
    fn check(&self, stored: &Self) -> Result<(), StoreError> {
        if self.round != stored.round {
            return Err(StoreError::Order { found: self.round + 1, next: stored.round + 1 });
        }
        if self.last != stored.last {
            return Err(StoreError::Predecessor { stated: self.last, stored: stored.last });
        }
        if self.models != stored.models {
            return Err(StoreError::Models { found: self.models, newest: stored.models });
        }
        Ok(())
    }
}

/// Where a bandit's task stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Absorbed {
    /// The statistics of all releases so far.
    pub statistics: Statistics,
    /// The last of them; none before the first.
    pub last: Option<ReleaseHash>,
}

/// All that a bandit has of a task, to be moved to another store.
pub struct Learned {
    /// Where it stands; none before the first model.
    pub absorbed: Option<Absorbed>,
    /// Every absorbed release with its round, in order.
    pub releases: Vec<(u32, Vec<u8>)>,
    /// Every model, oldest first.
    pub models: Vec<StoredModel>,
}

/// The bandit's memory.
pub trait BanditStore: Send + Sync {
    /// Makes the task known, or picks up where it was; none before the first step.
    fn open(&self, task: &Task) -> Result<Option<Absorbed>, StoreError>;

    /// Writes down a model that no release led to, and the statistics with it, in one durable step:
    /// the first one, or one for other actions. The statistics must be of the last round that was
    /// absorbed and the model must be the next one; otherwise nothing changes.
    fn publish(
        &self,
        task: &TaskId,
        statistics: &Statistics,
        model: &StoredModel,
    ) -> Result<(), StoreError>;

    /// Writes down a release, the statistics with it and the model, in one durable step. Each round
    /// comes once and in order, the release before it must be the stated one, and the statistics
    /// must know every model; otherwise nothing changes.
    fn absorb(&self, task: &TaskId, step: &Step<'_>) -> Result<(), StoreError>;

    /// The newest model.
    fn model(&self, task: &TaskId) -> Result<Option<StoredModel>, StoreError>;

    /// Every model, oldest first.
    fn models(&self, task: &TaskId) -> Result<Vec<StoredModel>, StoreError>;

    /// Every absorbed release with its round, in order.
    fn releases(&self, task: &TaskId) -> Result<Vec<(u32, Vec<u8>)>, StoreError>;

    /// Whether a step could be stored now.
    fn check_writable(&self) -> Result<(), StoreError>;

    /// The tasks in the store and the last round that each has absorbed, 0 before the first.
    fn tasks(&self) -> Result<Vec<(TaskId, u32)>, StoreError>;

    /// Writes down what another store has of a task, in one durable step. A task that has learned
    /// something here is left as it is, if that is the same or goes on from it, and refused
    /// otherwise.
    fn import(&self, task: &TaskId, learned: &Learned) -> Result<(), StoreError>;

    /// Removes all of a task: releases, statistics and models. Whether there was something.
    fn purge(&self, task: &TaskId) -> Result<bool, StoreError>;

    /// What the store does for other processes; none if this one has it alone.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }
}
