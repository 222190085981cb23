//! The open tasks of a shuffler: what one thread counts and commits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use incrowd_envelope::SigningKey;
use incrowd_protocol::{Mechanism, Report, TaskId, Window};
use incrowd_shuffler::{Outcome, Refusal};

use super::{
    open_task::{Additions, OpenTask},
    windows::{due, milliseconds},
};
use crate::store::{Change, CommitError, Head, Seq, ShufflerStore, StoreError, TaskState, Turn};

/// How often a log that changes while it is read is read again.
const RETRIES: u32 = 3;

/// Reports of one request, all for one task.
pub struct Upload {
    /// The task they were sent to.
    pub task: TaskId,
    /// Decoded and valid reports.
    pub reports: Vec<Report>,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The round being filled; none when the task is finished or closed.
    pub round: Option<u32>,
    /// When it opens and closes, where batches close by time.
    pub window: Option<Window>,
    /// Reports in the unfinished batch.
    pub count: u32,
    /// Ids that may still come again.
    pub remembered: usize,
    /// Whether the operator ended the task.
    pub closed: bool,
}

/// The open tasks of a shuffler. Decides what becomes of each report, and has the store commit it.
///
/// After a commit that is not known to be durable, what is in memory may be more than what is in
/// the store: it is dropped and read again from the log when the task is needed next.
pub struct OpenTasks {
    store: Arc<dyn ShufflerStore>,
    signing: SigningKey,
    tasks: HashMap<TaskId, OpenTask>,
}

impl OpenTasks {
    /// No task yet. Releases are signed with the key.
    pub fn new(store: Arc<dyn ShufflerStore>, signing: SigningKey) -> Self {
        Self { store, signing, tasks: HashMap::new() }
    }

    /// The store's clock.
    pub fn now(&self) -> SystemTime {
        self.store.now()
    }

    /// Opens a task, or picks up where it was.
    pub fn open(&mut self, id: TaskId, mechanism: Arc<Mechanism>) -> Result<(), CommitError> {
        self.store.open(&id)?;
        self.tasks.insert(id, OpenTask { id, mechanism, state: None });
        self.catch_up(&BTreeSet::from([id]))
    }

    /// Counts the reports of several requests, in order, in one durable step, after the rounds of
    /// their tasks whose time is over are closed. After an error none of them is known to count.
    pub fn accept(&mut self, uploads: &[Upload]) -> Result<Vec<Vec<Outcome>>, CommitError> {
        let ids: BTreeSet<TaskId> = uploads.iter().map(|upload| upload.task).collect();
        let store = self.store.clone();
        let turn = self.lock(&*store, &ids)?;
        let (now, shared) = (milliseconds(turn.now()), store.shared().is_some());
        let mut additions = self.close_rounds(&ids, now)?;
        let mut outcomes = Vec::with_capacity(uploads.len());
        for Upload { task: id, reports } in uploads {
            let added = additions.entry(*id).or_default();
            let task = self.tasks.get_mut(id).expect("invariant: it has caught up");
            let state = task.state.as_mut().expect("invariant: it has caught up");
            let (mechanism, signing) = (&task.mechanism, &self.signing);
            let found = state.count(id, mechanism, now, reports, added, signing);
            if shared {
                added.confirm(&found);
            }
            outcomes.push(found);
        }
        let commits = additions.values().any(Additions::commits);
        let incarnation = turn.incarnation();
        self.commit(turn, additions)?;
        if let Some(shared) = store.shared()
            && !commits
            && outcomes.iter().flatten().any(is_final)
        {
            // What a final answer relies on was another node's commit.
            shared.confirm()?;
            if store.incarnation() != incarnation {
                return Err(StoreError::Unreachable.into());
            }
        }
        Ok(outcomes)
    }

    /// Closes the rounds whose time is over, a bounded number of each task; the tasks that had
    /// some.
    pub fn close_due(&mut self) -> Result<Vec<TaskId>, CommitError> {
        let store = self.store.clone();
        let now = milliseconds(store.now());
        let ids: BTreeSet<TaskId> =
            self.tasks.values().filter(|task| task.is_due(now)).map(|task| task.id).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let turn = self.lock(&*store, &ids)?;
        let now = milliseconds(turn.now());
        let additions = self.close_rounds(&ids, now)?;
        self.commit(turn, additions)?;
        Ok(ids.into_iter().collect())
    }

    /// Rounds of a task that closed and are not released yet, by the store's clock; none while that
    /// must be read from the log.
    pub fn due(&self, id: &TaskId) -> Option<u32> {
        let task = self.tasks.get(id)?;
        let head = task.state.as_ref()?.head;
        if head.state == TaskState::Closed {
            return Some(0);
        }
        Some(due(&task.mechanism, head.round, milliseconds(self.store.now())))
    }

    /// How long it is until the next round closes, by the store's clock; none if no round will.
    pub fn until_next_closing(&self) -> Option<Duration> {
        let now = milliseconds(self.store.now());
        let closing = |task: &OpenTask| {
            let window = self.progress(&task.id)?.window?;
            Some(Duration::from_millis(window.closes.saturating_sub(now)))
        };
        self.tasks.values().filter_map(closing).min()
    }

    /// What closing the rounds of these tasks whose time is over changes. They have caught up.
    fn close_rounds(
        &mut self,
        ids: &BTreeSet<TaskId>,
        milliseconds: u64,
    ) -> Result<BTreeMap<TaskId, Additions>, StoreError> {
        let mut additions: BTreeMap<TaskId, Additions> = BTreeMap::new();
        let mut closed = Ok(());
        for id in ids {
            let task = self.tasks.get_mut(id).expect("invariant: it has caught up");
            let state = task.state.as_mut().expect("invariant: it has caught up");
            let added = additions.entry(*id).or_default();
            closed = state.close_rounds(id, &task.mechanism, milliseconds, added, &self.signing);
            if closed.is_err() {
                break;
            }
        }
        if closed.is_err() {
            // Some may be ahead of their logs.
            for (_, task) in self.tasks.iter_mut().filter(|(id, _)| ids.contains(id)) {
                task.state = None;
            }
        }
        closed.map(|()| additions)
    }

    /// Makes durable what was added, if anything was.
    fn commit(
        &mut self,
        turn: Box<dyn Turn + '_>,
        mut additions: BTreeMap<TaskId, Additions>,
    ) -> Result<(), CommitError> {
        additions.retain(|_, added| added.commits());
        if additions.is_empty() {
            return Ok(());
        }
        let changes = additions.into_iter().map(|(id, added)| {
            let state = self.tasks.get_mut(&id).and_then(|task| task.state.as_mut());
            (id, state.expect("invariant: it has something to commit").change(added))
        });
        let changes: Vec<_> = changes.collect();
        let changed: Vec<TaskId> = changes.iter().map(|(id, _)| *id).collect();
        let result = turn.commit(changes);
        for id in &changed {
            let task = self.tasks.get_mut(id).expect("invariant: it has something to commit");
            match (&result, &mut task.state) {
                (Ok(()), Some(state)) => state.committed(),
                _ => task.state = None,
            }
        }
        result
    }

    /// Ends a task: the unfinished batch and its ids are dropped, the releases stay.
    pub fn close(&mut self, id: &TaskId) -> Result<(), CommitError> {
        let store = self.store.clone();
        let turn = store.lock(&[*id])?;
        let task = self.task(id)?;
        let head = turn.head(id)?;
        if head.state == TaskState::Open {
            let head = Head { seq: head.seq.next(), state: TaskState::Closed, ..head };
            let mut change = Change::to(head);
            (change.drop_sums_before, change.drop_ids_before) = (Seq(u64::MAX), u32::MAX);
            let result = turn.commit(vec![(*id, change)]);
            if !matches!(result, Err(CommitError::NotCommitted(_))) {
                task.state = None;
            }
            result?;
        } else {
            drop(turn);
        }
        self.catch_up(&BTreeSet::from([*id]))
    }

    /// Replaces the deltas of every task by a snapshot and makes them unreadable. False if a reader
    /// is in the way: call it again later.
    ///
    /// # Privacy
    /// The delta of a single report is what it reported: it must not stay. A store that others use
    /// too is a database, which keeps it anyway, sealed, until the key of its round is destroyed.
    pub fn forget(&mut self) -> Result<bool, CommitError> {
        if self.store.shared().is_some() {
            return Ok(self.store.forget()?);
        }
        let deltas = |task: &&OpenTask| task.state.as_ref().is_none_or(|state| state.deltas > 0);
        let ids: Vec<TaskId> = self.tasks.values().filter(deltas).map(|task| task.id).collect();
        // One task that cannot be read keeps none of the others from being forgotten.
        let compacted = ids.iter().map(|id| self.compact(id)).fold(Ok(()), Result::and);
        let forgotten = self.store.forget()?;
        compacted.map(|()| forgotten)
    }

    /// How far a task is; none while that must be read from the log.
    pub fn progress(&self, id: &TaskId) -> Option<Progress> {
        let task = self.tasks.get(id)?;
        Some(task.state.as_ref()?.progress(&task.mechanism))
    }

    /// Whether a commit would work now.
    pub fn check_writable(&self) -> Result<(), CommitError> {
        Ok(self.store.check_writable()?)
    }

    fn task(&mut self, id: &TaskId) -> Result<&mut OpenTask, StoreError> {
        self.tasks.get_mut(id).ok_or(StoreError::UnknownTask(*id))
    }

    /// Brings tasks to the end of their logs.
    fn catch_up(&mut self, ids: &BTreeSet<TaskId>) -> Result<(), CommitError> {
        Ok(self.lock(&*self.store.clone(), ids).map(drop)?)
    }

    /// Locks tasks, and brings them to the end of their logs.
    fn lock<'a>(
        &mut self,
        store: &'a dyn ShufflerStore,
        ids: &BTreeSet<TaskId>,
    ) -> Result<Box<dyn Turn + 'a>, StoreError> {
        self.read_ahead(ids)?;
        let turn = store.lock(&ids.iter().copied().collect::<Vec<_>>())?;
        ids.iter().try_for_each(|id| self.task(id)?.catch_up(&*turn))?;
        Ok(turn)
    }

    /// Takes note of what other nodes have committed. The tasks that are not where they were.
    pub fn refresh(&mut self) -> Result<Vec<TaskId>, CommitError> {
        if self.store.shared().is_none() {
            return Ok(Vec::new());
        }
        let store = self.store.clone();
        let before: Vec<_> = self.tasks.keys().map(|id| (*id, self.progress(id))).collect();
        for task in self.tasks.values_mut() {
            // Its round may be released, and its key destroyed, between two reads.
            let released =
                |result: &Result<(), _>| matches!(result, Err(StoreError::RoundKeyLost { .. }));
            let mut result = task.catch_up(&*store);
            for _ in 0..RETRIES {
                if released(&result) {
                    result = task.catch_up(&*store);
                }
            }
            result?;
        }
        let moved = before.into_iter().filter(|(id, progress)| self.progress(id) != *progress);
        Ok(moved.map(|(id, _)| id).collect())
    }

    /// Reads the logs of tasks that are not in memory, or that others may have appended to. It
    /// takes as long as there are ids, so nobody is kept from committing meanwhile.
    fn read_ahead(&mut self, ids: &BTreeSet<TaskId>) -> Result<(), StoreError> {
        let store = self.store.clone();
        for id in ids {
            let task = self.task(id)?;
            if task.state.is_none() || store.shared().is_some() {
                // Somebody may drop entries between two reads. Only an error under the lock counts.
                let _ = task.catch_up(&*store);
            }
        }
        Ok(())
    }

    /// Replaces the deltas of a task by a snapshot.
    fn compact(&mut self, id: &TaskId) -> Result<(), CommitError> {
        let store = self.store.clone();
        let turn = self.lock(&*store, &BTreeSet::from([*id]))?;
        let task = self.task(id)?;
        let state = task.state.as_mut().expect("invariant: it has caught up");
        let before = (state.head, state.snapshot, state.deltas);
        let Some(change) = state.compaction() else { return Ok(()) };
        let result = turn.commit(vec![(*id, change)]);
        match &result {
            Ok(()) => {}
            // The batch is as it was.
            Err(CommitError::NotCommitted(_)) => {
                (state.head, state.snapshot, state.deltas) = before;
            }
            Err(CommitError::Unknown(_)) => task.state = None,
        }
        result
    }
}

/// Whether a sender gives up because of where the task is.
fn is_final(outcome: &Outcome) -> bool {
    use Refusal::{Finished, Late, OtherLaw};
    matches!(outcome, Outcome::Refused(Late { .. } | OtherLaw { .. } | Finished))
}
