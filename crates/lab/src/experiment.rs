//! Experiments: a grid of algorithms, settings and seeds, run on all cores, resumable, with a tidy
//! table at the end.

mod algorithm;
mod assumptions;
mod baseline;
mod batches;
mod cell;
mod config;
mod error;
mod file;
mod grid;
mod manifest;
mod origin;
mod part;
mod plans;
mod prepare;
mod range;
mod runner;
mod summary;
mod table;
mod tuning;
mod units;

pub use algorithm::{Accounting, AlgorithmConfig, AlgorithmName, ClosedBy, WidthMode};
pub use assumptions::Assumptions;
pub use cell::CellResult;
pub use config::{Experiment, ExperimentConfig, Tuning};
pub use error::ExperimentError;
pub use grid::cross;
pub use part::{Part, Phase, Shard, ShardError};
pub use prepare::Prepared;
pub use runner::{Event, Finished, Work, run, run_part};
pub use summary::{Ratio, SummaryRow};
pub use table::{CurvePoint, Row, Setting};
