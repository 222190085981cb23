//! What shuffler, bandit and relay have in common: how a process starts, runs and ends them.

use std::{pin::Pin, sync::Arc};

use axum::Router;
use incrowd_privacy::Certificate;
use incrowd_protocol::Task;
use tokio::task::JoinHandle;

use crate::{
    Metrics, NodeConfig, ServiceError,
    listener::Listener,
    signals::{Signal, Signals},
    tokens::Tokens,
};

/// An answer that a role may have to wait for.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a role whose store fails is not ready.
pub(crate) const NO_STORE: &str = "the store cannot take anything now";

/// What every role of a process with tasks is given.
pub struct Service<'a> {
    /// Checked settings.
    pub config: &'a NodeConfig,
    /// What it serves.
    pub tasks: &'a [Task],
    /// The certificates of the tasks, in their order, which are within the operator's limits.
    pub certificates: &'a [Certificate],
    /// Who may ask what.
    pub tokens: &'a Arc<Tokens>,
    /// What the operator sees.
    pub metrics: &'a Arc<Metrics>,
}

/// One role of a process.
pub trait Role: Send + Sync {
    /// The tags of its operations in the description of the API.
    fn tags(&self) -> Vec<&'static str>;

    /// What it answers.
    fn routes(self: Arc<Self>) -> Router;

    /// Whether it could do its work now, and otherwise why not. Asked often: what takes a while
    /// goes through a `Probe`.
    fn ready(&self) -> Later<'_, Result<(), String>>;

    /// Takes changed files into use, on SIGHUP.
    fn reload(&self) -> Result<(), ServiceError>;

    /// The process is told to stop: requests that wait for something are answered at once, and no
    /// new work is begun.
    fn stop_waiting(&self);

    /// Ends what is under way. No more requests come.
    fn stop(&self) -> Later<'_, ()>;
}

/// Roles and the listeners they answer on.
pub(crate) struct Process {
    pub roles: Vec<Arc<dyn Role>>,
    pub listeners: Vec<Listener>,
    /// What looks whether the process is ready.
    pub watch: Option<JoinHandle<()>>,
}

impl Process {
    /// Runs until SIGTERM or SIGINT; SIGHUP reads changed files. Then ends gracefully.
    pub async fn run(self, mut signals: Signals) {
        while let Signal::Reload = signals.next().await {
            match self.reload() {
                Ok(()) => tracing::info!("keys are read again"),
                Err(error) => tracing::error!(%error, "the keys stay as they were"),
            }
        }
        tracing::info!("stopping: no new requests, open ones end");
        self.stop().await;
    }

    /// Takes changed files into use.
    pub fn reload(&self) -> Result<(), ServiceError> {
        self.roles.iter().try_for_each(|role| role.reload())
    }

    /// Takes no new requests, lets the open ones end, then ends the roles.
    pub async fn stop(mut self) {
        self.watch.iter().for_each(JoinHandle::abort);
        self.roles.iter().for_each(|role| role.stop_waiting());
        for listener in std::mem::take(&mut self.listeners) {
            listener.stop().await;
        }
        for role in &self.roles {
            role.stop().await;
        }
    }
}

/// A process that is dropped without [`Process::stop`] begins no new work either.
impl Drop for Process {
    fn drop(&mut self) {
        self.watch.iter().for_each(JoinHandle::abort);
        self.roles.iter().for_each(|role| role.stop_waiting());
    }
}
