//! Removing what a stopped service has of a task.

use std::error::Error;

use clap::Args;
use incrowd_node::Remains;
use incrowd_protocol::TaskId;

use crate::{confirm::confirm, service};

/// Remove everything that a stopped service has of a task, for good: sums, ids, releases, models,
/// the last release in `heads.json`, the keys of its rounds.
///
/// For a task that is over, or that was replaced by another plan. Devices that pin it must not be
/// served again: what was released once would be released a second time.
///
/// Example: incrowd task purge --config incrowd.toml ID
#[derive(Args)]
pub struct PurgeArguments {
    /// The task's id.
    #[arg(value_name = "ID")]
    id: TaskId,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    service: Box<service::Arguments>,
}

pub fn purge(arguments: &PurgeArguments) -> Result<(), Box<dyn Error>> {
    let PurgeArguments { id, yes, service } = arguments;
    let remains = Remains::open(&service.layers()?.config()?, *id)?;
    eprintln!("{remains}");
    eprintln!("Never serve this task again: what was released would be released a second time.");
    confirm(&format!("all that this service has of task {id} is removed"), *yes)?;
    remains.remove()?;
    eprintln!("the task is removed");
    Ok(())
}
