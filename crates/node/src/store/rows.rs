//! What databases have in their rows: bytes with a checksum over them and their place.

use incrowd_shuffler::Kind;
use sha2::{Digest, Sha256};

use super::{Seq, SignedRelease, StoreError, TaskState};

const CHECKSUM: usize = 8;

/// The bytes with a checksum: a flipped bit in the database is noticed.
pub(super) fn with_checksum(bytes: Vec<u8>) -> Vec<u8> {
    with_checksum_at(&[], bytes)
}

/// The same, where the checksum is also over the place where the bytes are stored.
pub(super) fn with_checksum_at(place: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(place, &bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

/// What [`with_checksum`] was given.
pub(super) fn checked(stored: Vec<u8>, what: &str) -> Result<Vec<u8>, StoreError> {
    checked_at(&[], stored, what)
}

/// What [`with_checksum_at`] was given, if it is at its place.
pub(super) fn checked_at(
    place: &[u8],
    mut stored: Vec<u8>,
    what: &str,
) -> Result<Vec<u8>, StoreError> {
    let damaged = || StoreError::Damaged(format!("the checksum of {what} is wrong"));
    let length = stored.len().checked_sub(CHECKSUM).ok_or_else(damaged)?;
    let (bytes, found) = stored.split_at(length);
    if checksum(place, bytes) != *found {
        return Err(damaged());
    }
    stored.truncate(length);
    Ok(stored)
}

fn checksum(place: &[u8], bytes: &[u8]) -> [u8; CHECKSUM] {
    let digest = Sha256::new().chain_update(place).chain_update(bytes).finalize();
    let mut checksum = [0; CHECKSUM];
    checksum.copy_from_slice(&digest[..CHECKSUM]);
    checksum
}

/// What the checksum of an entry is over besides its bytes.
pub(super) fn place(task: &[u8], seq: Seq, kind: Kind, round: u32) -> Vec<u8> {
    let (seq, kind, round) = (seq.0.to_be_bytes(), [code(kind) as u8], round.to_be_bytes());
    [task, seq.as_slice(), kind.as_slice(), round.as_slice()].concat()
}

/// The number of a kind in a row.
pub(super) fn code(kind: Kind) -> i64 {
    match kind {
        Kind::Ids => 0,
        Kind::Delta => 1,
        Kind::Snapshot => 2,
    }
}

/// The kind of a number.
pub(super) fn kind(code: i64) -> Result<Kind, StoreError> {
    match code {
        0 => Ok(Kind::Ids),
        1 => Ok(Kind::Delta),
        2 => Ok(Kind::Snapshot),
        other => Err(StoreError::Damaged(format!("an entry of the unknown kind {other}"))),
    }
}

/// The number of a task's state in a row.
pub(super) fn state_code(state: TaskState) -> i64 {
    match state {
        TaskState::Open => 0,
        TaskState::Closed => 1,
        TaskState::Moved => 2,
        TaskState::Moving => 3,
    }
}

/// The state of a number.
pub(super) fn state(code: i64) -> Result<TaskState, StoreError> {
    match code {
        0 => Ok(TaskState::Open),
        1 => Ok(TaskState::Closed),
        2 => Ok(TaskState::Moved),
        3 => Ok(TaskState::Moving),
        other => Err(StoreError::Damaged(format!("a task in the unknown state {other}"))),
    }
}

/// The body and the signature of a release as they are stored.
pub(super) fn stored(release: SignedRelease) -> (Vec<u8>, Vec<u8>) {
    let signature = release.signature.to_string().into_bytes();
    (with_checksum(release.body), with_checksum(signature))
}

/// The release that these are.
pub(super) fn signed(body: Vec<u8>, signature: Vec<u8>) -> Result<SignedRelease, StoreError> {
    let body = checked(body, "a release")?;
    let signature = checked(signature, "a signature")?;
    let signature = str::from_utf8(&signature).ok().and_then(|text| text.parse().ok());
    let damaged = || StoreError::Damaged("an unreadable signature of a release".into());
    Ok(SignedRelease { body, signature: signature.ok_or_else(damaged)? })
}
