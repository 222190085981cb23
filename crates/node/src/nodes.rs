//! What all nodes of a database must have in common, checked against it.

use incrowd_protocol::SealingKey;
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
