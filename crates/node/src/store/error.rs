use std::{io, path::PathBuf};

use incrowd_protocol::TaskId;
use thiserror::Error;

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
    /// A release that is not the next one: each is absorbed once, in order.
    #[error("round {found} was absorbed already or comes too early: the next one is {next}")]
    Order {
        /// Round found.
        found: u32,
        /// Round that comes next.
        next: u32,
    },
}
