//! `incrowd certify`: what a mechanism guarantees.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Args;
use incrowd_node::TaskFile;
use incrowd_planner::{DEFAULT_LOCAL_EPSILON, number, paper};
use incrowd_privacy::{
    Bound, BoundName, Certificate, PrivacyError,
    central::{Setting, StageSetting, honest_others},
    certify, clones, composition, format_delta, format_epsilon, local,
};
use incrowd_protocol::{
    BatchSize, Closes, CodebookLaw, Delta, Dimension, FlipProbability, HonestFraction, Law,
    Mechanism, MechanismConfig, OutsideProbability, Participations, Stage, format_number,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Output, layout::LayoutArguments, print::wrapped};

/// What a mechanism guarantees, proved: local and central epsilon, with the bound that gives each.
///
/// The mechanism comes from options (--dimension, then --bits and --keep or --flip, or --words,
/// --chosen and --outside, and --batch-size or --schedule) or from a task file. With
/// --local-epsilon instead, the generic bound for any randomizer of this local level ('clones') is
/// given.
///
/// Examples: incrowd certify --dimension 5 --keep 0.5 --batch-size 300; incrowd certify
/// --dimension 5 --bits 256 --keep 0.2 --batch-size 1000 --curve; incrowd certify --dimension 5
/// --words 256 --chosen 16 --outside 0.2 --batch-size 3000; incrowd certify --task-file task.toml;
/// incrowd certify --local-epsilon 4 --batch-size 10000 --bound clones
#[derive(Args)]
pub struct Arguments {
    /// Features of an action (d), 1 to 1000.
    #[arg(long)]
    dimension: Option<u32>,
    #[command(flatten)]
    layout: LayoutArguments,
    /// Bits per coordinate (m), 1 to 4095.
    #[arg(long, default_value_t = 1)]
    bits: u32,
    /// Probability that a bit is kept (c = 1 - p), above 0 and below 1.
    #[arg(long, allow_negative_numbers = true, conflicts_with = "flip")]
    keep: Option<f64>,
    /// Probability that a bit is replaced by a fair coin (p), above 0 and below 1.
    #[arg(long, allow_negative_numbers = true)]
    flip: Option<f64>,
    /// Words of a codebook (N), 2 to 256: reports are words instead of bits.
    #[arg(long, requires_all = ["chosen", "outside"], conflicts_with_all = ["bits", "keep", "flip"])]
    words: Option<u32>,
    /// Words that a statistic picks (k), 1 to N/2.
    #[arg(long, requires = "words")]
    chosen: Option<u32>,
    /// Probability that the word sent is none of those, above 0 and at most 1 - k/N.
    #[arg(long, requires = "words", allow_negative_numbers = true)]
    outside: Option<f64>,
    /// Share of the statistic's squared norm that the moment has (w), in 256ths, 1 to 255.
    #[arg(long, requires = "words", default_value_t = 128)]
    moment_weight: u32,
    /// Reports in a batch (l), at least 1.
    #[arg(long, allow_negative_numbers = true)]
    batch_size: Option<u64>,
    /// Stages instead of one batch size: rounds x size x bits x keep, separated by commas, such as
    /// 10x300x1x0.5,5x1000x1x0.6.
    #[arg(long, value_name = "STAGES", conflicts_with_all = ["batch_size", "keep", "flip", "bits", "words"])]
    schedule: Option<String>,
    /// Delta of the central guarantee, above 0 and below 1.
    #[arg(long, default_value_t = 1e-6, allow_negative_numbers = true)]
    delta: f64,
    /// Batches one person takes part in (k), one report in each.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    participations: u32,
    /// Share of every batch that is surely honest (h), above 0 and at most 1.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    honest: f64,
    /// Read the mechanism from a task file.
    #[arg(long, value_name = "TOML", conflicts_with_all = ["dimension", "slots", "bits", "keep", "flip", "words", "batch_size", "schedule", "delta", "participations", "honest", "local_epsilon"])]
    task_file: Option<PathBuf>,
    /// Local epsilon of an unknown randomizer, for the generic bound.
    #[arg(long, allow_negative_numbers = true, conflicts_with_all = ["dimension", "slots", "bits", "keep", "flip", "words", "schedule"])]
    local_epsilon: Option<f64>,
    /// Also print every bound.
    #[arg(long)]
    all: bool,
    /// Also print delta for other epsilons: the same releases, read at every level.
    #[arg(long, conflicts_with = "local_epsilon")]
    curve: bool,
    /// Print this proved central bound instead of the smallest one: local, clones, renyi-blanket,
    /// renyi-worst-others or gaussian; of words local, codebook-blanket or codebook-sum.
    #[arg(long, value_name = "NAME")]
    bound: Option<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(epsilon_local) = arguments.local_epsilon {
        return generic(arguments, epsilon_local);
    }
    let mechanism = mechanism(arguments)?;
    let certificate = certify(&mechanism)?;
    let rows = if arguments.all { alternatives(&mechanism)? } else { Vec::new() };
    let wanted = arguments.bound.as_deref().map(|name| named(&mechanism, name)).transpose()?;
    let mut value = serde_json::to_value(&certificate)?;
    if arguments.all {
        value["alternatives"] = json!(rows);
    }
    let points = if arguments.curve { curve(&certificate) } else { Vec::new() };
    if arguments.curve {
        value["curve"] = json!(points);
    }
    if let Some(bound) = wanted {
        value["epsilon_central"] = json!(bound.epsilon);
        value["epsilon_central_bound"] = json!(bound.bound);
    }
    match arguments.output {
        Output::Json => out!("{value:#}"),
        Output::Text => print(&certificate, &rows, &points, wanted),
    }
    Ok(ExitCode::SUCCESS)
}

/// Shares of the certified epsilon at which the curve is printed.
const CURVE: [f64; 8] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0];
/// Where the certified epsilon is zero the curve is printed up to twice this one.
const CURVE_SCALE: f64 = 0.1;

/// One point of the curve.
#[derive(Serialize)]
struct Point {
    epsilon: f64,
    delta: f64,
}

fn curve(certificate: &Certificate) -> Vec<Point> {
    let certified = certificate.epsilon_central();
    let scale = if certified > 0.0 { certified } else { CURVE_SCALE };
    let point = |share| {
        let epsilon = share * scale;
        Point { epsilon, delta: certificate.delta_upper(epsilon) }
    };
    CURVE.into_iter().map(point).collect()
}

fn print(certificate: &Certificate, rows: &[Row], curve: &[Point], wanted: Option<Bound>) {
    out!("{}", wrapped(&certificate.to_string()));
    if certificate.epsilon_local() > DEFAULT_LOCAL_EPSILON {
        out!(
            "{}",
            wrapped(&format!(
                "The local epsilon of {} is no protection: everything rests on a shuffler that shows nobody single reports.",
                format_epsilon(certificate.epsilon_local())
            ))
        );
    }
    if !curve.is_empty() {
        out!("All releases and models together, at other epsilons");
        out!("  {:>10} {:>10}", "epsilon", "delta");
    }
    for point in curve {
        out!("  {:>10} {:>10}", format_epsilon(point.epsilon), format_delta(point.delta));
    }
    if !rows.is_empty() {
        out!("Every bound for the stage that tells most");
    }
    for row in rows {
        let mark = if row.certificate { "" } else { " (the paper's, uncertified)" };
        let (name, epsilon) = (name(row.bound), format_epsilon(row.epsilon));
        out!("  {:<13} {name:<22} {epsilon:>12}{mark}", row.of);
    }
    if let Some(bound) = wanted {
        out!("By {} alone: central epsilon {}", name(bound.bound), format_epsilon(bound.epsilon));
    }
}

/// The generic bound for any local randomizer.
fn generic(arguments: &Arguments, epsilon_local: f64) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(other) = arguments.bound.as_deref().filter(|&name| name != "clones") {
        return Err(
            format!("bound is {other}, must be clones when only a local epsilon is known").into()
        );
    }
    let size = arguments.batch_size.ok_or("--batch-size is missing")?;
    let (delta, k) = (arguments.delta, arguments.participations);
    let others = honest_others(BatchSize::new(size)?, HonestFraction::new(arguments.honest)?);
    let honest = BatchSize::new(others + 1)?;
    let at = |delta| clones::epsilon_upper(epsilon_local, honest, delta);
    let epsilon = composition::best_for(at, Participations::new(k)?, Delta::new(delta)?)?;
    match arguments.output {
        Output::Json => {
            let mut value = json!({
                "epsilon_local": epsilon_local,
                "epsilon_local_bound": "given",
                "epsilon_central": epsilon,
                "epsilon_central_bound": BoundName::Clones,
                "delta": delta,
                "batch_size": size,
                "participations": k,
                "honest_fraction": arguments.honest,
            });
            if arguments.all {
                value["alternatives"] = json!([Bound { bound: BoundName::Clones, epsilon }]);
            }
            out!("{value:#}");
        }
        Output::Text => out!(
            "{}",
            wrapped(&format!(
                "Any {}-locally private report, shuffled with {size}: ({}, {delta:e})-differentially private by clones",
                format_number(epsilon_local),
                format_epsilon(epsilon)
            ))
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn mechanism(arguments: &Arguments) -> Result<Mechanism, Box<dyn Error>> {
    if let Some(path) = &arguments.task_file {
        return Ok(match TaskFile::read(path)? {
            TaskFile::Plan(config) => config.mechanism().clone(),
            TaskFile::Task(task) => task.mechanism().clone(),
        });
    }
    let config = MechanismConfig {
        dimension: arguments
            .dimension
            .ok_or("--dimension is missing (or --task-file, or --local-epsilon)")?,
        context_bound: 1.0,
        schedule: match &arguments.schedule {
            Some(text) => stages(text)?,
            None => vec![stage(arguments)?],
        },
        layout: arguments.layout.layout(),
        closes: Closes::Count { grace: 0 },
        central_delta: arguments.delta,
        participations: arguments.participations,
        honest_fraction: arguments.honest,
    };
    Ok(config.check()?)
}

fn stage(arguments: &Arguments) -> Result<Stage, Box<dyn Error>> {
    let law = match (arguments.words, arguments.chosen, arguments.outside) {
        (Some(words), Some(chosen), Some(outside)) => {
            let outside = OutsideProbability::from_keep(1.0 - outside).map_err(|_| {
                format!("outside is {}, must be above 0 and below 1 - 1e-9", format_number(outside))
            })?;
            let moment_weight = arguments.moment_weight;
            Law::Codebook(CodebookLaw { words, chosen, outside, moment_weight })
        }
        _ => Law::bits(arguments.bits, flip(arguments)?),
    };
    let size = arguments.batch_size.ok_or("--batch-size or --schedule is missing")?;
    // More reports than a schedule can count hide no less.
    let size = size.min(u64::from(u32::MAX)) as u32;
    Ok(Stage { rounds: 1, size, window: None, law })
}

fn flip(arguments: &Arguments) -> Result<FlipProbability, Box<dyn Error>> {
    match (arguments.keep, arguments.flip) {
        (Some(keep), _) => keep_probability(keep),
        (None, Some(flip)) => FlipProbability::from_keep(1.0 - flip).map_err(|_| {
            format!("flip is {}, must be above 0 and below 1 - 1e-9", format_number(flip)).into()
        }),
        (None, None) => Err("--keep, --flip or --words is missing".into()),
    }
}

fn keep_probability(keep: f64) -> Result<FlipProbability, Box<dyn Error>> {
    FlipProbability::from_keep(keep).map_err(|_| {
        format!("keep is {}, must be above 1e-9 and below 1", format_number(keep)).into()
    })
}

fn stages(text: &str) -> Result<Vec<Stage>, Box<dyn Error>> {
    let stage = |part: &str| -> Result<Stage, Box<dyn Error>> {
        let rule = || {
            format!(
                "schedule has {part:?}, must be rounds x size x bits x keep, such as 10x300x1x0.5"
            )
        };
        let [rounds, size, bits, keep] = part.split('x').map(str::trim).collect::<Vec<_>>()[..]
            .try_into()
            .map_err(|_| rule())?;
        let number = |text: &str| number::whole(text, 0, u32::MAX).map_err(|_| rule());
        let flip = keep_probability(number::real(keep).map_err(|_| rule())?)?;
        Ok(Stage {
            rounds: number(rounds)?,
            size: number(size)?,
            window: None,
            law: Law::bits(number(bits)?, flip),
        })
    };
    text.split(',').map(stage).collect()
}

/// One bound among all of them.
#[derive(Serialize)]
struct Row {
    bound: BoundName,
    epsilon: f64,
    /// What it is about: all releases, or one report.
    of: &'static str,
    /// Whether it is proved.
    certificate: bool,
}

/// Every central bound of the stage with the largest central epsilon, the local bounds of one of
/// its reports, and the paper's.
fn alternatives(mechanism: &Mechanism) -> Result<Vec<Row>, PrivacyError> {
    let (stage, all) = worst_stage(mechanism)?;
    let row =
        |of, certificate| move |Bound { bound, epsilon }| Row { bound, epsilon, of, certificate };
    let mut rows: Vec<Row> = all.into_iter().map(row("releases", true)).collect();
    let setting = StageSetting::of_stage(mechanism, &stage);
    let (StageSetting::Bits(setting), Some(law)) = (setting, stage.law.as_bits()) else {
        rows.push(row("one report", true)(setting.of_one_report()));
        return Ok(rows);
    };
    let Setting { blocks, bits, keep, .. } = setting;
    rows.extend(local::bounds(blocks, bits, keep).into_iter().map(row("one report", true)));
    let dimension = Dimension::new(blocks.parameters() as u32)?;
    let randomizer = paper::Randomizer { dimension, bits, flip: law.flip.value() };
    // Outside its regime the paper says nothing.
    let paper =
        paper::proposition_3(randomizer, u64::from(stage.size), mechanism.central_delta().get());
    let proposition_3 = |epsilon| Bound { bound: BoundName::PaperProposition3, epsilon };
    rows.extend(paper.ok().map(proposition_3).map(row("one release", false)));
    Ok(rows)
}

/// The stage with the largest central epsilon, and its proved central bounds.
fn worst_stage(mechanism: &Mechanism) -> Result<(Stage, Vec<Bound>), PrivacyError> {
    let mut worst: Option<(f64, Stage, Vec<Bound>)> = None;
    for stage in mechanism.schedule().stages() {
        let all = StageSetting::of_stage(mechanism, stage).bounds()?;
        let smallest = Bound::smallest(all.iter().copied()).map_or(0.0, |bound| bound.epsilon);
        if worst.as_ref().is_none_or(|(epsilon, ..)| smallest > *epsilon) {
            worst = Some((smallest, *stage, all));
        }
    }
    let (_, stage, all) = worst.expect("invariant: a checked schedule has a stage");
    Ok((stage, all))
}

/// A proved central bound by its name.
fn named(mechanism: &Mechanism, wanted: &str) -> Result<Bound, Box<dyn Error>> {
    let stages = mechanism.schedule().stages().len();
    if stages > 1 && mechanism.participations() > Participations::ONE {
        return Err("--bound needs one stage, or one participation: batches of different stages are only certified together".into());
    }
    let (_, all) = worst_stage(mechanism)?;
    let found = all.iter().find(|bound| name(bound.bound) == wanted);
    found.copied().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(|bound| name(bound.bound)).collect();
        format!("bound is {wanted}, must be one of {}", names.join(", ")).into()
    })
}

/// The name in JSON.
fn name(bound: BoundName) -> String {
    match serde_json::to_value(bound) {
        Ok(Value::String(name)) => name,
        _ => format!("{bound:?}"),
    }
}
