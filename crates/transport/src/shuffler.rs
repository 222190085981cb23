use std::{sync::Arc, time::Duration};

use incrowd_envelope::{Document, Signed};
use incrowd_protocol::{
    BulkAnswer, Mechanism, MediaType, ProblemKind, ReleaseHash, ReportId, Round, RoundNotice, Task,
    TaskId, TaskNotice, paths,
};
use reqwest::Method;

use crate::{Answer, Request, Route, TransportError, Trust, documents, route::Way};

/// A schedule has thousands of stages at most.
const LONGEST_NOTICE: usize = 4 << 20;
/// The status of an upload that is durably decided.
const ACKNOWLEDGED: u16 = 204;
/// 4096 refused reports with their problems.
const LONGEST_BULK_ANSWER: usize = 4 << 20;

/// What there is of a release.
#[derive(Debug, Clone)]
pub enum Fetched {
    /// The sums of a batch, signed by the task's shuffler.
    Release(Signed),
    /// The batch is not full, or not to be shown yet, also after waiting.
    NotYet {
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The task was closed before this round was released, as its shuffler signed.
    Ended,
}

impl Fetched {
    /// The release, if there is one.
    pub fn release(self) -> Option<Signed> {
        match self {
            Self::Release(release) => Some(release),
            Self::NotYet { .. } | Self::Ended => None,
        }
    }
}

/// A shuffler: the notices of tasks, their rounds, where reports go and releases come from.
pub struct ShufflerApi {
    token: Option<String>,
    pub(crate) way: Arc<Way>,
}

impl ShufflerApi {
    /// The shuffler at the end of a route. The token goes with reports and for releases only.
    pub fn new(route: Route, token: Option<String>, trust: &Trust) -> Result<Self, TransportError> {
        let way = Arc::new(Way::new(route, trust)?);
        Ok(Self { token, way })
    }

    /// The notice of the pinned task, checked. Through a relay, the key configurations it was asked
    /// with must be those that the shuffler signed, the same for everyone.
    pub async fn notice(&self, pinned: &TaskId) -> Result<(Signed, TaskNotice), TransportError> {
        let request = Request::get(paths::notice(pinned)).limit(LONGEST_NOTICE);
        let (answer, used) = self.way.send_first(request).await?;
        let signed = answer.signed("notice")?;
        let notice = documents::notice(&signed, pinned)?;
        let used = used.map(hex::encode);
        if used.is_some() && used != notice.gateway_keys {
            return Err(TransportError::GatewayKeys);
        }
        self.adopt(&notice)?;
        Ok((signed, notice))
    }

    /// Uses the key configurations of a notice that was checked.
    pub fn adopt(&self, notice: &TaskNotice) -> Result<(), TransportError> {
        self.way.adopt(notice)
    }

    /// The notice of the current round, checked. Whether it is before one that was seen is for the
    /// caller.
    pub async fn round_notice(&self, task: &Task) -> Result<RoundNotice, TransportError> {
        let answer = self.send(Request::get(paths::round(&task.id()))).await?;
        documents::round(&answer.signed("round")?, task)
    }

    /// The current round of that notice; none when the task is over, or has not begun.
    pub async fn round(&self, task: &Task) -> Result<Option<Round>, TransportError> {
        Ok(self.round_notice(task).await?.round)
    }

    /// Uploads a report; what becomes of it is durable when this returns. Only the shuffler's own
    /// status of success counts: a portal or proxy that answers 200 has taken nothing.
    pub async fn put(
        &self,
        task: &TaskId,
        id: ReportId,
        sealed: bool,
        body: Vec<u8>,
    ) -> Result<(), TransportError> {
        let request = Request::new(Method::PUT, paths::report(task, id));
        let request = self.with_token(request)?.body(MediaType::report(sealed), body);
        let answer = self.send(request).await?;
        if answer.status == ACKNOWLEDGED { Ok(()) } else { Err(answer.refusal()) }
    }

    /// Uploads many reports, each with its length in front; those that count are durable when this
    /// returns.
    pub async fn post_many(
        &self,
        task: &TaskId,
        sealed: bool,
        body: Vec<u8>,
    ) -> Result<BulkAnswer, TransportError> {
        let request = Request::new(Method::POST, paths::reports(task)).limit(LONGEST_BULK_ANSWER);
        let request = self.with_token(request)?.body(MediaType::reports(sealed), body);
        let answer = self.send(request).await?.success()?;
        serde_json::from_slice(&answer.body).map_err(|_| TransportError::Document("bulk answer"))
    }

    /// The sums of a round's batch, signed by the task's shuffler. Whether they are sums of that
    /// round is for the caller. `after` is the release before it that the caller has: a shuffler
    /// that has another one refuses.
    pub async fn release(
        &self,
        task: &Task,
        round: u32,
        after: Option<ReleaseHash>,
        wait: Duration,
    ) -> Result<Fetched, TransportError> {
        let request = Request::get(paths::release(&task.id(), round, after, wait.as_secs()))
            .wait(wait)
            .limit(longest_release(task.mechanism()));
        let answer = self.send(self.with_token(request)?).await?;
        if answer.status == ProblemKind::Finished.status() {
            // Anybody on the way can answer so: only the shuffler's signature ends a task.
            let refusal = answer.refusal();
            let ending = answer.with_signature("ending").map_err(|_| refusal)?;
            ending.verify(&task.keys().shuffler, Document::Ending, &task.id())?;
            return Ok(Fetched::Ended);
        }
        if answer.status == 202 {
            return Ok(Fetched::NotYet { retry_after: answer.retry_after() });
        }
        let signed = answer.signed("release")?;
        signed.verify(&task.keys().shuffler, Document::Release, &task.id())?;
        Ok(Fetched::Release(signed))
    }

    fn with_token(&self, request: Request) -> Result<Request, TransportError> {
        match &self.token {
            Some(token) => request.token(token),
            None => Ok(request),
        }
    }

    async fn send(&self, request: Request) -> Result<Answer, TransportError> {
        self.way.send(request).await
    }
}

/// A sum is below 2^64: 20 digits, quotes and a comma.
fn longest_release(mechanism: &Mechanism) -> usize {
    24 * mechanism.coordinates() + 4096
}
