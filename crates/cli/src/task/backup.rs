//! Copies of a data folder, and putting them back, on another machine too.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use incrowd_files::create_folder;
use incrowd_node::{
    Files, Heads, KeyRole, Passphrase, Secrets, StoreError,
    store::{SqliteShufflerStore, backup, verify},
};
use incrowd_protocol::TaskId;

/// The secrets of a backup, under a passphrase.
const SECRETS: &str = "secrets.incrowd";

/// Copy a data folder, also while the services run: its stores in a consistent state of one
/// moment, the tasks that were served, and with a passphrase the secrets: keys, hashes of tokens,
/// tokens that were not handed over yet.
///
/// To move to another machine, stop the service first, and never start it again where it was.
///
/// Example: incrowd task backup --data incrowd-data --to backup --passphrase-file passphrase
#[derive(Args)]
pub struct BackupArguments {
    /// Data folder.
    #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
    data: PathBuf,
    /// New folder for the copies.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// File with the passphrase of the secrets, - for the standard input. Without it keys and
    /// tokens are not in the backup.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// Put a backup in the place of missing files. Restore shuffler and bandit from the same backup,
/// or the bandit alone from nothing: it collects all releases again.
///
/// Example: incrowd task restore --data incrowd-data --from backup --passphrase-file passphrase
#[derive(Args)]
pub struct RestoreArguments {
    /// Data folder, without what is restored.
    #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
    data: PathBuf,
    /// Folder with the copies.
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// File with the passphrase of the secrets, - for the standard input. Without it only the
    /// stores and tasks are restored.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// The file `shuffler.heads` of the service; `heads.json` in the data folder by default.
    #[arg(long, value_name = "FILE")]
    heads: Option<PathBuf>,
    /// Restore a backup although releases were made after it: reports that were counted since
    /// then can be counted again, and rounds that the bandit has be released a second time.
    #[arg(long)]
    accept_rollback: bool,
}

pub fn back_up(arguments: &BackupArguments) -> Result<(), Box<dyn Error>> {
    let BackupArguments { data, to, passphrase_file } = arguments;
    let (data, to) = (Files::of(data), Files::of(to));
    let (stores, tasks) = (stores(&data, &to)?, tasks(&data, &to)?);
    let sealed = to.data.join(SECRETS);
    let mut secrets = None;
    if let Some(path) = passphrase_file {
        let (passphrase, found) = (Passphrase::read(path)?, Secrets::of(&data)?);
        secrets = Some((found.seal(&passphrase)?, found));
        absent(&sealed)?;
    }
    create_folder(&to.data).map_err(failed(&to.data))?;
    copy(&stores, &tasks, &to)?;
    match secrets {
        Some((bytes, found)) => {
            incrowd_files::create(&sealed, &bytes)
                .map_err(|error| format!("{}: {error}", sealed.display()))?;
            out!("{}", sealed.display());
            let names: Vec<_> = found.names().collect();
            eprintln!("the secrets under the passphrase: {}", names.join(", "));
        }
        None => eprintln!(
            "WARNING: keys and tokens are NOT in this backup: without {} it cannot be served. --passphrase-file adds them",
            names(&data.secrets())
        ),
    }
    tell_open_round(&data);
    Ok(())
}

pub fn restore(arguments: &RestoreArguments) -> Result<(), Box<dyn Error>> {
    let RestoreArguments { data, from, passphrase_file, heads, accept_rollback } = arguments;
    let (from, to) = (Files::of(from), Files::of(data));
    // Everything that can be wrong, before the first file is written.
    let (stores, tasks) = (stores(&from, &to)?, tasks(&from, &to)?);
    stores.iter().try_for_each(|(from, _)| verify(from))?;
    let sealed = from.data.join(SECRETS);
    let mut secrets = None;
    if let Some(path) = passphrase_file {
        let opened = Secrets::open(&sealed, &Passphrase::read(path)?)?;
        opened.places(&to, &sealed)?.iter().try_for_each(|path| absent(path))?;
        secrets = Some(opened);
    }
    let heads = heads.as_ref().unwrap_or(&to.heads);
    let behind = behind(&from, heads)?;
    if let (Some((_, error)), false) = (behind.first(), *accept_rollback) {
        return Err(format!(
            "{error}\nhint: --accept-rollback restores it all the same: reports that were counted since the backup can then be counted again"
        )
        .into());
    }
    create_folder(&to.data).map_err(failed(&to.data))?;
    // The secrets last: stores without keys are refused, but keys without stores would begin their
    // tasks anew.
    copy(&stores, &tasks, &to)?;
    match secrets {
        Some(secrets) => {
            secrets.write(&to, &sealed)?;
            secrets.names().for_each(|name| out!("{}", to.data.join(name).display()));
        }
        None if sealed.exists() => {
            eprintln!("the secrets stay in {}: --passphrase-file opens them", sealed.display());
        }
        None => {}
    }
    accept(heads, &behind)?;
    tell_missing_keys(&to);
    tell_open_round(&to);
    Ok(())
}

/// What a backup does not have by design.
fn tell_open_round(files: &Files) {
    if files.shuffler_store.exists() {
        eprintln!(
            "the key of the open round is in no backup: where shuffler.round_keys does not have it, that round begins anew, its acknowledged reports are discarded, and a task with grace needs shuffler.accept_lost_round_keys = true"
        );
    }
}

/// Those of the files that are there.
fn names(files: &[(String, PathBuf)]) -> String {
    let there = files.iter().filter(|(_, path)| path.exists());
    there.map(|(_, path)| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Says why stores without keys are not served.
fn tell_missing_keys(files: &Files) {
    for (role, store) in
        [(KeyRole::Shuffler, &files.shuffler_store), (KeyRole::Bandit, &files.bandit_store)]
    {
        let keys = files.keys(role);
        if store.exists() && !keys.exists() {
            eprintln!(
                "WARNING: {} is missing: its service refuses to start, because new keys would be another service. Put the file there",
                keys.display()
            );
        }
    }
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

/// From where to where.
type Copies = Vec<(PathBuf, PathBuf)>;

/// The stores to copy. The bandit's first: a shuffler that is a little ahead is what a bandit
/// expects.
fn stores(from: &Files, to: &Files) -> Result<Copies, Box<dyn Error>> {
    let pairs =
        [(&from.bandit_store, &to.bandit_store), (&from.shuffler_store, &to.shuffler_store)];
    let mut copies = Vec::new();
    for (from, to) in pairs.into_iter().filter(|(from, _)| from.exists()) {
        absent(to)?;
        copies.push((from.clone(), to.clone()));
    }
    if copies.is_empty() {
        return Err(format!(
            "there is no store in the folder {}\nhint: with store = \"postgres://...\" the stores are in the database, which has tools for backups of its own: docs/scale-out.md, Backups",
            from.data.display()
        )
        .into());
    }
    Ok(copies)
}

/// The files of tasks to copy: those that are not there yet.
fn tasks(from: &Files, to: &Files) -> Result<Copies, Box<dyn Error>> {
    let mut copies = Vec::new();
    if !from.tasks.exists() {
        return Ok(copies);
    }
    for entry in fs::read_dir(&from.tasks)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let place = to.tasks.join(name);
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        if !place.exists() {
            copies.push((path, place));
        } else if fs::read(&place)? != fs::read(&path)? {
            return Err(format!("{} is another task: move it away first", place.display()).into());
        }
    }
    Ok(copies)
}

fn absent(path: &Path) -> Result<(), Box<dyn Error>> {
    if !path.exists() {
        return Ok(());
    }
    Err(format!("{} exists: move it away first", path.display()).into())
}

fn copy(stores: &Copies, tasks: &Copies, to: &Files) -> Result<(), Box<dyn Error>> {
    for (from, to) in stores {
        backup(from, to)?;
        out!("{}", to.display());
    }
    create_folder(&to.tasks).map_err(failed(&to.tasks))?;
    for (from, to) in tasks {
        let bytes = fs::read(from).map_err(failed(from))?;
        incrowd_files::create(to, &bytes).map_err(failed(to))?;
        out!("{}", to.display());
    }
    Ok(())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}
