//! The demo problem: what `incrowd demo` and `incrowd-lab demo` are asked for, and what they print.

use std::{fmt::Write, sync::Arc};

use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy, PolicyConfig,
    ProtocolError, Selection, Stage, TaskConfig, format_number,
};
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    Algorithm, EnvironmentError, Rewards, Simulation, SimulationError, Summary, Synthetic,
};

/// Regret above this share of a random choice's is a failure.
pub const REGRET_LIMIT: f64 = 0.15;

/// Synthetic people and how their reports are randomized.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct DemoConfig {
    /// Number of people; the last unfinished batch is left out.
    #[cfg_attr(
        feature = "clap",
        arg(long, default_value_t = 200_000, allow_negative_numbers = true)
    )]
    pub users: u32,
    /// People in a round, whose reports the shuffler sums up before anything leaves it.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 1000))]
    pub batch_size: u32,
    /// Probability that a bit is kept and not replaced by a fair coin (c = 1 - p): less is more
    /// private and learns more slowly.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 0.47, allow_negative_numbers = true))]
    pub keep: f64,
    /// Bits per coordinate (m).
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 32))]
    pub bits: u32,
    /// Number of features (d), at least 2.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 5))]
    pub dimension: u32,
    /// Arms each person can choose from (K).
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 10))]
    pub arms: u32,
    /// Draw the parameter on the device (with this scale, in units of the confidence width)
    /// instead of taking the upper confidence bound.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SCALE", allow_negative_numbers = true))]
    pub sampled: Option<f64>,
}

/// Why a demo cannot be run.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DemoError {
    /// Not enough people for one batch.
    #[error("users is {users}, must be at least one batch of {size}")]
    Users {
        /// People.
        users: u32,
        /// Reports in a batch.
        size: u32,
    },
    /// No probability that a bit may be kept with.
    #[error("keep is {}, must be above 1e-9 and below 1", format_number(*.0))]
    Keep(f64),
    /// Another rule of a task.
    #[error(transparent)]
    Task(#[from] ProtocolError),
}

impl DemoConfig {
    /// The task of the demo in one process: batches of one size, for everyone who fills one.
    pub fn task(&self) -> Result<Arc<TaskConfig>, DemoError> {
        let rounds = self.rounds()?;
        self.task_with(Closes::Count { grace: 0 }, rounds, self.batch_size, None)
    }

    /// The task of the demo over HTTP: rounds that close by time, from `opens` on (milliseconds
    /// since 1970), with room for twice the people that come in one. There are more rounds than
    /// needed: a slow machine gets fewer people into each.
    pub fn timed_task(&self, opens: u64, window: u32) -> Result<Arc<TaskConfig>, DemoError> {
        let rounds = self.rounds()?.saturating_mul(20).saturating_add(1000);
        let capacity = self.batch_size.saturating_mul(2);
        self.task_with(Closes::Time { opens }, rounds, capacity, Some(window))
    }

    /// How many batches the people fill.
    fn rounds(&self) -> Result<u32, DemoError> {
        let size = self.batch_size;
        let rounds = self.users.checked_div(size).unwrap_or(0);
        if size > 0 && rounds == 0 {
            return Err(DemoError::Users { users: self.users, size });
        }
        Ok(rounds.max(1))
    }

    fn task_with(
        &self,
        closes: Closes,
        rounds: u32,
        size: u32,
        window: Option<u32>,
    ) -> Result<Arc<TaskConfig>, DemoError> {
        let flip = FlipProbability::from_keep(self.keep).map_err(|_| DemoError::Keep(self.keep))?;
        let mechanism = MechanismConfig {
            dimension: self.dimension,
            context_bound: 1.0,
            layout: Layout::Shared,
            schedule: vec![Stage { rounds, size, window, law: Law::bits(self.bits, flip) }],
            closes,
            central_delta: 1e-6,
            participations: 1,
            // Everyone is synthetic and reports what happened; nobody else can upload.
            honest_fraction: 1.0,
        };
        let policy = match self.sampled {
            None => Policy::default(),
            Some(scale) => {
                PolicyConfig { selection: Selection::Sampled { scale }, ..PolicyConfig::default() }
                    .check()?
            }
        };
        Ok(Arc::new(TaskConfig::new(mechanism.check()?, Learner::default(), policy)?))
    }

    /// The people, who come from a seed.
    pub fn people(&self, seed: u64) -> Result<Synthetic, EnvironmentError> {
        Synthetic::new(self.dimension, self.arms, Rewards::Bernoulli, seed)
    }

    /// Serves everyone, and tells after each batch how it goes.
    pub fn run(
        &self,
        mut simulation: Simulation<Synthetic, impl Algorithm>,
        mut progress: impl FnMut(&Summary),
    ) -> Result<Summary, SimulationError> {
        let size = u64::from(self.batch_size);
        for _ in 0..u64::from(self.users) / size {
            simulation.run(size)?;
            progress(&simulation.summary());
        }
        Ok(simulation.summary())
    }
}

/// The result for people.
pub fn table(seed: u64, summary: &Summary) -> String {
    let users = summary.users as f64;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<24}{value:>10}");
    };
    line("seed", seed.to_string());
    line("people", summary.users.to_string());
    line("batches released", summary.batches.to_string());
    line("models published", summary.models.to_string());
    line("average reward", format!("{:.4}", summary.reward / users));
    line("  random arm", format!("{:.4}", summary.reward_random / users));
    line("  best arm", format!("{:.4}", summary.reward_best / users));
    line("regret", format!("{:.0}", summary.regret));
    line("  random arm", format!("{:.0}", summary.regret_random()));
    line("  share of it", format!("{:.1}%", 100.0 * summary.regret_share()));
    text
}

/// The result for programs.
pub fn json(seed: u64, summary: &Summary) -> Value {
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
