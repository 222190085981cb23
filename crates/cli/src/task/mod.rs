//! `incrowd task`: task files, running tasks, and what is left of them.

mod backup;
mod export;
mod file;
mod moving;
mod purge;
mod running;

use std::{error::Error, process::ExitCode};

use clap::{Args, Subcommand};

use crate::uplift;

/// Task files, running tasks, exports, backups, and moves to other stores.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(file::NewArguments),
    Show(file::ShowArguments),
    /// The tasks of a running service and how far they are.
    List(running::Admin),
    /// End a task for good: its unfinished batch is destroyed, never released.
    Close {
        #[command(flatten)]
        admin: running::Admin,
        /// The task's id, or as much of its beginning as no other task has.
        task: String,
        /// Do it without asking.
        #[arg(long)]
        yes: bool,
    },
    Export(export::Arguments),
    Uplift(uplift::Arguments),
    Backup(backup::BackupArguments),
    Restore(backup::RestoreArguments),
    Move(moving::MoveArguments),
    Purge(purge::PurgeArguments),
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Command::New(arguments) => file::new(arguments)?,
        Command::Show(arguments) => file::show(arguments)?,
        Command::List(admin) => running::list(admin)?,
        Command::Close { admin, task, yes } => running::close(admin, task, *yes)?,
        Command::Export(arguments) => export::run(arguments)?,
        Command::Uplift(arguments) => uplift::run(arguments)?,
        Command::Backup(arguments) => backup::back_up(arguments)?,
        Command::Restore(arguments) => backup::restore(arguments)?,
        Command::Move(arguments) => moving::run(arguments)?,
        Command::Purge(arguments) => purge::purge(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
