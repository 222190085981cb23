//! Fetches each release from the shuffler, once and in order.

use std::{fs, sync::Arc, time::Duration};

use incrowd_bandit::BanditError;
use incrowd_envelope::{Document, EnvelopeError, Signature, verify};
use incrowd_protocol::Task;
use reqwest::StatusCode;
use thiserror::Error;

use super::{BanditServer, TaskHandle};
use crate::{NodeConfig, ServiceError, http::SIGNATURE, store::StoreError};

/// Seconds the shuffler holds a request for a batch that is not full.
const WAIT: u64 = 20;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Why a release could not be absorbed. It is tried again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CollectError {
    /// The shuffler does not answer.
    #[error("the shuffler does not answer: {0}")]
    Connection(String),
    /// The shuffler answers with something else.
    #[error("the shuffler answered with status {0}")]
    Status(u16),
    /// No signature, or not the shuffler's.
    #[error("the release is not signed by the task's shuffler: {0}")]
    Signature(#[from] EnvelopeError),
    /// Not batch sums.
    #[error("the release does not parse")]
    NotSums,
    /// Not the next release of this task.
    #[error(transparent)]
    Bandit(#[from] BanditError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process is ending.
    #[error("the service is stopping")]
    Stopping,
}

/// Where releases come from.
pub(super) struct Source {
    client: reqwest::Client,
    base: String,
    token: String,
    longest_pause: Duration,
}

impl Source {
    pub fn new(config: &NodeConfig, token: &str) -> Result<Self, ServiceError> {
        let bandit = &config.bandit;
        let ca = match &bandit.shuffler_ca {
            None => None,
            Some(path) => Some(
                fs::read(path).map_err(|error| ServiceError::File { path: path.clone(), error })?,
            ),
        };
        let client = crate::tls::client(ca.as_deref(), Duration::from_secs(WAIT + 20))?;
        Ok(Self {
            client,
            base: bandit.shuffler_url.trim_end_matches('/').to_owned(),
            token: token.to_owned(),
            longest_pause: Duration::from_secs(bandit.longest_pause_seconds),
        })
    }

    /// The bytes of a release, if its batch is full.
    async fn fetch(&self, task: &Task, round: u32) -> Result<Option<Vec<u8>>, CollectError> {
        let url = format!("{}/v1/tasks/{}/releases/{round}?wait={WAIT}", self.base, task.id());
        let failed =
            |error: reqwest::Error| CollectError::Connection(error.without_url().to_string());
        let response =
            self.client.get(url).bearer_auth(&self.token).send().await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::ACCEPTED => return Ok(None),
            other => return Err(CollectError::Status(other.as_u16())),
        }
        let signature = response.headers().get(SIGNATURE).and_then(|text| text.to_str().ok());
        let signature: Signature = signature.unwrap_or_default().parse()?;
        let bytes = response.bytes().await.map_err(failed)?.to_vec();
        verify(&task.keys().shuffler, Document::Release, &task.id(), &bytes, &signature)?;
        Ok(Some(bytes))
    }
}

/// Collects one task's releases until its last round.
pub(super) async fn run(bandit: Arc<BanditServer>, source: Arc<Source>, handle: Arc<TaskHandle>) {
    let id = handle.task.id();
    let last = handle.task.mechanism().schedule().last_round();
    let (mut pause, mut failing) = (FIRST_PAUSE, false);
    while handle.next_round() <= last {
        match step(&bandit, &source, &handle).await {
            Ok(()) => {
                if failing {
                    tracing::info!(task = %id, "releases are collected again");
                }
                (pause, failing) = (FIRST_PAUSE, false);
            }
            Err(CollectError::Status(410)) => {
                tracing::info!(task = %id, "the task was closed: no more releases");
                return;
            }
            Err(CollectError::Stopping) => return,
            Err(error) => {
                bandit.metrics.collector_failed(&id);
                if !failing {
                    tracing::warn!(task = %id, %error, "cannot collect a release, trying again");
                }
                failing = true;
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(source.longest_pause);
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
    let release = source.fetch(&handle.task, handle.next_round()).await?;
    let Some(release) = release else { return Ok(()) };
    let (bandit, handle) = (bandit.clone(), handle.clone());
    let absorb = move || bandit.absorb(&handle, &release);
    // The runtime ends between two steps, never inside one; then the step was not begun.
    tokio::task::spawn_blocking(absorb).await.map_err(|_| CollectError::Stopping)?
}
