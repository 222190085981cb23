use std::{io, path::PathBuf, time::Duration};

use incrowd_device::DeviceError;
use incrowd_files::SecretError;
use incrowd_protocol::TaskId;
use incrowd_shuffler::ResumeError;
use thiserror::Error;
use tokio_postgres::error::SqlState;

use super::ReleaseHash;
use crate::{RoundKeyError, WentBack};

/// Why a store does not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be read or written: full, read-only, locked, gone.
    #[error("the store is not available: {0}")]
    Unavailable(#[from] rusqlite::Error),
    /// The database server does not answer as it should: gone, full, read-only, restarting.
    #[error("the database refuses or does not answer: {}", said(.0))]
    Database(#[source] tokio_postgres::Error),
    /// The database did not answer in time.
    #[error("the database did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// Somebody else has the task's row for too long.
    #[error(
        "the task is locked in the database: by another node, or a program with an open transaction"
    )]
    Locked,
    /// All sessions are in use, or somebody else does the same.
    #[error(
        "the database is busy: all of postgres.connections are in use, or somebody else does the same"
    )]
    Busy,
    /// The last try to connect failed a moment ago.
    #[error("the database could not be reached a moment ago")]
    Unreachable,
    /// Two transactions were in each other's way. The same again may work.
    #[error("the database gave up a transaction because of another one: {}", said(.0))]
    Conflict(#[source] tokio_postgres::Error),
    /// The commit was not replicated as the server is set to do.
    #[error("the database committed without waiting for its standby")]
    NotReplicated,
    /// A server that acknowledges what a crash loses.
    #[error(
        "{setting} is off on the database server, must be on: what is acknowledged would not survive a crash"
    )]
    NotDurable {
        /// Which of the server's settings.
        setting: &'static str,
    },
    /// A server that takes no commits.
    #[error(
        "the database server is a standby: name the primary too (postgres://USER@HOST1,HOST2/DATABASE)"
    )]
    Standby,
    /// A server that was not tested.
    #[error("the database server is PostgreSQL {found}, must be {oldest} or newer")]
    ServerVersion {
        /// Version found.
        found: i32,
        /// Oldest version that works.
        oldest: i32,
    },
    /// TLS to the database.
    #[error("TLS to the database: {0}")]
    Tls(String),
    /// The password.
    #[error(transparent)]
    Password(#[from] SecretError),
    /// No thread for the database's connections.
    #[error("no thread can be started for the database: {0}")]
    Thread(#[source] io::Error),
    /// A step of statistics that do not know the newest model.
    #[error("the step follows model {found}, but the newest is {newest}")]
    Models {
        /// The newest model that the statistics know.
        found: u64,
        /// The newest that the store has.
        newest: u64,
    },
    /// A task that was moved to another store.
    #[error("task {0} was moved to another store (`incrowd task move`)")]
    Moved(TaskId),
    /// A task between two stores.
    #[error(
        "task {0} is being moved to another store and nothing counts meanwhile: repeat `incrowd task move` to the end"
    )]
    Moving(TaskId),
    /// A task that is to be moved to a store which has it already.
    #[error("task {0} is in the store already, and it is not what was moved there before")]
    Known(TaskId),
    /// Nodes that do not share what they must.
    #[error(
        "{what} of this node differs from that of the nodes which use the database already: {rule}"
    )]
    OtherNodes {
        /// What is different.
        what: &'static str,
        /// What to do.
        rule: &'static str,
    },
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

/// What the server said; otherwise, what happened to the connection.
fn said(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

impl StoreError {
    /// Whether another node of the database was faster with the same step.
    pub(crate) fn is_overtaken(&self) -> bool {
        matches!(self, Self::Order { .. } | Self::Predecessor { .. } | Self::Models { .. })
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Locked,
            Some(&(SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED)) => {
                Self::Conflict(error)
            }
            _ => Self::Database(error),
        }
    }
}

impl From<ResumeError> for StoreError {
    fn from(error: ResumeError) -> Self {
        Self::Damaged(error.to_string())
    }
}

fn name(release: Option<ReleaseHash>) -> String {
    release.map_or_else(|| "none".into(), |release| release.to_string())
}

impl From<CommitError> for StoreError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::NotCommitted(error) | CommitError::Unknown(error) => error,
        }
    }
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
