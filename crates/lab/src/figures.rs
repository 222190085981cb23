//! Figures and a report of an experiment: from the tables in a directory to pictures a person would
//! show around.
//!
//! [`draw`] reads `table.csv`, `curves.csv` and `manifest.json` and writes `figures/*.svg` and a
//! self-contained `report.html`. The same directory always gives the same bytes.

mod data;
mod group;
mod palette;
mod ratio;
mod regret;
mod report;
mod summary;
mod trend;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use incrowd_chart::Canvas;
use thiserror::Error;

use data::Experiment;
use palette::Palette;

pub use trend::{Slope, slopes};

/// Figures cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FigureError {
    /// A file or directory cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or directory cannot be written.
    #[error("{}: {source}", file.display())]
    Write {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A table without rows.
    #[error("{}: no rows, so there is nothing to draw", file.display())]
    Empty {
        /// Which.
        file: PathBuf,
    },
    /// A row that is not a row of this table.
    #[error("{}, line {line}: {source}", file.display())]
    Row {
        /// Which file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: u64,
        /// Why.
        source: Box<csv::Error>,
    },
    /// A field that does not have its type.
    #[error("{}, line {line}: {column}: {source}", file.display())]
    Field {
        /// Which file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: u64,
        /// Column of the field.
        column: String,
        /// Why.
        source: csv::DeserializeError,
    },
    /// A number out of its range.
    #[error("{}, line {line}: {column} is {value}, must be {rule}", file.display())]
    Number {
        /// Which file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: u64,
        /// Column of the number.
        column: &'static str,
        /// The number.
        value: f64,
        /// What is allowed.
        rule: &'static str,
    },
    /// Some runs of a setting know their regret and some do not.
    #[error("{}, line {line}: regret is missing here but given in another run of the same setting, must be in all or none", file.display())]
    Mixed {
        /// Which file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: u64,
    },
    /// A point of a run that is not in the table.
    #[error("{}, line {line}: run is {run}, must be below {runs}, the number of rows in table.csv", file.display())]
    UnknownRun {
        /// Which file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: u64,
        /// The run.
        run: u64,
        /// Rows in the table.
        runs: usize,
    },
    /// A point of a run that is not in the table.
    #[error("{}, line {line}: key is {key:?}, must be that of a row in table.csv", file.display())]
    UnknownKey {
        /// Which file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: u64,
        /// The key of the run.
        key: String,
    },
    /// Points of a run that are not in order.
    #[error("{}, line {line}: people is {people}, must be above {before}, the point before of run {run}", file.display())]
    Order {
        /// Which file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: u64,
        /// The run.
        run: u64,
        /// People at this point.
        people: u64,
        /// People at the point before.
        before: u64,
    },
    /// A run without a curve.
    #[error("{}: no points of run {run} (table.csv, line {line})", file.display())]
    NoPoints {
        /// Which file.
        file: PathBuf,
        /// The run.
        run: usize,
        /// Its line in the table, from 1.
        line: u64,
    },
    /// The manifest is not JSON.
    #[error("{}: {source}", file.display())]
    Manifest {
        /// Which file.
        file: PathBuf,
        /// Why, and where.
        source: serde_json::Error,
    },
}

/// A figure with what to say about it.
struct Figure {
    /// File name without ending.
    name: String,
    canvas: Canvas,
    caption: String,
}

/// Figures of an earlier table would stand beside the new report as if they belonged to it.
fn remove_old(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let kinds = ["regret-", "ratios", "slope", "epsilon", "batch-size"];
        let picture = path.extension().is_some_and(|end| end == "svg");
        if picture && kinds.iter().any(|kind| name.starts_with(kind)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Whether this is the label of the uniformly random choice.
fn is_random(algorithm: &str) -> bool {
    algorithm.eq_ignore_ascii_case("random")
}

/// Draws every figure the tables in `directory` allow, and the report; returns what was written.
///
/// - `figures/regret-<n>`: regret over time, one for each setting; average reward where regret is
///   unknown.
/// - `figures/ratios` and `ratios.md`: every setting at once, if the experiment names an algorithm
///   that the others are compared with.
/// - `figures/slope`: growth of regret with the horizon, if there are two horizons.
/// - `figures/epsilon`: regret against the privacy limit, if there are two limits.
/// - `figures/batch-size`: regret against batch size, if there are two sizes.
/// - `report.html`: all of them with tables.
///
/// Of slope, epsilon and batch size there is one for each group of settings that are otherwise
/// equal; the second one ends in `-2`.
pub fn draw(directory: &Path) -> Result<Vec<PathBuf>, FigureError> {
    let experiment = Experiment::read(directory)?;
    let palette = Palette::new(experiment.rows.iter().map(|row| row.algorithm.as_str()));
    let mut figures = regret::figures(&experiment, &palette);
    figures.extend(trend::figures(&experiment, &palette));
    let ratios = ratio::Ratios::of(&experiment);
    figures.extend(ratios.as_ref().map(|ratios| ratios.figure(&palette)));
    let folder = directory.join("figures");
    let failed = |file: &Path| {
        let file = file.to_owned();
        |source| FigureError::Write { file, source }
    };
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    remove_old(&folder).map_err(failed(&folder))?;
    let (mut written, mut shown) = (Vec::new(), Vec::new());
    for figure in &figures {
        let name = folder.join(&figure.name);
        written.push(figure.canvas.write(&name).map_err(failed(&name))?);
        shown.push((figure, figure.canvas.svg()));
    }
    if let Some(ratios) = &ratios {
        let file = directory.join("ratios.md");
        fs::write(&file, ratios.markdown()).map_err(failed(&file))?;
        written.push(file);
    }
    let file = directory.join("report.html");
    fs::write(&file, report::html(&experiment, &palette, &shown)).map_err(failed(&file))?;
    written.push(file);
    Ok(written)
}
