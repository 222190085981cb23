use std::{io, net::SocketAddr, path::PathBuf};

use incrowd_bandit::BanditError;
use incrowd_protocol::TaskId;
use incrowd_transport::TransportError;
use thiserror::Error;

use crate::{ConfigError, KeyError, LimitError, StoreError};

/// Why a service does not start, or ends.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Keys or tokens.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task tells more about a person than the operator allows.
    #[error("task refused: {0}")]
    Limit(#[from] LimitError),
    /// The stored statistics are not the task's.
    #[error(transparent)]
    Bandit(#[from] BanditError),
    /// A task file that is none.
    #[error("{path} cannot be used as a task file: {message}")]
    TaskFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// No task to serve.
    #[error(
        "there is no task to serve\nhint: make one with `incrowd plan ... --task-file task.toml`, then give --task task.toml"
    )]
    NoTask,
    /// A task file that is not there.
    #[error(
        "there is no task file {0}\nhint: `incrowd plan ... --task-file {0}` makes one; a task that was served is also named by its id"
    )]
    NoTaskFile(PathBuf),
    /// An id of no task that was served from a data folder.
    #[error("no task whose id begins with {id} was served from this data folder ({folder})")]
    NoTaskOfId {
        /// What was given.
        id: String,
        /// Where such tasks are kept.
        folder: PathBuf,
    },
    /// The beginning of several ids.
    #[error("several tasks in {folder} have ids that begin with {id}: give more digits")]
    ManyTasks {
        /// What was given.
        id: String,
        /// Where they are.
        folder: PathBuf,
    },
    /// The same task from two files.
    #[error("{first} and {second} are the same task {task}: leave one out")]
    TaskTwice {
        /// The task.
        task: TaskId,
        /// Its file.
        first: PathBuf,
        /// And again.
        second: PathBuf,
    },
    /// A token file that is not there.
    #[error(
        "there is no token file {0}\nhint: the operator of the service makes a token with `incrowd keys token`"
    )]
    NoTokenFile(PathBuf),
    /// A task that names another key for this role.
    #[error(
        "task {task} names another key for the {role} than this one's: it is another operator's task"
    )]
    OtherKey {
        /// The task.
        task: TaskId,
        /// This role.
        role: &'static str,
    },
    /// A file that is needed.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// Another service cannot be asked.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// The gateway's key.
    #[error("the Oblivious HTTP gateway's key cannot be made")]
    Gateway,
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What happened.
        error: io::Error,
    },
    /// The bandit has no token for the shuffler.
    #[error(
        "bandit.token_file is missing: it has the token that the shuffler's operator made with `incrowd keys token --role bandit`"
    )]
    NoToken,
}
