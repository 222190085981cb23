//! Task files: made from a plan, and shown.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use incrowd_node::{Limits, load_task};
use incrowd_privacy::certify;
use incrowd_protocol::{
    Mechanism, PolicyConfig, ProtocolError, Task, TaskConfig, VerificationKey, VerificationKeys,
};

use crate::moment;

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
    let keys = VerificationKeys { shuffler: shuffler_key, bandit: bandit_key };
    let text = fs::read_to_string(plan).map_err(|error| format!("{}: {error}", plan.display()))?;
    let config: TaskConfig = toml::from_str(&text)?;
    let policy = PolicyConfig { plain_reports, ..(*config.policy()).into() }.check()?;
    let task = Task::new(config.with_policy(policy)?, keys);
    out!("{}", moment::annotated(&toml::to_string(&task)?, task.mechanism()).trim_end());
    eprintln!("task {}", task.id());
    Ok(())
}

pub fn show(file: &Path) -> Result<(), Box<dyn Error>> {
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
