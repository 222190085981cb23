use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use incrowd_device::{Device, Next};
use incrowd_protocol::{Model, Round, Task, TaskNotice};
use incrowd_transport::{BanditApi, ShufflerApi, retry};
use tokio::{sync::watch, time::Instant};

use crate::{
    ClientError, Phase, Status,
    builder::Settings,
    state::{State, Store},
};

/// How long a notice is good for sealing: keys that are rotated stay open for longer than that.
const FRESH: Duration = Duration::from_secs(60);

/// What ranking and the two background tasks share.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) task: Task,
    pub(crate) shuffler: ShufflerApi,
    pub(crate) bandit: BanditApi,
    pub(crate) store: Store,
    pub(crate) device: Mutex<Device>,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) live: Arc<Mutex<Live>>,
}

/// What changes, and is read without waiting.
pub(crate) struct Live {
    pub(crate) model: Option<Arc<Model>>,
    /// The last notice, and when it came over the network.
    pub(crate) notice: (TaskNotice, Option<Instant>),
    pub(crate) round: u32,
    pub(crate) reports_sent: u64,
    pub(crate) last_error: Option<ClientError>,
}

/// The value, also after a panic elsewhere: none of the values here can be left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Whether the next decision can be reported. It looks at rounds and participation only.
    pub(crate) async fn turn(&self) -> Phase {
        Self::turn_of(&self.task, &self.store.read().await)
    }

    /// The same, before there is a core.
    pub(crate) fn turn_of(task: &Task, state: &State) -> Phase {
        match state.participation.next(task.mechanism()) {
            Next::Spent => Phase::Done,
            next if next.allows(state.newest_round) => Phase::Open,
            _ => Phase::Waiting,
        }
    }

    pub(crate) fn status(&self) -> Status {
        let live = lock(&self.live);
        Status {
            phase: *self.phase.borrow(),
            model_version: live.model.as_ref().map(|model| model.version()),
            round: (live.round > 0).then_some(live.round),
            reports_sent: live.reports_sent,
            last_error: live.last_error.as_ref().map(ToString::to_string),
        }
    }

    pub(crate) fn note(&self, error: ClientError) {
        lock(&self.live).last_error = Some(error);
    }

    /// Tries as long as the error is `passing`, and notes each error that is followed by another
    /// try.
    pub(crate) async fn retry<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        attempt: impl FnMut() -> F,
        passing: impl FnMut(&ClientError) -> bool,
    ) -> Result<T, ClientError> {
        retry::patiently(attempt, passing, |error| self.note(error.clone())).await
    }

    /// Fetches the current round, never one before the newest seen; none when the task is over.
    pub(crate) async fn fetch_round(&self) -> Result<Option<Round>, ClientError> {
        let round = self.shuffler.round(&self.task).await?;
        let live = Arc::clone(&self.live);
        let change = |state: &mut State| {
            let newest = state.newest_round;
            let found = round.map_or(newest, |round| round.number);
            if found < newest {
                return Err(ClientError::RoundRollback { found, newest });
            }
            state.newest_round = found;
            Ok(round)
        };
        let believe = move |round: &Option<Round>| {
            if let Some(round) = round {
                lock(&live).round = round.number;
            }
        };
        self.store.update_then(change, believe).await
    }

    /// A notice that is fresh enough to seal with.
    pub(crate) async fn fresh_notice(&self) -> Result<TaskNotice, ClientError> {
        let (notice, fetched) = lock(&self.live).notice.clone();
        if fetched.is_some_and(|fetched| fetched.elapsed() < FRESH) {
            return Ok(notice);
        }
        self.fetch_notice().await
    }

    pub(crate) async fn fetch_notice(&self) -> Result<TaskNotice, ClientError> {
        let (signed, notice) = self.shuffler.notice(&self.task.id()).await?;
        let live = Arc::clone(&self.live);
        let change = |state: &mut State| {
            state.notice = Some(signed);
            Ok(notice)
        };
        let believe = move |notice: &TaskNotice| {
            lock(&live).notice = (notice.clone(), Some(Instant::now()));
        };
        self.store.update_then(change, believe).await
    }

    /// Fetches a newer model, if there is one within `wait`; whether there was.
    ///
    /// # Privacy
    /// The device ranks with a model only once the state file has its version: otherwise a restart
    /// could accept an older one.
    pub(crate) async fn fetch_model(&self, wait: Duration) -> Result<bool, ClientError> {
        let newest = lock(&self.live).model.as_ref().map_or(0, |model| model.version());
        let Some((signed, model)) = self.bandit.model(&self.task, newest, wait).await? else {
            return Ok(false);
        };
        let model = Arc::new(model);
        let (live, believed) = (Arc::clone(&self.live), Arc::clone(&model));
        let change = |state: &mut State| {
            // The live model changes only inside updates, so no other fetch comes between.
            let newest = lock(&self.live).model.as_ref().map_or(0, |model| model.version());
            if state.model.as_ref() == Some(&signed) {
                return Ok(false);
            }
            if model.version() <= newest {
                return Err(ClientError::ModelRollback { found: model.version(), newest });
            }
            state.model = Some(signed);
            Ok(true)
        };
        let believe = move |newer: &bool| {
            if *newer {
                lock(&live).model = Some(believed);
            }
        };
        self.store.update_then(change, believe).await
    }
}
