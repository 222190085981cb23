//! The laboratory's program. Data goes to stdout, talk to stderr.

/// Prints a line of data; ends quietly when nobody reads any more (`incrowd-lab audit | head`).
macro_rules! out {
    ($($argument:tt)*) => { $crate::print_line(format_args!($($argument)*)) };
}

mod command;

use std::{
    fmt,
    io::{self, Write},
    process::{self, ExitCode},
};

use clap::{Parser, Subcommand, ValueEnum};
use command::{audit, demo, evaluate, figures, simulate};

/// The laboratory of incrowd: compare private bandits, draw what came out, attack the real code.
///
/// Everything random comes from seeds, so every table can be made again to the last digit. The
/// product, which never takes a seed, is the program `incrowd`.
#[derive(Parser)]
#[command(name = "incrowd-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Audit(audit::Arguments),
    Demo(demo::Arguments),
    Evaluate(Box<evaluate::Arguments>),
    Figures(figures::Arguments),
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
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Evaluate(arguments) => evaluate::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
