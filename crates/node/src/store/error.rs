use std::{io, path::PathBuf};

use incrowd_device::DeviceError;
use incrowd_protocol::TaskId;
use incrowd_shuffler::ResumeError;
use thiserror::Error;

use super::ReleaseHash;
use crate::{RoundKeyError, WentBack};

/// Why a store does not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be read or written: full, read-only, locked, gone.
    #[error("the store is not available: {0}")]
    Unavailable(#[from] rusqlite::Error),
    /// A file beside the database cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// Another process has the file open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// Not one of our files.
    #[error("{0} is not a store of this role")]
    Foreign(PathBuf),
    /// Written by an older version, for tasks of formats that are gone.
    #[error(
        "the store has schema version {found}, this program reads from {oldest}: its tasks have formats that are gone, begin with a new data folder"
    )]
    Older {
        /// Version found.
        found: i64,
        /// Oldest version this program reads.
        oldest: i64,
    },
    /// Written by a newer version.
    #[error("the store has schema version {found}, this program knows up to {known}: upgrade it")]
    Newer {
        /// Version found.
        found: i64,
        /// Newest version this program knows.
        known: i64,
    },
    /// Something in the file is not what was written.
    #[error("the store is damaged ({0}): restore a backup")]
    Damaged(String),
    /// A task that was not opened.
    #[error("task {0} is not in the store")]
    UnknownTask(TaskId),
    /// Somebody else has committed since the task was read.
    #[error("commit {found} does not follow the last one of the task, {last}")]
    Stale {
        /// The commit that was asked for.
        found: u64,
        /// The last one that the store has.
        last: u64,
    },
    /// The keys of rounds cannot be used.
    #[error(transparent)]
    RoundKeys(#[from] RoundKeyError),
    /// A key that entries of the log need is gone, and without them a report could count twice.
    #[error(
        "the key of round {round} of task {task} is gone (see shuffler.round_keys), and with it the ids of reports that could come again: bring the key back, or accept with shuffler.accept_lost_round_keys = true that the unfinished batch is discarded and late reports may count twice"
    )]
    RoundKeyLost {
        /// The task.
        task: TaskId,
        /// The round.
        round: u32,
    },
    /// A store that does not have a release that was seen.
    #[error(transparent)]
    WentBack(Box<WentBack>),
    /// Not a file of heads.
    #[error("{0} is not a file of heads (shuffler.heads)")]
    HeadsFile(PathBuf),
    /// A round's time is over, but what must fill its batch cannot be drawn.
    #[error("a round cannot be closed: {0}")]
    Pads(#[from] DeviceError),
    /// A round is released once.
    #[error("round {0} has another release already")]
    Released(u32),
    /// A release that follows another one than the last that was absorbed.
    #[error("the release follows {}, but the last one that was absorbed is {}", name(*.stated), name(*.stored))]
    Predecessor {
        /// The release before it, as stated.
        stated: Option<ReleaseHash>,
        /// The last release that the store has.
        stored: Option<ReleaseHash>,
    },
    /// A release that is not the next one: each is absorbed once, in order.
    #[error("round {found} was absorbed already or comes too early: the next one is {next}")]
    Order {
        /// Round found.
        found: u32,
        /// Round that comes next.
        next: u32,
    },
}

impl From<ResumeError> for StoreError {
    fn from(error: ResumeError) -> Self {
        Self::Damaged(error.to_string())
    }
}

fn name(release: Option<ReleaseHash>) -> String {
    release.map_or_else(|| "none".into(), |release| release.to_string())
}

/// Why a commit is not known to be durable.
#[derive(Debug, Error)]
pub enum CommitError {
    /// Nothing happened.
    #[error("nothing was committed: {0}")]
    NotCommitted(#[from] StoreError),
    /// It may have happened, wholly or not at all: only reading the log again tells.
    #[error("the commit may or may not be durable: {0}")]
    Unknown(#[source] StoreError),
}
