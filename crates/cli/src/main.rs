//! The product. Data goes to stdout, talk to stderr.

#[macro_use]
mod print;

mod certify;
mod confirm;
mod demo;
mod doctor;
mod features;
mod fit;
mod guarantee;
mod keys;
mod layout;
mod load;
mod moment;
mod plan;
mod plot;
mod progress;
mod relay;
mod served;
mod service;
mod task;
mod uplift;
mod written_numbers;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use incrowd_node::Roles;

/// Personalization that hides in the crowd.
///
/// Devices choose their action locally from a published model and send one randomized report; a
/// shuffler releases only sums over full batches; a bandit turns the sums into the next model. See
/// `docs/design.md`.
#[derive(Parser)]
#[command(name = "incrowd", version, max_term_width = print::WIDTH)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Collect releases and publish models.
    ///
    /// Needs its own keys (`incrowd keys new --role bandit`), a task file that names them (`incrowd
    /// task new`) and the token that the shuffler's operator made (`incrowd keys token --role
    /// bandit`). Its models can be rebuilt from the releases alone.
    ///
    /// Example: incrowd bandit --task task.toml --data bandit-data --listen 127.0.0.1:8797
    /// --admin-listen 127.0.0.1:8798 --shuffler-url http://127.0.0.1:8787 --token-file bandit.token
    Bandit(Box<service::Arguments>),
    Certify(certify::Arguments),
    /// Shell completions on stdout.
    ///
    /// Example: incrowd completions bash > /etc/bash_completion.d/incrowd
    Completions {
        /// Which shell.
        shell: Shell,
    },
    Config(service::ConfigArguments),
    Demo(demo::Arguments),
    Doctor(Box<doctor::Arguments>),
    Fit(fit::Arguments),
    Keys(keys::Arguments),
    Load(load::Arguments),
    Plan(Box<plan::Arguments>),
    Relay(relay::Arguments),
    /// Shuffler and bandit in one process: the quickest way to a running service.
    ///
    /// Makes its own keys and tokens in a new folder, and says in which files the tokens are: hand
    /// them over, then delete them. Takes what `incrowd plan --task-file` wrote. Who reads this
    /// machine's memory sees both sides: for the full guarantee let two operators run `incrowd
    /// shuffler` and `incrowd bandit`.
    ///
    /// Example: incrowd plan --dimension 5 --users-per-day 20000 --days 30 --central-epsilon 1
    /// --task-file task.toml && incrowd serve --task task.toml
    Serve(Box<service::Arguments>),
    /// Take reports and release sums of full batches.
    ///
    /// Needs its own keys (`incrowd keys new --role shuffler`), a task file that names them
    /// (`incrowd task new`) and tokens for its callers (`incrowd keys token`). Computes the
    /// certificate itself and refuses a task beyond its limits.
    ///
    /// Example: incrowd shuffler --task task.toml --data shuffler-data
    Shuffler(Box<service::Arguments>),
    Task(task::Arguments),
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people.
    Text,
    /// JSON on stdout.
    Json,
}

/// Exit codes: 0 as it should be, 1 the result is not good enough, 2 the request cannot be done.
fn main() -> ExitCode {
    let matches = written_numbers::read_by(Arguments::command()).try_get_matches();
    match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => run(arguments.command).unwrap_or_else(|error| {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }),
        Err(told) if told.use_stderr() => {
            // Where nobody can read it the exit code is left.
            let _ = told.print();
            ExitCode::from(2)
        }
        Err(help) => {
            let help = help.render();
            let styled = io::stdout().is_terminal();
            let help = if styled { help.ansi().to_string() } else { help.to_string() };
            print::bytes(help.as_bytes());
            ExitCode::SUCCESS
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match command {
        Command::Bandit(arguments) => service::run(&arguments, Roles::Bandit),
        Command::Certify(arguments) => certify::run(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "incrowd", &mut script);
            print::bytes(&script);
            Ok(ExitCode::SUCCESS)
        }
        Command::Config(arguments) => service::config(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Doctor(arguments) => Ok(doctor::run(&arguments)),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Relay(arguments) => relay::run(&arguments),
        Command::Serve(arguments) => service::run(&arguments, Roles::Both),
        Command::Shuffler(arguments) => service::run(&arguments, Roles::Shuffler),
        Command::Task(arguments) => task::run(&arguments),
    }
}

/// What runs the services and the calls to them.
fn runtime() -> Result<tokio::runtime::Runtime, Box<dyn std::error::Error>> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
