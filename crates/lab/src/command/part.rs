//! `incrowd-lab simulate --shard i/n --phase ...`: an experiment on several machines.

use std::path::Path;

use clap::{Args, ValueEnum};
use incrowd_lab::experiment::{Part, Phase, Shard, Work};
use serde_json::json;

use crate::Output;

/// Heading of the flags.
const CLUSTER: &str = "On several machines";

/// Which part of an experiment is run.
#[derive(Debug, Clone, Copy, Args)]
pub struct PartArguments {
    /// Run only the i-th of n shards of one phase and write no tables; 1 <= i <= n <= 1000000.
    #[arg(long, value_name = "I/N", help_heading = CLUSTER)]
    shard: Option<Shard>,
    /// Phase that is run; with --shard run if not given, without --shard all of it.
    #[arg(long, value_enum, help_heading = CLUSTER)]
    phase: Option<PhaseName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PhaseName {
    /// What is tried to find the best exploration; nothing without tuning.
    Tune,
    /// The runs that count; all of the tuning phase must be in --out before.
    Run,
}

impl PartArguments {
    /// The part asked for; none if it is the whole experiment.
    pub fn part(self) -> Option<Part> {
        let phase = match self.phase {
            Some(PhaseName::Tune) => Phase::Tune,
            Some(PhaseName::Run) => Phase::Run,
            None => {
                self.shard?;
                Phase::Run
            }
        };
        Some(Part { phase, shard: self.shard.unwrap_or(Shard::WHOLE) })
    }
}

/// The same command for the whole tuning phase.
pub fn tuning_command(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--shard" | "--phase" => {
                words.next();
            }
            _ if word.starts_with("--shard=") || word.starts_with("--phase=") => {}
            _ => kept.push(word),
        }
    }
    kept.extend(["--phase", "tune"].map(String::from));
    kept
}

/// Says what was done.
pub fn print(part: Part, work: Work, directory: &Path, output: Output) {
    let phase = match part.phase {
        Phase::Tune => "tune",
        Phase::Run => "run",
    };
    eprintln!(
        "phase {phase}, shard {}: {} plans and {} runs now, {} runs found finished; they are in {}",
        part.shard,
        work.planned,
        work.ran,
        work.reused,
        directory.display()
    );
    let next = match part.phase {
        Phase::Tune => "when all shards of this phase are in one folder, --phase run",
        Phase::Run => "when all shards are in one folder, the same without --shard and --phase",
    };
    eprintln!("hint: {next}");
    if output == Output::Json {
        let Work { planned, ran, reused } = work;
        let shard = part.shard.to_string();
        out!(
            "{}",
            json!({ "phase": phase, "shard": shard, "planned": planned, "ran": ran, "reused": reused })
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tuning_command_is_of_the_whole_phase() {
        let again = |text: &str| tuning_command(text.split(' ').map(String::from)).join(" ");
        let expected = "simulate e.toml --out d --phase tune";
        for text in [
            "simulate e.toml --shard 2/3 --out d",
            "simulate --phase run e.toml --out d --shard 2/3",
            "simulate e.toml --shard=2/3 --phase=run --out d",
        ] {
            assert_eq!(again(text), expected);
        }
    }
}
