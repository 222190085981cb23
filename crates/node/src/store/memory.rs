use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use incrowd_bandit::Statistics;
use incrowd_protocol::{Task, TaskId};
use incrowd_shuffler::{Entry, Kind};

use super::{
    Absorbed, BanditStore, Change, Clock, CommitError, Head, Learned, Log, Position, ReleaseHash,
    Seq, ShufflerStore, SignedRelease, Step, StoreError, StoredModel, Turn, models_before,
};

/// A shuffler's memory that is gone with the process: for tests.
#[derive(Default)]
pub struct MemoryShufflerStore {
    tasks: Mutex<Tasks>,
    /// None is the system's.
    clock: Option<Clock>,
}

type Tasks = HashMap<TaskId, ShufflerTask>;

impl MemoryShufflerStore {
    /// An empty one with another clock than the system's.
    pub fn with_clock(clock: Clock) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }

    fn turn(&self) -> MemoryTurn<'_> {
        MemoryTurn { tasks: lock(&self.tasks), store: self }
    }
}

struct MemoryTurn<'a> {
    tasks: MutexGuard<'a, Tasks>,
    store: &'a MemoryShufflerStore,
}

#[derive(Default)]
struct ShufflerTask {
    head: Head,
    entries: Vec<(Seq, Entry)>,
    releases: BTreeMap<u32, SignedRelease>,
}

impl ShufflerStore for MemoryShufflerStore {
    fn open(&self, task: &TaskId) -> Result<Head, StoreError> {
        Ok(lock(&self.tasks).entry(*task).or_default().head)
    }

    fn lock<'a>(&'a self, tasks: &[TaskId]) -> Result<Box<dyn Turn + 'a>, StoreError> {
        let turn = self.turn();
        tasks.iter().try_for_each(|task| turn.head(task).map(drop))?;
        Ok(Box::new(turn))
    }

    fn release(&self, task: &TaskId, round: u32) -> Result<Option<SignedRelease>, StoreError> {
        Ok(lock(&self.tasks).get(task).and_then(|task| task.releases.get(&round).cloned()))
    }

    fn forget(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn tasks(&self) -> Result<Vec<(TaskId, Head)>, StoreError> {
        let mut tasks: Vec<_> =
            lock(&self.tasks).iter().map(|(id, task)| (*id, task.head)).collect();
        tasks.sort_by_key(|(id, _)| *id);
        Ok(tasks)
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        Ok(lock(&self.tasks).remove(task).is_some())
    }
}

impl Log for MemoryShufflerStore {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        self.turn().head(task)
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        self.turn().tail(task, after, max_bytes)
    }

    fn now(&self) -> SystemTime {
        self.clock.as_ref().map_or_else(SystemTime::now, |clock| clock())
    }
}

impl Log for MemoryTurn<'_> {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        self.tasks.get(task).map(|task| task.head).ok_or(StoreError::UnknownTask(*task))
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        let (mut found, mut bytes): (Vec<(Seq, Entry)>, _) = (Vec::new(), 0);
        let entries = &self.tasks.get(task).ok_or(StoreError::UnknownTask(*task))?.entries;
        for (seq, entry) in entries.iter().filter(|(seq, _)| *seq > after) {
            if bytes >= max_bytes && found.last().is_some_and(|(last, _)| last != seq) {
                break;
            }
            bytes += entry.bytes.len();
            found.push((*seq, entry.clone()));
        }
        Ok(found)
    }

    fn now(&self) -> SystemTime {
        self.store.now()
    }
}

impl Turn for MemoryTurn<'_> {
    fn commit(mut self: Box<Self>, changes: Vec<(TaskId, Change)>) -> Result<(), CommitError> {
        for (task, change) in &changes {
            let (found, last) = (change.head.seq.0, self.head(task)?.seq.0);
            if found != last + 1 {
                return Err(StoreError::Stale { found, last }.into());
            }
            let releases = &self.tasks[task].releases;
            if let Some((round, _)) = change.releases.iter().find(|(r, _)| releases.contains_key(r))
            {
                return Err(StoreError::Released(*round).into());
            }
        }
        for (task, change) in changes {
            let task = self.tasks.get_mut(&task).expect("invariant: its head was read above");
            task.head = change.head;
            task.releases.extend(change.releases);
            task.entries.extend(change.append.into_iter().map(|entry| (change.head.seq, entry)));
            task.entries.sort_by_key(|(seq, entry)| (*seq, entry.kind));
            task.entries.retain(|(seq, entry)| match entry.kind {
                Kind::Snapshot | Kind::Delta => *seq >= change.drop_sums_before,
                Kind::Ids => entry.round >= change.drop_ids_before,
            });
        }
        Ok(())
    }
}

/// A bandit's memory that is gone with the process: for tests.
#[derive(Default)]
pub struct MemoryBanditStore(Mutex<HashMap<TaskId, BanditTask>>);

#[derive(Default)]
struct BanditTask {
    statistics: Option<Statistics>,
    releases: Vec<(u32, Vec<u8>)>,
    models: Vec<StoredModel>,
}

impl BanditTask {
    fn last(&self) -> Option<ReleaseHash> {
        self.releases.last().map(|(_, body)| ReleaseHash::of(body))
    }

    fn position(&self) -> Position {
        let models = self.models.last().map_or(0, |model| model.version);
        Position { round: self.releases.len() as u32, last: self.last(), models }
    }
}

impl BanditStore for MemoryBanditStore {
    fn open(&self, task: &Task) -> Result<Option<Absorbed>, StoreError> {
        let mut tasks = lock(&self.0);
        let open = tasks.entry(task.id()).or_default();
        let last = open.last();
        Ok(open.statistics.clone().map(|statistics| Absorbed { statistics, last }))
    }

    fn publish(
        &self,
        task: &TaskId,
        statistics: &Statistics,
        model: &StoredModel,
    ) -> Result<(), StoreError> {
        let mut tasks = lock(&self.0);
        let open = tasks.get_mut(task).ok_or(StoreError::UnknownTask(*task))?;
        let models = models_before(statistics, Some(model));
        let stored = open.position();
        Position { round: statistics.round(), models, ..stored }.check(&stored)?;
        open.statistics = Some(statistics.clone());
        open.models.push(model.clone());
        Ok(())
    }

    fn absorb(&self, task: &TaskId, step: &Step<'_>) -> Result<(), StoreError> {
        let mut tasks = lock(&self.0);
        let open = tasks.get_mut(task).ok_or(StoreError::UnknownTask(*task))?;
        step.before().check(&open.position())?;
        open.releases.push((step.round, step.release.to_vec()));
        open.statistics = Some(step.statistics.clone());
        open.models.extend(step.model.cloned());
        Ok(())
    }

    fn model(&self, task: &TaskId) -> Result<Option<StoredModel>, StoreError> {
        Ok(lock(&self.0).get(task).and_then(|task| task.models.last().cloned()))
    }

    fn models(&self, task: &TaskId) -> Result<Vec<StoredModel>, StoreError> {
        Ok(lock(&self.0).get(task).map(|task| task.models.clone()).unwrap_or_default())
    }

    fn releases(&self, task: &TaskId) -> Result<Vec<(u32, Vec<u8>)>, StoreError> {
        Ok(lock(&self.0).get(task).map(|task| task.releases.clone()).unwrap_or_default())
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn tasks(&self) -> Result<Vec<(TaskId, u32)>, StoreError> {
        let mut tasks: Vec<_> =
            lock(&self.0).iter().map(|(id, task)| (*id, task.releases.len() as u32)).collect();
        tasks.sort_by_key(|(id, _)| *id);
        Ok(tasks)
    }

    fn import(&self, task: &TaskId, learned: &Learned) -> Result<(), StoreError> {
        let mut tasks = lock(&self.0);
        let open = tasks.entry(*task).or_default();
        if !learned.is_known(task, &open.releases, open.models.len())? {
            open.statistics = learned.absorbed.as_ref().map(|absorbed| absorbed.statistics.clone());
            open.releases.clone_from(&learned.releases);
            open.models.clone_from(&learned.models);
        }
        Ok(())
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        Ok(lock(&self.0).remove(task).is_some())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
