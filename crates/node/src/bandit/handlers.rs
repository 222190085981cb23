use std::sync::Arc;

use axum::{Router, extract::State, http::HeaderMap, response::Response, routing::get};
use incrowd_protocol::{Mechanism, paths};

use super::BanditServer;
use crate::{
    http::{Guard, PathOf, task_id},
    problem::{Kind, Problem},
};

/// Where batches close by time, an answer may be kept for this part of the shortest round.
const PART_OF_A_ROUND: u64 = 60;
/// And at most so many seconds.
const LONGEST: u64 = 300;
/// Where they close by count, nobody knows when the next model comes.
const BY_COUNT: u64 = 5;

pub(super) fn router(bandit: &Arc<BanditServer>) -> Router {
    let router = Router::new().route(paths::MODEL, get(model));
    Guard::everyone(&bandit.access).protect(router).with_state(bandit.clone())
}

/// The newest model: the same bytes for everyone, so that any cache can give them out. It is
/// answered at once, or as soon as a database that other nodes share has told that it is the
/// newest: a request that anyone may make never waits for a round. Signed by the bandit.
async fn model(
    State(bandit): State<Arc<BanditServer>>,
    PathOf(task): PathOf<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let handle = bandit.task(&task_id(&task)?)?;
    let seconds = max_age(handle.task.mechanism());
    bandit.catch_up(handle).await?;
    let published = handle.model.borrow();
    let published = published.as_ref().ok_or_else(|| {
        Problem::new(Kind::NoModel, "no batch of this task is full yet").cacheable(seconds)
    })?;
    Ok(published.signed.answer(&headers, &format!("public, max-age={seconds}")))
}

/// How many seconds an answer may be kept. A model is new at most once in a round, and a device
/// that learns of it a sixtieth of a round later loses nothing that matters; so the task's own pace
/// decides, and not an operator.
fn max_age(mechanism: &Mechanism) -> u64 {
    let windows = mechanism.schedule().stages().iter().filter_map(|stage| stage.window);
    let seconds = |shortest: u32| u64::from(shortest) / 1000 / PART_OF_A_ROUND;
    windows.min().map_or(BY_COUNT, |shortest| seconds(shortest).clamp(1, LONGEST))
}
