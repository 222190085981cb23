use std::{io, net::SocketAddr, path::PathBuf};

use incrowd_bandit::BanditError;
use incrowd_files::SecretError;
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
    /// A secret file.
    #[error(transparent)]
    Secret(#[from] SecretError),
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
    #[error("{path} is no task file: {message}")]
    TaskFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// No task to serve.
    #[error("there is no task to serve: give --task with a file that `incrowd task new` made")]
    NoTask,
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
