//! `incrowd-lab demo`: the demo problem in one loop, the same table for a seed to the last digit.

use std::{error::Error, process::ExitCode};

use clap::Args;
use incrowd_sim::{
    Path, Sblb, Simulation,
    demo::{self, DemoConfig, REGRET_LIMIT},
};

use crate::Output;

/// The demo of the product without services: real devices, batches and models in one loop, with
/// every coin from a seed.
///
/// Every person sees a few arms with features (1, z)/sqrt 2, z uniform on a sphere, and clicks with
/// probability 1/2 + <z, w>/2 for a hidden direction w. The exit code is 1 if the regret is above
/// 15% of a random choice's.
///
/// Example: incrowd-lab demo --users 1000000 --keep 0.3 --batch-size 200 --seed 7
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    problem: DemoConfig,
    /// Everything random comes from this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { problem, seed, output } = arguments;
    let sblb = Sblb::new(problem.task()?, Path::Wire, *seed);
    let summary = problem.run(Simulation::new(problem.people(*seed)?, sblb)?, |_| {})?;
    match output {
        Output::Text => out!("{}", demo::table(*seed, &summary).trim_end()),
        Output::Json => out!("{:#}", demo::json(*seed, &summary)),
    }
    Ok(ExitCode::from(u8::from(summary.regret_share() > REGRET_LIMIT)))
}
