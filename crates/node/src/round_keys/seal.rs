//! Entries of the log under the key of their round. `docs/formats.md` has the format.

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use getrandom::{SysRng, rand_core::TryRng};
use incrowd_protocol::TaskId;
use incrowd_shuffler::{Entry, Kind};

use super::{RoundKey, RoundKeyError};
use crate::store::{Seq, StoreError};

const CLEAR: u8 = 1;
const SEALED: u8 = 2;
const NONCE: usize = 24;
/// Version, nonce and tag.
const OVERHEAD: usize = 1 + NONCE + 16;

/// Whether an entry needs no key: the snapshot of a batch without reports says nothing.
pub(super) fn is_clear(entry: &Entry) -> bool {
    // Version, reports before, reports.
    let header = [CLEAR, 0, 0, 0, 0, 0, 0, 0, 0];
    entry.kind == Kind::Snapshot && entry.bytes.starts_with(&header)
}

/// How many ids a sealed entry has; 0 if it has sums.
pub(super) fn ids(entry: &Entry) -> usize {
    match entry.kind {
        Kind::Ids => entry.bytes.len().saturating_sub(OVERHEAD + 1) / 16,
        Kind::Snapshot | Kind::Delta => 0,
    }
}

pub(super) fn seal(
    key: &RoundKey,
    task: &TaskId,
    seq: Seq,
    entry: &mut Entry,
) -> Result<(), StoreError> {
    let mut nonce = [0; NONCE];
    SysRng.try_fill_bytes(&mut nonce).map_err(RoundKeyError::Randomness)?;
    let aad = place(task, seq, entry);
    let payload = Payload { msg: &entry.bytes, aad: &aad };
    let sealed = cipher(key)
        .encrypt(&XNonce::from(nonce), payload)
        .expect("invariant: an entry is shorter than 256 GiB");
    let mut bytes = Vec::with_capacity(entry.bytes.len() + OVERHEAD);
    bytes.push(SEALED);
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(&sealed);
    entry.bytes = bytes;
    Ok(())
}

/// Opens an entry in its place. A wrong key and a changed bit are the same here: damage.
pub(super) fn open(
    key: &RoundKey,
    task: &TaskId,
    seq: Seq,
    entry: &mut Entry,
) -> Result<(), StoreError> {
    let damaged = |rule: &str| {
        let round = entry.round;
        StoreError::Damaged(format!("entry {} of round {round} {rule}", seq.0))
    };
    let Some((&SEALED, rest)) = entry.bytes.split_first() else {
        return Err(damaged("is not sealed"));
    };
    let Some((nonce, sealed)) = rest.split_first_chunk::<NONCE>() else {
        return Err(damaged("is too short"));
    };
    let aad = place(task, seq, entry);
    let payload = Payload { msg: sealed, aad: &aad };
    let opened = cipher(key).decrypt(&XNonce::from(*nonce), payload);
    entry.bytes = opened.map_err(|_| damaged("does not open with the key of its round"))?;
    Ok(())
}

fn cipher(key: &RoundKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.bytes().into())
}

/// What an entry is bound to.
fn place(task: &TaskId, seq: Seq, entry: &Entry) -> Vec<u8> {
    let kind = match entry.kind {
        Kind::Ids => 0,
        Kind::Delta => 1,
        Kind::Snapshot => 2,
    };
    let mut place = b"incrowd/log-entry/v2\0".to_vec();
    place.extend_from_slice(task.bytes());
    place.extend_from_slice(&seq.0.to_be_bytes());
    place.push(kind);
    place.extend_from_slice(&entry.round.to_be_bytes());
    place
}
