//! `incrowd-lab simulate`: private bandits compared under the same guarantee.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use incrowd_lab::experiment::{
    Accounting, AlgorithmConfig, AlgorithmName, Event, ExperimentConfig, Finished, SummaryRow,
    Tuning, cross, run as run_experiment, run_part,
};
use incrowd_planner::LocalLimit;
use incrowd_privacy::format_epsilon;
use incrowd_sim::{Contexts, EnvironmentConfig, Rewards};

use super::{
    part::{self, PartArguments},
    progress::Progress,
};
use crate::Output;

/// Heading of the flags of made-up problems.
const PROBLEM: &str = "Knobs of the problem (lists are grids)";
/// Heading of the flags of learner and mechanism.
const TOLD: &str = "What learner and mechanism are told (lists are grids)";

/// Compare private bandits under the same, certified guarantee.
///
/// Every algorithm meets the same people, seed by seed. The ones that protect people get the least
/// noise whose guarantee is certified, and batches that are chosen for them by the same prediction
/// as our own. Give an experiment file (see experiments/), or flags; lists separated by commas are
/// grids, and every combination is run.
///
/// Made-up people have features (1, z)/sqrt 2 and mean rewards click rate + gap <z, w> with a
/// hidden direction w. The knobs of the problem say what z, click rate and gap are, how long the
/// parameter is and how far w turns. What learner and mechanism are told is separate: by default S
/// = 1, L = 1, sigma = 0.5, eta = 0.5, whatever the problem is. A learner with a wrong guess is
/// --parameter-norm 3 --parameter-bound 1,3; rare clicks are --click-rate 0.02. With every knob
/// left out, and with the same seed, people are the same to the last bit.
///
/// Results go to --out: table.csv (one row per run, with regret, rewards and their standard error,
/// the error of theta and whether the confidence covered it), curves.csv (regret over time),
/// manifest.json (everything needed to run it again, with the certificates). A finished run is not
/// run again, and what this very program has planned is not planned again, so an interrupted
/// command can simply be repeated. `incrowd-lab figures DIR` draws them.
///
/// On several machines, --shard i/n runs the i-th part of the runs that count. Where the experiment
/// tunes, all shards of --phase tune come before. Shards share one folder, or have one each and the
/// folders are copied into one: after the tuning phase, as the start of all shards of the next one,
/// and at the end, where the same command without --shard finds everything finished and writes the
/// tables, to the last byte those of one machine.
///
/// Algorithms: sblb (equal batches, a model when the determinant has grown), sblb-fixed (a model
/// from every batch), sblb-growing (growing batches), linucb, linucb-lowswitch, greedy (no
/// privacy), jdp-tree, jdp-growing, jdp-factorized, jdp-factorized-growing (trusted server: binary
/// tree, growing batches, correlated noise over equal and over growing leaves), ldp-gaussian,
/// ldp-privunit (no shuffler), sdp-amp, sdp-vec, sdp-vec-growing (other shuffle algorithms),
/// random, oracle.
///
/// Examples: incrowd-lab simulate --algorithms sblb-growing,jdp-tree,linucb,random --horizon 100000
/// --central-epsilon 1 --local-epsilon unlimited --out tree; incrowd-lab simulate
/// experiments/trade-off.toml --out trade-off; incrowd-lab simulate experiments/trade-off.toml
/// --out trade-off --phase tune --shard 1/4; incrowd-lab simulate --contexts sphere,one-hot --gap
/// 0.5,0.1 --reward-noise 0.5,0.1 --out knobs
#[derive(Args)]
pub struct Arguments {
    /// An experiment file; only --runs, --seed, --horizon, --threads, --shard, --phase, --out and
    /// --output go with it.
    file: Option<PathBuf>,
    /// What is compared.
    #[arg(long, value_delimiter = ',', value_parser = algorithm, conflicts_with = "file",
          default_value = "sblb-growing,sblb,jdp-tree,ldp-gaussian,linucb,random")]
    algorithms: Vec<AlgorithmName>,
    /// Where people come from.
    #[arg(long, value_enum, default_value_t = EnvironmentKind::Synthetic, conflicts_with = "file")]
    environment: EnvironmentKind,
    /// Law of the features of synthetic people: sphere, one-hot, correlated, anisotropic,
    /// heavy-tailed.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LAW",
        value_parser = contexts,
        conflicts_with = "file",
        help_heading = PROBLEM
    )]
    contexts: Vec<Contexts>,
    /// Mean rewards are around this: above 0, below 1; 0.5 if not given.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "RATE",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = PROBLEM
    )]
    click_rate: Vec<f64>,
    /// How far mean rewards are from the click rate at most: above 0, and all of them from 0 to 1.
    /// The largest such gap if not given: 0.5 around a click rate of 0.5.
    #[arg(
        long,
        value_delimiter = ',',
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = PROBLEM
    )]
    gap: Vec<f64>,
    /// |theta*|, at most 1000000. Mean rewards stay what they are, so the larger it is, the shorter
    /// the features: with 3 a third of the usual length. If not given, features are as long as
    /// --context-bound allows, and |theta*| is 1 without other knobs.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NORM",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = PROBLEM
    )]
    parameter_norm: Vec<f64>,
    /// Angle in radians by which what people like turns until the end, 0 to 1000; 0 if not given,
    /// 1.5708 is a right angle.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "ANGLE",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = PROBLEM
    )]
    drift: Vec<f64>,
    /// Number of features (d).
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "5",
        allow_negative_numbers = true,
        conflicts_with = "file"
    )]
    dimension: Vec<u32>,
    /// Arms each person can choose from (K); 10, or 100 fixed ones.
    #[arg(long, allow_negative_numbers = true, conflicts_with = "file")]
    arms: Option<u32>,
    /// Number of people (T); 100000 if not given.
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    horizon: Vec<u64>,
    /// Most that all releases and models together may tell about one person; 1 if no limit is given
    /// at all.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "EPSILON",
        allow_negative_numbers = true,
        conflicts_with = "file"
    )]
    central_epsilon: Vec<f64>,
    /// Most that one report may tell whoever reads the wire; 8 if not given, 'unlimited' lifts the
    /// cap.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "EPSILON",
        allow_negative_numbers = true,
        conflicts_with = "file"
    )]
    local_epsilon: Vec<LocalLimit>,
    /// Reports in a batch (people in a leaf of a tree); chosen if not given.
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, conflicts_with = "file")]
    batch_size: Vec<u32>,
    /// Bound on |theta*| that the learner is told (S), 1e-20 to 1e20; 1 if not given.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "S",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = TOLD
    )]
    parameter_bound: Vec<f64>,
    /// Bound on the length of features (L), 0.000001 to 1000000: features are scaled to it and
    /// |theta*| is divided by it, unless --parameter-norm says how long they are; 1 if not given.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "L",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = TOLD
    )]
    context_bound: Vec<f64>,
    /// Size of the noise of rewards that the learner is told (sigma), 1e-20 to 1e20; 0.5 if not
    /// given, which is safe for rewards from 0 to 1.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SIGMA",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = TOLD
    )]
    reward_noise: Vec<f64>,
    /// sblb and sblb-growing publish a model when det V has grown by 1 plus this (eta), 1e-20 to
    /// 1e20; 0.5 if not given.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "ETA",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = TOLD
    )]
    determinant_growth: Vec<f64>,
    /// Probability that the confidence fails, above 0 and below 1; 0.05 if not given.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PROBABILITY",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = TOLD
    )]
    failure_probability: Vec<f64>,
    /// Share of the reports that are surely honest, above 0 and at most 1, for the guarantee of
    /// sblb; 1 if not given.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SHARE",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = TOLD
    )]
    honest_fraction: Vec<f64>,
    /// Reports that one person may send, at least 1, which the guarantee of sblb covers; 1 if not
    /// given.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "COUNT",
        allow_negative_numbers = true,
        conflicts_with = "file",
        help_heading = TOLD
    )]
    participations: Vec<u32>,
    /// Delta of every guarantee.
    #[arg(long, default_value_t = 1e-6, allow_negative_numbers = true, conflicts_with = "file")]
    delta: f64,
    /// Runs of every combination; 20 if not given.
    #[arg(long, allow_negative_numbers = true)]
    runs: Option<u32>,
    /// Seed of the first run; the others follow. 1 if not given.
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Also run everything with the exploration that was best on other seeds.
    #[arg(long, conflicts_with = "file")]
    tune: bool,
    /// Noise of the baselines as their papers print it, certified for what it gives.
    #[arg(long, conflicts_with = "file")]
    paper_constants: bool,
    /// Also print every regret over that of this algorithm, with an upper confidence limit.
    #[arg(long, value_name = "ALGORITHM", conflicts_with = "file")]
    against: Option<String>,
    /// Threads, 1 to 1024; all cores if not given.
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    part: PartArguments,
    /// Directory of the results; a repeated command continues there.
    #[arg(long, value_name = "DIR", default_value = "simulation")]
    out: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EnvironmentKind {
    /// New arms for every person, rewards linear in the features.
    Synthetic,
    /// The same arms for everyone.
    FixedArms,
    /// New directions of the features appear only later.
    Ordered,
}

fn algorithm(text: &str) -> Result<AlgorithmName, String> {
    named(text, "algorithm", AlgorithmName::ALL, AlgorithmName::name)
}

fn contexts(text: &str) -> Result<Contexts, String> {
    named(text, "law", Contexts::ALL, Contexts::name)
}

/// The one of `all` with the name `text`.
fn named<T: Copy, const N: usize>(
    text: &str,
    kind: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    all.into_iter().find(|&one| name(one) == text).ok_or_else(|| {
        format!("no {kind} of this name, must be one of {}", all.map(name).join(", "))
    })
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut config = match &arguments.file {
        Some(file) => ExperimentConfig::read(file)?,
        None => from_flags(arguments)?,
    };
    if !arguments.horizon.is_empty() {
        config.horizons.clone_from(&arguments.horizon);
    }
    config.runs = arguments.runs.unwrap_or(config.runs);
    config.seed = arguments.seed.unwrap_or(config.seed);
    let base = arguments.file.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let experiment = config.check(base)?;

    let progress = Progress::new();
    let report = |event: Event<'_>| progress.show(event);
    let (out, threads) = (&arguments.out, arguments.threads.map(usize::from));
    if let Some(part) = arguments.part.part() {
        let command = shell(part::tuning_command(words()));
        let work = run_part(&experiment, out, threads, part, &command, &report);
        progress.finish();
        part::print(part, work?, out, arguments.output);
        return Ok(ExitCode::SUCCESS);
    }
    let finished = run_experiment(&experiment, out, threads, &shell(words()), &report);
    progress.finish();
    let finished = finished?;
    eprintln!(
        "{} plans and {} runs now, {} runs found finished; table, curves and manifest are in {}",
        finished.planned,
        finished.ran,
        finished.reused,
        out.display()
    );
    match arguments.output {
        Output::Json => out!("{}", serde_json::to_string_pretty(&finished.summary)?),
        Output::Text => print_table(&finished),
    }
    Ok(ExitCode::SUCCESS)
}

/// Every combination of the knobs of one kind.
fn environments(arguments: &Arguments) -> Result<Vec<EnvironmentConfig>, String> {
    let kind = arguments.environment;
    let only_synthetic =
        [("contexts", arguments.contexts.is_empty()), ("drift", arguments.drift.is_empty())];
    if let Some((flag, _)) = only_synthetic.into_iter().find(|&(_, left_out)| !left_out)
        && kind != EnvironmentKind::Synthetic
    {
        return Err(format!("--{flag} is given, must be left out: {kind:?} has none"));
    }
    let fixed = kind == EnvironmentKind::FixedArms;
    let arms = arguments.arms.unwrap_or(if fixed { 100 } else { 10 });
    let mut grid = vec![Knobs { arms, ..Knobs::default() }];
    grid = cross(grid, &arguments.contexts, |knobs, law| knobs.contexts = law);
    grid = cross(grid, &arguments.click_rate, |knobs, rate| knobs.click_rate = rate);
    grid = cross(grid, &arguments.gap, |knobs, gap| knobs.gap = Some(gap));
    grid = cross(grid, &arguments.parameter_norm, |knobs, norm| knobs.norm = Some(norm));
    grid = cross(grid, &arguments.drift, |knobs, angle| knobs.drift = angle);
    Ok(grid.into_iter().map(|knobs| knobs.environment(kind)).collect())
}

#[derive(Clone)]
struct Knobs {
    arms: u32,
    contexts: Contexts,
    click_rate: f64,
    gap: Option<f64>,
    norm: Option<f64>,
    drift: f64,
}

impl Default for Knobs {
    fn default() -> Self {
        let contexts = Contexts::default();
        Self { arms: 10, contexts, click_rate: 0.5, gap: None, norm: None, drift: 0.0 }
    }
}

impl Knobs {
    fn environment(self, kind: EnvironmentKind) -> EnvironmentConfig {
        let (rewards, dimension) = (Rewards::Bernoulli, None);
        let Self { arms, contexts, click_rate, gap, norm: parameter_norm, drift } = self;
        match kind {
            EnvironmentKind::Synthetic => EnvironmentConfig::Synthetic {
                arms,
                rewards,
                contexts,
                click_rate,
                gap,
                parameter_norm,
                drift,
                dimension,
            },
            EnvironmentKind::FixedArms => {
                EnvironmentConfig::FixedArms { arms, rewards, click_rate, gap, parameter_norm }
            }
            EnvironmentKind::Ordered => EnvironmentConfig::Ordered {
                arms,
                rewards,
                click_rate,
                gap,
                parameter_norm,
                dimension,
            },
        }
    }
}

fn from_flags(arguments: &Arguments) -> Result<ExperimentConfig, String> {
    let accounting =
        if arguments.paper_constants { Accounting::Paper } else { Accounting::Certified };
    let algorithm = |&name: &AlgorithmName| {
        let ours = name.name().starts_with("sblb");
        let accounting = if ours { Accounting::Certified } else { accounting };
        AlgorithmConfig { accounting, ..AlgorithmConfig::new(name) }
    };
    let no_limit = arguments.central_epsilon.is_empty() && arguments.local_epsilon.is_empty();
    let central_epsilons = if no_limit { vec![1.0] } else { arguments.central_epsilon.clone() };
    Ok(ExperimentConfig {
        name: "Comparison of private bandits".into(),
        algorithms: arguments.algorithms.iter().map(algorithm).collect(),
        environment: None,
        environments: environments(arguments)?,
        dimensions: arguments.dimension.clone(),
        horizons: vec![100_000],
        central_epsilons,
        local_epsilons: arguments.local_epsilon.clone(),
        batch_sizes: arguments.batch_size.clone(),
        parameter_bounds: arguments.parameter_bound.clone(),
        context_bounds: arguments.context_bound.clone(),
        reward_noises: arguments.reward_noise.clone(),
        determinant_growths: arguments.determinant_growth.clone(),
        failure_probabilities: arguments.failure_probability.clone(),
        honest_fractions: arguments.honest_fraction.clone(),
        participations: arguments.participations.clone(),
        delta: arguments.delta,
        runs: 20,
        seed: 1,
        tuning: arguments.tune.then(Tuning::default),
        against: arguments.against.clone(),
        arrivals: None,
        drop: None,
    })
}

/// The words of this command after its name.
fn words() -> impl Iterator<Item = String> {
    env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())
}

/// A command of these words, to be given to a shell.
fn shell(words: impl IntoIterator<Item = String>) -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    format!("incrowd-lab {}", words.join(" "))
}

fn print_table(finished: &Finished) {
    let width =
        finished.summary.iter().map(|row| label(row).chars().count()).max().unwrap_or(0).max(9);
    let mut last = None;
    for row in &finished.summary {
        if last != Some(&row.setting) {
            if last.is_some() {
                out!("");
            }
            out!("{}", heading(row));
            out!(
                "  {:<width$} {:>11} {:>7} {:>7} {:>9} {:>9} {:>8} {:>8} {:>9} {:>12}",
                "algorithm",
                if row.regret_mean.is_some() { "regret" } else { "reward each" },
                "+-",
                "share",
                "local",
                "central",
                "batches",
                "models",
                "noise",
                "rounds/s"
            );
            last = Some(&row.setting);
        }
        out!("{}", line(row, width));
    }
}

fn heading(row: &SummaryRow) -> String {
    let setting = &row.setting;
    let limit = |value: Option<f64>| value.map_or("unlimited".into(), |v| v.to_string());
    let batch = setting.batch_size.map_or(String::new(), |size| format!(", batch size {size}"));
    let told = setting.assumptions.words();
    let told = if told.is_empty() { told } else { format!("; told: {told}") };
    format!(
        "{}: d = {}, K = {}, T = {}, {} runs; asked: central epsilon {}, local epsilon {}{batch}{told}",
        setting.environment,
        setting.dimension,
        setting.arms,
        setting.horizon,
        row.runs,
        limit(setting.central_epsilon),
        limit(setting.local_epsilon),
    )
}

/// The algorithm, and its exploration if that was tuned.
fn label(row: &SummaryRow) -> String {
    match (row.variant.as_str(), row.exploration) {
        ("tuned", Some(exploration)) => format!("{}, tuned {exploration}", row.algorithm),
        _ => row.algorithm.clone(),
    }
}

fn line(row: &SummaryRow, width: usize) -> String {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".into(), |value| format!("{value:.digits$}"))
    };
    let epsilon = |value: Option<f64>| match value {
        None => "-".into(),
        Some(value) => format_epsilon(value),
    };
    let limit = row.setting.central_epsilon.unwrap_or(f64::INFINITY);
    let above = if row.epsilon_central_certified.is_some_and(|epsilon| epsilon > limit) {
        "   ABOVE the limit asked for"
    } else {
        ""
    };
    let share = row.regret_mean.zip(row.regret_random).map(|(own, random)| 100.0 * own / random);
    let ratio = row.ratio.as_ref().map_or(String::new(), |ratio| {
        let upper = ratio.upper.map_or(String::new(), |upper| format!(" (at most {upper:.3})"));
        format!("   {:.3} of {}{upper}", ratio.ratio, ratio.against)
    });
    let percent = |name: &str, share: Option<f64>| {
        share.map_or(String::new(), |share| format!("   {name} {:.2}%", 100.0 * share))
    };
    let sent = [("pads", row.padding), ("surplus", row.surplus), ("dropped", row.dropped)];
    let sent: String = sent.into_iter().map(|(name, share)| percent(name, share)).collect();
    let regret = match row.regret_mean {
        Some(regret) => format!("{regret:.1}"),
        None => format!("{:.4}", row.reward_mean),
    };
    let error = match row.regret_mean {
        Some(_) => number(row.regret_stderr, 1),
        None => number(row.reward_stderr, 4),
    };
    format!(
        "  {:<width$} {regret:>11} {:>7} {:>7} {:>9} {:>9} {:>8.0} {:>8.0} {:>9} {:>12.0}{ratio}{above}{sent}",
        label(row),
        error,
        share.map_or("-".into(), |share| format!("{share:.2}%")),
        epsilon(row.epsilon_local_certified),
        epsilon(row.epsilon_central_certified),
        row.batches,
        row.model_versions,
        number(row.noise_std, 1),
        row.rounds_per_second,
    )
}
