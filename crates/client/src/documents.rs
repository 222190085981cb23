//! Believing what the servers say: each document is checked against the pinned task.

use incrowd_envelope::{Document, verify};
use incrowd_protocol::{
    Model, ModelParts, Round, RoundNotice, Task, TaskId, TaskNotice, VerificationKey,
};
use serde::{Deserialize, Serialize};

use crate::ClientError;

/// The exact text of a document and its signature, so that it can be checked again after a restart.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signed {
    pub(crate) body: String,
    pub(crate) signature: String,
}

impl Signed {
    fn verify(
        &self,
        key: &VerificationKey,
        document: Document,
        task: TaskId,
    ) -> Result<(), ClientError> {
        let signature = self.signature.parse()?;
        Ok(verify(key, document, &task, self.body.as_bytes(), &signature)?)
    }

    fn parse<'a, T: Deserialize<'a>>(&'a self, what: &'static str) -> Result<T, ClientError> {
        serde_json::from_str(&self.body).map_err(|_| ClientError::Document(what))
    }
}

/// The notice of the pinned task. The id binds the mechanism and the keys, so the shuffler's key in the notice is the right one to check its
/// signature with, and that makes the rest authentic.
pub(crate) fn notice(signed: &Signed, pinned: TaskId) -> Result<TaskNotice, ClientError> {
    let notice: TaskNotice = signed.parse("notice")?;
    if notice.id != pinned {
        return Err(ClientError::OtherTask);
    }
    if notice.task.id() != pinned {
        return Err(ClientError::TaskContent);
    }
    signed.verify(&notice.task.keys().shuffler, Document::Notice, pinned)?;
    Ok(notice)
}

/// The current round, none when the task is over; never one before `newest`.
pub(crate) fn round(
    signed: &Signed,
    task: &Task,
    newest: u32,
) -> Result<Option<Round>, ClientError> {
    signed.verify(&task.keys().shuffler, Document::Round, task.id())?;
    let round = signed.parse::<RoundNotice>("round")?.check(task.id(), task.mechanism())?;
    match round {
        Some(round) if round.number < newest => {
            Err(ClientError::RoundRollback { found: round.number, newest })
        }
        round => Ok(round),
    }
}

/// A model of the task: signed by its bandit, valid, and of its mechanism and dimension. Whether it is newer is for the caller.
pub(crate) fn model(signed: &Signed, task: &Task) -> Result<Model, ClientError> {
    signed.verify(&task.keys().bandit, Document::Model, task.id())?;
    let model = signed.parse::<ModelParts>("model")?.check()?;
    if model.mechanism() != task.mechanism().hash() {
        return Err(ClientError::ModelMechanism);
    }
    let (found, needed) = (model.theta().len(), task.mechanism().dimension());
    if found != needed {
        return Err(ClientError::ModelDimension { found, needed });
    }
    Ok(model)
}
