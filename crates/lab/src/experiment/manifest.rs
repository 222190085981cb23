//! What is needed to run an experiment again, and what was proved about it.

use std::{io::Write, path::Path};

use serde_json::{Value, json};

use incrowd_sim::Source;

use super::{Experiment, ExperimentError, file};

/// Writes `manifest.json`. No time of day and no duration: the same experiment writes the same
/// bytes.
pub(super) fn write(
    directory: &Path,
    experiment: &Experiment,
    command: &str,
    seeds: &[u64],
    results: &[Value],
) -> Result<(), ExperimentError> {
    let config = experiment.config();
    let fingerprint = |source: &Source| (source.name().to_owned(), source.fingerprint().to_owned());
    let environments: Vec<(String, String)> =
        experiment.sources().iter().map(fingerprint).collect();
    let manifest = json!({
        "name": config.name,
        "version": env!("CARGO_PKG_VERSION"),
        "command": command,
        "delta": config.delta,
        "experiment": config,
        "environments": environments,
        "seeds": seeds.iter().map(u64::to_string).collect::<Vec<_>>(),
        "results": results,
    });
    let path = directory.join("manifest.json");
    file::replace(&path, |file| writeln!(file, "{manifest:#}"))
}
