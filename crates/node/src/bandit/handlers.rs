use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use incrowd_protocol::paths;
use serde::Deserialize;

use super::BanditServer;
use crate::{
    http::{Guard, PathOf, QueryOf, task_id, wait},
    problem::{Kind, Problem},
};

pub(super) fn router(bandit: &Arc<BanditServer>) -> Router {
    let router = Router::new().route(paths::MODEL, get(model));
    Guard::everyone(&bandit.tokens).protect(router).with_state(bandit.clone())
}

#[derive(Deserialize)]
struct After {
    /// Version the caller has: only a newer model is of interest.
    after: Option<u64>,
    /// Seconds to wait for one, 0 to 60.
    wait: Option<u64>,
}

/// The newest model: the same bytes for everyone. Signed by the bandit.
async fn model(
    State(bandit): State<Arc<BanditServer>>,
    PathOf(task): PathOf<String>,
    QueryOf(query): QueryOf<After>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let handle = bandit.task(&task_id(&task)?)?;
    let mut model = handle.model.subscribe();
    let wait = wait(query.wait)?;
    if !wait.is_zero() {
        let after = query.after.unwrap_or(0);
        let newer =
            model.wait_for(|model| model.as_ref().is_some_and(|model| model.version > after));
        bandit.stopping.or(newer, wait).await;
    }
    let current = model.borrow().clone();
    match current {
        None => Err(Problem::new(Kind::NoModel, "no batch of this task is full yet")),
        Some(current) if query.after.is_some_and(|after| current.version <= after) => {
            let cache = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
            Ok((StatusCode::NOT_MODIFIED, cache).into_response())
        }
        // A model with `after` answers one moment's question and must not be kept for the next.
        Some(current) if query.after.is_some() => Ok(current.signed.answer(&headers, "no-store")),
        Some(current) => Ok(current.signed.answer(&headers, "public, max-age=5")),
    }
}
