use serde::{Deserialize, Serialize};

use crate::{Mechanism, MechanismHash, ProtocolError, wire};

/// What the shuffler releases of a full batch: for each coordinate the sum of the counts, and
/// nothing else.
///
/// # Privacy
/// This is all that adversary (b), behind the shuffler, sees of a batch. It is released once, and
/// only for a full batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSums {
    mechanism: MechanismHash,
    round: u32,
    size: u32,
    #[serde(with = "wire::integers")]
    sums: Vec<u64>,
}

impl BatchSums {
    /// The sums of the full batch of a round.
    pub fn new(mechanism: &Mechanism, round: u32, sums: Vec<u64>) -> Result<Self, ProtocolError> {
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
        let limit = u64::from(round.size) * u64::from(round.law.bits);
        match self.sums.iter().position(|&sum| sum > limit) {
            Some(coordinate) => {
                Err(ProtocolError::Range { coordinate, found: self.sums[coordinate], limit })
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
    pub fn sums(&self) -> &[u64] {
        &self.sums
    }
}
