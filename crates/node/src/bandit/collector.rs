//! Fetches each release from the shuffler, once and in order.

use std::{
    sync::{Arc, PoisonError, RwLock, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use incrowd_bandit::BanditError;
use incrowd_protocol::{ProblemKind, ReleaseHash, Task};
use incrowd_transport::{Address, Fetched, Route, ShufflerApi, TransportError, retry};
use thiserror::Error;

use super::{BanditServer, TaskHandle};
use crate::{
    BanditConfig, NodeConfig, ServiceError,
    files::trust,
    problem::Problem,
    role::{Change, Reload},
    shuffler::Shuffler,
    store::StoreError,
    tokens::read_token,
};

/// How long the shuffler holds a request for a batch that is not full.
const WAIT: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const NOW: Duration = Duration::ZERO;
/// The bounds of a pause that the shuffler asks for.
const SHORTEST_ASKED: Duration = Duration::from_secs(1);
const LONGEST_ASKED: Duration = Duration::from_secs(60);

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
        let kind = match self {
            Self::Chain { .. } => return true,
            Self::Transport(error) => error.kind(),
            Self::Refused(problem) => Some(problem.kind),
            _ => None,
        };
        kind == Some(ProblemKind::OtherHistory)
    }
}

impl From<Problem> for CollectError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

/// What there is of a release.
enum Found {
    Release(Vec<u8>),
    /// To be asked for again after a pause.
    NotYet(Duration),
    /// The task is closed.
    Ended,
}

/// Where releases come from.
pub(crate) struct Source {
    supplier: Supplier,
    longest_pause: Duration,
}

enum Supplier {
    /// Another process: answers are believed only with the signature of the task's shuffler.
    Network { config: BanditConfig, shuffler: RwLock<Arc<ShufflerApi>> },
    /// The shuffler of this process.
    Process(Arc<Shuffler>),
}

impl Source {
    /// The configured shuffler.
    pub fn network(config: &NodeConfig) -> Result<Self, ServiceError> {
        let shuffler = RwLock::new(Arc::new(network(&config.bandit)?));
        let supplier = Supplier::Network { config: config.bandit.clone(), shuffler };
        Ok(Self { supplier, longest_pause: longest_pause(config) })
    }

    /// The shuffler of this process.
    pub fn process(config: &NodeConfig, shuffler: Arc<Shuffler>) -> Self {
        Self { supplier: Supplier::Process(shuffler), longest_pause: longest_pause(config) }
    }

    /// What there is of a release. `after` is the one before it.
    async fn fetch(
        &self,
        task: &Task,
        round: u32,
        after: Option<ReleaseHash>,
    ) -> Result<Found, CollectError> {
        match &self.supplier {
            Supplier::Network { shuffler, .. } => {
                let shuffler = shuffler.read().unwrap_or_else(PoisonError::into_inner).clone();
                let asked = Instant::now();
                Ok(match shuffler.release(task, round, after, WAIT).await? {
                    Fetched::Release(signed) => Found::Release(signed.body),
                    Fetched::Ended => Found::Ended,
                    // One that does not wait is not asked more often for that.
                    Fetched::NotYet { .. } if asked.elapsed() >= WAIT => Found::NotYet(NOW),
                    Fetched::NotYet { retry_after } => {
                        let pause = retry_after.unwrap_or(SHORTEST_ASKED);
                        Found::NotYet(pause.clamp(SHORTEST_ASKED, LONGEST_ASKED))
                    }
                })
            }
            Supplier::Process(shuffler) => {
                match shuffler.release(&task.id(), round, after, WAIT).await {
                    Ok(Some(release)) => Ok(Found::Release(release.body)),
                    Ok(None) => Ok(Found::NotYet(NOW)),
                    Err(problem) if problem.kind == ProblemKind::Finished => Ok(Found::Ended),
                    Err(problem) => Err(problem.into()),
                }
            }
        }
    }

    /// Waits after failures, until there is a success.
    fn pauses(&self) -> retry::Pauses {
        retry::Pauses::new(FIRST_PAUSE, self.longest_pause)
    }
}

fn longest_pause(config: &NodeConfig) -> Duration {
    Duration::from_secs(config.bandit.longest_pause_seconds)
}

/// The token and the trusted certificates.
impl Reload for Source {
    fn reload(&self) -> Result<Change<'_>, ServiceError> {
        let Supplier::Network { config, shuffler } = &self.supplier else {
            return Ok(Box::new(|| ()));
        };
        let fresh = Arc::new(network(config)?);
        Ok(Box::new(|| *shuffler.write().unwrap_or_else(PoisonError::into_inner) = fresh))
    }
}

/// Where a bandit collects, unless its token would go there in clear.
pub fn shuffler_address(config: &BanditConfig) -> Result<Address, TransportError> {
    Address::new(&config.shuffler_url, "bandit.shuffler_url", config.allow_plain_http)
}

fn network(config: &BanditConfig) -> Result<ShufflerApi, ServiceError> {
    let token = read_token(config.token_file.as_deref().ok_or(ServiceError::NoToken)?)?;
    let (address, trust) = (shuffler_address(config)?, trust(config.shuffler_ca.as_deref())?);
    Ok(ShufflerApi::new(Route::Direct(address), Some(token.to_string()), &trust)?)
}

/// Whether a task's releases are collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Collecting {
    /// They are, as far as is known.
    Works,
    /// The last try failed.
    Fails(String),
    /// The last one is absorbed, or the task was closed.
    Over,
}

/// Marks a collector that ends before its task as failed.
struct Ending<'a>(&'a TaskHandle);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.0.collecting() != Collecting::Over {
            self.0.set_collecting(Collecting::Fails("the collector has ended".into()));
        }
    }
}

/// Collects one task's releases until its last round.
pub(super) async fn run(bandit: Arc<BanditServer>, source: Arc<Source>, handle: Arc<TaskHandle>) {
    let id = handle.task.id();
    let last = handle.task.mechanism().schedule().last_round();
    let _ending = Ending(&handle);
    let mut pauses = source.pauses();
    bandit.metrics.collects(&id, true);
    while handle.next().0 <= last {
        let pause = match step(&bandit, &source, &handle).await {
            Ok(Step::Absorbed) => NOW,
            Ok(Step::NotYet(pause)) => pause,
            Ok(Step::Ended) => {
                tracing::info!(task = %id, "the task was closed: no more releases");
                handle.set_collecting(Collecting::Over);
                return bandit.metrics.collects(&id, true);
            }
            Err(CollectError::Stopping) => return,
            Err(error) => {
                bandit.metrics.collector_failed(&id);
                if error.is_other_history() {
                    if !handle.other_history.swap(true, Relaxed) {
                        tracing::error!(task = %id, %error, "the shuffler has another history than this bandit");
                    }
                } else if handle.collecting() == Collecting::Works {
                    tracing::warn!(task = %id, %error, "cannot collect a release, trying again");
                }
                handle.set_collecting(Collecting::Fails(error.to_string()));
                tokio::time::sleep(pauses.next_pause()).await;
                continue;
            }
        };
        if handle.collecting() != Collecting::Works {
            tracing::info!(task = %id, "releases are collected again");
        }
        handle.set_collecting(Collecting::Works);
        handle.other_history.store(false, Relaxed);
        bandit.metrics.collects(&id, true);
        pauses = source.pauses();
        tokio::time::sleep(pause).await;
    }
    handle.set_collecting(Collecting::Over);
    tracing::info!(task = %id, "the task is finished: its last release is absorbed");
}

/// What one step did.
enum Step {
    Absorbed,
    /// There is nothing to absorb; the next step comes after a pause.
    NotYet(Duration),
    Ended,
}

async fn step(
    bandit: &Arc<BanditServer>,
    source: &Source,
    handle: &Arc<TaskHandle>,
) -> Result<Step, CollectError> {
    let (round, after) = handle.next();
    let release = match source.fetch(&handle.task, round, after).await? {
        Found::Release(release) => release,
        Found::NotYet(pause) => return Ok(Step::NotYet(pause)),
        Found::Ended => return Ok(Step::Ended),
    };
    let (bandit, handle) = (bandit.clone(), handle.clone());
    let absorb = move || bandit.absorb(&handle, &release);
    match tokio::task::spawn_blocking(absorb).await {
        Ok(absorbed) => absorbed.map(|()| Step::Absorbed),
        // The runtime ends between two steps, never inside one; then the step was not begun.
        Err(error) if error.is_cancelled() => Err(CollectError::Stopping),
        Err(_) => Err(CollectError::Panicked),
    }
}
