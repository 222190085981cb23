//! Which experiment the shards of a folder are of.
//!
//! Every shard leaves a file in `shards/` that is named by the experiment, so folders of one
//! experiment can be joined, and those of two are noticed.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{
    Experiment, ExperimentError,
    cell::{RESULTS, digest},
    file,
    plans::program,
};

/// Refuses a folder with shards of another experiment; one without shards is fine.
pub(super) fn check(experiment: &Experiment, directory: &Path) -> Result<(), ExperimentError> {
    let own = identity(experiment);
    for path in origins(&directory.join("shards"))? {
        if path.file_stem().is_some_and(|name| *name == *digest(&own)) {
            continue;
        }
        let read =
            || -> io::Result<Map<String, Value>> { Ok(serde_json::from_slice(&fs::read(&path)?)?) };
        let other = read().map_err(|error| ExperimentError::Io { path: path.clone(), error })?;
        let keys: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
        let keys = keys.into_iter().filter(|&key| own.get(key) != other.get(key));
        let differs = keys.map(String::as_str).collect::<Vec<_>>().join(", ");
        let name = other.get("name").and_then(Value::as_str).unwrap_or_default().into();
        return Err(ExperimentError::OtherExperiment { path, name, differs });
    }
    Ok(())
}

/// Leaves a file that says which experiment this is.
pub(super) fn leave(experiment: &Experiment, directory: &Path) -> Result<(), ExperimentError> {
    let (identity, shards) = (identity(experiment), directory.join("shards"));
    let path = shards.join(format!("{}.json", digest(&identity)));
    fs::create_dir_all(&shards).map_err(|error| ExperimentError::Io { path: shards, error })?;
    file::replace(&path, |file| Ok(serde_json::to_writer_pretty(file, &identity)?))
}

/// What was asked for, the data, and the program: runs of another build may differ.
fn identity(experiment: &Experiment) -> Map<String, Value> {
    let config = serde_json::to_value(experiment.config());
    let Ok(Value::Object(mut identity)) = config else {
        unreachable!("invariant: a configuration is plain data with names")
    };
    let data = experiment.sources().iter().map(|source| source.fingerprint().into()).collect();
    identity.insert("data".into(), Value::Array(data));
    identity.insert("results".into(), RESULTS.into());
    identity.insert("program".into(), program().into());
    identity
}

/// The files that shards left, in order.
fn origins(shards: &Path) -> Result<Vec<PathBuf>, ExperimentError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(shards)?;
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        Ok(paths)
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| ExperimentError::Io { path: shards.into(), error }),
    }
}
