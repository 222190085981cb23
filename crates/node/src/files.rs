//! Where a service keeps what it needs, and the files that an operator gives it.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use incrowd_files::create_folder;
use incrowd_protocol::{Task, TaskId};
use incrowd_transport::Trust;

use crate::{KeyError, KeyRole, Role, ServiceError};

/// Where a node keeps what it needs.
pub struct Files {
    /// The folder.
    pub data: PathBuf,
    /// The shuffler's keys.
    pub shuffler_keys: PathBuf,
    /// The bandit's keys.
    pub bandit_keys: PathBuf,
    /// Hashes of the tokens.
    pub tokens: PathBuf,
    /// What tokens of single devices are made with.
    pub issuer: PathBuf,
    /// The shuffler's store.
    pub shuffler_store: PathBuf,
    /// The bandit's store.
    pub bandit_store: PathBuf,
    /// The last release of every task, if `shuffler.heads` names no other file.
    pub heads: PathBuf,
    /// The complete files of the tasks that were served.
    pub tasks: PathBuf,
}

impl Files {
    /// The files of a data folder.
    pub fn of(data: &Path) -> Self {
        Self {
            shuffler_keys: data.join("shuffler.keys"),
            bandit_keys: data.join("bandit.keys"),
            tokens: data.join("tokens.toml"),
            issuer: data.join("issuing.key"),
            shuffler_store: data.join("shuffler.db"),
            bandit_store: data.join("bandit.db"),
            heads: data.join("heads.json"),
            tasks: data.join("tasks"),
            data: data.to_owned(),
        }
    }

    /// The keys of a role.
    pub fn keys(&self, role: KeyRole) -> &Path {
        match role {
            KeyRole::Shuffler => &self.shuffler_keys,
            KeyRole::Bandit => &self.bandit_keys,
        }
    }

    /// The token that `serve` makes for a role, until the operator hands it over and deletes it.
    pub fn token(&self, role: Role) -> PathBuf {
        self.data.join(format!("{}.token", role.name()))
    }

    /// Every file with secrets, by name: who has them is this service. Not all of them need to be
    /// there.
    pub fn secrets(&self) -> Vec<(String, PathBuf)> {
        let made =
            [&self.shuffler_keys, &self.bandit_keys, &self.tokens, &self.issuer].map(Clone::clone);
        let all = made.into_iter().chain(Role::ALL.map(|role| self.token(role)));
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        all.filter_map(|path| Some((name(&path)?, path))).collect()
    }

    /// The complete file of a task that is or was served.
    pub fn kept_task(&self, task: &TaskId) -> PathBuf {
        self.tasks.join(format!("{task}.toml"))
    }

    /// Waits until no other command changes keys or tokens, and keeps others waiting until it is
    /// dropped. A service only reads them while it runs and does not hold this. Without a folder
    /// there is nothing to change, and no lock.
    pub fn lock_keys(&self) -> Result<Option<File>, KeyError> {
        if !self.data.is_dir() {
            return Ok(None);
        }
        let path = self.data.join("keys.lock");
        // Whoever can open the file can lock it.
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&path).and_then(|file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.lock()?;
            Ok(file)
        });
        lock.map(Some).map_err(|error| KeyError::File { path, error })
    }

    /// Keeps the complete files of tasks.
    pub(crate) fn keep_tasks(&self, tasks: &[Task]) -> Result<(), ServiceError> {
        create_folder(&self.tasks).map_err(failed(&self.tasks))?;
        for task in tasks {
            let path = self.kept_task(&task.id());
            let text = toml::to_string(task)
                .expect("invariant: a task was read from TOML and can be written as such");
            if fs::read(&path).is_ok_and(|kept| kept == text.as_bytes()) {
                continue;
            }
            incrowd_files::replace(&path, text.as_bytes()).map_err(failed(&path))?;
        }
        Ok(())
    }
}

/// What to trust: the certificates in a PEM file, or the system's.
pub fn trust(ca: Option<&Path>) -> Result<Trust, ServiceError> {
    let pem = ca.map(|path| fs::read(path).map_err(failed(path))).transpose()?;
    Ok(Trust::new(pem.as_deref()))
}

pub(crate) fn failed(path: &Path) -> impl FnOnce(io::Error) -> ServiceError {
    |error| ServiceError::File { path: path.to_owned(), error }
}
