//! `incrowd task`: task files, running tasks, and what is left of them.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use incrowd_node::{
    Files, Heads, Limits, StoreError, TaskStatus, load_task, read_token,
    store::{BanditStore, SqliteBanditStore, SqliteShufflerStore, backup, verify},
};
use incrowd_privacy::certify;
use incrowd_protocol::{
    Mechanism, PolicyConfig, ProtocolError, Task, TaskConfig, TaskId, VerificationKey,
    VerificationKeys, paths,
};
use incrowd_transport::{Address, Http, Method, Request, Trust};
use serde_json::json;

use crate::{moment, runtime, uplift};

/// Bytes that a list of tasks may have.
const LONGEST_LIST: usize = 16 << 20;

/// Task files, running tasks, exports and backups.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Complete a planner's file with the public keys of the two roles: the task that both serve
    /// and devices pin.
    ///
    /// Example: incrowd task new --plan plan.toml --shuffler-key HEX --bandit-key HEX > task.toml
    New {
        /// What `incrowd plan --task-file` wrote.
        #[arg(long, value_name = "TOML")]
        plan: PathBuf,
        /// Verification key of the shuffler (`incrowd keys new --role shuffler`).
        #[arg(long, value_name = "HEX")]
        shuffler_key: VerificationKey,
        /// Verification key of the bandit.
        #[arg(long, value_name = "HEX")]
        bandit_key: VerificationKey,
        /// Take reports also unsealed: then whoever carries them reads them.
        #[arg(long)]
        plain_reports: bool,
    },
    /// What a task file promises, and whether it is within the default limits.
    Show {
        /// The file.
        file: PathBuf,
    },
    /// The tasks of a running service and how far they are.
    List(Admin),
    /// End a task for good: its unfinished batch is destroyed, never released.
    Close {
        #[command(flatten)]
        admin: Admin,
        /// The task's id.
        task: TaskId,
    },
    /// Models, releases or privacy ledger of a task, a JSON object a line, also from a running
    /// bandit's store.
    Export {
        /// Data folder of the bandit.
        #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
        data: PathBuf,
        /// The task's file.
        #[arg(long, value_name = "TOML")]
        task: PathBuf,
        /// What.
        #[arg(value_enum)]
        what: Export,
    },
    Uplift(uplift::Arguments),
    /// Copy the stores of a data folder, also while the services run: a consistent state of one
    /// moment. Keys and tokens are not copied.
    Backup {
        /// Data folder.
        #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
        data: PathBuf,
        /// New folder for the copies.
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
    },
    /// Put a backup in the place of missing stores. Restore shuffler and bandit from the same
    /// backup, or the bandit alone from nothing: it collects all releases again.
    Restore {
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
    },
}

#[derive(Args)]
struct Admin {
    /// Base address of the admin listener.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8788")]
    admin: String,
    /// File with an admin token.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Export {
    /// Every published model.
    Models,
    /// Every release.
    Releases,
    /// For each release, what it was made with and what it may tell.
    Ledger,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Command::New { plan, shuffler_key, bandit_key, plain_reports } => {
            let keys = VerificationKeys { shuffler: *shuffler_key, bandit: *bandit_key };
            new(plan, keys, *plain_reports)?;
        }
        Command::Show { file } => show(file)?,
        Command::List(admin) => list(admin)?,
        Command::Close { admin, task } => {
            admin.ask(Method::POST, &paths::close(task))?;
            eprintln!("the task is closed, its unfinished batch destroyed");
        }
        Command::Export { data, task, what } => export(data, task, *what)?,
        Command::Uplift(arguments) => uplift::run(arguments)?,
        Command::Backup { data, to } => {
            fs::create_dir_all(to)?;
            copy(&Files::of(data), &Files::of(to))?;
        }
        Command::Restore { data, from, heads, accept_rollback } => {
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
            accept(heads, &behind)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn new(plan: &Path, keys: VerificationKeys, plain_reports: bool) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(plan).map_err(|error| format!("{}: {error}", plan.display()))?;
    let config: TaskConfig = toml::from_str(&text)?;
    let policy = PolicyConfig { plain_reports, ..(*config.policy()).into() }.check()?;
    let task = Task::new(config.with_policy(policy)?, keys);
    out!("{}", moment::annotated(&toml::to_string(&task)?, task.mechanism()).trim_end());
    eprintln!("task {}", task.id());
    Ok(())
}

fn show(file: &Path) -> Result<(), Box<dyn Error>> {
    let task = load_task(file, None)?;
    out!("task {}", task.id());
    out!("shuffler {}", task.keys().shuffler);
    out!("bandit   {}", task.keys().bandit);
    let sealed = if task.config().policy().plain_reports() { "sealed or plain" } else { "sealed" };
    out!("reports  {sealed}");
    out!("{}", rounds(task.mechanism())?);
    out!("{}", certify(task.mechanism())?.to_string().trim_end());
    match Limits::default().admit(&task) {
        Ok(_) => out!("Within the default limits."),
        Err(error) => out!("Beyond the default limits: {error}"),
    }
    Ok(())
}

/// What closes the batches, and when, in words.
fn rounds(mechanism: &Mechanism) -> Result<String, ProtocolError> {
    let schedule = mechanism.schedule();
    let last = schedule.last_round();
    let mut lines = Vec::new();
    match (mechanism.window(1)?, mechanism.window(last)?) {
        (Some(first), Some(end)) => {
            lines.push("rounds   close by time".to_owned());
            lines.push(format!("opens    {}", moment::words(first.opens)));
            lines.push(format!("ends     {}", moment::words(end.closes)));
        }
        _ => lines.push("rounds   close when they are full".to_owned()),
    }
    for stage in schedule.stages() {
        let (rounds, size) = (stage.rounds, stage.size);
        let many = if rounds == 1 { "round" } else { "rounds" };
        lines.push(match stage.window {
            Some(window) => {
                let window = moment::span(f64::from(window));
                format!("         {rounds} {many} of {window}, each filled up to {size} reports")
            }
            None => format!("         {rounds} {many} of {size} reports"),
        });
    }
    Ok(lines.join("\n"))
}

fn list(admin: &Admin) -> Result<(), Box<dyn Error>> {
    let tasks: Vec<TaskStatus> = serde_json::from_slice(&admin.ask(Method::GET, paths::TASKS)?)?;
    for status in tasks {
        let mut parts = Vec::new();
        match (status.closed, status.round, status.reports) {
            (Some(true), ..) => parts.push("closed".into()),
            (Some(false), Some(round), Some(reports)) => {
                parts.push(format!("round {round} with {reports} reports"));
                if let (Some(opens), Some(closes)) = (status.opens, status.closes) {
                    parts.push(window(opens, closes));
                }
            }
            (Some(false), None, _) => parts.push("finished".into()),
            _ => {}
        }
        if let (Some(absorbed), Some(model)) = (status.absorbed, status.model) {
            parts.push(format!("model {model} after {absorbed} rounds"));
        }
        out!("{}  {}", status.task, parts.join(", "));
    }
    Ok(())
}

/// When a round opens or closes, in seconds from now.
fn window(opens: u64, closes: u64) -> String {
    let now = moment::now();
    let seconds = |time: u64| time.saturating_sub(now).div_ceil(1000);
    let closes = format!("closes in {} s", seconds(closes));
    if now < opens { format!("opens in {} s, {closes}", seconds(opens)) } else { closes }
}

impl Admin {
    fn ask(&self, method: Method, path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let token = read_token(&self.token_file)?;
        let http = Http::new(Address::new(&self.admin, "admin address", true)?, &Trust::System)?;
        let request = Request::new(method, path).token(&token)?.limit(LONGEST_LIST);
        Ok(runtime()?.block_on(http.send(request))?.success()?.body)
    }
}

fn export(data: &Path, task: &Path, what: Export) -> Result<(), Box<dyn Error>> {
    let files = Files::of(data);
    let task = files.task(task)?;
    let store = SqliteBanditStore::inspect(&files.bandit_store)?;
    let line = |bytes: Vec<u8>| out!("{}", String::from_utf8_lossy(&bytes));
    match what {
        Export::Models => store.models(&task.id())?.into_iter().for_each(|model| line(model.bytes)),
        Export::Releases => {
            store.releases(&task.id())?.into_iter().for_each(|(_, bytes)| line(bytes));
        }
        Export::Ledger => {
            let certificate = certify(task.mechanism())?;
            let mut ends = 0;
            let stages: Vec<_> = certificate
                .rounds()
                .iter()
                .map(|certified| {
                    ends += certified.stage.rounds;
                    (ends, certified)
                })
                .collect();
            for (number, _) in store.releases(&task.id())? {
                let round = task.mechanism().round(number)?;
                let stage = stages.iter().find(|(end, _)| number <= *end).map(|(_, stage)| stage);
                out!(
                    "{}",
                    json!({
                        "round": number, "reports": round.size, "law": round.law,
                        "epsilon_local": stage.map(|stage| stage.epsilon_local),
                        "epsilon_central": stage.map(|stage| stage.epsilon_central),
                        "delta": certificate.delta(),
                    })
                );
            }
        }
    }
    Ok(())
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
