//! The operator's listener: health, metrics, tasks.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use incrowd_protocol::{TaskId, paths};
use serde::{Deserialize, Serialize};

use crate::{
    Metrics,
    access::Access,
    bandit::BanditServer,
    http::{Guard, PathOf, task_id},
    openapi,
    problem::{Kind, Problem},
    readiness::Readiness,
    shuffler::Shuffler,
    tokens::Role,
};

#[derive(Clone)]
struct Admin {
    shuffler: Option<Arc<Shuffler>>,
    bandit: Option<Arc<BanditServer>>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
}

/// How far a task is, as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The task.
    pub task: TaskId,
    /// The round being filled, if this is the shuffler and the task is not over.
    pub round: Option<u32>,
    /// When that round opens, in milliseconds since 1970, where batches close by time.
    #[serde(default)]
    pub opens: Option<u64>,
    /// When it closes.
    #[serde(default)]
    pub closes: Option<u64>,
    /// Reports in the unfinished batch.
    pub reports: Option<u32>,
    /// Whether the operator ended it.
    pub closed: Option<bool>,
    /// Last absorbed round, if this is the bandit.
    pub absorbed: Option<u32>,
    /// Newest model's version.
    pub model: Option<u64>,
}

pub(crate) fn router(
    shuffler: Option<Arc<Shuffler>>,
    bandit: Option<Arc<BanditServer>>,
    readiness: Arc<Readiness>,
    access: &Arc<Access>,
    metrics: Arc<Metrics>,
) -> Router {
    let state = Admin { shuffler, bandit, readiness, metrics };
    let open = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz));
    let shown = Router::new().route("/metrics", get(metrics_text)).route(paths::TASKS, get(tasks));
    let done = Router::new().route(paths::CLOSE, post(close));
    Guard::everyone(access)
        .protect(open)
        .merge(Guard::only(&[Role::Monitor, Role::Admin], access).protect(shown))
        .merge(Guard::only(&[Role::Admin], access).protect(done))
        .with_state(state)
        .merge(openapi::router(&["admin", "health"], access))
}

/// The operator's listener of a relay, for this machine only.
pub(crate) fn of_relay(readiness: Arc<Readiness>, metrics: Arc<Metrics>) -> Router {
    let state = Admin { shuffler: None, bandit: None, readiness, metrics };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(state)
        .merge(openapi::open_router(&["health"]))
}

/// The process answers.
async fn healthz() -> &'static str {
    "ok\n"
}

/// A report would be stored, a release absorbed.
async fn readyz(State(admin): State<Admin>) -> Response {
    match admin.readiness.check().await {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => Problem::new(Kind::Unavailable, reason).into_response(),
    }
}

async fn metrics_text(State(admin): State<Admin>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], admin.metrics.text()).into_response()
}

async fn tasks(State(admin): State<Admin>) -> Json<Vec<TaskStatus>> {
    let mut all: Vec<TaskStatus> = Vec::new();
    for (task, progress) in admin.shuffler.iter().flat_map(|shuffler| shuffler.progress()) {
        all.push(TaskStatus {
            task,
            round: progress.round,
            opens: progress.window.map(|window| window.opens),
            closes: progress.window.map(|window| window.closes),
            reports: Some(progress.count),
            closed: Some(progress.closed),
            absorbed: None,
            model: None,
        });
    }
    for (task, absorbed, model) in admin.bandit.iter().flat_map(|bandit| bandit.progress()) {
        let (absorbed, model) = (Some(absorbed), Some(model));
        match all.iter_mut().find(|status| status.task == task) {
            Some(status) => (status.absorbed, status.model) = (absorbed, model),
            None => all.push(TaskStatus {
                task,
                round: None,
                opens: None,
                closes: None,
                reports: None,
                closed: None,
                absorbed,
                model,
            }),
        }
    }
    Json(all)
}

/// Ends a task for good: its unfinished batch is destroyed, never released.
async fn close(
    State(admin): State<Admin>,
    PathOf(task): PathOf<String>,
) -> Result<StatusCode, Problem> {
    let id = task_id(&task)?;
    let none = || Problem::new(Kind::NotFound, "only the shuffler closes tasks");
    admin.shuffler.as_ref().ok_or_else(none)?.close(&id).await?;
    tracing::info!(task = %id, "the task is closed, its unfinished batch destroyed");
    Ok(StatusCode::NO_CONTENT)
}
