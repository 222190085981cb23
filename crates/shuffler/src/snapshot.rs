use incrowd_protocol::{Mechanism, ReportId};
use thiserror::Error;

/// What a shuffler writes down of its unfinished batch, to go on after a restart. It cannot be printed.
///
/// # Privacy
/// Partial sums are the shuffler's secret, as the reports were: they go to its own store and nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The round being filled, 0 when the task is finished.
    pub(crate) round: u32,
    /// Reports in the unfinished batch.
    pub(crate) count: u32,
    pub(crate) sums: Vec<u64>,
}

/// Why a batch cannot go on from what was written down.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the stored batch is not one of this task: {0}")]
pub struct ResumeError(pub(crate) &'static str);

impl Snapshot {
    /// Round and count (u32 each), then the sums (u64 each), big-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + 8 * self.sums.len());
        bytes.extend(self.round.to_be_bytes());
        bytes.extend(self.count.to_be_bytes());
        self.sums.iter().for_each(|sum| bytes.extend(sum.to_be_bytes()));
        bytes
    }

    /// What [`Snapshot::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, ResumeError> {
        let (words, odd) = bytes.as_chunks::<8>();
        let (Some((head, sums)), []) = (words.split_first(), odd) else {
            return Err(ResumeError("wrong length"));
        };
        let head = u64::from_be_bytes(*head);
        let sums = sums.iter().map(|word| u64::from_be_bytes(*word)).collect();
        Ok(Self { round: (head >> 32) as u32, count: head as u32, sums })
    }

    /// Whether a batch of this mechanism can be in this state.
    pub(crate) fn check(&self, mechanism: &Mechanism) -> Result<(), ResumeError> {
        if self.round == 0 {
            let empty = self.count == 0 && self.sums.is_empty();
            return if empty { Ok(()) } else { Err(ResumeError("a finished task has no sums")) };
        }
        let round = mechanism.round(self.round).map_err(|_| ResumeError("no such round"))?;
        if self.count >= round.size {
            return Err(ResumeError("a full batch"));
        }
        if self.sums.len() != mechanism.coordinates() {
            return Err(ResumeError("wrong number of sums"));
        }
        let limit = u64::from(self.count) * u64::from(round.bits);
        if self.sums.iter().any(|&sum| sum > limit) {
            return Err(ResumeError("a sum above what its reports can make"));
        }
        Ok(())
    }

    /// Whether an id that was counted for round `made_for` is still to be remembered.
    pub(crate) fn check_id(
        &self,
        mechanism: &Mechanism,
        (_, made_for): &(ReportId, u32),
    ) -> Result<(), ResumeError> {
        let oldest = self.round.saturating_sub(mechanism.grace());
        if *made_for < oldest || *made_for > self.round {
            return Err(ResumeError("an id outside the grace window"));
        }
        Ok(())
    }
}
