//! The bandit over HTTP: collects releases, publishes models.

mod collector;
mod handlers;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use axum::Router;
use incrowd_bandit::{Bandit, BanditError};
use incrowd_envelope::Document;
use incrowd_protocol::{Model, Release, Task, TaskId};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Keys, Metrics, ServiceError,
    access::Access,
    http::Signed,
    newest::Newest,
    nodes,
    problem::{Kind, Problem},
    readiness::Probe,
    role::{Later, NO_STORE, Role, Service},
    store::{Absorbed, BanditStore, ReleaseHash, Step, StoreError, StoredModel},
};
use collector::Collecting;
pub(crate) use collector::Source;
pub use collector::{CollectError, shuffler_address};

/// A running bandit.
pub struct BanditServer {
    tasks: HashMap<TaskId, Arc<TaskHandle>>,
    store: Arc<dyn BanditStore>,
    keys: Keys,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
    collectors: Mutex<JoinSet<()>>,
    probe: Probe,
}

/// How often a step is computed anew because another node was faster.
const TRIES: u32 = 10;

const OTHER_HISTORY: &str =
    "the shuffler has another history than the bandit: its store went back in time";

/// A model as it is published.
#[derive(Debug, Clone)]
struct Published {
    version: u64,
    signed: Signed,
}

/// A task that is served.
struct TaskHandle {
    task: Task,
    learner: Mutex<Learner>,
    /// The last round that was absorbed, also while the learner is busy.
    absorbed: AtomicU32,
    model: watch::Sender<Option<Published>>,
    newest: Newest,
    /// Whether the shuffler has other releases than those that were absorbed.
    other_history: AtomicBool,
    collecting: Mutex<Collecting>,
}

/// What the store has of a task.
struct Learner {
    bandit: Bandit,
    /// The last release that was absorbed.
    last: Option<ReleaseHash>,
}

impl BanditServer {
    /// Opens every task in the store.
    pub(crate) fn start(
        service: &Service<'_>,
        store: Arc<dyn BanditStore>,
        keys: Keys,
    ) -> Result<Arc<Self>, ServiceError> {
        let &Service { config: _, tasks, certificates, access, metrics } = service;
        if let Some(shared) = store.shared() {
            nodes::agree(shared, &keys, access)?;
        }
        let mut handles = HashMap::new();
        for (task, certificate) in tasks.iter().cloned().zip(certificates) {
            let id = task.id();
            if task.keys().bandit != keys.verification_key() {
                return Err(ServiceError::OtherKey { task: id, role: "bandit" });
            }
            metrics.certified(&id, certificate);
            let learner = Learner::open(store.as_ref(), &task)?;
            let model = store.model(&id)?.map(|model| publish(model, &keys, &id));
            let version = model.as_ref().map_or(0, |model| model.version);
            let absorbed = learner.round();
            metrics.absorbed(&id, absorbed, version);
            let model = watch::Sender::new(model);
            let handle = TaskHandle {
                task,
                learner: Mutex::new(learner),
                absorbed: absorbed.into(),
                model,
                newest: Newest::default(),
                other_history: AtomicBool::new(false),
                collecting: Mutex::new(Collecting::Works),
            };
            handles.insert(id, Arc::new(handle));
        }
        Ok(Arc::new(Self {
            tasks: handles,
            store,
            keys,
            access: access.clone(),
            metrics: metrics.clone(),
            collectors: Mutex::default(),
            probe: Probe::default(),
        }))
    }

    /// Collects the releases of every task until it is finished or closed.
    pub(crate) fn collect(self: &Arc<Self>, source: &Arc<Source>) {
        let mut running = self.collectors.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in self.tasks.values() {
            running.spawn(collector::run(self.clone(), source.clone(), handle.clone()));
        }
    }

    /// The tasks, the last round each has absorbed, and the newest model's version.
    pub fn progress(&self) -> Vec<(TaskId, u32, u64)> {
        let of = |(id, handle): (&TaskId, &Arc<TaskHandle>)| {
            let version = handle.model.borrow().as_ref().map_or(0, |model| model.version);
            (*id, handle.absorbed.load(Relaxed), version)
        };
        let mut all: Vec<_> = self.tasks.iter().map(of).collect();
        all.sort_by_key(|(id, ..)| *id);
        all
    }

    fn task(&self, task: &TaskId) -> Result<&Arc<TaskHandle>, Problem> {
        let unknown = || Problem::new(Kind::NotFound, "this service does not have the task");
        self.tasks.get(task).ok_or_else(unknown)
    }

    /// Takes the next release: round, statistics and model become durable in one step, and only
    /// then is the model published.
    fn absorb(&self, handle: &TaskHandle, release: &[u8]) -> Result<(), CollectError> {
        let id = handle.task.id();
        let document: Release =
            serde_json::from_slice(release).map_err(|_| CollectError::NotSums)?;
        let sums = document.sums();
        let mut current = handle.learner.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES {
            let mut next = current.bandit.clone();
            let model = next.absorb(sums)?;
            if document.previous() != current.last {
                return Err(CollectError::Chain { round: sums.round() });
            }
            let model = model.as_ref().map(stored);
            let (round, previous, statistics) = (sums.round(), current.last, next.statistics());
            let step = Step { round, previous, release, statistics, model: model.as_ref() };
            match self.store.absorb(&id, &step) {
                Err(error) if error.is_overtaken() && self.store.shared().is_some() => {
                    let found = Learner::read::<CollectError>(&*self.store, &handle.task)?;
                    *current = found.ok_or(error)?;
                    if current.round() >= round {
                        return Ok(self.follow(handle, &current)?);
                    }
                }
                result => {
                    result?;
                    *current = Learner { bandit: next, last: Some(ReleaseHash::of(release)) };
                    self.absorbed(handle, &current, model);
                    return Ok(());
                }
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Tells what this node has absorbed.
    fn absorbed(&self, handle: &TaskHandle, learner: &Learner, model: Option<StoredModel>) {
        let (task, round, made) = (handle.task.id(), learner.round(), model.is_some());
        let version = self.take_over(handle, learner, model);
        if made {
            tracing::info!(%task, round, model = version, "absorbed, with a new model");
        } else {
            tracing::info!(%task, round, "absorbed");
        }
    }

    /// After another node was faster: takes over what it learned.
    fn follow(&self, handle: &TaskHandle, learner: &Learner) -> Result<(), StoreError> {
        let (task, round) = (handle.task.id(), learner.round());
        let version = self.take_over(handle, learner, self.store.model(&task)?);
        tracing::info!(%task, round, model = version, "absorbed by another node");
        Ok(())
    }

    /// Publishes what is durable. The version of the newest model.
    fn take_over(&self, handle: &TaskHandle, learner: &Learner, model: Option<StoredModel>) -> u64 {
        if let Some(model) = model {
            self.show(handle, model);
        }
        let version = handle.model.borrow().as_ref().map_or(0, |model| model.version);
        handle.absorbed.store(learner.round(), Relaxed);
        self.metrics.absorbed(&handle.task.id(), learner.round(), version);
        version
    }

    /// Publishes a model, unless a newer one is published.
    fn show(&self, handle: &TaskHandle, model: StoredModel) {
        let version = model.version;
        let newer =
            |shown: &Option<Published>| shown.as_ref().is_none_or(|shown| shown.version < version);
        if !newer(&handle.model.borrow()) {
            return;
        }
        let model = publish(model, &self.keys, &handle.task.id());
        handle.model.send_if_modified(|shown| {
            let later = newer(shown);
            if later {
                *shown = Some(model);
            }
            later
        });
    }

    /// Makes sure that no node has told of a newer model than this one is about to.
    async fn catch_up(self: &Arc<Self>, handle: &Arc<TaskHandle>) -> Result<(), Problem> {
        if self.store.shared().is_none() {
            return Ok(());
        }
        let (bandit, handle) = (self.clone(), handle.clone());
        // It goes on when its client disconnects: the next one waits for this answer instead of
        // asking again.
        let asked = tokio::spawn(async move {
            let task = handle.clone();
            let read = async || {
                let read = move || {
                    let model = bandit.store.model(&task.task.id())?;
                    model.into_iter().for_each(|model| bandit.show(&task, model));
                    Ok::<_, StoreError>(())
                };
                matches!(tokio::task::spawn_blocking(read).await, Ok(Ok(())))
            };
            handle.newest.read(read).await
        });
        if matches!(asked.await, Ok(true)) {
            Ok(())
        } else {
            Err(Problem::new(Kind::Unavailable, NO_STORE))
        }
    }
}

impl Learner {
    /// Where the store left it. Before the first release, and when the slots stand for other
    /// actions than before, there is a model to be written down.
    fn open(store: &dyn BanditStore, task: &Task) -> Result<Self, ServiceError> {
        for _ in 0..TRIES {
            let (learner, model) = match Self::read::<ServiceError>(store, task)? {
                None => {
                    let mut bandit = Bandit::new(Arc::new(task.config().clone()));
                    let model = bandit.start();
                    (Self { bandit, last: None }, model)
                }
                Some(mut learner) => {
                    let model = learner.bandit.assign(task.config().actions())?;
                    (learner, model)
                }
            };
            let Some(model) = model else { return Ok(learner) };
            match store.publish(&task.id(), learner.bandit.statistics(), &stored(&model)) {
                // Another node did something meanwhile.
                Err(error) if error.is_overtaken() && store.shared().is_some() => {}
                result => return result.map(|()| learner).map_err(Into::into),
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Where the store left it, with the actions that slots have there; none before the first
    /// model.
    fn read<E>(store: &dyn BanditStore, task: &Task) -> Result<Option<Self>, E>
    where
        E: From<StoreError> + From<BanditError>,
    {
        let Some(Absorbed { statistics, last }) = store.open(task)? else { return Ok(None) };
        let bandit = Bandit::resume(Arc::new(task.config().clone()), statistics)?;
        Ok(Some(Self { bandit, last }))
    }

    /// The last round that was absorbed.
    fn round(&self) -> u32 {
        self.bandit.statistics().round()
    }
}

fn stored(model: &Model) -> StoredModel {
    let bytes = serde_json::to_vec(model)
        .expect("invariant: a model is plain data, which can always be written");
    StoredModel { version: model.version(), bytes }
}

impl Role for BanditServer {
    fn tags(&self) -> Vec<&'static str> {
        vec!["bandit"]
    }

    fn routes(self: Arc<Self>) -> Router {
        handlers::router(&self)
    }

    fn ready(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async move {
            for (id, handle) in &self.tasks {
                if handle.other_history.load(Relaxed) {
                    return Err(OTHER_HISTORY.into());
                }
                if let Collecting::Fails(reason) = handle.collecting() {
                    return Err(format!("releases of task {id} are not collected: {reason}"));
                }
            }
            let store = self.store.clone();
            let probe = async {
                let check = tokio::task::spawn_blocking(move || store.check_writable());
                check.await.ok().and_then(Result::ok).ok_or_else(|| NO_STORE.to_owned())
            };
            self.probe.ask(probe).await
        })
    }

    fn stop_waiting(&self) {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    fn stop(&self) -> Later<'_, ()> {
        let mut collectors =
            std::mem::take(&mut *self.collectors.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move { collectors.shutdown().await })
    }
}

impl TaskHandle {
    fn collecting(&self) -> Collecting {
        self.collecting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_collecting(&self, now: Collecting) {
        *self.collecting.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// The round of the next release, and the release before it.
    fn next(&self) -> (u32, Option<ReleaseHash>) {
        let learner = self.learner.lock().unwrap_or_else(PoisonError::into_inner);
        (learner.round() + 1, learner.last)
    }
}

fn publish(StoredModel { version, bytes }: StoredModel, keys: &Keys, task: &TaskId) -> Published {
    Published { version, signed: Signed::new(bytes, keys.signing(), Document::Model, task) }
}
