//! A task goes from one store to another, counts go on where they stopped, and nothing counts in
//! both.
//!
//! The task is first marked in the store that it leaves: from then on nothing is counted there. Then
//! it is written into the other store, and only then are the sums and ids in the first one dropped.
//! A crash at any point is put right by doing it again.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use incrowd_protocol::{Task, TaskId};
use incrowd_shuffler::{Batch, IdsEntry, Kind};

use crate::{
    Files, Heads, NodeConfig, ServiceError,
    round_keys::{self, GuardedStore},
    shuffler::guarded,
    store::{
        BanditStore, Change, CommitError, Head, Learned, Log, ReleaseHash, Seq, ShufflerStore,
        SignedRelease, StoreError, Stores, TaskState,
    },
};

/// Bytes of a log or of releases that are read or written at once.
const CHUNK: usize = 16 << 20;

/// What was moved.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Releases of the shuffler.
    pub releases: u32,
    /// The round being filled and the reports in it; none if the task is over, or was moved before.
    pub filled: Option<(u32, u32)>,
    /// Releases and models of the bandit.
    pub learned: Option<(usize, usize)>,
    /// Whether an earlier try had done it and only its end was missing.
    pub before: bool,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.before {
            return write!(f, "was moved before");
        }
        write!(f, "{} signed releases", self.releases)?;
        if let Some((round, reports)) = self.filled {
            write!(f, ", round {round} with {reports} reports")?;
        }
        if let Some((releases, models)) = self.learned {
            write!(f, ", {releases} absorbed releases, {models} models")?;
        }
        Ok(())
    }
}

/// Moves what a service has of a task to the stores of other settings. No service may use the task
/// meanwhile; the keys of rounds may be on another medium there.
pub fn move_task(from: &NodeConfig, to: &NodeConfig, task: &Task) -> Result<Moved, ServiceError> {
    let (old, new) = (Stores::of(from)?, Stores::of(to)?);
    if old.to_string() == new.to_string() {
        return Err(ServiceError::SameStore { store: old.to_string() });
    }
    let mut moved = Moved::default();
    let mut found = false;
    if old.inspect_shuffler()?.is_some() {
        let (old, new) = (old.shuffler()?, new.shuffler()?);
        let (source, target) = (guarded(from, old.clone())?, guarded(to, new)?);
        if let Some(head) = known(source.head(&task.id()))? {
            let mut shuffler = ShufflerMove { task, old, source, target, moved: &mut moved };
            shuffler.run(head)?;
            found = true;
        }
    }
    if old.inspect_bandit()?.is_some() {
        let (source, target) = (old.bandit()?, new.bandit()?);
        if source.tasks()?.iter().any(|(known, _)| *known == task.id()) {
            moved.learned = Some(move_learned(&*source, &*target, task)?);
            found = true;
        }
    }
    if !found {
        return Err(StoreError::UnknownTask(task.id()).into());
    }
    forget(from, to, &task.id())?;
    Ok(moved)
}

/// A head, if the store knows the task.
fn known(head: Result<Head, StoreError>) -> Result<Option<Head>, StoreError> {
    match head {
        Err(StoreError::UnknownTask(_)) => Ok(None),
        head => head.map(Some),
    }
}

struct ShufflerMove<'a> {
    task: &'a Task,
    /// The source as it is, for commits after which no key is destroyed: the target may have the
    /// same.
    old: Arc<dyn ShufflerStore>,
    source: Arc<GuardedStore>,
    target: Arc<GuardedStore>,
    moved: &'a mut Moved,
}

impl ShufflerMove<'_> {
    fn run(&mut self, head: Head) -> Result<(), ServiceError> {
        let task = self.task.id();
        let there = known(self.target.head(&task))?.filter(|there| there.seq > Seq(0));
        match there {
            Some(there) if there.state != TaskState::Moved => {
                // Unless this is the end of an earlier try.
                let last = head.last.map(|last| (head.round - 1, last));
                let same = match last {
                    Some((round, last)) => self
                        .target
                        .release(&task, round)?
                        .is_some_and(|found| ReleaseHash::of(&found.body) == last),
                    None => true,
                };
                if head.state == TaskState::Open || !same {
                    return Err(StoreError::Known(task).into());
                }
                self.moved.before = true;
                self.moved.releases = there.round - 1;
                return self.leave();
            }
            // It was moved away from there before.
            Some(_) => drop(self.target.purge(&task)?),
            None => {}
        }
        let mut state = head.state;
        if state == TaskState::Open {
            self.mark()?;
        } else if state == TaskState::Moved {
            if self.source.tail(&task, Seq(0), 1)?.is_empty() && head.seq > Seq(0) {
                return Err(StoreError::Moved(task).into());
            }
            state = TaskState::Open;
        }
        self.write(state)?;
        self.leave()
    }

    /// From now on nothing is counted in the source.
    fn mark(&self) -> Result<(), StoreError> {
        let task = self.task.id();
        let turn = self.old.lock(&[task])?;
        let head = turn.head(&task)?;
        let head = Head { seq: head.seq.next(), state: TaskState::Moved, ..head };
        turn.commit(vec![(task, Change::to(head))]).map_err(failed)
    }

    /// Writes the task into the target: releases in pieces while it is marked there too, and with
    /// the last commit everything else.
    fn write(&mut self, state: TaskState) -> Result<(), StoreError> {
        let task = self.task.id();
        let head = self.source.head(&task)?;
        self.target.open(&task)?;
        let mut seq = Seq(0);
        let (mut releases, mut bytes): (Vec<(u32, SignedRelease)>, _) = (Vec::new(), 0);
        for round in 1..head.round {
            let release = self.source.release(&task, round)?;
            let missing = || StoreError::Damaged(format!("release {round} is missing"));
            let release = release.ok_or_else(missing)?;
            bytes += release.body.len();
            let last = Some(ReleaseHash::of(&release.body));
            releases.push((round, release));
            self.moved.releases += 1;
            if bytes >= CHUNK {
                seq = seq.next();
                let head = Head { seq, round: round + 1, last, state: TaskState::Moved };
                let mut change = Change::to(head);
                change.releases = std::mem::take(&mut releases);
                bytes = 0;
                self.commit(change)?;
            }
        }
        let mut change = Change::to(Head { seq: seq.next(), state, ..head });
        change.releases = releases;
        if state == TaskState::Open {
            let (batch, ids) = self.read()?;
            self.moved.filled = batch.round().map(|round| (round.number, batch.count()));
            change.append.push(batch.snapshot());
            change.append.extend(ids.into_iter().map(|(round, ids)| ids.into_entry(round)));
        }
        self.commit(change)
    }

    fn commit(&self, change: Change) -> Result<(), StoreError> {
        let task = self.task.id();
        let turn = self.target.lock(&[task])?;
        turn.commit(vec![(task, change)]).map_err(failed)
    }

    /// The unfinished batch, and the ids of its grace window.
    fn read(&self) -> Result<(Batch, BTreeMap<u32, IdsEntry>), StoreError> {
        let mut batch = Batch::new(Arc::new(self.task.mechanism().clone()));
        let mut ids: BTreeMap<u32, IdsEntry> = BTreeMap::new();
        let mut seq = Seq(0);
        loop {
            let entries = self.source.tail(&self.task.id(), seq, CHUNK)?;
            let Some((last, _)) = entries.last() else { break };
            seq = *last;
            for (_, entry) in &entries {
                batch.advance(entry)?;
                if entry.kind == Kind::Ids {
                    let of_round = ids.entry(entry.round).or_default();
                    IdsEntry::decode(&entry.bytes)?.for_each(|id| of_round.push(id));
                }
            }
        }
        batch.settle()?;
        ids.retain(|round, _| *round >= batch.oldest_remembered());
        Ok((batch, ids))
    }

    /// The source keeps that the task was moved, and its releases, but neither sums nor ids.
    fn leave(&self) -> Result<(), ServiceError> {
        let task = self.task.id();
        let turn = self.old.lock(&[task])?;
        let head = turn.head(&task)?;
        let head = Head { seq: head.seq.next(), state: TaskState::Moved, ..head };
        let mut change = Change::to(head);
        (change.drop_sums_before, change.drop_ids_before) = (Seq(u64::MAX), u32::MAX);
        turn.commit(vec![(task, change)]).map_err(failed)?;
        self.old.forget()?;
        Ok(())
    }
}

fn failed(error: CommitError) -> StoreError {
    match error {
        CommitError::NotCommitted(error) | CommitError::Unknown(error) => error,
    }
}

/// Moves what a bandit has learned; how many releases and models.
fn move_learned(
    source: &dyn BanditStore,
    target: &dyn BanditStore,
    task: &Task,
) -> Result<(usize, usize), StoreError> {
    let id = task.id();
    let releases = source.releases(&id)?;
    let learned = Learned { absorbed: source.open(task)?, models: source.models(&id)?, releases };
    let numbers = (learned.releases.len(), learned.models.len());
    target.import(&id, &learned)?;
    source.purge(&id)?;
    Ok(numbers)
}

/// The source's second place no longer knows the task, and its keys are gone, unless the target has
/// the same.
fn forget(from: &NodeConfig, to: &NodeConfig, task: &TaskId) -> Result<(), ServiceError> {
    let medium = |config: &NodeConfig| -> (Option<_>, Option<PathBuf>) {
        let data = config.shuffler.round_keys.is_none().then(|| config.data.clone());
        (config.shuffler.round_keys.clone(), data)
    };
    if medium(from) != medium(to) {
        let keys = round_keys::open(from.shuffler.round_keys.as_ref(), &from.data);
        keys.and_then(|keys| keys.forget(task)).map_err(StoreError::from)?;
    }
    let place = |config: &NodeConfig| {
        config.shuffler.heads.clone().unwrap_or_else(|| Files::of(&config.data).heads)
    };
    if place(from) != place(to) {
        let mut heads = Heads::load(&place(from))?;
        heads.forget(task);
        heads.save()?;
    }
    Ok(())
}
