//! `incrowd-lab audit`: the real code against its certificate.

use std::{error::Error, process::ExitCode};

use clap::Args;
use incrowd_lab::{
    audit::{AuditConfig, AuditReport, Side},
    experiment::ClosedBy,
};
use incrowd_planner::ClosingRule;
use incrowd_privacy::{
    central::{self, Presence, Setting},
    format_epsilon, local,
};
use incrowd_protocol::{BatchSize, Bits, Delta, Dimension, FlipProbability, Keep};
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
/// Example: incrowd-lab audit --dimension 1 --keep 0.8 --batch-size 50 --delta 1e-4
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    /// Dimension of the contexts (d), 1 to 20.
    #[arg(long, default_value_t = 1)]
    dimension: u32,
    /// Bits per coordinate (m).
    #[arg(long, default_value_t = 1)]
    bits: u32,
    /// Probability that a bit is kept (c = 1 - p).
    #[arg(long, default_value_t = 0.8)]
    keep: f64,
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

fn config(arguments: &Arguments) -> Result<AuditConfig, Box<dyn Error>> {
    let flip = FlipProbability::from_keep(arguments.keep)
        .map_err(|_| format!("keep is {}, must be above 1e-9 and below 1", arguments.keep))?;
    let keep = Keep::new(flip.keep().next_up())?;
    let size = BatchSize::new(u64::from(arguments.batch_size))?;
    let (d, m) = (Dimension::new(arguments.dimension)?, Bits::new(arguments.bits)?);
    let (closes, presence) = match arguments.closes {
        ClosingRule::Count => (ClosedBy::Count, Presence::Fixed),
        ClosingRule::Time => (ClosedBy::Time, Presence::Free),
    };
    let setting = Setting::new(d, m, keep, size, Delta::new(arguments.delta)?);
    let setting = Setting { presence, ..setting };
    Ok(AuditConfig {
        dimension: arguments.dimension,
        bits: arguments.bits,
        flip,
        batch_size: arguments.batch_size,
        closes,
        certified_local: local::certify(d, m, keep).epsilon,
        certified_central: central::certify(&setting)?.epsilon,
        delta: arguments.delta,
        runs: arguments.runs,
        failure_probability: arguments.failure_probability,
        seed: arguments.seed,
    })
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
