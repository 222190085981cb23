use std::{io, net::SocketAddr, path::PathBuf};

use incrowd_bandit::BanditError;
use incrowd_files::SecretError;
use incrowd_protocol::TaskId;
use incrowd_transport::TransportError;
use thiserror::Error;

use crate::{ConfigError, Files, GatewayError, KeyError, KeyRole, LimitError, StoreError};

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
    /// Keys that only the operator makes.
    #[error(
        "{path} does not exist: make it with `incrowd keys new --role {role} --data {data}`, or bring it from where the service was"
    )]
    NoKeys {
        /// Which file.
        path: PathBuf,
        /// Whose.
        role: &'static str,
        /// The data folder.
        data: PathBuf,
    },
    /// Stores of a service whose keys are gone.
    #[error(
        "{path} does not exist, but the stores in {data} have tasks, which name its key: new keys would be another service. Put the file back (`incrowd task restore` with the passphrase of a backup that has the secrets does), or begin in another data folder"
    )]
    LostKeys {
        /// Which file.
        path: PathBuf,
        /// The data folder.
        data: PathBuf,
    },
    /// Stores of a service whose tokens are gone.
    #[error(
        "{path} does not exist, but the stores beside it have tasks: devices hold tokens that nobody would know. Put the file back, or make new tokens with `incrowd keys token --role device --data {data} --out device.token` (and --role admin), which devices must get"
    )]
    LostTokens {
        /// Which file.
        path: PathBuf,
        /// The data folder.
        data: PathBuf,
    },
    /// No issuing secret, where tokens of single devices are taken.
    #[error(
        "{path} does not exist, and shuffler.admission is device-tokens: put it back if devices have tokens, or make it with `incrowd keys issuer --data {data}`"
    )]
    NoIssuer {
        /// Which file.
        path: PathBuf,
        /// The data folder.
        data: PathBuf,
    },
    /// A file in the place of a token that is none.
    #[error(
        "{path} is not a token of the role {role}: `serve` would write one there, so move the file away"
    )]
    NotAToken {
        /// Which file.
        path: PathBuf,
        /// Whose token it should be.
        role: &'static str,
    },
    /// A task in the store that is not over and that nobody names.
    #[error(
        "task {task} is in the store of {data} and not known to be over, but no task file names it: was it planned anew? Serve it too (--task {task} where {data}/tasks has its file), or remove what there is of it with `incrowd task purge {task} --data {data}`"
    )]
    Leftover {
        /// The task.
        task: TaskId,
        /// The data folder.
        data: PathBuf,
    },
    /// Two settings with one store.
    #[error("both settings have the same stores, {store}, must be different ones")]
    SameStore {
        /// Which.
        store: String,
    },
    /// A task that is to be removed and would be begun anew.
    #[error(
        "task {task} is named by {path}, so the next start would begin it anew: take the file out of the settings first"
    )]
    StillNamed {
        /// The task.
        task: TaskId,
        /// The file.
        path: PathBuf,
    },
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
    /// The gateway of a relay.
    #[error(transparent)]
    RelayGateway(#[from] GatewayError),
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

impl ServiceError {
    /// A key file is missing in a folder whose stores have tasks, or not.
    pub(crate) fn no_keys(files: &Files, role: KeyRole, has_tasks: bool) -> Self {
        let (path, data) = (files.keys(role).to_owned(), files.data.clone());
        if has_tasks {
            return Self::LostKeys { path, data };
        }
        Self::NoKeys { path, role: role.name(), data }
    }
}
