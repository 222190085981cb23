//! Reading an experiment's directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{FigureError, group};
use crate::experiment::{CurvePoint, Row};

/// What an experiment left behind.
pub struct Experiment {
    /// One per run.
    pub rows: Vec<Row>,
    /// People and regret (or sum of rewards), for each run.
    pub curves: Vec<Vec<(f64, f64)>>,
    /// How it was made.
    pub manifest: Manifest,
}

/// How an experiment was made, as far as it is known.
#[derive(Default)]
pub struct Manifest {
    pub name: Option<String>,
    pub version: Option<String>,
    pub command: Option<String>,
    pub delta: Option<String>,
    /// The algorithm that the others are compared with.
    pub against: Option<String>,
}

impl Experiment {
    /// Reads and checks all three files; only the manifest may be missing.
    pub fn read(directory: &Path) -> Result<Self, FigureError> {
        let table = directory.join("table.csv");
        let lines: Vec<(u64, Row)> = records(&table)?;
        if lines.is_empty() {
            return Err(FigureError::Empty { file: table });
        }
        for (line, row) in &lines {
            check(&table, *line, row)?;
        }
        let curves = curves(&directory.join("curves.csv"), &lines)?;
        let (numbers, rows): (Vec<u64>, Vec<Row>) = lines.into_iter().unzip();
        for (_, runs) in group::settings(&rows) {
            let known = runs.iter().any(|&run| rows[run].regret.is_some());
            if let Some(&run) = runs.iter().find(|&&run| known && rows[run].regret.is_none()) {
                return Err(FigureError::Mixed { file: table, line: numbers[run] });
            }
        }
        let mut manifest = manifest(&directory.join("manifest.json"))?;
        manifest.name = manifest.name.or_else(|| {
            let path = directory.canonicalize().ok()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        });
        Ok(Self { rows, curves, manifest })
    }
}

/// Every record with its line.
fn records<T: DeserializeOwned>(file: &Path) -> Result<Vec<(u64, T)>, FigureError> {
    let unreadable = |error: csv::Error, line: u64| failure(file, line, error, &[]);
    let source = fs::File::open(file)
        .map_err(|source| FigureError::Read { file: file.to_owned(), source })?;
    let mut reader = csv::Reader::from_reader(source);
    let header = reader.headers().map_err(|error| unreadable(error, 1))?.clone();
    let columns: Vec<&str> = header.iter().collect();
    let mut records = Vec::new();
    let mut before = 1;
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(error, before + 1))?;
        let line = record.position().map_or(before + 1, csv::Position::line);
        let value = record
            .deserialize(Some(&header))
            .map_err(|error| failure(file, line, error, &columns))?;
        records.push((line, value));
        before = line;
    }
    Ok(records)
}

fn failure(file: &Path, line: u64, error: csv::Error, columns: &[&str]) -> FigureError {
    let file = file.to_owned();
    let line = error.position().map_or(line, csv::Position::line);
    if let csv::ErrorKind::Deserialize { err, .. } = error.kind()
        && let Some(column) = err.field().and_then(|field| columns.get(field as usize))
    {
        return FigureError::Field { file, line, column: (*column).into(), source: err.clone() };
    }
    if !error.is_io_error() {
        return FigureError::Row { file, line, source: Box::new(error) };
    }
    FigureError::Read { file, source: error.into() }
}

fn check(file: &Path, line: u64, row: &Row) -> Result<(), FigureError> {
    let rule = |column, value: f64, good: bool, rule| {
        if good {
            return Ok(());
        }
        Err(FigureError::Number { file: file.to_owned(), line, column, value, rule })
    };
    for (column, value) in
        [("regret", row.regret), ("regret_random", row.regret_random), ("reward", Some(row.reward))]
    {
        let value = value.unwrap_or(0.0);
        rule(column, value, value.is_finite(), "finite")?;
    }
    for (column, value) in
        [("central_epsilon", row.central_epsilon), ("local_epsilon", row.local_epsilon)]
    {
        let value = value.unwrap_or(1.0);
        rule(column, value, value > 0.0 && value.is_finite(), "above 0 and finite")?;
    }
    for (column, value) in [
        ("epsilon_local_certified", row.epsilon_local_certified),
        ("epsilon_central_certified", row.epsilon_central_certified),
        ("delta", row.delta),
        ("noise_std", row.noise_std),
    ] {
        let value = value.unwrap_or(0.0);
        rule(column, value, value >= 0.0, "at least 0")?;
    }
    rule("people", row.people as f64, row.people > 0, "at least 1")?;
    rule("horizon", row.horizon as f64, row.horizon > 0, "at least 1")
}

fn curves(file: &Path, table: &[(u64, Row)]) -> Result<Vec<Vec<(f64, f64)>>, FigureError> {
    let mut curves: Vec<Vec<(f64, f64)>> = vec![Vec::new(); table.len()];
    for (line, point) in records::<CurvePoint>(file)? {
        let (file, run) = (file.to_owned(), point.run);
        let runs = curves.len();
        let Some(curve) = usize::try_from(run).ok().and_then(|run| curves.get_mut(run)) else {
            return Err(FigureError::UnknownRun { file, line, run, runs });
        };
        if !point.regret.is_finite() {
            let (column, value, rule) = ("regret", point.regret, "finite");
            return Err(FigureError::Number { file, line, column, value, rule });
        }
        let (people, before) = (point.people, curve.last().map_or(0, |last| last.0 as u64));
        if people <= before {
            return Err(FigureError::Order { file, line, run, people, before });
        }
        curve.push((people as f64, point.regret));
    }
    match curves.iter().position(Vec::is_empty) {
        Some(run) => Err(FigureError::NoPoints { file: file.to_owned(), run, line: table[run].0 }),
        None => Ok(curves),
    }
}

fn manifest(file: &Path) -> Result<Manifest, FigureError> {
    let file = PathBuf::from(file);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Manifest::default()),
        Err(source) => return Err(FigureError::Read { file, source }),
    };
    let value: Value =
        serde_json::from_str(&text).map_err(|source| FigureError::Manifest { file, source })?;
    let get = |key: &str| value.get(key).and_then(words);
    Ok(Manifest {
        name: get("name"),
        version: get("version"),
        command: get("command"),
        delta: get("delta"),
        against: value.pointer("/experiment/against").and_then(words),
    })
}

/// Text, a number, or a list of them as one line.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(parts) => Some(parts.iter().filter_map(words).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}
