//! The bandit over HTTP: collects releases, publishes models.

mod collector;
mod handlers;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::Router;
use incrowd_bandit::Bandit;
use incrowd_envelope::Document;
use incrowd_protocol::{BatchSums, Task, TaskId};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Keys, Metrics, NodeConfig, ServiceError,
    http::{Signed, Stopping},
    problem::{Kind, Problem},
    store::{BanditStore, Step, StoredModel},
    tokens::Tokens,
};
pub use collector::CollectError;
use collector::Source;

/// A running bandit.
pub struct BanditServer {
    tasks: HashMap<TaskId, Served>,
    store: Arc<dyn BanditStore>,
    keys: Keys,
    tokens: Arc<Tokens>,
    metrics: Arc<Metrics>,
    /// For open requests.
    pub(crate) stopping: Stopping,
}

/// A model as it is published.
#[derive(Debug, Clone)]
struct Published {
    version: u64,
    signed: Signed,
}

struct Served {
    task: Arc<Task>,
    bandit: Mutex<Bandit>,
    model: watch::Sender<Option<Published>>,
}

impl BanditServer {
    /// Opens every task in the store. Tasks whose guarantee is beyond the operator's limits are an error.
    pub fn start(
        config: &NodeConfig,
        tasks: Vec<Task>,
        store: Arc<dyn BanditStore>,
        keys: Keys,
        tokens: Arc<Tokens>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, ServiceError> {
        let mut served = HashMap::new();
        for task in tasks {
            let id = task.id();
            if task.keys().bandit != keys.verification_key() {
                return Err(ServiceError::OtherKey { task: id, role: "bandit" });
            }
            metrics.certified(&id, &config.limits.admit(&task)?);
            let learner = Arc::new(task.config().clone());
            let bandit = match store.open(&task)? {
                None => Bandit::new(learner),
                Some(statistics) => Bandit::resume(learner, statistics)?,
            };
            let model = store.model(&id)?.map(|model| publish(model, &keys, &id));
            let version = model.as_ref().map_or(0, |model| model.version);
            metrics.absorbed(&id, bandit.statistics().round(), version);
            let served_task = Served {
                task: Arc::new(task),
                bandit: Mutex::new(bandit),
                model: watch::Sender::new(model),
            };
            served.insert(id, served_task);
        }
        let stopping = Stopping::default();
        Ok(Arc::new(Self { tasks: served, store, keys, tokens, metrics, stopping }))
    }

    /// The routes for devices, and their description.
    pub fn router(self: &Arc<Self>) -> Router {
        handlers::router(self)
    }

    /// Collects the releases of every task until it is told to stop or the task is over.
    pub fn collect(
        self: &Arc<Self>,
        config: &NodeConfig,
        token: &str,
    ) -> Result<JoinSet<()>, ServiceError> {
        let source = Arc::new(Source::new(config, token)?);
        let mut running = JoinSet::new();
        for id in self.tasks.keys() {
            running.spawn(collector::run(self.clone(), source.clone(), *id));
        }
        Ok(running)
    }

    /// Whether steps can be stored now.
    pub async fn ready(&self) -> bool {
        let store = self.store.clone();
        matches!(tokio::task::spawn_blocking(move || store.probe()).await, Ok(Ok(())))
    }

    /// The tasks, the last round each has absorbed, and the newest model's version.
    pub fn progress(&self) -> Vec<(TaskId, u32, u64)> {
        let of = |(id, served): (&TaskId, &Served)| {
            let version = served.model.borrow().as_ref().map_or(0, |model| model.version);
            (*id, served.next_round() - 1, version)
        };
        let mut all: Vec<_> = self.tasks.iter().map(of).collect();
        all.sort_by_key(|(id, ..)| *id);
        all
    }

    fn served(&self, task: &TaskId) -> Result<&Served, Problem> {
        let unknown = || Problem::new(Kind::NotFound, "this service does not have the task");
        self.tasks.get(task).ok_or_else(unknown)
    }

    /// Takes the next release: round, statistics and model become durable in one step, and only then is the model published.
    fn absorb(&self, served: &Served, release: &[u8]) -> Result<(), CollectError> {
        let id = served.task.id();
        let sums: BatchSums = serde_json::from_slice(release).map_err(|_| CollectError::NotSums)?;
        let mut current = served.bandit.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = current.clone();
        let model = next.absorb(&sums)?;
        let model = model.map(|model| {
            let bytes = serde_json::to_vec(&model).unwrap_or_default();
            StoredModel { version: model.version(), bytes }
        });
        let (round, statistics) = (sums.round(), next.statistics());
        self.store.absorb(&id, &Step { round, release, statistics, model: model.as_ref() })?;
        *current = next;
        if let Some(model) = model {
            served.model.send_replace(Some(publish(model, &self.keys, &id)));
        }
        let version = served.model.borrow().as_ref().map_or(0, |model| model.version);
        self.metrics.absorbed(&id, round, version);
        Ok(())
    }
}

impl Served {
    fn next_round(&self) -> u32 {
        self.bandit.lock().unwrap_or_else(PoisonError::into_inner).statistics().round() + 1
    }
}

fn publish(StoredModel { version, bytes }: StoredModel, keys: &Keys, task: &TaskId) -> Published {
    Published { version, signed: Signed::new(bytes, keys.signing(), Document::Model, task) }
}
