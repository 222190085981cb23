use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use incrowd_bandit::Statistics;
use incrowd_protocol::{Task, TaskId};
use incrowd_shuffler::{Batch, Refusal};

use super::{
    BanditStore, Progress, Receipt, ShufflerStore, Step, StoreError, StoredModel, Upload, receipt,
};

/// A shuffler's memory that is gone with the process: for tests.
#[derive(Default)]
pub struct MemoryShufflerStore(Mutex<HashMap<TaskId, ShufflerTask>>);

struct ShufflerTask {
    /// None when the task is closed.
    batch: Option<Batch>,
    releases: BTreeMap<u32, Vec<u8>>,
}

impl ShufflerTask {
    fn progress(&self) -> Progress {
        let batch = self.batch.as_ref();
        Progress {
            round: batch.and_then(Batch::round).map(|round| round.number),
            count: batch.map_or(0, Batch::count),
            remembered: batch.map_or(0, Batch::remembered),
            closed: batch.is_none(),
        }
    }
}

impl ShufflerStore for MemoryShufflerStore {
    fn open(&self, task: &Task) -> Result<Progress, StoreError> {
        let mut tasks = lock(&self.0);
        let new = || {
            let batch = Batch::new(Arc::new(task.mechanism().clone()));
            ShufflerTask { batch: Some(batch), releases: BTreeMap::new() }
        };
        Ok(tasks.entry(task.id()).or_insert_with(new).progress())
    }

    fn accept(&self, uploads: &[Upload]) -> Result<Vec<Vec<Receipt>>, StoreError> {
        let mut tasks = lock(&self.0);
        if let Some(unknown) = uploads.iter().find(|upload| !tasks.contains_key(&upload.task)) {
            return Err(StoreError::UnknownTask(unknown.task));
        }
        let mut receipts = Vec::new();
        for Upload { task, reports } in uploads {
            let ShufflerTask { batch, releases } =
                tasks.get_mut(task).ok_or(StoreError::UnknownTask(*task))?;
            let Some(batch) = batch else {
                receipts.push(vec![Receipt::Refused(Refusal::Finished); reports.len()]);
                continue;
            };
            let mut count = |report| {
                let (receipt, released) = receipt(batch.accept(report));
                if let Some(sums) = released {
                    releases.insert(sums.round(), serde_json::to_vec(&sums).unwrap_or_default());
                }
                receipt
            };
            receipts.push(reports.iter().map(&mut count).collect());
        }
        Ok(receipts)
    }

    fn progress(&self, task: &TaskId) -> Result<Progress, StoreError> {
        lock(&self.0).get(task).map(ShufflerTask::progress).ok_or(StoreError::UnknownTask(*task))
    }

    fn release(&self, task: &TaskId, round: u32) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(lock(&self.0).get(task).and_then(|task| task.releases.get(&round).cloned()))
    }

    fn close(&self, task: &TaskId) -> Result<Progress, StoreError> {
        let mut tasks = lock(&self.0);
        let open = tasks.get_mut(task).ok_or(StoreError::UnknownTask(*task))?;
        open.batch = None;
        Ok(open.progress())
    }

    fn tidy(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn probe(&self) -> Result<(), StoreError> {
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

impl BanditStore for MemoryBanditStore {
    fn open(&self, task: &Task) -> Result<Option<Statistics>, StoreError> {
        Ok(lock(&self.0).entry(task.id()).or_default().statistics.clone())
    }

    fn absorb(&self, task: &TaskId, step: &Step<'_>) -> Result<(), StoreError> {
        let mut tasks = lock(&self.0);
        let open = tasks.get_mut(task).ok_or(StoreError::UnknownTask(*task))?;
        let next = open.releases.len() as u32 + 1;
        if step.round != next {
            return Err(StoreError::Order { found: step.round, next });
        }
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

    fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
