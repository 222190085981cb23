//! The last release of every task in a file apart from the stores: who puts an old store back is
//! noticed, unless the file went back with it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use incrowd_protocol::{Task, TaskId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::store::{BanditStore, ReleaseHash, ShufflerStore, StoreError};

/// A release that somebody has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witnessed {
    /// Its round.
    pub round: u32,
    /// Its name.
    pub release: ReleaseHash,
}

impl Witnessed {
    /// Whether a store has this release. One that has not went back in time, or is another one.
    pub(crate) fn check(
        self,
        store: &dyn ShufflerStore,
        task: &TaskId,
        witness: &str,
    ) -> Result<(), StoreError> {
        let found = store.release(task, self.round)?.map(|found| ReleaseHash::of(&found.body));
        if found == Some(self.release) {
            return Ok(());
        }
        let (task, witness) = (*task, witness.to_owned());
        Err(StoreError::WentBack(Box::new(WentBack { task, witness, seen: self, found })))
    }
}

/// A store that does not have a release that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the shuffler's store went back in time: {witness} has seen release {} of task {task} as {}, the store has {}. Counting from it could count reports again and release a round twice. Put the newer store back, or see \"A store that went back\" in docs/operations.md for how to accept the loss",
    .seen.round, .seen.release, other(*.found)
)]
pub struct WentBack {
    /// The task.
    pub task: TaskId,
    /// Who has seen it.
    pub witness: String,
    /// What was seen.
    pub seen: Witnessed,
    /// What the store has for that round.
    pub found: Option<ReleaseHash>,
}

fn other(release: Option<ReleaseHash>) -> String {
    release.map_or_else(|| "no such release".into(), |release| format!("another one, {release}"))
}

/// The file with the last release of every task, for one shuffler.
pub struct Heads {
    path: PathBuf,
    known: BTreeMap<TaskId, Witnessed>,
    /// Whether the file may be behind.
    owed: bool,
}

impl Heads {
    /// Reads the file. One that is not there knows nothing.
    pub fn load(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::File { path: path.to_owned(), error };
        let known = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            read => serde_json::from_slice(&read.map_err(failed)?)
                .map_err(|_| StoreError::HeadsFile(path.to_owned()))?,
        };
        Ok(Self { path: path.to_owned(), known, owed: false })
    }

    /// What it knows of a task.
    pub fn get(&self, task: &TaskId) -> Option<Witnessed> {
        self.known.get(task).copied()
    }

    /// The tasks that it knows, in order.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.known.keys().copied()
    }

    /// Whether a store has the last release of a task that this file knows.
    pub fn check(&self, store: &dyn ShufflerStore, task: &TaskId) -> Result<(), StoreError> {
        let witness = self.path.display().to_string();
        self.get(task).map_or(Ok(()), |last| last.check(store, task, &witness))
    }

    /// Takes the newest releases; they are durable after [`Heads::save`]. A release of an earlier
    /// round than the known one is ignored.
    pub(crate) fn learn(&mut self, task: TaskId, last: Witnessed) {
        if self.get(&task).is_none_or(|known| known.round <= last.round) {
            self.owed |= self.known.insert(task, last) != Some(last);
        }
    }

    /// Forgets a task: a store that is behind is no longer noticed.
    pub fn forget(&mut self, task: &TaskId) {
        self.owed |= self.known.remove(task).is_some();
    }

    /// Writes the file, if something is new.
    pub fn save(&mut self) -> Result<(), StoreError> {
        if self.owed {
            let mut text = serde_json::to_vec_pretty(&self.known)
                .expect("invariant: heads are plain data, which can always be written");
            text.push(b'\n');
            let failed = |error| StoreError::File { path: self.path.clone(), error };
            incrowd_files::replace(&self.path, &text).map_err(failed)?;
            self.owed = false;
        }
        Ok(())
    }
}

/// Whether the shuffler's store of this process has what the bandit's has absorbed. Nothing is
/// counted yet.
pub(crate) fn compare(
    shuffler: &dyn ShufflerStore,
    bandit: &dyn BanditStore,
    tasks: &[Task],
) -> Result<(), StoreError> {
    for task in tasks {
        if let Some(absorbed) = bandit.open(task)?
            && let Some(release) = absorbed.last
        {
            let round = absorbed.statistics.round();
            Witnessed { round, release }.check(shuffler, &task.id(), "the bandit's store")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r28_an_earlier_release_does_not_take_the_place_of_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut heads = Heads::load(&folder.path().join("heads.json")).unwrap();
        let task = "01".repeat(32).parse().unwrap();
        let of = |round| Witnessed { round, release: ReleaseHash::from_bytes([round as u8; 32]) };
        for round in [5, 4, 5, 3] {
            heads.learn(task, of(round));
            assert_eq!(heads.get(&task), Some(of(5)));
        }
    }
}
