//! Which thread commits which task.

use std::collections::HashMap;

use incrowd_protocol::TaskId;
use incrowd_shuffler::Outcome;

use super::{
    group_commit::{Busy, GroupCommit},
    open_tasks::Upload,
};

/// The threads that commit. A store of this process alone has one for all tasks, since it commits
/// one step at a time. In a database, where another node may hold a task, each task has its own, so
/// that no task waits for another.
pub(super) struct Lanes {
    /// At least one.
    lanes: Vec<GroupCommit>,
    of: HashMap<TaskId, usize>,
}

impl Lanes {
    /// These threads with their tasks; at least one.
    pub fn new(lanes: impl IntoIterator<Item = (GroupCommit, Vec<TaskId>)>) -> Self {
        let (mut all, mut of) = (Vec::new(), HashMap::new());
        for (index, (lane, tasks)) in lanes.into_iter().enumerate() {
            all.push(lane);
            of.extend(tasks.into_iter().map(|task| (task, index)));
        }
        Self { lanes: all, of }
    }

    /// Counts reports; answers when the outcome is durable.
    pub async fn accept(&self, upload: Upload) -> Result<Vec<Outcome>, Busy> {
        self.lane(&upload.task)?.accept(upload).await
    }

    /// Takes note of what other nodes have committed to a task.
    pub async fn refresh(&self, task: &TaskId) -> Result<(), Busy> {
        self.lane(task)?.refresh().await
    }

    /// Ends a task.
    pub async fn close(&self, task: TaskId) -> Result<(), Busy> {
        self.lane(&task)?.close(task).await
    }

    /// Whether a report could be stored now.
    pub async fn check_writable(&self) -> Result<(), Busy> {
        // They have one store.
        self.lanes[0].check_writable().await
    }

    /// Whether reports could not be committed a moment ago.
    pub fn failed_lately(&self) -> bool {
        self.lanes.iter().any(GroupCommit::failed_lately)
    }

    /// Ends the threads after what is waiting.
    pub fn stop(&self) {
        self.lanes.iter().for_each(GroupCommit::stop);
    }

    fn lane(&self, task: &TaskId) -> Result<&GroupCommit, Busy> {
        self.of.get(task).map(|index| &self.lanes[*index]).ok_or(Busy)
    }
}
