//! What a policy would have earned: evaluation on logged bandit data.
//!
//! A [`Log`] is read from one of three formats, a [`Policy`] says with which probability it would
//! have taken each action, and [`Settings::evaluate`] estimates its mean reward by inverse
//! propensities (IPS), self-normalised (SNIPS) and doubly robust (DR). `docs/evaluation.md` says
//! what each one assumes.
//!
//! # Privacy
//! An estimate is computed from raw contexts and rewards and protects nobody in them. Logs must be
//! public, simulated, or given by people for this purpose.

mod cells;
mod config;
mod coverage;
mod csv_log;
mod csv_rows;
mod dsjson;
mod encoder;
mod error;
mod estimate;
mod evaluation;
mod log;
mod model_file;
mod policy;
mod reward_model;
mod warnings;

pub use config::{EvaluationConfig, ModelFile, PolicyConfig};
pub use coverage::{Coverage, Uncovered};
pub use error::EvaluateError;
pub use estimate::{Estimate, Z_95};
pub use evaluation::{Estimates, Evaluation, LogSummary, Settings, Weights};
pub use log::{Format, Log, ReadOptions};
pub use model_file::{parse_model, parse_prior};
pub use policy::{ModelPolicy, Policy};
