use std::time::Duration;

use incrowd_envelope::Signed;
use incrowd_protocol::{Mechanism, Model, ProblemKind, Task, paths, triangle};

use crate::{Address, Http, Request, TransportError, Trust, documents};

/// A bandit server: where models are.
#[derive(Debug, Clone)]
pub struct BanditApi(Http);

impl BanditApi {
    /// The bandit at an address.
    pub fn new(address: Address, trust: &Trust) -> Result<Self, TransportError> {
        Http::new(address, trust).map(Self)
    }

    /// A model with a version above `after`, checked; none when there is no newer one, also after
    /// waiting. Whether its version is above what the caller accepted is for the caller.
    pub async fn model(
        &self,
        task: &Task,
        after: u64,
        wait: Duration,
    ) -> Result<Option<(Signed, Model)>, TransportError> {
        let path = paths::model(&task.id(), after, wait.as_secs());
        let request = Request::get(path).wait(wait).limit(longest_model(task.mechanism()));
        let answer = self.0.send(request).await?;
        let problem = answer.problem().map(|problem| problem.kind);
        if answer.status == 304 || problem == Some(ProblemKind::NoModel) {
            return Ok(None);
        }
        let signed = answer.signed("model")?;
        let model = documents::model(&signed, task)?;
        Ok(Some((signed, model)))
    }
}

/// No number takes more than 32 bytes.
fn longest_model(mechanism: &Mechanism) -> usize {
    let dimension = mechanism.dimension();
    32 * (dimension + triangle(dimension)) + 4096
}
