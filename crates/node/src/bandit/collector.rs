//! Fetches each release from the shuffler, once and in order.

use std::{
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use incrowd_bandit::BanditError;
use incrowd_protocol::{ProblemKind, ReleaseHash, Task};
use incrowd_transport::{Address, Route, ShufflerApi, TransportError, Trust, retry};
use thiserror::Error;

use super::{BanditServer, TaskHandle};
use crate::{
    BanditConfig, NodeConfig, ServiceError, node::read_token, problem::Problem, shuffler::Shuffler,
    store::StoreError,
};

/// How long the shuffler holds a request for a batch that is not full.
const WAIT: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Why a release could not be absorbed. It is tried again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CollectError {
    /// The shuffler does not answer, refuses, or did not sign the release.
    #[error("the shuffler gives no release: {0}")]
    Transport(#[from] TransportError),
    /// The shuffler of this process refuses.
    #[error("the shuffler gives no release: {}", .0.detail)]
    Refused(Problem),
    /// Not batch sums.
    #[error("the release does not parse")]
    NotSums,
    /// The shuffler signed another history than the one that was absorbed.
    #[error(
        "release {round} does not follow the release before it that was absorbed: the shuffler's store went back in time, or is another one"
    )]
    Chain {
        /// The round of the release.
        round: u32,
    },
    /// Not the next release of this task.
    #[error(transparent)]
    Bandit(#[from] BanditError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect of this program; the release stays to be absorbed.
    #[error("the step panicked")]
    Panicked,
    /// The process is ending.
    #[error("the service is stopping")]
    Stopping,
}

impl CollectError {
    /// Whether the shuffler has other releases than those that were absorbed.
    fn is_other_history(&self) -> bool {
        matches!(self, Self::Chain { .. }) || self.kind() == Some(ProblemKind::OtherHistory)
    }

    /// What the shuffler calls the problem, if it answered with one.
    fn kind(&self) -> Option<ProblemKind> {
        match self {
            Self::Transport(error) => error.kind(),
            Self::Refused(problem) => Some(problem.kind),
            _ => None,
        }
    }
}

impl From<Problem> for CollectError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

/// Where releases come from.
pub(crate) struct Source {
    supplier: Supplier,
    longest_pause: Duration,
}

enum Supplier {
    /// Another process: answers are believed only with the signature of the task's shuffler.
    Network(Box<ShufflerApi>),
    /// The shuffler of this process.
    Process(Arc<Shuffler>),
}

impl Source {
    /// The shuffler of this process, if it has one, or else the configured one.
    pub fn new(config: &NodeConfig, own: Option<&Arc<Shuffler>>) -> Result<Self, ServiceError> {
        let supplier = match own {
            Some(shuffler) => Supplier::Process(shuffler.clone()),
            None => Supplier::Network(Box::new(network(&config.bandit)?)),
        };
        let longest_pause = Duration::from_secs(config.bandit.longest_pause_seconds);
        Ok(Self { supplier, longest_pause })
    }

    /// The bytes of a release, if its batch is full. `after` is the one before it.
    async fn fetch(
        &self,
        task: &Task,
        round: u32,
        after: Option<ReleaseHash>,
    ) -> Result<Option<Vec<u8>>, CollectError> {
        match &self.supplier {
            Supplier::Network(shuffler) => {
                let release = shuffler.release(task, round, after, WAIT).await?;
                Ok(release.map(|signed| signed.body))
            }
            Supplier::Process(shuffler) => {
                let release = shuffler.release(&task.id(), round, after, WAIT).await?;
                Ok(release.map(|release| release.body))
            }
        }
    }

    /// Waits after failures, until there is a success.
    fn pauses(&self) -> retry::Pauses {
        retry::Pauses::new(FIRST_PAUSE, self.longest_pause)
    }
}

fn network(config: &BanditConfig) -> Result<ShufflerApi, ServiceError> {
    let token = read_token(config.token_file.as_deref().ok_or(ServiceError::NoToken)?)?;
    let failed = |path: &Path, error| ServiceError::File { path: path.to_owned(), error };
    let ca = config.shuffler_ca.as_deref();
    let ca = ca.map(|path| fs::read(path).map_err(|error| failed(path, error))).transpose()?;
    let address = Address::new(&config.shuffler_url, "shuffler_url", true)?;
    let trust = Trust::new(ca.as_deref());
    Ok(ShufflerApi::new(Route::Direct(address), Some(token.to_string()), &trust)?)
}

/// Collects one task's releases until its last round.
pub(super) async fn run(bandit: Arc<BanditServer>, source: Arc<Source>, handle: Arc<TaskHandle>) {
    let id = handle.task.id();
    let last = handle.task.mechanism().schedule().last_round();
    let (mut pauses, mut failing) = (source.pauses(), false);
    while handle.next_round() <= last {
        match step(&bandit, &source, &handle).await {
            Ok(()) => {
                if failing {
                    tracing::info!(task = %id, "releases are collected again");
                }
                handle.other_history.store(false, Relaxed);
                (pauses, failing) = (source.pauses(), false);
            }
            Err(error) if error.kind() == Some(ProblemKind::Finished) => {
                tracing::info!(task = %id, "the task was closed: no more releases");
                return;
            }
            Err(CollectError::Stopping) => return,
            Err(error) => {
                bandit.metrics.collector_failed(&id);
                if error.is_other_history() {
                    if !handle.other_history.swap(true, Relaxed) {
                        tracing::error!(task = %id, %error, "the shuffler has another history than this bandit");
                    }
                } else if !failing {
                    tracing::warn!(task = %id, %error, "cannot collect a release, trying again");
                }
                failing = true;
                tokio::time::sleep(pauses.next_pause()).await;
            }
        }
    }
    tracing::info!(task = %id, "the task is finished: its last release is absorbed");
}

async fn step(
    bandit: &Arc<BanditServer>,
    source: &Source,
    handle: &Arc<TaskHandle>,
) -> Result<(), CollectError> {
    let (round, after) = handle.next();
    let release = source.fetch(&handle.task, round, after).await?;
    let Some(release) = release else { return Ok(()) };
    let (bandit, handle) = (bandit.clone(), handle.clone());
    let absorb = move || bandit.absorb(&handle, &release);
    match tokio::task::spawn_blocking(absorb).await {
        Ok(absorbed) => absorbed,
        // The runtime ends between two steps, never inside one; then the step was not begun.
        Err(error) if error.is_cancelled() => Err(CollectError::Stopping),
        Err(_) => Err(CollectError::Panicked),
    }
}
