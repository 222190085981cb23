//! Reading an experiment's directory.

use std::{
    collections::HashMap,
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
        let (numbers, mut rows): (Vec<u64>, Vec<Row>) = lines.into_iter().unzip();
        rows.iter_mut().for_each(name_assumptions);
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

/// Settings that differ in what learner and mechanism were told get names of their own.
fn name_assumptions(row: &mut Row) {
    let told = row.setting().assumptions.words();
    if !told.is_empty() {
        row.environment = format!("{}, {told}", row.environment);
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

/// The points of every run of the table: by their key, or by the number of the run in files that
/// have no keys.
fn curves(file: &Path, table: &[(u64, Row)]) -> Result<Vec<Vec<(f64, f64)>>, FigureError> {
    let mut curves: Vec<Vec<(f64, f64)>> = vec![Vec::new(); table.len()];
    let by_key: HashMap<&str, usize> =
        table.iter().enumerate().map(|(run, (_, row))| (row.key.as_str(), run)).collect();
    for (line, point) in records::<CurvePoint>(file)? {
        let (file, runs) = (file.to_owned(), curves.len());
        let run = if point.key.is_empty() {
            usize::try_from(point.run).ok().filter(|&run| run < runs)
        } else {
            by_key.get(point.key.as_str()).copied()
        };
        let Some(run) = run else {
            return Err(match point.key {
                key if key.is_empty() => {
                    FigureError::UnknownRun { file, line, run: point.run, runs }
                }
                key => FigureError::UnknownKey { file, line, key },
            });
        };
        let (curve, run) = (&mut curves[run], run as u64);
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

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = "algorithm,variant,environment,dimension,arms,horizon,central_epsilon,\
        local_epsilon,batch_size,seed,exploration,regret,regret_random,reward,people,batches,\
        model_versions,epsilon_local_certified,epsilon_central_certified,delta,certified,noise_std";

    fn row(regret: u32) -> String {
        format!("a{regret},default,synthetic,5,10,9,,,,1,,{regret},9,5,9,0,0,,,,false,")
    }

    /// The ends of the curves, in the order of the table.
    fn ends(name: &str, table: &str, curves: &str) -> Vec<f64> {
        let directory = std::env::temp_dir().join(format!("incrowd-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("table.csv"), table).unwrap();
        fs::write(directory.join("curves.csv"), curves).unwrap();
        let read = Experiment::read(&directory);
        fs::remove_dir_all(&directory).unwrap();
        let experiment = read.unwrap();
        let regrets: Vec<f64> = experiment.rows.iter().filter_map(|row| row.regret).collect();
        let ends: Vec<f64> =
            experiment.curves.iter().map(|curve| curve.last().unwrap().1).collect();
        assert_eq!(ends, regrets, "{name}");
        ends
    }

    /// Keys find their rows wherever these are; files without keys go by the number of the run, and
    /// what they do not say was as usual.
    #[test]
    fn curves_belong_to_their_keys() {
        let keys = "run,people,regret,key\n0,9,1,first\n1,9,2,second\n";
        let table = |rows: [String; 2]| format!("{COLUMNS},key\n{}\n{}\n", rows[0], rows[1]);
        let (first, second) = (format!("{},first", row(1)), format!("{},second", row(2)));
        assert_eq!(ends("keys", &table([first.clone(), second.clone()]), keys), [1.0, 2.0]);
        assert_eq!(ends("swapped", &table([second, first]), keys), [2.0, 1.0]);
        let old = format!("{COLUMNS}\n{}\n{}\n", row(1), row(2));
        assert_eq!(ends("old", &old, "run,people,regret\n0,9,1\n1,9,2\n"), [1.0, 2.0]);
    }
}
