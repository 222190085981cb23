//! A task goes from one store to another, counts go on where they stopped, and nothing counts in
//! both.
//!
//! The task is first marked in the store that it goes to and then in the one that it leaves: from
//! then on nothing is counted in either. Then it is written into the other store, where the mark
//! goes with the last commit, and only then are the sums and ids in the first one dropped. A crash
//! at any point is put right by doing it again.

use std::{
    collections::{BTreeMap, HashSet},
    fmt, fs,
    path::Path,
    sync::Arc,
};

use incrowd_protocol::{ReportId, Task, TaskId};
use incrowd_shuffler::{Batch, IdsEntry, Kind};

use crate::{
    Files, Heads, NodeConfig, ServiceError, StoreKind,
    round_keys::{self, GuardedStore, RoundKeys, service},
    shuffler::guarded,
    store::{
        BanditStore, Change, Head, Learned, Log, ReleaseHash, Seq, Shared, ShufflerStore,
        SignedRelease, StoreError, Stores, TaskState,
    },
};

/// Bytes of a log or of releases that are read or written at once.
const CHUNK: usize = 16 << 20;
/// Ids that are written at once.
const IDS: usize = CHUNK / 16;

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
    if is_same_place(&old, &new)? {
        return Err(ServiceError::SameStore { store: old.to_string() });
    }
    let mut moved = Moved::default();
    let mut found = false;
    if old.inspect_shuffler()?.is_some() {
        let (old, new) = (old.shuffler()?, new.shuffler()?);
        let (source, target) = (guarded(from, old.clone())?, guarded(to, new.clone())?);
        if let Some(head) = known(source.head(&task.id()))? {
            // Nodes that use the target already must be able to read it.
            target
                .share_keys(&service(&task.keys().shuffler), to.shuffler.accept_lost_round_keys)?;
            let mut shuffler = ShufflerMove { task, old, new, source, target, moved: &mut moved };
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
    forget(from, to, task)?;
    Ok(moved)
}

/// A head, if the store knows the task.
fn known(head: Result<Head, StoreError>) -> Result<Option<Head>, StoreError> {
    match head {
        Err(StoreError::UnknownTask(_)) => Ok(None),
        head => head.map(Some),
    }
}

/// Whether both are one database or one folder, maybe by two names.
fn is_same_place(old: &Stores, new: &Stores) -> Result<bool, StoreError> {
    if old.to_string() == new.to_string() {
        return Ok(true);
    }
    if let Some((old, new)) = old.inspect_shuffler()?.zip(new.inspect_shuffler()?) {
        return is_same_database(old.shared(), new.shared());
    }
    match old.inspect_bandit()?.zip(new.inspect_bandit()?) {
        Some((old, new)) => is_same_database(old.shared(), new.shared()),
        None => Ok(false),
    }
}

fn is_same_database(
    old: Option<&dyn Shared>,
    new: Option<&dyn Shared>,
) -> Result<bool, StoreError> {
    let Some((old, new)) = old.zip(new) else { return Ok(false) };
    Ok(old.identity()? == new.identity()?)
}

struct ShufflerMove<'a> {
    task: &'a Task,
    /// Source and target as they are, for commits after which no key is destroyed: both may have
    /// the same keys.
    old: Arc<dyn ShufflerStore>,
    new: Arc<dyn ShufflerStore>,
    source: Arc<GuardedStore>,
    target: Arc<GuardedStore>,
    moved: &'a mut Moved,
}

impl ShufflerMove<'_> {
    fn run(&mut self, head: Head) -> Result<(), ServiceError> {
        let task = self.task.id();
        let there = known(self.target.head(&task))?.unwrap_or_default();
        let is_there =
            matches!(there.state, TaskState::Open | TaskState::Closed) && there.seq > Seq(0);
        match head.state {
            TaskState::Moving | TaskState::Moved if is_there => {
                // Only the end of an earlier try is missing.
                if !self.is_same(head)? {
                    return Err(StoreError::Known(task).into());
                }
                self.moved.before = true;
                self.moved.releases = there.round - 1;
                return self.leave();
            }
            TaskState::Moved => return Err(StoreError::Moved(task).into()),
            _ if is_there => return Err(StoreError::Known(task).into()),
            TaskState::Open | TaskState::Closed | TaskState::Moving => {}
        }
        self.target.open(&task)?;
        // What was dropped there when it left must not come to light again.
        while !self.target.forget()? {}
        mark(&*self.target, &task)?;
        let state = if head.state == TaskState::Closed {
            TaskState::Closed
        } else {
            mark(&*self.old, &task)?;
            TaskState::Open
        };
        self.write(state)?;
        self.leave()
    }

    /// Whether the target has what the source has, and perhaps more.
    fn is_same(&self, head: Head) -> Result<bool, StoreError> {
        let task = self.task.id();
        if let Some(last) = head.last {
            let found = self.target.release(&task, head.round - 1)?;
            return Ok(found.is_some_and(|found| ReleaseHash::of(&found.body) == last));
        }
        // Without a release only the ids tell, as long as both are in their first round.
        let ids = |store: &GuardedStore| -> Result<HashSet<ReportId>, StoreError> {
            Ok(self.read(store)?.1.into_values().flatten().collect())
        };
        Ok(ids(&self.source)?.is_subset(&ids(&self.target)?))
    }

    /// Writes the task into the target, from which it may have gone before: releases and ids in
    /// pieces while it is marked there, and with the last commit the sums.
    fn write(&mut self, state: TaskState) -> Result<(), StoreError> {
        let task = self.task.id();
        let head = self.source.head(&task)?;
        let mut seq = self.target.head(&task)?.seq;
        let (mut releases, mut bytes): (Vec<(u32, SignedRelease)>, _) = (Vec::new(), 0);
        for round in 1..head.round {
            let release = self.source.release(&task, round)?;
            let missing = || StoreError::Damaged(format!("release {round} is missing"));
            let release = release.ok_or_else(missing)?;
            self.moved.releases += 1;
            match self.target.release(&task, round)? {
                Some(there) if there.body == release.body => continue,
                Some(_) => return Err(StoreError::Known(task)),
                None => {}
            }
            bytes += release.body.len();
            let last = Some(ReleaseHash::of(&release.body));
            releases.push((round, release));
            if bytes >= CHUNK {
                seq = seq.next();
                let head = Head { seq, round: round + 1, last, state: TaskState::Moving };
                let mut change = Change::to(head);
                change.releases = std::mem::take(&mut releases);
                bytes = 0;
                commit(&*self.target, &task, change)?;
            }
        }
        seq = seq.next();
        let mut change = Change::to(Head { seq, state: TaskState::Moving, ..head });
        change.releases = releases;
        // What an earlier try left.
        change.drop_ids_before = u32::MAX;
        commit(&*self.new, &task, change)?;
        let mut sums = None;
        if state == TaskState::Open {
            let (batch, ids) = self.read(&self.source)?;
            self.moved.filled = batch.round().map(|round| (round.number, batch.count()));
            for (round, ids) in &ids {
                for some in ids.chunks(IDS) {
                    let mut entry = IdsEntry::default();
                    some.iter().for_each(|id| entry.push(*id));
                    seq = seq.next();
                    let mut change = Change::to(Head { seq, state: TaskState::Moving, ..head });
                    change.append.push(entry.into_entry(*round));
                    commit(&*self.target, &task, change)?;
                }
            }
            sums = Some(batch.snapshot());
        }
        let mut change = Change::to(Head { seq: seq.next(), state, ..head });
        change.drop_sums_before = change.head.seq;
        change.append.extend(sums);
        commit(&*self.target, &task, change)
    }

    /// The unfinished batch, and the ids of its grace window.
    fn read(
        &self,
        store: &GuardedStore,
    ) -> Result<(Batch, BTreeMap<u32, Vec<ReportId>>), StoreError> {
        let mut batch = Batch::new(Arc::new(self.task.mechanism().clone()));
        let mut ids: BTreeMap<u32, Vec<ReportId>> = BTreeMap::new();
        let mut seq = Seq(0);
        loop {
            let entries = store.tail(&self.task.id(), seq, CHUNK)?;
            let Some((last, _)) = entries.last() else { break };
            seq = *last;
            for (_, entry) in &entries {
                batch.advance(entry)?;
                if entry.kind == Kind::Ids {
                    ids.entry(entry.round).or_default().extend(IdsEntry::decode(&entry.bytes)?);
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
        let head = self.old.head(&task)?;
        let head = Head { seq: head.seq.next(), state: TaskState::Moved, ..head };
        let mut change = Change::to(head);
        (change.drop_sums_before, change.drop_ids_before) = (Seq(u64::MAX), u32::MAX);
        commit(&*self.old, &task, change)?;
        while !self.old.forget()? {}
        Ok(())
    }
}

/// From now on nothing is counted in a store.
fn mark(store: &dyn ShufflerStore, task: &TaskId) -> Result<(), StoreError> {
    let head = store.head(task)?;
    if head.state == TaskState::Moving {
        return Ok(());
    }
    let head = Head { seq: head.seq.next(), state: TaskState::Moving, ..head };
    commit(store, task, Change::to(head))
}

fn commit(store: &dyn ShufflerStore, task: &TaskId, change: Change) -> Result<(), StoreError> {
    let turn = store.lock(&[*task])?;
    Ok(turn.commit(vec![(*task, change)])?)
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
fn forget(from: &NodeConfig, to: &NodeConfig, task: &Task) -> Result<(), ServiceError> {
    let (id, service) = (task.id(), service(&task.keys().shuffler));
    let keys =
        |config: &NodeConfig| round_keys::open(config.shuffler.round_keys.as_ref(), &config.data);
    let (old, new) = (keys(from).map_err(StoreError::from)?, keys(to).map_err(StoreError::from)?);
    // A medium has many names; its keys tell which it is.
    let mark = |keys: &dyn RoundKeys| keys.get_or_create(&service, 0).map_err(StoreError::from);
    let same = mark(&*old)? == mark(&*new)?;
    if !same {
        old.forget(&id).map_err(StoreError::from)?;
    }
    // Only a database needs the mark.
    let files = [from, to].map(|config| config.store == StoreKind::Sqlite);
    for (keys, file) in [&old, &new].into_iter().zip(files) {
        if file && (!same || files == [true; 2]) {
            keys.forget(&service).map_err(StoreError::from)?;
        }
    }
    let heads = |config: &NodeConfig| {
        config.shuffler.heads.clone().unwrap_or_else(|| Files::of(&config.data).heads)
    };
    let (old, new) = (heads(from), heads(to));
    if !is_same_file(&old, &new) {
        let mut heads = Heads::load(&old)?;
        heads.forget(&id);
        heads.save()?;
    }
    Ok(())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}
