//! `incrowd demo`: the whole loop, over real services.

use std::{
    error::Error,
    io::IsTerminal,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use incrowd_privacy::{certify, format_epsilon};
use incrowd_sim::{
    Simulation, Summary,
    demo::{self, DemoConfig, REGRET_LIMIT},
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Output, moment, served::Served};

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
    eprintln!(
        "all releases and models together are ({}, {:e})-differentially private, about what a person reports and whether they do",
        format_epsilon(certificate.epsilon_central()),
        certificate.delta()
    );
    let data = tempfile::tempdir()?;
    let served = Served::start(&task, problem.batch_size, data.path())?;
    let simulation = Simulation::new(people, served)?;
    let mut progress =
        Progress::new(u64::from(problem.users / problem.batch_size * problem.batch_size))?;
    let summary = problem.run(simulation, |summary| progress.show(summary))?;
    progress.bar.finish_and_clear();
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

/// A bar on a terminal, otherwise a line every ten seconds.
struct Progress {
    bar: ProgressBar,
    people: u64,
    terminal: bool,
    last_line: Option<Instant>,
}

impl Progress {
    fn new(people: u64) -> Result<Self, Box<dyn Error>> {
        let bar = ProgressBar::new(people).with_style(ProgressStyle::with_template(
            "{bar:40} {human_pos}/{human_len} people, {per_sec}, {eta} left, regret {msg} of random",
        )?);
        Ok(Self { bar, people, terminal: std::io::stderr().is_terminal(), last_line: None })
    }

    fn show(&mut self, summary: &Summary) {
        let share = format!("{:.1}%", 100.0 * summary.regret_share());
        if self.terminal {
            self.bar.set_position(summary.users);
            self.bar.set_message(share);
        } else if self.last_line.is_none_or(|last| last.elapsed().as_secs() >= 10) {
            eprintln!("{}/{} people, regret {share} of random", summary.users, self.people);
            self.last_line = Some(Instant::now());
        }
    }
}
