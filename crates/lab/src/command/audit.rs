//! `incrowd-lab audit`: the real code against its certificate.

use std::{error::Error, process::ExitCode};

use clap::{Args, ValueEnum};
use incrowd_lab::{
    audit::{AuditConfig, AuditReport, Side, word_epsilon},
    experiment::ClosedBy,
};
use incrowd_planner::ClosingRule;
use incrowd_privacy::{
    central::{self, Presence, Setting},
    certify, format_epsilon, local,
};
use incrowd_protocol::{
    BatchSize, Bits, CodebookLaw, Delta, Dimension, FlipProbability, Keep, Law, OutsideProbability,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Output;

/// Attack the real device and shuffler, and compare with what is certified.
///
/// A certificate is an upper bound on epsilon from a proof; an audit is a lower bound from runs
/// (Clopper-Pearson, valid with the stated probability). The worst pairs of inputs are searched,
/// then the real code is run many times on each. A lower bound above the certificate, a release
/// that is not of the stated number of people, or coins without the stated law mean that the code
/// is not what the proof is about: the exit code is 1.
///
/// Codebook reports: every seed is expanded by the auditor's own code, and the rank of the word
/// sent must have the stated law.
///
/// Examples: incrowd-lab audit --dimension 1 --keep 0.8 --batch-size 50 --delta 1e-4; incrowd-lab
/// audit --encoding codebook --dimension 2 --words 64 --chosen 8 --outside 0.2 --runs 100000
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    /// Dimension of the contexts (d), 1 to 20.
    #[arg(long, default_value_t = 1)]
    dimension: u32,
    /// How reports are randomized.
    #[arg(long, value_enum, default_value_t = Encoding::Bits)]
    encoding: Encoding,
    /// Bits per coordinate (m); 1 if not given.
    #[arg(long)]
    bits: Option<u32>,
    /// Probability that a bit is kept (c = 1 - p); 0.8 if not given.
    #[arg(long)]
    keep: Option<f64>,
    /// Words of a codebook (N), 2 to 256; 64 if not given.
    #[arg(long)]
    words: Option<u32>,
    /// Words that a person's statistic picks (k), 1 to N/2; 8 if not given.
    #[arg(long)]
    chosen: Option<u32>,
    /// Probability that the word sent is none of those; 0.2 if not given.
    #[arg(long)]
    outside: Option<f64>,
    /// Share of the statistic's squared norm that the moment may have, in 256ths; 128 if not given.
    #[arg(long)]
    moment_weight: Option<u32>,
    /// Certified epsilon of one release, of words, instead of computing it.
    #[arg(long, value_name = "EPSILON")]
    certified_central: Option<f64>,
    /// Reports in a batch (l).
    #[arg(long, default_value_t = 50)]
    batch_size: u32,
    /// What closes a batch: its last report, or the clock; then the attack is also on whether a
    /// person reports.
    #[arg(long, value_enum, default_value_t = ClosingRule::Count)]
    closes: ClosingRule,
    /// Delta of the central guarantee.
    #[arg(long, default_value_t = 1e-4)]
    delta: f64,
    /// Runs with each of the two inputs.
    #[arg(long, default_value_t = 1_000_000)]
    runs: u64,
    /// Probability that correct code is accused.
    #[arg(long, default_value_t = 1e-6)]
    failure_probability: f64,
    /// Everything random comes from this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let audit = config(arguments)?.check()?;
    let bar = ProgressBar::new(1).with_style(ProgressStyle::with_template(
        "{bar:40} {human_pos}/{human_len} runs, {eta} left",
    )?);
    let report = audit.run(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    match arguments.output {
        Output::Text => print_text(&report),
        Output::Json => out!("{:#}", serde_json::to_value(&report)?),
    }
    Ok(if report.violated() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// How reports are randomized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// Randomized bits.
    Bits,
    /// Words of a random codebook.
    Codebook,
}

fn config(arguments: &Arguments) -> Result<AuditConfig, Box<dyn Error>> {
    let closes = match arguments.closes {
        ClosingRule::Count => ClosedBy::Count,
        ClosingRule::Time => ClosedBy::Time,
    };
    let config = |law| AuditConfig {
        dimension: arguments.dimension,
        law,
        batch_size: arguments.batch_size,
        closes,
        certified_local: 0.0,
        certified_central: 0.0,
        delta: arguments.delta,
        runs: arguments.runs,
        failure_probability: arguments.failure_probability,
        seed: arguments.seed,
    };
    let of_bits = [arguments.bits.is_some(), arguments.keep.is_some()];
    let of_words = [
        arguments.words.is_some(),
        arguments.chosen.is_some(),
        arguments.outside.is_some(),
        arguments.moment_weight.is_some(),
        arguments.certified_central.is_some(),
    ];
    match arguments.encoding {
        Encoding::Bits if of_words.contains(&true) => {
            Err("--words, --chosen, --outside, --moment-weight and --certified-central are for --encoding codebook".into())
        }
        Encoding::Codebook if of_bits.contains(&true) => {
            Err("--bits and --keep are for --encoding bits".into())
        }
        Encoding::Bits => with_bits(arguments, config),
        Encoding::Codebook => with_words(arguments, config),
    }
}

fn with_bits(
    arguments: &Arguments,
    config: impl FnOnce(Law) -> AuditConfig,
) -> Result<AuditConfig, Box<dyn Error>> {
    let (bits, keep) = (arguments.bits.unwrap_or(1), arguments.keep.unwrap_or(0.8));
    let flip = FlipProbability::from_keep(keep)
        .map_err(|_| format!("keep is {keep}, must be above 1e-9 and below 1"))?;
    let keep = Keep::new(flip.keep().next_up())?;
    let size = BatchSize::new(u64::from(arguments.batch_size))?;
    let (d, m) = (Dimension::new(arguments.dimension)?, Bits::new(bits)?);
    let presence = match arguments.closes {
        ClosingRule::Count => Presence::Fixed,
        ClosingRule::Time => Presence::Free,
    };
    let setting = Setting::new(d, m, keep, size, Delta::new(arguments.delta)?);
    let setting = Setting { presence, ..setting };
    Ok(AuditConfig {
        certified_local: local::certify(d, m, keep).epsilon,
        certified_central: central::certify(&setting)?.epsilon,
        ..config(Law::bits(bits, flip))
    })
}

fn with_words(
    arguments: &Arguments,
    config: impl FnOnce(Law) -> AuditConfig,
) -> Result<AuditConfig, Box<dyn Error>> {
    let outside = arguments.outside.unwrap_or(0.2);
    let law = CodebookLaw {
        words: arguments.words.unwrap_or(64),
        chosen: arguments.chosen.unwrap_or(8),
        outside: OutsideProbability::from_keep(1.0 - outside)
            .map_err(|_| format!("outside is {outside}, must be above 0 and below 1"))?,
        moment_weight: arguments.moment_weight.unwrap_or(128),
    };
    let config = config(Law::Codebook(law));
    let (certified_local, certified_central) = match arguments.certified_central {
        Some(central) => (word_epsilon(law), central),
        None => {
            let certificate = certify(&config.mechanism()?)?;
            (certificate.epsilon_local(), certificate.epsilon_central())
        }
    };
    Ok(AuditConfig { certified_local, certified_central, ..config })
}

fn print_text(report: &AuditReport) {
    out!("                    lower bound       best attack       certified");
    out!("                      from runs    on paper, exact     upper bound");
    print_side("one report", &report.local);
    print_side("one release", &report.central);
    if let Some(presence) = &report.presence {
        print_side("there or not", presence);
    }
    out!(
        "(delta of a release {:e}; correct code is accused with probability at most {:e})",
        report.delta,
        report.failure_probability
    );
    for violation in &report.structure {
        out!("violated: {violation}");
    }
    out!(
        "{}",
        if report.violated() {
            "the code is not what the certificate is about"
        } else {
            "no violation found"
        }
    );
}

fn print_side(name: &str, side: &Side) {
    let exact = side.exact_for_pair.map_or_else(|| "-".into(), |epsilon| format!("{epsilon:.4}"));
    let mark = if side.violated { "  VIOLATED" } else { "" };
    out!(
        "{name:<18} {:>12.4} {exact:>18} {:>15}{mark}",
        side.lower,
        format_epsilon(side.certified)
    );
}
