use std::{fmt, sync::Arc};

use incrowd_protocol::{BatchSums, Closes, Mechanism, ProtocolError, Report, Round};
use thiserror::Error;

use crate::{Accumulator, ids::Ids};

/// The outcome of one report.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum Outcome {
    /// It is in the batch.
    Counted,
    /// It is in the batch and made it full: these are the batch's sums, given this once, and the
    /// next round has begun. Only where batches close by count.
    Released(BatchSums),
    /// It is valid and new, but the batch has its reports already: it is dropped, and nothing
    /// changed. Only where batches close by time. Its sender must not be able to tell this from
    /// [`Outcome::Counted`].
    Surplus,
    /// Its id is already counted; nothing changed.
    Duplicate,
    /// It does not count; nothing changed.
    Refused(Refusal),
}

impl Outcome {
    /// Takes the sums out. The sender of the report that fills a batch is answered like every other
    /// whose report counts.
    pub fn take_release(&mut self) -> Option<BatchSums> {
        if !matches!(self, Self::Released(_)) {
            return None;
        }
        match std::mem::replace(self, Self::Counted) {
            Self::Released(sums) => Some(sums),
            _ => None,
        }
    }
}

/// Why a report does not count.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not a report of this mechanism.
    #[error(transparent)]
    Invalid(#[from] ProtocolError),
    /// Made for a round whose grace window is over.
    #[error("report is for round {round}, must be from {oldest} to {current}")]
    Late {
        /// Round of the report.
        round: u32,
        /// Oldest round that still counts.
        oldest: u32,
        /// Current round.
        current: u32,
    },
    /// Made for a round that has not begun.
    #[error("report is for round {round}, must be at most the current round {current}")]
    Early {
        /// Round of the report.
        round: u32,
        /// Current round.
        current: u32,
    },
    /// Late, and made with another law than the current round's.
    #[error(
        "report is for round {round}, whose reports are randomized differently than those of the current round {current}"
    )]
    OtherLaw {
        /// Round of the report.
        round: u32,
        /// Current round.
        current: u32,
    },
    /// The last round is released.
    #[error("the task is finished")]
    Finished,
}

/// Why a batch cannot be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CloseError {
    /// Batches of this task close by count.
    #[error("batches of this task close by their last report")]
    Count,
    /// The last round is released.
    #[error("the task is finished")]
    Finished,
    /// The pads are not the sums of as many reports as the batch lacks.
    #[error("the pads are not those of the {0} reports that the batch lacks")]
    Pads(u32),
}

/// The batch in progress of one task, and the ids that may still come again.
///
/// # Privacy
/// A release is the sum of exactly the scheduled number of reports, each id counted once. It does
/// not depend on their order, as long as no more come than the batch has room for. Where batches
/// close by time, pads make up what is missing, and [`Batch::close`] alone begins the next round:
/// the batch has no clock, so whoever owns it decides when. Dropping a `Batch` destroys the
/// unfinished batch; it cannot be copied or printed, and what is written down of it
/// ([`Batch::snapshot`], [`Batch::delta`]) is the shuffler's own. Memory is the D sums and the ids
/// of the grace window.
pub struct Batch {
    pub(crate) mechanism: Arc<Mechanism>,
    /// None once the last round is released.
    pub(crate) current: Option<(Round, Accumulator)>,
    /// Ids of counted reports that may still come again, with the round they were made for.
    pub(crate) ids: Ids,
}

impl Batch {
    /// The first round's empty batch.
    pub fn new(mechanism: Arc<Mechanism>) -> Self {
        let current = open(&mechanism, 1);
        Self { mechanism, current, ids: Ids::default() }
    }

    /// The oldest round whose ids are remembered; what was made for earlier ones cannot come again.
    pub fn oldest_remembered(&self) -> u32 {
        self.round().map_or(u32::MAX, |round| round.number.saturating_sub(self.mechanism.grace()))
    }

    /// The round whose batch is being filled; none when the task is finished.
    pub fn round(&self) -> Option<Round> {
        self.current.as_ref().map(|(round, _)| *round)
    }

    /// Reports in the unfinished batch.
    pub fn count(&self) -> u32 {
        self.current.as_ref().map_or(0, |(_, sums)| sums.count())
    }

    /// Reports that the unfinished batch lacks: the pads that [`Batch::close`] needs.
    pub fn missing(&self) -> u32 {
        self.current.as_ref().map_or(0, |(_, sums)| sums.capacity() - sums.count())
    }

    /// Ids that are remembered.
    pub fn remembered(&self) -> usize {
        self.ids.len()
    }

    /// Counts a report given as bytes.
    pub fn accept_bytes(&mut self, bytes: &[u8]) -> Outcome {
        match Report::decode(bytes, &self.mechanism) {
            Ok(report) => self.accept(&report),
            Err(error) => Outcome::Refused(error.into()),
        }
    }

    /// Counts a report, if it is of this mechanism, of this round or still within grace, made with
    /// the current law, and new.
    pub fn accept(&mut self, report: &Report) -> Outcome {
        if report.mechanism() != self.mechanism.hash() {
            return Outcome::Refused(ProtocolError::Task.into());
        }
        let Some((current, sums)) = &mut self.current else {
            return Outcome::Refused(Refusal::Finished);
        };
        if let Err(refusal) = in_window(&self.mechanism, current, report.round()) {
            return Outcome::Refused(refusal);
        }
        if self.ids.has(report.id()) {
            return Outcome::Duplicate;
        }
        let by_time = closes_by_time(&self.mechanism);
        if by_time && sums.is_full() {
            return Outcome::Surplus;
        }
        sums.add(|sums| report.payload().add_to(sums));
        self.ids.insert(report.id(), report.round());
        if sums.is_full() && !by_time {
            return Outcome::Released(self.release());
        }
        Outcome::Counted
    }

    /// Closes the current batch and begins the next round. `pads` are the sums of
    /// [`Batch::missing`] reports that say nothing, made with the round's law. After an error
    /// nothing has changed.
    ///
    /// # Privacy
    /// The release is the sum of exactly the scheduled number of reports. Pads must have the law
    /// that the round's encoding states for them; fair coins are not that for m > 1.
    pub fn close(&mut self, pads: &[i64]) -> Result<BatchSums, CloseError> {
        if !closes_by_time(&self.mechanism) {
            return Err(CloseError::Count);
        }
        let missing = self.missing();
        let Some((round, sums)) = &mut self.current else { return Err(CloseError::Finished) };
        let (low, high) = round.law.range();
        let range = i64::from(missing) * low..=i64::from(missing) * high;
        if pads.len() != sums.partial().len() || pads.iter().any(|pad| !range.contains(pad)) {
            return Err(CloseError::Pads(missing));
        }
        sums.add_sums(pads, missing);
        Ok(self.release())
    }

    /// Counts reports that were made and added in bulk: `fill` gets the accumulator of the current
    /// round. For the simulator.
    #[cfg(feature = "simulation")]
    pub fn fill(&mut self, fill: impl FnOnce(&Round, &mut Accumulator)) -> Outcome {
        let Some((current, sums)) = &mut self.current else {
            return Outcome::Refused(Refusal::Finished);
        };
        fill(current, sums);
        if sums.is_full() && !closes_by_time(&self.mechanism) {
            return Outcome::Released(self.release());
        }
        Outcome::Counted
    }

    /// Begins the next round. The current batch must be full.
    fn release(&mut self) -> BatchSums {
        let (round, sums) = self.current.take().expect("invariant: the batch that is full is open");
        let next = round.number + 1;
        self.current = open(&self.mechanism, next);
        // An id is forgotten when no report of its round can count any more.
        self.ids.forget_before(self.oldest_remembered());
        let sums = sums.into_sums().expect("invariant: the batch is full");
        let sums = BatchSums::new(&self.mechanism, round.number, sums);
        sums.expect("invariant: counted reports are valid, so their sums are")
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("round", &self.round())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

fn closes_by_time(mechanism: &Mechanism) -> bool {
    matches!(mechanism.closes(), Closes::Time { .. })
}

fn open(mechanism: &Mechanism, round: u32) -> Option<(Round, Accumulator)> {
    let round = mechanism.round(round).ok()?;
    Some((round, Accumulator::new(mechanism.coordinates(), round.size)))
}

/// Whether a report made for `round` counts in the batch of `current`.
fn in_window(mechanism: &Mechanism, current: &Round, round: u32) -> Result<(), Refusal> {
    let (now, oldest) = (current.number, current.number.saturating_sub(mechanism.grace()).max(1));
    if round > now {
        return Err(Refusal::Early { round, current: now });
    }
    if round < oldest {
        return Err(Refusal::Late { round, oldest, current: now });
    }
    if mechanism.round(round)?.law != current.law {
        return Err(Refusal::OtherLaw { round, current: now });
    }
    Ok(())
}
