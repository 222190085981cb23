//! The one binary of incrowd. Data goes to stdout, talk to stderr.

/// Prints a line of data; quietly stops when nobody reads any more (`incrowd plan | head`).
macro_rules! out {
    ($($argument:tt)*) => { $crate::print_line(format_args!($($argument)*)) };
}

mod audit;
mod certify;
mod demo;
mod figures;
mod plan;
mod plot;
mod simulate;

use std::{
    fmt,
    io::{self, Write},
    process::{self, ExitCode},
};

use clap::{Parser, Subcommand, ValueEnum};

/// Personalization that hides in the crowd.
///
/// Devices choose their action locally from a published model and send one randomized report; a shuffler releases only sums over full
/// batches; a bandit turns the sums into the next model. See `docs/design.md`.
#[derive(Parser)]
#[command(name = "incrowd", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Audit(audit::Arguments),
    Certify(certify::Arguments),
    Demo(demo::Arguments),
    Figures(figures::Arguments),
    Plan(Box<plan::Arguments>),
    Simulate(Box<simulate::Arguments>),
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
    let result = match Arguments::parse().command {
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Certify(arguments) => certify::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

fn print_line(line: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        if error.kind() == io::ErrorKind::BrokenPipe {
            process::exit(0);
        }
        eprintln!("error: stdout: {error}");
        process::exit(2);
    }
}
