//! Moving tasks of a stopped service to other stores.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use clap::Args;
use incrowd_node::{Files, Layers, NodeConfig, move_task};
use incrowd_protocol::TaskId;
use serde_json::json;

use crate::confirm::confirm;

/// Move tasks of a stopped service to other stores: from SQLite to a PostgreSQL database that
/// several nodes share, or back. Counts go on where they stopped, and nothing counts in both.
///
/// Both files have the settings of the same service, with another `store` (and another `data`
/// folder, or `shuffler.round_keys`, if you like). Stop the service first. The old store keeps a
/// mark, so that a service with the old settings does not count the task again; a task that has
/// nothing else there can be moved back. If this is interrupted, do it again.
///
/// Example: incrowd task move --from incrowd.toml --to nodes.toml
#[derive(Args)]
pub struct MoveArguments {
    /// Settings of the service as it was.
    #[arg(long, value_name = "TOML")]
    from: PathBuf,
    /// Settings of the service as it will be.
    #[arg(long, value_name = "TOML")]
    to: PathBuf,
    /// Only this task, by its id; otherwise all that the first file names.
    #[arg(long, value_name = "ID")]
    task: Option<TaskId>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

pub fn run(arguments: &MoveArguments) -> Result<(), Box<dyn Error>> {
    let (from, to) = (settings(&arguments.from)?, settings(&arguments.to)?);
    let files = Files::of(&from.data);
    let tasks = from.tasks.iter().map(|path| files.task(path)).collect::<Result<Vec<_>, _>>()?;
    let chosen: Vec<_> = tasks
        .iter()
        .filter(|task| arguments.task.is_none_or(|chosen| task.id() == chosen))
        .collect();
    if chosen.is_empty() {
        let name = arguments.from.display();
        return Err(match arguments.task {
            Some(task) => format!("{name} names no task {task} (tasks = [...])"),
            None => format!("{name} names no task (tasks = [...])"),
        }
        .into());
    }
    let them = if chosen.len() == 1 { "the task" } else { "the tasks" };
    confirm(
        &format!("{them} can only be served with {} afterwards", arguments.to.display()),
        arguments.yes,
    )?;
    for task in chosen {
        out!("task {}: {}", task.id(), move_task(&from, &to, task)?);
    }
    Ok(())
}

/// Those of a file alone: variables and flags would be those of both.
fn settings(path: &Path) -> Result<NodeConfig, Box<dyn Error>> {
    Ok(Layers::new(Some(path), [], &json!({}))?.config()?)
}
