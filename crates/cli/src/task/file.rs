//! Task files: made from a plan, and shown.

use std::{error::Error, path::PathBuf};

use clap::Args;
use incrowd_envelope::check_key;
use incrowd_node::{Files, Limits, TaskFile};
use incrowd_privacy::certify;
use incrowd_protocol::{
    Mechanism, PolicyConfig, ProtocolError, Task, VerificationKey, VerificationKeys,
};

use crate::{moment, print::wrapped};

/// Instead of the id of a task without keys.
const NO_ID: &str = "task     (its id is not known yet: it follows from the keys too. `incrowd serve` completes the file with its own and prints the id; for two operators `incrowd task new` does.)";

/// Complete a planner's file with the public keys of the two roles: the task that both serve
/// and devices pin.
///
/// Example: incrowd task new --plan plan.toml --shuffler-key HEX --bandit-key HEX > task.toml
#[derive(Args)]
pub struct NewArguments {
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
}

pub fn new(arguments: &NewArguments) -> Result<(), Box<dyn Error>> {
    let &NewArguments { ref plan, shuffler_key, bandit_key, plain_reports } = arguments;
    for (flag, role, key) in
        [("--shuffler-key", "shuffler", shuffler_key), ("--bandit-key", "bandit", bandit_key)]
    {
        check_key(&key).map_err(|_| {
            format!(
                "{flag} is {key}, must be the verification key of a {role}\nhint: its operator has it from `incrowd keys show --role {role}`"
            )
        })?;
    }
    if shuffler_key == bandit_key {
        return Err("--shuffler-key and --bandit-key are the same, must be keys of two roles\nhint: `incrowd keys show --role shuffler` and `--role bandit` print them".into());
    }
    let keys = VerificationKeys { shuffler: shuffler_key, bandit: bandit_key };
    let TaskFile::Plan(config) = TaskFile::read(plan)? else {
        let plan = plan.display();
        return Err(format!(
            "{plan} has [keys] already\nhint: give the file that `incrowd plan --task-file` wrote"
        )
        .into());
    };
    let policy = PolicyConfig { plain_reports, ..(*config.policy()).into() }.check()?;
    let task = Task::new(config.with_policy(policy)?, keys);
    out!("{}", moment::annotated(&toml::to_string(&task)?, task.mechanism()).trim_end());
    eprintln!("task {}", task.id());
    Ok(())
}

/// What a task file promises, and whether it is within the default limits.
#[derive(Args)]
pub struct ShowArguments {
    /// The file, or the id of a task that was served from the data folder.
    file: PathBuf,
    /// Data folder whose keys complete a planner's file.
    #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
    data: PathBuf,
}

pub fn show(arguments: &ShowArguments) -> Result<(), Box<dyn Error>> {
    let ShowArguments { file, data } = arguments;
    let files = Files::of(data);
    let path = files.task_file(file)?;
    let completed = matches!(TaskFile::read(&path)?, TaskFile::Plan(_));
    let config = match files.read_task(&path)? {
        TaskFile::Task(task) => {
            out!("task {}", task.id());
            out!("shuffler {}", task.keys().shuffler);
            out!("bandit   {}", task.keys().bandit);
            if completed {
                out!("         (the file has no keys; these are those in {})", data.display());
            }
            task.config().clone()
        }
        TaskFile::Plan(config) => {
            out!("{}", wrapped(NO_ID));
            config
        }
    };
    let sealed = if config.policy().plain_reports() { "sealed or plain" } else { "sealed" };
    out!("reports  {sealed}");
    out!("{}", rounds(config.mechanism())?);
    out!("{}", wrapped(&certify(config.mechanism())?.to_string()));
    match Limits::default().admit_mechanism(config.mechanism()) {
        Ok(_) => out!("Within the default limits."),
        Err(error) => out!("{}", wrapped(&format!("Beyond the default limits: {error}"))),
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
