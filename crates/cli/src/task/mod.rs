//! `incrowd task`: task files, running tasks, and what is left of them.

mod backup;
mod export;
mod file;
mod purge;
mod running;

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use incrowd_protocol::TaskId;

use crate::uplift;

/// Task files, running tasks, exports and backups.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(file::NewArguments),
    /// What a task file promises, and whether it is within the default limits.
    Show {
        /// The file.
        file: PathBuf,
    },
    /// The tasks of a running service and how far they are.
    List(running::Admin),
    /// End a task for good: its unfinished batch is destroyed, never released.
    Close {
        #[command(flatten)]
        admin: running::Admin,
        /// The task's id.
        task: TaskId,
    },
    Export(export::Arguments),
    Uplift(uplift::Arguments),
    Backup(backup::BackupArguments),
    Restore(backup::RestoreArguments),
    Purge(purge::PurgeArguments),
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Command::New(arguments) => file::new(arguments)?,
        Command::Show { file } => file::show(file)?,
        Command::List(admin) => running::list(admin)?,
        Command::Close { admin, task } => running::close(admin, task)?,
        Command::Export(arguments) => export::run(arguments)?,
        Command::Uplift(arguments) => uplift::run(arguments)?,
        Command::Backup(arguments) => backup::back_up(arguments)?,
        Command::Restore(arguments) => backup::restore(arguments)?,
        Command::Purge(arguments) => purge::purge(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
