//! Removing what a stopped service has of a task.

use std::{
    error::Error,
    io::{self, IsTerminal},
};

use clap::Args;
use incrowd_node::Remains;
use incrowd_protocol::TaskId;

use crate::service;

/// Remove everything that a stopped service has of a task, for good: sums, ids, releases, models,
/// the last release in `heads.json`, the keys of its rounds.
///
/// For a task that is over, or that was replaced by another plan. Devices that pin it must not be
/// served again: what was released once would be released a second time.
///
/// Example: incrowd task purge --config incrowd.toml <ID>
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
    eprintln!("All of it is removed and cannot be brought back. Never serve this task again.");
    if !yes {
        confirm(id)?;
    }
    remains.remove()?;
    eprintln!("the task is removed");
    Ok(())
}

/// The operator types the beginning of the id.
fn confirm(id: &TaskId) -> Result<(), Box<dyn Error>> {
    if !io::stdin().is_terminal() {
        return Err("nothing is removed: give --yes where nobody can be asked".into());
    }
    let id = id.to_string();
    eprintln!("Type the first 8 digits of the id to remove it:");
    let mut typed = String::new();
    io::stdin().read_line(&mut typed)?;
    if typed.trim() == &id[..8] {
        return Ok(());
    }
    Err("nothing is removed: these are not the first 8 digits of the id".into())
}
