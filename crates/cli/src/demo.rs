//! `incrowd demo`: the whole loop, over real services.

use std::{error::Error, process::ExitCode, sync::Arc};

use clap::Args;
use incrowd_protocol::{
    FlipProbability, Learner, MechanismConfig, Policy, PolicyConfig, Selection, Stage, TaskConfig,
};
use incrowd_sim::{Algorithm, Path, Rewards, Sblb, Simulation, Summary, Synthetic};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::{Output, served::Served};

/// Regret above this share of a random choice's is a failure.
const LIMIT: f64 = 0.15;

/// Watch it learn: synthetic people whose devices talk over HTTP to a real shuffler and a real bandit, on free ports of this machine, with an
/// embedded store in a temporary folder.
///
/// Every person sees a few arms with features (1, z)/sqrt 2, z uniform on a sphere, and clicks with probability 1/2 + <z, w>/2 for a hidden
/// direction w. The device chooses an arm from the published model and sends one randomized report, sealed to the shuffler. Nobody but the device sees the
/// features or the click. The exit code is 1 if the regret is above 15% of a random choice's.
///
/// Example: incrowd demo --users 1000000 --keep 0.3 --batch-size 200
#[derive(Args)]
pub struct Arguments {
    /// Number of people; the last unfinished batch is left out.
    #[arg(long, default_value_t = 200_000, allow_negative_numbers = true)]
    users: u32,
    /// Reports in a batch: what the shuffler sums up before anything leaves it.
    #[arg(long, default_value_t = 100)]
    batch_size: u32,
    /// Probability that a bit is kept and not replaced by a fair coin (c = 1 - p): less is more private and learns more slowly.
    #[arg(long, default_value_t = 0.47, allow_negative_numbers = true)]
    keep: f64,
    /// Bits per coordinate (m).
    #[arg(long, default_value_t = 1)]
    bits: u32,
    /// Number of features (d), at least 2.
    #[arg(long, default_value_t = 5)]
    dimension: u32,
    /// Arms each person can choose from (K).
    #[arg(long, default_value_t = 10)]
    arms: u32,
    /// Draw the parameter on the device (with this scale, in units of the confidence width) instead of taking the upper confidence bound.
    #[arg(long, value_name = "SCALE", allow_negative_numbers = true)]
    sampled: Option<f64>,
    /// Everything random comes from this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out HTTP and store: the same devices, batches and models, in one loop and much faster.
    #[arg(long)]
    in_process: bool,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let task = task(arguments)?;
    let seed = arguments.seed;
    let people = Synthetic::new(arguments.dimension, arguments.arms, Rewards::Bernoulli, seed)?;
    let summary = if arguments.in_process {
        watch(
            arguments,
            &task,
            Simulation::new(people, Sblb::new(task.clone(), Path::Wire, seed))?,
        )?
    } else {
        let data = tempfile::tempdir()?;
        watch(arguments, &task, Simulation::new(people, Served::start(&task, data.path(), seed)?)?)?
    };
    match arguments.output {
        Output::Text => print_table(seed, &summary),
        Output::Json => out!("{:#}", as_json(seed, &summary)),
    }
    if summary.regret_share() > LIMIT {
        eprintln!("the regret is above {:.0}% of a random choice's", 100.0 * LIMIT);
        eprintln!("hint: more --users, a larger --keep or more --bits learn faster");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves everyone, with a bar.
fn watch(
    arguments: &Arguments,
    task: &TaskConfig,
    mut simulation: Simulation<Synthetic, impl Algorithm>,
) -> Result<Summary, Box<dyn Error>> {
    let users = task.mechanism().schedule().horizon();
    let bar = ProgressBar::new(users).with_style(ProgressStyle::with_template(
        "{bar:40} {human_pos}/{human_len} people, {per_sec}, {eta} left, regret {msg} of random",
    )?);
    while simulation.summary().users < users {
        simulation.run(u64::from(arguments.batch_size))?;
        let summary = simulation.summary();
        bar.set_position(summary.users);
        bar.set_message(format!("{:.1}%", 100.0 * summary.regret_share()));
    }
    bar.finish_and_clear();
    Ok(simulation.summary())
}

fn task(arguments: &Arguments) -> Result<Arc<TaskConfig>, Box<dyn Error>> {
    let size = arguments.batch_size;
    let rounds = arguments.users.checked_div(size).unwrap_or(0);
    if size > 0 && rounds == 0 {
        let users = arguments.users;
        return Err(format!("users is {users}, must be at least one batch of {size}").into());
    }
    let flip = FlipProbability::from_keep(arguments.keep)
        .map_err(|_| format!("keep is {}, must be above 1e-9 and below 1", arguments.keep))?;
    let mechanism = MechanismConfig {
        dimension: arguments.dimension,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: rounds.max(1), size, bits: arguments.bits, flip }],
        grace: 0,
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    let policy = match arguments.sampled {
        None => Policy::default(),
        Some(scale) => {
            PolicyConfig { selection: Selection::Sampled { scale }, ..PolicyConfig::default() }
                .check()?
        }
    };
    Ok(Arc::new(TaskConfig::new(mechanism.check()?, Learner::default(), policy)?))
}

fn print_table(seed: u64, summary: &Summary) {
    let users = summary.users as f64;
    out!("seed                    {seed:>10}");
    out!("people                  {:>10}", summary.users);
    out!("batches released        {:>10}", summary.batches);
    out!("models published        {:>10}", summary.models);
    out!("average reward          {:>10.4}", summary.reward / users);
    out!("  random arm            {:>10.4}", summary.reward_random / users);
    out!("  best arm              {:>10.4}", summary.reward_best / users);
    out!("regret                  {:>10.0}", summary.regret);
    out!("  random arm            {:>10.0}", summary.regret_random());
    out!("  share of it           {:>9.1}%", 100.0 * summary.regret_share());
}

fn as_json(seed: u64, summary: &Summary) -> serde_json::Value {
    json!({
        "seed": seed.to_string(),
        "users": summary.users,
        "batches": summary.batches,
        "models": summary.models,
        "average_reward": summary.reward / summary.users as f64,
        "average_reward_random": summary.reward_random / summary.users as f64,
        "average_reward_best": summary.reward_best / summary.users as f64,
        "regret": summary.regret,
        "regret_random": summary.regret_random(),
        "regret_share": summary.regret_share(),
    })
}
