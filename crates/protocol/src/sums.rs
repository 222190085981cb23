use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Mechanism, MechanismHash, ProtocolError, hex32::hex32, wire};

/// What the shuffler releases of a full batch: for each coordinate the sum of the counts, and
/// nothing else.
///
/// # Privacy
/// This is all that adversary (b), behind the shuffler, sees of a batch. It is released once, and
/// only for a full batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSums {
    mechanism: MechanismHash,
    round: u32,
    size: u32,
    sums: Vec<i64>,
}

/// The sums of a batch as the shuffler signs them, with the hash of the release before: releases
/// form a chain, so that a store that went back in time is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ReleaseFields", into = "ReleaseFields")]
pub struct Release {
    sums: BatchSums,
    previous: Option<ReleaseHash>,
}

/// A [`Release`] as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Release", deny_unknown_fields)]
struct ReleaseFields {
    mechanism: MechanismHash,
    round: u32,
    size: u32,
    #[serde(deserialize_with = "Option::deserialize")]
    previous: Option<ReleaseHash>,
    #[serde(with = "wire::integers")]
    sums: Vec<i64>,
}

impl Release {
    /// The release of these sums, after the one that `previous` names: none for round 1.
    pub fn new(sums: BatchSums, previous: Option<ReleaseHash>) -> Result<Self, ProtocolError> {
        if (sums.round == 1) != previous.is_none() {
            return Err(ProtocolError::Previous(sums.round));
        }
        Ok(Self { sums, previous })
    }

    /// The sums.
    pub fn sums(&self) -> &BatchSums {
        &self.sums
    }

    /// The release before this one; none for round 1.
    pub fn previous(&self) -> Option<ReleaseHash> {
        self.previous
    }
}

impl TryFrom<ReleaseFields> for Release {
    type Error = ProtocolError;
    fn try_from(fields: ReleaseFields) -> Result<Self, ProtocolError> {
        let ReleaseFields { mechanism, round, size, previous, sums } = fields;
        Self::new(BatchSums { mechanism, round, size, sums }, previous)
    }
}

impl From<Release> for ReleaseFields {
    fn from(release: Release) -> Self {
        let Release { sums: BatchSums { mechanism, round, size, sums }, previous } = release;
        Self { mechanism, round, size, previous, sums }
    }
}

/// Names a release: SHA-256 of its signed body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReleaseHash([u8; 32]);
hex32!(ReleaseHash, "a release's hash");

impl ReleaseHash {
    /// The name of the release with this body.
    pub fn of(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }

    /// The name that a store kept.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl BatchSums {
    /// The sums of the full batch of a round.
    pub fn new(mechanism: &Mechanism, round: u32, sums: Vec<i64>) -> Result<Self, ProtocolError> {
        let size = mechanism.round(round)?.size;
        let sums = Self { mechanism: mechanism.hash(), round, size, sums };
        sums.check(mechanism)?;
        Ok(sums)
    }

    /// Whether these can be the sums of a full batch of this mechanism. Decoded sums are only
    /// numbers until they have passed.
    pub fn check(&self, mechanism: &Mechanism) -> Result<(), ProtocolError> {
        if self.mechanism != mechanism.hash() {
            return Err(ProtocolError::Task);
        }
        let round = mechanism.round(self.round)?;
        if self.size != round.size {
            let (found, needed) = (self.size, round.size);
            return Err(ProtocolError::ReleaseSize { round: self.round, found, needed });
        }
        let (found, needed) = (self.sums.len(), mechanism.coordinates());
        if found != needed {
            return Err(ProtocolError::Length { what: "sums", found, needed });
        }
        let (low, high) = round.law.range();
        let (low, high) = (i64::from(round.size) * low, i64::from(round.size) * high);
        match self.sums.iter().position(|sum| !(low..=high).contains(sum)) {
            Some(coordinate) => {
                let found = self.sums[coordinate];
                Err(ProtocolError::Range { coordinate, found, low, high })
            }
            None => Ok(()),
        }
    }

    /// The mechanism whose reports these sums are of.
    pub fn mechanism(&self) -> MechanismHash {
        self.mechanism
    }

    /// The round whose batch this is.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Reports in the batch.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The D sums: moment first, then the lower triangle of the Gram matrix row by row.
    pub fn sums(&self) -> &[i64] {
        &self.sums
    }
}
