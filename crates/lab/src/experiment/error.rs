use std::{io, path::PathBuf};

use incrowd_planner::PlanError;
use incrowd_protocol::{ProtocolError, UnitError};
use thiserror::Error;

use incrowd_sim::{EnvironmentError, SimulationError, baseline::BaselineError};

/// Why an experiment cannot be run, or was not finished.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// A file that cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// An experiment file that is not one. The message has the line.
    #[error("{}: {message}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what was expected.
        message: String,
    },
    /// A quantity is outside of its range.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Another number out of its range.
    #[error("{what} is {value}, must be {allowed}")]
    Range {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: String,
        /// The allowed range.
        allowed: &'static str,
    },
    /// Two algorithms could not be told apart in the results.
    #[error(
        "the label {0:?} is used twice, must be given once: set `label` on one of the algorithms"
    )]
    Label(String),
    /// A value that would be run, and counted, twice.
    #[error("{0} has {1} twice, must have it once")]
    Twice(&'static str, String),
    /// People from one environment, or from several.
    #[error("environment and environments are both given, must be one of them")]
    Environments,
    /// A label that would mislead.
    #[error(
        "{0} has the label {1:?}, must not have the name of another algorithm, and random and oracle keep theirs"
    )]
    Rename(&'static str, String),
    /// An option that would be ignored.
    #[error("{algorithm} has the option {option}, which it does not use: remove it")]
    Unused {
        /// Label of the algorithm.
        algorithm: String,
        /// The option.
        option: &'static str,
    },
    /// A second pass over a log is biased.
    #[error(
        "horizon is {horizon}, must be at most {pass}: so many people can be answered without bias from one pass over the log"
    )]
    BeyondLog {
        /// The horizon asked for.
        horizon: u64,
        /// People of one pass, on average.
        pass: u64,
    },
    /// An algorithm that is compared with, but not in the experiment.
    #[error("against is {0:?}, must be the label of one of the algorithms")]
    Against(String),
    /// An algorithm without what it needs.
    #[error("{algorithm} needs {needs}")]
    Needs {
        /// Label of the algorithm.
        algorithm: String,
        /// What it needs.
        needs: &'static str,
    },
    /// No plan for an algorithm.
    #[error("{algorithm}: {error}")]
    Plan {
        /// Label of the algorithm.
        algorithm: String,
        /// Why.
        error: PlanError,
    },
    /// No certificate for an algorithm.
    #[error("{algorithm}: {error}")]
    Privacy {
        /// Label of the algorithm.
        algorithm: String,
        /// Why.
        error: BaselineError,
    },
    /// Parameters that are no task.
    #[error("{algorithm}: {error}")]
    Protocol {
        /// Label of the algorithm.
        algorithm: String,
        /// Why.
        error: ProtocolError,
    },
    /// People that cannot be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A run that stumbled.
    #[error("{algorithm}, seed {seed}: {error}")]
    Simulation {
        /// Label of the algorithm.
        algorithm: String,
        /// Seed of the run.
        seed: u64,
        /// Why.
        error: SimulationError,
    },
    /// A shard of the runs that count, before the tuning phase is finished.
    #[error(
        "{}: {missing} of {all} runs of the tuning phase are missing, must all be there before the shards of the runs that count\nhint: {command}",
        directory.display()
    )]
    Untuned {
        /// The folder of the results.
        directory: PathBuf,
        /// Runs that are missing.
        missing: usize,
        /// All runs of the phase.
        all: usize,
        /// What runs the tuning phase.
        command: String,
    },
    /// Shards of two experiments in one folder.
    #[error(
        "{}: shards of another experiment, {name:?}, must all be of the same one; these keys differ: {differs}\nhint: join folders of one experiment only, or give another --out",
        path.display()
    )]
    OtherExperiment {
        /// What the shards of the other experiment left.
        path: PathBuf,
        /// Title of the other experiment.
        name: String,
        /// Keys of the experiment file that differ; `data` is that of the environments, `program`
        /// the program file.
        differs: String,
    },
    /// No threads.
    #[error("the threads could not be started: {0}")]
    Threads(String),
}
