//! Models for devices that come through a relay: fetched from the bandit's address by the shuffler,
//! once for all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{Router, extract::State, http::HeaderMap, response::Response, routing::get};
use incrowd_protocol::{EntityTag, Task, TaskId, paths};
use incrowd_transport::{Address, BanditApi, ModelAnswer};
use prometheus_client::metrics::counter::Counter;
use tokio::time::timeout;

use crate::{
    NodeConfig, ServiceError,
    files::trust,
    http::{Guard, PathOf, Signed, task_id},
    problem::{Kind, Problem},
    role::Service,
};

/// How long the bandit has for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nobody asks again after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// How long an answer is kept, whatever it says.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// The bandit at an address of the settings. Models are public and signed, so plain HTTP is allowed.
pub(crate) fn bandit(url: &str, config: &NodeConfig) -> Result<BanditApi, ServiceError> {
    let address = Address::new(url, "shuffler.model_url", true)?;
    Ok(BanditApi::new(address, &trust(config.shuffler.model_ca.as_deref())?)?)
}

/// The path of models, for requests that come through the gateway. Where nobody told the shuffler
/// where models are there is none.
///
/// # Privacy
/// The bandit sees the shuffler's address only, and one request for all devices. The address it is
/// asked at is the operator's, never a request's.
pub(crate) fn router(service: &Service<'_>) -> Result<Router, ServiceError> {
    let Some(url) = &service.config.shuffler.model_url else { return Ok(Router::new()) };
    let bandit = bandit(url, service.config)?;
    let source = |task: &Task| {
        let failures = service.metrics.model_fetch_failures(&task.id());
        let source = Source {
            task: task.clone(),
            bandit: bandit.clone(),
            kept: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            failures,
        };
        (task.id(), source)
    };
    let sources: Sources = Arc::new(service.tasks.iter().map(source).collect());
    let routes = Router::new().route(paths::MODEL, get(model));
    Ok(Guard::everyone(service.access).protect(routes).with_state(sources))
}

type Sources = Arc<HashMap<TaskId, Source>>;

async fn model(
    State(sources): State<Sources>,
    PathOf(task): PathOf<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let unknown = || Problem::new(Kind::NotFound, "this service does not have the task");
    let source = sources.get(&task_id(&task)?).ok_or_else(unknown)?;
    let Kept { state, until, .. } = source.newest().await;
    let seconds = until.saturating_duration_since(Instant::now()).as_secs().max(1);
    match state {
        Newest::Unknown => Err(Problem::new(Kind::Unavailable, "the bandit does not answer now")
            .retry_after(PAUSE.as_secs())),
        Newest::NoModel => {
            Err(Problem::new(Kind::NoModel, "no batch of this task is full yet").cacheable(seconds))
        }
        Newest::Model(_, signed) => {
            Ok(signed.answer(&headers, &format!("public, max-age={seconds}")))
        }
    }
}

/// The models of one task.
struct Source {
    task: Task,
    bandit: BanditApi,
    kept: Mutex<Kept>,
    /// Held by the one request that asks the bandit.
    turn: tokio::sync::Mutex<()>,
    failures: Counter,
}

/// The last answer, and how long nobody asks again.
#[derive(Clone)]
struct Kept {
    state: Newest,
    until: Instant,
    failing: bool,
}

#[derive(Clone)]
enum Newest {
    /// The bandit has not answered yet.
    Unknown,
    /// There is no model yet.
    NoModel,
    /// Its version, and the bytes, whose signature is checked.
    Model(u64, Signed),
}

impl Default for Kept {
    fn default() -> Self {
        Self { state: Newest::Unknown, until: Instant::now(), failing: false }
    }
}

impl Source {
    /// What is known. If that is too old, one request asks the bandit; others wait for it only
    /// where nothing is known.
    async fn newest(&self) -> Kept {
        let kept = self.kept();
        if kept.until > Instant::now() {
            return kept;
        }
        let _turn = if matches!(kept.state, Newest::Unknown) {
            self.turn.lock().await
        } else {
            match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => return kept,
            }
        };
        let kept = self.kept();
        if kept.until > Instant::now() {
            return kept;
        }
        let next = self.ask(kept).await;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
        next
    }

    fn kept(&self) -> Kept {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known after asking. A failure changes nothing, nor does an older model.
    async fn ask(&self, Kept { state, failing, .. }: Kept) -> Kept {
        let known = match &state {
            Newest::Model(_, signed) => Some(EntityTag::of(&signed.bytes)),
            _ => None,
        };
        let answer = timeout(PATIENCE, self.bandit.model(&self.task, known.as_ref())).await;
        let reason = match answer {
            Ok(Ok(ModelAnswer { model, fresh_for })) => {
                let state = match (model, state) {
                    (Some((_, found)), Newest::Model(version, signed))
                        if found.version() <= version =>
                    {
                        Newest::Model(version, signed)
                    }
                    (Some((signed, found)), _) => Newest::Model(found.version(), signed.into()),
                    (None, Newest::Unknown) => Newest::NoModel,
                    (None, state) => state,
                };
                let until = Instant::now() + fresh_for.clamp(SHORTEST, LONGEST);
                if failing {
                    tracing::info!(task = %self.task.id(), "models are fetched again");
                }
                return Kept { state, until, failing: false };
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        self.failures.inc();
        if !failing {
            tracing::warn!(task = %self.task.id(), reason, "no model from shuffler.model_url");
        }
        Kept { state, until: Instant::now() + PAUSE, failing: true }
    }
}
