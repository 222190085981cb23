//! Believing what the servers say: each document is checked against the pinned task.

use incrowd_envelope::{Document, Signed};
use incrowd_protocol::{Model, ModelParts, RoundNotice, Task, TaskId, TaskNotice};
use serde::Deserialize;

use crate::TransportError;

fn parse<'a, T: Deserialize<'a>>(
    signed: &'a Signed,
    what: &'static str,
) -> Result<T, TransportError> {
    serde_json::from_slice(&signed.body).map_err(|_| TransportError::Document(what))
}

/// The notice of the pinned task. The id binds the mechanism and the keys, so the shuffler's key in
/// the notice is the right one to check its signature with, and that makes the rest authentic.
pub fn notice(signed: &Signed, pinned: &TaskId) -> Result<TaskNotice, TransportError> {
    let notice: TaskNotice = parse(signed, "notice")?;
    if notice.id != *pinned {
        return Err(TransportError::OtherTask);
    }
    if notice.task.id() != *pinned {
        return Err(TransportError::TaskContent);
    }
    signed.verify(&notice.task.keys().shuffler, Document::Notice, pinned)?;
    Ok(notice)
}

/// The notice of the current round. Whether it is newer is for the caller.
pub fn round(signed: &Signed, task: &Task) -> Result<RoundNotice, TransportError> {
    signed.verify(&task.keys().shuffler, Document::Round, &task.id())?;
    let notice: RoundNotice = parse(signed, "round")?;
    notice.check(task.id(), task.mechanism())?;
    Ok(notice)
}

/// A model of the task: signed by its bandit, valid, and of its mechanism and layout. Whether it
/// is newer is for the caller.
pub fn model(signed: &Signed, task: &Task) -> Result<Model, TransportError> {
    signed.verify(&task.keys().bandit, Document::Model, &task.id())?;
    let model = parse::<ModelParts>(signed, "model")?.check()?;
    if model.mechanism() != task.mechanism().hash() {
        return Err(TransportError::ModelMechanism);
    }
    if !model.fits(task.mechanism().blocks()) {
        return Err(TransportError::ModelLayout);
    }
    Ok(model)
}
