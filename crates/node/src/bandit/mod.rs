//! The bandit over HTTP: collects releases, publishes models.

mod collector;
mod handlers;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use axum::Router;
use incrowd_bandit::Bandit;
use incrowd_envelope::Document;
use incrowd_protocol::{Model, Release, Task, TaskId};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Keys, Metrics, ServiceError,
    access::Access,
    http::Signed,
    problem::{Kind, Problem},
    readiness::Probe,
    role::{Later, NO_STORE, Role, Service},
    store::{Absorbed, BanditStore, ReleaseHash, Step, StoredModel},
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
    model: watch::Sender<Option<Published>>,
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
            metrics.absorbed(&id, learner.bandit.statistics().round(), version);
            let model = watch::Sender::new(model);
            let handle = TaskHandle {
                task,
                learner: Mutex::new(learner),
                model,
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
            (*id, handle.next_round() - 1, version)
        };
        let mut all: Vec<_> = self.tasks.iter().map(of).collect();
        all.sort_by_key(|(id, ..)| *id);
        all
    }

    fn task(&self, task: &TaskId) -> Result<&TaskHandle, Problem> {
        let unknown = || Problem::new(Kind::NotFound, "this service does not have the task");
        self.tasks.get(task).map(Arc::as_ref).ok_or_else(unknown)
    }

    /// Takes the next release: round, statistics and model become durable in one step, and only
    /// then is the model published.
    fn absorb(&self, handle: &TaskHandle, release: &[u8]) -> Result<(), CollectError> {
        let id = handle.task.id();
        let document: Release =
            serde_json::from_slice(release).map_err(|_| CollectError::NotSums)?;
        let sums = document.sums();
        let mut current = handle.learner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = current.bandit.clone();
        let model = next.absorb(sums)?;
        if document.previous() != current.last {
            return Err(CollectError::Chain { round: sums.round() });
        }
        let model = model.as_ref().map(stored);
        let (round, previous, statistics) = (sums.round(), current.last, next.statistics());
        let step = Step { round, previous, release, statistics, model: model.as_ref() };
        self.store.absorb(&id, &step)?;
        *current = Learner { bandit: next, last: Some(ReleaseHash::of(release)) };
        let made = model.is_some();
        if let Some(model) = model {
            handle.model.send_replace(Some(publish(model, &self.keys, &id)));
        }
        let version = handle.model.borrow().as_ref().map_or(0, |model| model.version);
        self.metrics.absorbed(&id, round, version);
        if made {
            tracing::info!(task = %id, round, model = version, "absorbed, with a new model");
        } else {
            tracing::info!(task = %id, round, "absorbed");
        }
        Ok(())
    }
}

impl Learner {
    /// Where the store left it. Before the first release, and when the slots stand for other
    /// actions than before, there is a model to be written down.
    fn open(store: &dyn BanditStore, task: &Task) -> Result<Self, ServiceError> {
        let config = Arc::new(task.config().clone());
        let (bandit, last, model) = match store.open(task)? {
            None => {
                let mut bandit = Bandit::new(config);
                let model = bandit.start();
                (bandit, None, model)
            }
            Some(Absorbed { statistics, last }) => {
                let mut bandit = Bandit::resume(config, statistics)?;
                let model = bandit.assign(task.config().actions())?;
                (bandit, last, model)
            }
        };
        if let Some(model) = model {
            let round = bandit.statistics().round();
            store.publish(&task.id(), round, bandit.statistics(), &stored(&model))?;
        }
        Ok(Self { bandit, last })
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

    fn next_round(&self) -> u32 {
        self.next().0
    }

    /// The round of the next release, and the release before it.
    fn next(&self) -> (u32, Option<ReleaseHash>) {
        let learner = self.learner.lock().unwrap_or_else(PoisonError::into_inner);
        (learner.bandit.statistics().round() + 1, learner.last)
    }
}

fn publish(StoredModel { version, bytes }: StoredModel, keys: &Keys, task: &TaskId) -> Published {
    Published { version, signed: Signed::new(bytes, keys.signing(), Document::Model, task) }
}
