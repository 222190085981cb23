//! Removal of everything that a stopped service has of a task.

use std::{fmt, fs, path::PathBuf, sync::Arc};

use incrowd_protocol::TaskId;

use crate::{
    Files, Heads, NodeConfig, ServiceError, TaskFile,
    files::failed,
    round_keys,
    store::{BanditStore, Head, ShufflerStore, StoreError, Stores, TaskState},
};

/// What a data folder has of a task. While this lives no service can use the stores.
pub struct Remains {
    config: NodeConfig,
    files: Files,
    task: TaskId,
    shuffler: Option<(Arc<dyn ShufflerStore>, Option<Head>)>,
    bandit: Option<(Arc<dyn BanditStore>, usize, usize)>,
    heads: Heads,
}

impl Remains {
    /// Locks the stores and looks. A task that a task file of the settings names is refused: the
    /// next start would begin it anew.
    pub fn open(config: &NodeConfig, task: TaskId) -> Result<Self, ServiceError> {
        let files = Files::of(&config.data);
        for path in &config.tasks {
            // A plan that no keys complete is no task yet.
            if let TaskFile::Task(named) = files.read_task(&files.task_file(path)?)?
                && named.id() == task
            {
                return Err(ServiceError::StillNamed { task, path: path.clone() });
            }
        }
        let stores = Stores::of(config)?;
        let mut shuffler = None;
        if stores.inspect_shuffler()?.is_some() {
            let store = stores.shuffler()?;
            let head = match store.head(&task) {
                Err(StoreError::UnknownTask(_)) => None,
                head => Some(head?),
            };
            shuffler = Some((store, head));
        }
        let mut bandit = None;
        if stores.inspect_bandit()?.is_some() {
            let store = stores.bandit()?;
            let (releases, models) = (store.releases(&task)?.len(), store.models(&task)?.len());
            bandit = Some((store, releases, models));
        }
        let heads = Heads::load(config.shuffler.heads.as_ref().unwrap_or(&files.heads))?;
        let remains = Self { config: config.clone(), files, task, shuffler, bandit, heads };
        if remains.has_something()? {
            Ok(remains)
        } else {
            Err(StoreError::UnknownTask(task).into())
        }
    }

    fn has_something(&self) -> Result<bool, ServiceError> {
        let task = &self.task;
        if let Some((store, ..)) = &self.bandit
            && store.tasks()?.iter().any(|(known, _)| known == task)
        {
            return Ok(true);
        }
        let head = self.shuffler.as_ref().and_then(|(_, head)| *head);
        Ok(head.is_some() || self.heads.get(task).is_some() || self.kept().exists())
    }

    fn kept(&self) -> PathBuf {
        self.files.kept_task(&self.task)
    }

    /// Removes all of it: the keys of rounds first, so that a crash leaves nothing that opens.
    pub fn remove(mut self) -> Result<(), ServiceError> {
        let Self { config, files, task, shuffler, bandit, heads } = &mut self;
        if let Some((store, _)) = shuffler {
            let keys = round_keys::open(config.shuffler.round_keys.as_ref(), &files.data);
            keys.and_then(|keys| keys.forget(task)).map_err(StoreError::from)?;
            store.purge(task)?;
        }
        if let Some((store, ..)) = bandit {
            store.purge(task)?;
        }
        heads.forget(task);
        heads.save()?;
        let kept = self.kept();
        if kept.exists() {
            fs::remove_file(&kept).map_err(failed(&kept))?;
        }
        Ok(())
    }
}

/// What would be lost.
impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.task)?;
        if let Some((_, Some(head))) = &self.shuffler {
            let state = match head.state {
                TaskState::Closed => "closed",
                TaskState::Moving => "on its way to another store",
                TaskState::Moved => "moved to another store",
                TaskState::Open => "its unfinished batch",
            };
            write!(f, "\nshuffler: {} signed releases, ids, {state}", head.round - 1)?;
        }
        if let Some((_, releases, models)) = &self.bandit {
            write!(f, "\nbandit: {releases} absorbed releases, {models} models, the statistics")?;
        }
        Ok(())
    }
}
