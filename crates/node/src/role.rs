//! What shuffler, bandit and relay have in common: how a process starts, runs and ends them.

use std::{pin::Pin, sync::Arc};

use axum::Router;
use incrowd_privacy::Certificate;
use incrowd_protocol::Task;
use tokio::task::JoinHandle;

use crate::{
    Metrics, NodeConfig, ServiceError,
    access::Access,
    listener::Listener,
    signals::{Signal, Signals},
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
    pub access: &'a Arc<Access>,
    /// What the operator sees.
    pub metrics: &'a Arc<Metrics>,
}

/// Takes what was read into use. It cannot fail.
pub type Change<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Something that was read from files, which may change while the process runs.
pub trait Reload: Send + Sync {
    /// Reads the files again, without a change to what is in use yet.
    fn reload(&self) -> Result<Change<'_>, ServiceError>;
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
    /// What SIGHUP reads again.
    pub files: Vec<Arc<dyn Reload>>,
    /// What looks whether the process is ready, and whether tokens have changed.
    pub watches: Vec<JoinHandle<()>>,
}

impl Process {
    /// Runs until SIGTERM or SIGINT; SIGHUP reads changed files. Then ends gracefully.
    pub async fn run(self, mut signals: Signals) {
        while let Signal::Reload = signals.next().await {
            match self.reload() {
                Ok(()) => tracing::info!("keys, tokens and certificates are read again"),
                Err(error) => {
                    tracing::error!(%error, "keys, tokens and certificates stay as they were");
                }
            }
        }
        tracing::info!("stopping: no new requests, open ones end");
        self.stop().await;
    }

    /// Takes changed files into use: all of them, or none if one is broken.
    pub fn reload(&self) -> Result<(), ServiceError> {
        let changes: Vec<_> =
            self.files.iter().map(|file| file.reload()).collect::<Result<_, _>>()?;
        changes.into_iter().for_each(|change| change());
        Ok(())
    }

    /// Takes no new requests, lets the open ones end, then ends the roles.
    pub async fn stop(mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
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
        self.watches.iter().for_each(JoinHandle::abort);
        self.roles.iter().for_each(|role| role.stop_waiting());
    }
}
