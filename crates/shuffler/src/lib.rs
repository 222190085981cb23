//! The shuffler: counts the reports of a batch and releases only their sums, once the batch is
//! full, or filled up with pads when its time is over.
//!
//! The paper's shuffler permutes a batch and hands it to a trusted sum. The sums are all the bandit
//! uses and they do not depend on the order, so a sum is what is left of a permutation: this
//! shuffler adds each report to the [`Accumulator`] and forgets it. It keeps sums and the ids of
//! recent reports, never a report.
//!
//! Everything here is pure: no clock, no storage, no randomness.

mod accumulator;
mod batch;
mod ids;
mod journal;
mod log;

pub use accumulator::Accumulator;
pub use batch::{Batch, CloseError, Outcome, Refusal};
pub use journal::Written;
pub use log::{Entry, IdsEntry, Kind, PartialSums, ResumeError};
