//! What crosses a wire in incrowd, and nothing else: no randomness, clock or I/O.
//!
//! A task is described by a [`TaskConfig`], whose [`Mechanism`] fixes everything a privacy
//! guarantee depends on; with the keys of those who may speak for it, it is a [`Task`]. Devices
//! send [`Report`]s, the shuffler releases [`BatchSums`], the bandit publishes [`Model`]s. The
//! formats are specified in `docs/formats.md`.
//!
//! Parameters come as plain structs with public fields ([`MechanismConfig`], [`LearnerConfig`],
//! ...) whose `check` gives the valid type with private fields ([`Mechanism`], [`Learner`], ...).
//! Only valid types have behaviour, and deserialising goes through `check`.

mod bulk;
mod closes;
mod comparison;
mod entity_tag;
mod error;
mod fraction;
mod hex32;
mod hex_lower;
mod identity;
mod law;
mod layout;
mod learner;
mod mechanism;
mod media;
mod model;
mod notice;
pub mod paths;
mod prior;
mod problem;
mod report;
mod schedule;
mod sums;
mod task;
mod units;
mod wire;
pub mod words;

pub use bulk::{BULK_LIMIT, BulkAnswer, RefusedReport, push_report, split_reports};
pub use closes::{Closes, OpenRound, Window};
pub use comparison::ComparisonSlot;
pub use entity_tag::EntityTag;
pub use error::ProtocolError;
pub use fraction::{FlipProbability, OutsideProbability};
pub use hex_lower::parse_hex;
pub use identity::{SealingPublicKey, Task, TaskId, VerificationKey, VerificationKeys};
pub use law::{BitsLaw, CodebookLaw, Law};
pub use layout::{Blocks, CoordinateKind, Layout};
pub use learner::{Confidence, Learner, LearnerConfig, UpdateRule};
pub use mechanism::{Mechanism, MechanismConfig, MechanismHash};
pub use media::{MediaType, SIGNATURE_HEADER};
pub use model::{Model, ModelParts, SlotParts, check_actions};
pub use notice::{KeyState, RoundNotice, SealingKey, TaskNotice};
pub use prior::{Prior, PriorConfig};
pub use problem::{ProblemDocument, ProblemKind};
pub use report::{Payload, Report, ReportId, add_counts};
pub use schedule::{Round, Schedule, Stage};
pub use sums::{BatchSums, Release, ReleaseHash};
pub use task::{Policy, PolicyConfig, Selection, TaskConfig};
pub use units::{
    BatchSize, Bits, Delta, Dimension, HonestFraction, Keep, Participations, UnitError,
    format_number,
};
pub use words::{CLIP, STEPS, Words};

/// Largest shift of a coordinate's value by rounding the thresholds of its coins, times c
/// (`docs/formats.md`, Coins). What a device rounds, guarantees and confidence widths account for.
pub const QUANTISATION: f64 = 1.0 / (1u64 << 30) as f64;

/// Number of coordinates of a report in dimension `d`: D = d(d+3)/2, d for the moment and d(d+1)/2
/// for the Gram matrix.
pub const fn coordinates(dimension: usize) -> usize {
    dimension * (dimension + 3) / 2
}

/// Number of entries of a packed lower triangle of a `d` by `d` matrix, row by row.
pub const fn triangle(dimension: usize) -> usize {
    dimension * (dimension + 1) / 2
}
