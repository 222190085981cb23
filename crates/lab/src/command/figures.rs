//! `incrowd-lab figures`: pictures and a report of an experiment.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Args;
use incrowd_lab::figures;

/// Pictures and a report of an experiment.
///
/// Reads what `incrowd-lab simulate --out DIR` left behind (table.csv, curves.csv, manifest.json)
/// and writes into the same directory: figures/*.svg (regret over time for each setting; growth
/// with the number of people, regret against epsilon and against batch size, if they were varied)
/// and report.html, one file with all of them and tables that can be opened anywhere. The names of
/// the written files go to stdout. The same tables give the same files.
///
/// Example: incrowd-lab simulate --out results, then incrowd-lab figures results, then open
/// results/report.html
#[derive(Args)]
pub struct Arguments {
    /// Directory of the experiment.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let table = arguments.directory.join("table.csv");
    if !table.exists() {
        return Err(format!(
            "{} does not exist; hint: make an experiment first, incrowd-lab simulate --out {}",
            table.display(),
            arguments.directory.display()
        )
        .into());
    }
    for file in figures::draw(&arguments.directory)? {
        out!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}
