//! The two servers of a task, as a device asks them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use incrowd_protocol::{ReportId, TaskId, TaskNotice};
use reqwest::Method;

use crate::{
    ClientError,
    documents::{self, Signed},
    http::{Address, Answer, Http, Request},
    relay::Relay,
};

/// The way to the shuffler.
enum Way {
    Direct(Http),
    /// Through a relay, with the key configurations of the last notice.
    Oblivious(Relay, Mutex<Vec<u8>>),
}

/// The shuffler: the task's notice, the round, and where reports go.
pub(crate) struct Shuffler {
    task: TaskId,
    token: Option<String>,
    way: Way,
}

impl Shuffler {
    pub(crate) fn new(
        task: TaskId,
        token: Option<String>,
        address: Address,
        relay: Option<Address>,
    ) -> Result<Self, ClientError> {
        let way = match relay {
            None => Way::Direct(Http::new(address)?),
            Some(relay) => Way::Oblivious(Relay::new(relay, address)?, Mutex::default()),
        };
        Ok(Self { task, token, way })
    }

    /// The notice, checked. Through a relay, the key configurations it was asked with must be those that the shuffler signed, the same for
    /// everyone.
    pub(crate) async fn notice(&self) -> Result<(Signed, TaskNotice), ClientError> {
        let request = Request::get(self.path("config"));
        let (answer, used) = match &self.way {
            Way::Direct(http) => (http.send(request).await?, None),
            Way::Oblivious(relay, _) => {
                let keys = relay.keys().await?;
                (relay.send(&keys, request).await?, Some(hex::encode(keys)))
            }
        };
        let signed = answer.signed("notice")?;
        let notice = documents::notice(&signed, self.task)?;
        if used.is_some() && used != notice.gateway_keys {
            return Err(ClientError::GatewayKeys);
        }
        self.adopt(&notice)?;
        Ok((signed, notice))
    }

    /// Uses the key configurations of a notice that was checked.
    pub(crate) fn adopt(&self, notice: &TaskNotice) -> Result<(), ClientError> {
        if let Way::Oblivious(_, keys) = &self.way {
            let text = notice.gateway_keys.as_ref().ok_or(ClientError::GatewayKeys)?;
            let bytes = hex::decode(text).map_err(|_| ClientError::GatewayKeys)?;
            *keys.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        }
        Ok(())
    }

    /// The notice of the round, not checked yet.
    pub(crate) async fn round(&self) -> Result<Signed, ClientError> {
        self.send(Request::get(self.path("round"))).await?.signed("round")
    }

    /// Uploads a report; it is durable when this returns.
    pub(crate) async fn put(
        &self,
        id: ReportId,
        sealed: bool,
        body: Vec<u8>,
    ) -> Result<(), ClientError> {
        let kind = if sealed { "sealed-report" } else { "report" };
        let mut headers = vec![("content-type", format!("application/vnd.incrowd.{kind}"))];
        headers.extend(self.token.iter().map(|token| ("authorization", format!("Bearer {token}"))));
        let path = self.path(&format!("reports/{}", hex::encode(id.0)));
        let request = Request { method: Method::PUT, path, headers, body, wait: Duration::ZERO };
        self.send(request).await?.success().map(|_| ())
    }

    async fn send(&self, request: Request) -> Result<Answer, ClientError> {
        match &self.way {
            Way::Direct(http) => http.send(request).await,
            Way::Oblivious(relay, keys) => {
                let keys = keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
                relay.send(&keys, request).await
            }
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/tasks/{}/{rest}", self.task)
    }
}

/// The bandit: where models are.
pub(crate) struct Bandit {
    task: TaskId,
    http: Http,
}

impl Bandit {
    pub(crate) fn new(task: TaskId, address: Address) -> Result<Self, ClientError> {
        Ok(Self { task, http: Http::new(address)? })
    }

    /// A model newer than `after`, not checked yet; none when there is no newer one, also after waiting.
    pub(crate) async fn model(
        &self,
        after: u64,
        wait: Duration,
    ) -> Result<Option<Signed>, ClientError> {
        let seconds = wait.as_secs();
        let path = format!("/v1/tasks/{}/model?after={after}&wait={seconds}", self.task);
        let answer = self.http.send(Request { wait, ..Request::get(path) }).await?;
        match answer.status {
            304 | 404 => Ok(None),
            _ => answer.signed("model").map(Some),
        }
    }
}
