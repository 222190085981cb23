//! Task files: what a planner wrote, or a task with its keys.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use incrowd_protocol::{Task, TaskConfig, VerificationKeys};
use toml::Table;

use crate::{Files, KeyRole, Keys, ServiceError};

/// Hex digits of a task's id that are enough to name it, if no other begins with them.
const SHORTEST_ID: usize = 6;

/// What is in a task file.
pub enum TaskFile {
    /// A planner's: it has no id before somebody's keys complete it.
    Plan(TaskConfig),
    /// With keys: what is served and pinned.
    Task(Task),
}

impl TaskFile {
    /// Reads a file, or says which key breaks which rule.
    pub fn read(path: &Path) -> Result<Self, ServiceError> {
        let text = fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ServiceError::NoTaskFile(path.to_owned()),
            _ => ServiceError::File { path: path.to_owned(), error },
        })?;
        let wrong = |error: toml::de::Error| {
            let message = error.to_string().trim_end().replace("\nin `", " (in `");
            let message = if message.ends_with('`') { message + ")" } else { message };
            ServiceError::TaskFile { path: path.to_owned(), message }
        };
        let table: Table = text.parse().map_err(wrong)?;
        if table.contains_key("keys") {
            return Ok(Self::Task(table.try_into().map_err(wrong)?));
        }
        Ok(Self::Plan(table.try_into().map_err(wrong)?))
    }

    /// The same, completed with these keys if it has none.
    #[must_use]
    pub fn with_keys(self, own: Option<VerificationKeys>) -> Self {
        match (self, own) {
            (Self::Plan(config), Some(keys)) => Self::Task(Task::new(config, keys)),
            (file, _) => file,
        }
    }
}

/// Reads a task file. One without keys is completed with the node's own, when it has both.
pub fn load_task(path: &Path, own: Option<VerificationKeys>) -> Result<Task, ServiceError> {
    match TaskFile::read(path)?.with_keys(own) {
        TaskFile::Task(task) => Ok(task),
        TaskFile::Plan(_) => Err(no_keys(path)),
    }
}

fn no_keys(path: &Path) -> ServiceError {
    ServiceError::TaskFile {
        path: path.to_owned(),
        message: "it has no [keys]: complete it with `incrowd task new`".into(),
    }
}

impl Files {
    /// The verification keys of the folder, if it has those of both roles.
    pub fn verification_keys(&self) -> Result<Option<VerificationKeys>, ServiceError> {
        let roles = [KeyRole::Shuffler, KeyRole::Bandit];
        if !roles.iter().all(|role| self.keys(*role).exists()) {
            return Ok(None);
        }
        let key =
            |role| Ok::<_, ServiceError>(Keys::load(self.keys(role), role)?.verification_key());
        let [shuffler, bandit] = roles.map(key);
        Ok(Some(VerificationKeys { shuffler: shuffler?, bandit: bandit? }))
    }

    /// The file that an argument means: a file, or the id (or its beginning) of a task that was
    /// served from this folder.
    pub fn task_file(&self, argument: &Path) -> Result<PathBuf, ServiceError> {
        let id = argument
            .to_str()
            .filter(|id| id.len() >= SHORTEST_ID && id.bytes().all(|b| b.is_ascii_hexdigit()));
        let (Some(id), false) = (id, argument.exists()) else { return Ok(argument.to_owned()) };
        let folder = self.tasks.clone();
        let kept = fs::read_dir(&folder).into_iter().flatten().flatten();
        let id = id.to_ascii_lowercase();
        let meant = |path: &PathBuf| {
            let name = path.file_stem().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&id))
        };
        let mut found: Vec<PathBuf> = kept.map(|entry| entry.path()).filter(meant).collect();
        match (found.pop(), found.is_empty()) {
            (Some(file), true) => Ok(file),
            (Some(_), false) => Err(ServiceError::ManyTasks { id, folder }),
            (None, _) => Err(ServiceError::NoTaskOfId { id, folder }),
        }
    }

    /// The task that the service of this folder serves by a file or an id: one without keys is
    /// completed with those in the folder, if both are there.
    pub fn task(&self, argument: &Path) -> Result<Task, ServiceError> {
        let path = self.task_file(argument)?;
        match self.read_task(&path)? {
            TaskFile::Task(task) => Ok(task),
            TaskFile::Plan(_) => Err(no_keys(&path)),
        }
    }

    /// The same, also where nobody's keys complete a file. Keys in the folder are not looked at
    /// for a file that has its own.
    pub fn read_task(&self, path: &Path) -> Result<TaskFile, ServiceError> {
        match TaskFile::read(path)? {
            file @ TaskFile::Task(_) => Ok(file),
            file @ TaskFile::Plan(_) => Ok(file.with_keys(self.verification_keys()?)),
        }
    }
}

/// Refuses the same task twice.
pub(crate) fn check_distinct(tasks: &[Task], paths: &[PathBuf]) -> Result<(), ServiceError> {
    for (i, task) in tasks.iter().enumerate() {
        if let Some(first) = tasks[..i].iter().position(|other| other.id() == task.id()) {
            let (first, second) = (paths[first].clone(), paths[i].clone());
            return Err(ServiceError::TaskTwice { task: task.id(), first, second });
        }
    }
    Ok(())
}
