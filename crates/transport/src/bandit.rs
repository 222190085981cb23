use std::{sync::Arc, time::Duration};

use incrowd_envelope::Signed;
use incrowd_protocol::{EntityTag, Mechanism, Model, ProblemKind, Task, paths, triangle};

use crate::{Address, Request, Route, ShufflerApi, TransportError, Trust, documents, route::Way};

/// A bandit server: where models are.
#[derive(Debug, Clone)]
pub struct BanditApi(Arc<Way>);

/// What a bandit, or a cache in front of it, answered.
#[derive(Debug, Clone)]
pub struct ModelAnswer {
    /// The newest model, checked; none before the first, and when it is the one that was known.
    pub model: Option<(Signed, Model)>,
    /// How long the answer may be kept. It is no use to ask before.
    pub fresh_for: Duration,
}

impl BanditApi {
    /// The bandit at an address.
    pub fn new(address: Address, trust: &Trust) -> Result<Self, TransportError> {
        Ok(Self(Arc::new(Way::new(Route::Direct(address), trust)?)))
    }

    /// The bandit behind a shuffler's gateway: requests go where the shuffler's go, and nowhere
    /// else.
    pub fn behind(shuffler: &ShufflerApi) -> Self {
        Self(shuffler.way.clone())
    }

    /// The newest model, if it is another one than the caller knows. Whether its version is above
    /// what the caller accepted is for the caller: a cache may give out an older one for a while.
    ///
    /// # Privacy
    /// `known` is computed here from the bytes of a model, which are the same for everyone. What a
    /// server calls a document is never sent back: it could be a name for this device.
    pub async fn model(
        &self,
        task: &Task,
        known: Option<&EntityTag>,
    ) -> Result<ModelAnswer, TransportError> {
        let limit = longest_model(task.mechanism());
        let request = Request::get(paths::model(&task.id())).limit(limit).unless(known);
        let answer = self.0.send(request).await?;
        let fresh_for = answer.fresh_for();
        let none_yet = answer.problem().is_some_and(|found| found.kind == ProblemKind::NoModel);
        if none_yet || known.is_some() && answer.status == 304 {
            return Ok(ModelAnswer { model: None, fresh_for });
        }
        let signed = answer.signed("model")?;
        let model = documents::model(&signed, task)?;
        Ok(ModelAnswer { model: Some((signed, model)), fresh_for })
    }
}

/// No number takes more than 32 bytes.
fn longest_model(mechanism: &Mechanism) -> usize {
    let dimension = mechanism.dimension();
    32 * (dimension + triangle(dimension)) + 4096
}
