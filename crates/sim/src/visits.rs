//! When people come, and whose reports are never sent.

use std::collections::VecDeque;

use incrowd_device::Arm;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use serde::{Deserialize, Serialize};

use crate::{
    EnvironmentError,
    environment::draw::{stream, uniform},
};

/// Milliseconds of a day.
const DAY: f64 = 86_400_000.0;
/// Streams of a run's seed; the environment has 0, the algorithms 1 and 2.
const TIMES: u64 = 3;
const DROPS: u64 = 4;

/// People come as a Poisson process with the rate per_day (1 + swing sin(2 pi t)), t in days since
/// the first round opens: the same people in the same order, whatever the times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalsConfig {
    /// People per day on average, above 0, at most 1e9.
    pub per_day: f64,
    /// How much the rate varies over the day, 0 to 1.
    #[serde(default)]
    pub swing: f64,
    /// Seconds from a decision until its report is due, 0 to 31 days.
    #[serde(default)]
    pub reward_window: f64,
}

impl ArrivalsConfig {
    /// With a constant rate, each report due at once.
    pub fn new(per_day: f64) -> Self {
        Self { per_day, swing: 0.0, reward_window: 0.0 }
    }

    /// The arrivals, or the first rule that is violated.
    pub fn check(self) -> Result<Arrivals, EnvironmentError> {
        let Self { per_day, swing, reward_window } = self;
        if !(per_day > 0.0 && per_day <= 1e9) {
            return Err(EnvironmentError::PerDay(per_day));
        }
        if !(0.0..=1.0).contains(&swing) {
            return Err(EnvironmentError::Swing(swing));
        }
        if !(0.0..=31.0 * 86_400.0).contains(&reward_window) {
            return Err(EnvironmentError::RewardWindow(reward_window));
        }
        Ok(Arrivals(self))
    }
}

/// A valid [`ArrivalsConfig`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrivals(ArrivalsConfig);

impl Arrivals {
    /// What was asked for.
    pub fn config(&self) -> ArrivalsConfig {
        self.0
    }

    /// The clock of one run, all of whose times come from `seed`.
    pub fn clock(&self, seed: u64) -> Clock {
        let ArrivalsConfig { per_day, swing, .. } = self.0;
        Clock { now: 0.0, peak: per_day * (1.0 + swing) / DAY, swing, rng: stream(seed, TIMES) }
    }
}

/// A virtual clock that goes from one arrival to the next.
pub struct Clock {
    now: f64,
    /// The largest rate, per millisecond.
    peak: f64,
    swing: f64,
    rng: ChaCha8Rng,
}

impl Clock {
    /// When the next person comes, in milliseconds since the first round opens.
    ///
    /// A process of the largest rate is thinned: exact for any profile below it.
    pub fn next_arrival(&mut self) -> u64 {
        loop {
            let gap: f64 = Exp1.sample(&mut self.rng);
            self.now += gap / self.peak;
            let angle = std::f64::consts::TAU * (self.now / DAY).fract();
            let rate = 1.0 + self.swing * libm::sin(angle);
            if self.swing == 0.0 || uniform(&mut self.rng) * (1.0 + self.swing) < rate {
                return self.now as u64;
            }
        }
    }
}

/// Probabilities that a report is never sent, by the reward; in between for rewards in between.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropConfig {
    /// After a reward of 0: from 0 to 1.
    pub reward_0: f64,
    /// After a reward of 1: from 0 to 1.
    pub reward_1: f64,
}

impl DropConfig {
    /// The drop-outs, or the first rule that is violated.
    pub fn check(self) -> Result<Drops, EnvironmentError> {
        for (name, value) in [("reward_0", self.reward_0), ("reward_1", self.reward_1)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(EnvironmentError::Drop(name, value));
            }
        }
        Ok(Drops(self))
    }
}

/// A valid [`DropConfig`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drops(DropConfig);

impl Drops {
    /// What was asked for.
    pub fn config(&self) -> DropConfig {
        self.0
    }

    /// The drop-outs of one run, all of whose coins come from `seed`.
    pub fn coins(&self, seed: u64) -> DropCoins {
        DropCoins { law: self.0, rng: stream(seed, DROPS) }
    }
}

/// Tells of one person after the other whether the report is dropped.
pub struct DropCoins {
    law: DropConfig,
    rng: ChaCha8Rng,
}

impl DropCoins {
    /// Whether the next person, who got this reward, sends no report. Everyone has one random
    /// number, so that runs with the same seed drop the same people as far as rewards agree.
    pub fn drops(&mut self, reward: f64) -> bool {
        let DropConfig { reward_0, reward_1 } = self.law;
        uniform(&mut self.rng) < reward_0 + (reward_1 - reward_0) * reward.clamp(0.0, 1.0)
    }
}

/// A report that is not due yet.
pub(crate) struct Pending {
    pub due: u64,
    pub slot: u32,
    pub features: Vec<f64>,
    pub reward: f64,
}

/// People on a clock, and their reports that are not due yet.
pub(crate) struct Visits {
    clock: Clock,
    delay: u64,
    now: u64,
    /// In order: everyone waits equally long.
    pending: VecDeque<Pending>,
}

impl Visits {
    pub fn new(arrivals: &Arrivals, seed: u64) -> Self {
        let delay = (arrivals.0.reward_window * 1000.0) as u64;
        Self { clock: arrivals.clock(seed), delay, now: 0, pending: VecDeque::new() }
    }

    /// The next person's time.
    pub fn next_arrival(&mut self) -> u64 {
        self.now = self.clock.next_arrival();
        self.now
    }

    /// The next report that is due before or when the present person comes.
    pub fn next_due(&mut self) -> Option<Pending> {
        let is_due = self.pending.front().is_some_and(|report| report.due <= self.now);
        if is_due { self.pending.pop_front() } else { None }
    }

    /// Keeps the present person's report until it is due; false if that is now.
    pub fn keep(&mut self, arm: Arm<'_>, reward: f64) -> bool {
        if self.delay > 0 {
            let due = self.now + self.delay;
            let (slot, features) = (arm.slot, arm.features.to_vec());
            self.pending.push_back(Pending { due, slot, features, reward });
        }
        self.delay > 0
    }
}
