//! `incrowd demo`: the whole loop, over real services.

use std::{error::Error, process::ExitCode, time::Duration};

use clap::Args;
use incrowd_node::Roles;
use incrowd_privacy::certify;
use incrowd_sim::{
    Simulation,
    demo::{self, DemoConfig, REGRET_LIMIT},
};

use crate::{Output, guarantee, moment, progress::Progress, served::Served};

/// From the start of the program to the opening of round 1: what a node takes to start.
const START: Duration = Duration::from_millis(500);

/// Watch it learn: synthetic people whose devices talk over HTTP to a real shuffler and a real
/// bandit, on free ports of this machine, with an embedded store in a temporary folder.
///
/// Every person sees a few arms with features (1, z)/sqrt 2, z uniform on a sphere, and clicks with
/// probability 1/2 + <z, w>/2 for a hidden direction w. The device chooses an arm from the
/// published model and sends one randomized report, sealed to the shuffler. Nobody but the device
/// sees the features or the click. Rounds close by the clock: whoever did not come is made up for
/// by a report of pure noise, so that nobody can tell how many came. The exit code is 1 if the
/// regret is above 15% of a random choice's.
///
/// The people are made up, and all of them are honest: the guarantee assumes that every report is
/// (`incrowd plan` assumes less).
///
/// The devices are those of the product: their coins come from the operating system, so the last
/// digits differ from run to run. `incrowd-lab demo` repeats a run to the last digit.
///
/// Example: incrowd demo --users 1000000 --keep 0.3 --batch-size 200
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    problem: DemoConfig,
    /// How long a round is open, in milliseconds, at least 10. At most --batch-size people come in
    /// one; it has room for twice as many.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 250)]
    window: u32,
    /// The people come from this seed; the coins of their devices never do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { problem, window, seed, output } = arguments;
    let opens = moment::now() + START.as_millis() as u64;
    let task = problem.timed_task(opens, *window)?;
    let people = problem.people(*seed)?;
    let certificate = certify(task.mechanism())?;
    eprintln!("{}", guarantee::in_words(&certificate, Roles::Both));
    let data = tempfile::tempdir()?;
    let served = Served::start(&task, problem.batch_size, data.path())?;
    let simulation = Simulation::new(people, served)?;
    let people = u64::from(problem.users / problem.batch_size * problem.batch_size);
    let mut progress = Progress::new(people, "people");
    let summary = problem.run(simulation, |summary| {
        let regret = || format!("regret {:.1}% of random", 100.0 * summary.regret_share());
        progress.show(summary.users, regret);
    })?;
    drop(progress);
    match output {
        Output::Text => out!("{}", demo::table(*seed, &summary).trim_end()),
        Output::Json => out!("{:#}", demo::json(*seed, &summary)),
    }
    if summary.regret_share() > REGRET_LIMIT {
        eprintln!("the regret is above {:.0}% of a random choice's", 100.0 * REGRET_LIMIT);
        eprintln!("hint: more --users, a larger --keep or more --bits learn faster");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}
