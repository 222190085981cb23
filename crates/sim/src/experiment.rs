//! Experiments: a grid of algorithms, settings and seeds, run on all cores, resumable, with a tidy table at the end.

mod cell;
mod config;
mod error;
mod manifest;
#[cfg(feature = "parquet")]
mod parquet;
mod prepare;
mod runner;
mod summary;
mod table;

pub use cell::CellResult;
pub use config::{
    Accounting, AlgorithmConfig, AlgorithmName, Experiment, ExperimentConfig, LocalEpsilon,
    PaperPreset, Tuning, WidthMode,
};
pub use error::ExperimentError;
#[cfg(feature = "parquet")]
pub use parquet::write_parquet;
pub use prepare::Prepared;
pub use runner::{Event, Finished, run};
pub use summary::{Ratio, SummaryRow};
pub use table::{CurvePoint, Row, Setting};
