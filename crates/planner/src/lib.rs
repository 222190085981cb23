//! From what a person knows (how many people, how much privacy, how long they can wait) to a
//! mechanism with its certificate.
//!
//! ```
//! use incrowd_planner::{PlanRequest, plan};
//!
//! let request = PlanRequest { central_epsilon: Some(1.0), ..PlanRequest::new(5, 100_000) };
//! let plan = plan(&request.check()?)?;
//! assert!(plan.certificate.epsilon_central() <= 1.0);
//! # Ok::<(), incrowd_planner::PlanError>(())
//! ```
//!
//! The search uses fast guesses; what a [`Plan`] prints is certified by
//! [`incrowd_privacy::certify`]. `docs/planning.md` explains the use.

mod advice;
mod alternatives;
mod budget;
mod comparison;
mod error;
mod law;
pub mod number;
pub mod paper;
mod plan;
mod preset;
mod rank;
mod regret;
mod request;
mod search;
pub mod sizes;
mod timetable;

pub use advice::{Advice, WEAK};
pub use alternatives::Alternative;
pub use error::{BatchLimit, PlanError};
pub use plan::{Plan, plan};
pub use preset::{PaperStatement, Preset};
pub use rank::rank_with;
pub use regret::{Prediction, Problem, predicted_regret, random_regret};
pub use request::{
    ClosingRule, DEFAULT_HONEST_FRACTION, DEFAULT_LOCAL_EPSILON, EncodingChoice, LocalLimit,
    PlanRequest, Request, SMALLEST_BATCH, Shape,
};
pub use timetable::{DEFAULT_PEAK, DEFAULT_UPLOAD_SECONDS, TimedStage, Timetable};
