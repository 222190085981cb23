//! Copies of a data folder's stores, and putting them back.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use incrowd_node::{
    Files, Heads, StoreError,
    store::{SqliteShufflerStore, backup, verify},
};
use incrowd_protocol::TaskId;

/// Copy the stores of a data folder, also while the services run: a consistent state of one
/// moment. Keys and tokens are not copied.
#[derive(Args)]
pub struct BackupArguments {
    /// Data folder.
    #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
    data: PathBuf,
    /// New folder for the copies.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// Put a backup in the place of missing stores. Restore shuffler and bandit from the same
/// backup, or the bandit alone from nothing: it collects all releases again.
#[derive(Args)]
pub struct RestoreArguments {
    /// Data folder, without stores.
    #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
    data: PathBuf,
    /// Folder with the copies.
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// The file `shuffler.heads` of the service; `heads.json` in the data folder by default.
    #[arg(long, value_name = "FILE")]
    heads: Option<PathBuf>,
    /// Restore a backup although releases were made after it: reports that were counted since
    /// then can be counted again, and rounds that the bandit has be released a second time.
    #[arg(long)]
    accept_rollback: bool,
}

pub fn back_up(arguments: &BackupArguments) -> Result<(), Box<dyn Error>> {
    let BackupArguments { data, to } = arguments;
    fs::create_dir_all(to)?;
    copy(&Files::of(data), &Files::of(to))
}

pub fn restore(arguments: &RestoreArguments) -> Result<(), Box<dyn Error>> {
    let RestoreArguments { data, from, heads, accept_rollback } = arguments;
    fs::create_dir_all(data)?;
    let (from, to) = (Files::of(from), Files::of(data));
    for (from, to) in stores(&from, &to) {
        if to.exists() {
            return Err(format!("{} exists: move it away first", to.display()).into());
        }
        if from.exists() {
            verify(from)?;
        }
    }
    let heads = heads.as_ref().unwrap_or(&to.heads);
    let behind = behind(&from, heads)?;
    if let (Some((_, error)), false) = (behind.first(), *accept_rollback) {
        return Err(format!(
            "{error}\nhint: --accept-rollback restores it all the same: reports that were counted since the backup can then be counted again"
        )
        .into());
    }
    copy(&from, &to)?;
    accept(heads, &behind)
}

/// The tasks of which a backup does not have the last release that is known, and why.
fn behind(from: &Files, heads: &Path) -> Result<Vec<(TaskId, StoreError)>, Box<dyn Error>> {
    let heads = Heads::load(heads)?;
    if !from.shuffler_store.exists() {
        return Ok(Vec::new());
    }
    let store = SqliteShufflerStore::inspect(&from.shuffler_store)?;
    let mut behind = Vec::new();
    for task in heads.tasks() {
        match heads.check(&store, &task) {
            Ok(()) => {}
            Err(error @ StoreError::WentBack(_)) => behind.push((task, error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(behind)
}

/// Forgets what is known of tasks that went back with the operator's consent.
fn accept(heads: &Path, behind: &[(TaskId, StoreError)]) -> Result<(), Box<dyn Error>> {
    let mut heads = Heads::load(heads)?;
    for (task, _) in behind {
        let last = heads.get(task).map_or(0, |last| last.round);
        heads.forget(task);
        eprintln!(
            "task {task}: releases up to round {last} were made, the backup has fewer. Reports counted since then can be counted again. The bandit of this task must begin anew too: delete its store, or it refuses this shuffler"
        );
    }
    Ok(heads.save()?)
}

fn stores<'a>(from: &'a Files, to: &'a Files) -> [(&'a PathBuf, &'a PathBuf); 2] {
    [(&from.shuffler_store, &to.shuffler_store), (&from.bandit_store, &to.bandit_store)]
}

/// The bandit first: a shuffler that is a little ahead is what a bandit expects.
fn copy(from: &Files, to: &Files) -> Result<(), Box<dyn Error>> {
    let mut found = false;
    for (from, to) in stores(from, to).into_iter().rev() {
        if from.exists() {
            backup(from, to)?;
            out!("{}", to.display());
            found = true;
        }
    }
    if found { Ok(()) } else { Err("there is no store in the folder".into()) }
}
