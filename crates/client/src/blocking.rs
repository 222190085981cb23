//! The same client for programs without an async runtime.

use std::fmt;

use incrowd_device::{Arm, Fields};
use incrowd_protocol::TaskId;
use tokio::runtime::{self, Runtime};

use crate::{Action, Builder, ClientError, Decision, Status};

/// A [`Client`](crate::Client) with a runtime of its own: one thread for its requests and clocks.
///
/// Not for use inside an async runtime: waiting there panics.
pub struct Client {
    client: crate::Client,
    /// Always there, until dropping takes it.
    runtime: Option<Runtime>,
}

impl Client {
    /// See [`crate::Client::connect`].
    pub fn connect(url: &str, task: TaskId) -> Result<Self, ClientError> {
        Self::start(Self::builder(url, task))
    }

    /// See [`crate::Client::builder`]; end with [`Builder::connect_blocking`].
    pub fn builder(url: &str, task: TaskId) -> Builder {
        crate::Client::builder(url, task)
    }

    pub(crate) fn start(builder: Builder) -> Result<Self, ClientError> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("incrowd-client")
            .enable_all()
            .build()
            .map_err(|error| ClientError::Runtime(error.kind()))?;
        let client = runtime.block_on(builder.connect())?;
        Ok(Self { client, runtime: Some(runtime) })
    }

    /// See [`crate::Client::rank`].
    pub fn rank<'a, A: Into<Action<'a>>>(
        &self,
        context: &Fields,
        actions: impl IntoIterator<Item = A>,
    ) -> Result<Decision, ClientError> {
        self.client.rank(context, actions)
    }

    /// See [`crate::Client::rank_or`].
    pub fn rank_or<'a, A: Into<Action<'a>>>(
        &self,
        context: &Fields,
        actions: impl IntoIterator<Item = A>,
        incumbent: impl Into<Option<usize>>,
    ) -> Result<Decision, ClientError> {
        self.client.rank_or(context, actions, incumbent)
    }

    /// See [`crate::Client::rank_features`].
    pub fn rank_features<'a, A: Into<Arm<'a>>>(
        &self,
        actions: impl IntoIterator<Item = A>,
    ) -> Result<Decision, ClientError> {
        self.client.rank_features(actions)
    }

    /// See [`crate::Client::refresh`].
    pub fn refresh(&self) -> Result<bool, ClientError> {
        self.client.runtime.block_on(self.client.refresh())
    }

    /// See [`crate::Client::flush`].
    pub fn flush(&self) {
        self.client.runtime.block_on(self.client.flush());
    }

    /// See [`crate::Client::close`].
    pub fn close(self) {
        self.client.runtime.block_on(self.client.clone().close());
    }

    /// See [`crate::Client::status`].
    pub fn status(&self) -> Status {
        self.client.status()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Without waiting, so that dropping works anywhere.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}
