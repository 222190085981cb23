//! What all nodes of a database must have in common, checked against it, and what they tell each
//! other through it.

use incrowd_protocol::{SealingKey, Task, TaskId};
use serde::{Deserialize, Serialize};

use crate::{
    Keys,
    access::Access,
    store::{Shared, StoreError},
};

const SEALING: &str = "devices may seal to keys that this node cannot open: give all nodes the same key file before you reload any of them";

/// The public part of a sealing key, without its state: that may differ while a rotation goes on.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Published {
    id: u8,
    key: String,
}

/// At the start of a node, which signs with the same key as the others because it has the same
/// tasks: what it publishes must open everywhere, and if its tokens are other ones, that is told.
pub(crate) fn agree(shared: &dyn Shared, keys: &Keys, access: &Access) -> Result<(), StoreError> {
    agree_on_sealing(shared, keys)?;
    let tokens: [u8; 32] = access.tokens_digest();
    if shared.agree("tokens", &tokens, false)? != tokens {
        tracing::warn!(
            "the tokens of this node differ from those that the last node started with: give all nodes the same tokens.toml"
        );
        shared.agree("tokens", &tokens, true)?;
    }
    Ok(())
}

/// A node that publishes a sealing key must not be the only one that can open it.
pub(crate) fn agree_on_sealing(shared: &dyn Shared, keys: &Keys) -> Result<(), StoreError> {
    let published = |SealingKey { id, key, .. }| Published { id, key: key.to_string() };
    let own: Vec<Published> = keys.sealing_keys().into_iter().map(published).collect();
    let bytes = serde_json::to_vec(&own)
        .expect("invariant: keys are plain data, which can always be written");
    let others = shared.agree("sealing-keys", &bytes, false)?;
    let others: Vec<Published> = serde_json::from_slice(&others)
        .map_err(|error| StoreError::Damaged(format!("the list of sealing keys: {error}")))?;
    if !others.iter().all(|key| own.contains(key)) {
        return Err(StoreError::OtherNodes { what: "the list of sealing keys", rule: SEALING });
    }
    if others.len() < own.len() {
        shared.agree("sealing-keys", &bytes, true)?;
    }
    Ok(())
}

/// Writes down when a task is over, for nodes that do not have its file any more.
pub(crate) fn keep_last_round(shared: &dyn Shared, task: &Task) -> Result<(), StoreError> {
    let last = task.mechanism().schedule().last_round().to_be_bytes();
    shared.agree(&last_round_key(&task.id()), &last, false).map(drop)
}

/// The last round of a task that a node has served.
pub(crate) fn last_round(shared: &dyn Shared, task: &TaskId) -> Result<Option<u32>, StoreError> {
    let bytes = shared.agreed(&last_round_key(task))?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes))
}

fn last_round_key(task: &TaskId) -> String {
    format!("last-round/{task}")
}
