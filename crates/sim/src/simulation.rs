use incrowd_bandit::BanditError;
use incrowd_device::{Arm, DeviceError};
use incrowd_protocol::{Blocks, Dimension, Layout, ProtocolError};
use incrowd_shuffler::{CloseError, Refusal};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Algorithm, Arrivals, Choice, DropCoins, Drops, Environment, Person, Progress, visits::Visits,
};

/// People in a row that the data knows no answer for, before it is given up.
const MOST_MISSES: u64 = 100_000_000;

/// What a simulation can stumble over; each is a mistake in the set-up.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// Features of another layout than the algorithm's.
    #[error("the environment has the layout {found:?}, must be the algorithm's {needed:?}")]
    Layout {
        /// Of the environment.
        found: Blocks,
        /// Of the algorithm.
        needed: Blocks,
    },
    /// A layout that no task can have.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The shuffler refused.
    #[error(transparent)]
    Shuffler(#[from] Refusal),
    /// The batch could not be closed.
    #[error(transparent)]
    Close(#[from] CloseError),
    /// Rounds close by time, and there is no clock.
    #[error("rounds close by time: the simulation needs arrivals, which move the clock")]
    NoClock,
    /// The bandit refused.
    #[error(transparent)]
    Bandit(#[from] BanditError),
    /// A service did not do its part.
    #[error("{0}")]
    Service(String),
    /// An arm that the person does not have.
    #[error("arm {arm} was chosen, must be below {arms}")]
    Arm {
        /// Index of the arm.
        arm: usize,
        /// Number of arms.
        arms: usize,
    },
    /// The best arm was asked for where nobody knows it.
    #[error("this environment does not know the best arm, the oracle cannot play it")]
    NoMeans,
    /// Nobody's answer is in the log.
    #[error("none of the last {MOST_MISSES} people played what the log knows the reward of")]
    NothingLogged,
}

/// How a simulation went.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// People who took part.
    pub users: u64,
    /// Batches released.
    pub batches: u64,
    /// Models published.
    pub models: u64,
    /// Sum of the rewards people got.
    pub reward: f64,
    /// Sum of their squares.
    #[serde(default)]
    pub reward_squares: f64,
    /// Expected sum of rewards of a uniformly random choice, where it is known.
    pub reward_random: f64,
    /// Expected sum of rewards of the best choice, where it is known.
    pub reward_best: f64,
    /// Expected reward lost against the best choice, where it is known.
    pub regret: f64,
    /// People whose report was never sent.
    #[serde(default)]
    pub dropped: u64,
    /// Sum of the rewards of all other people.
    #[serde(default)]
    pub reward_sent: f64,
    /// Reports in released batches; 0 where none are sent.
    #[serde(default)]
    pub reports: u64,
    /// Pads in released batches.
    #[serde(default)]
    pub pads: u64,
    /// Reports beyond the capacity of their round.
    #[serde(default)]
    pub surplus: u64,
}

impl Summary {
    /// Expected regret of a uniformly random choice.
    pub fn regret_random(&self) -> f64 {
        self.reward_best - self.reward_random
    }

    /// Standard error of the mean reward per person, from the rewards of this run; none below two
    /// people. Rewards of a model that improves vary more than those of each model, so this is on
    /// the safe side.
    pub fn reward_stderr(&self) -> Option<f64> {
        let people = self.users as f64;
        let square = self.reward_squares - self.reward * self.reward / people;
        (self.users > 1).then(|| (square.max(0.0) / (people * (people - 1.0))).sqrt())
    }

    /// Regret as a share of the random choice's.
    pub fn regret_share(&self) -> f64 {
        self.regret / self.regret_random()
    }
}

/// One run: people of an environment, served by an algorithm.
pub struct Simulation<E, A> {
    environment: E,
    algorithm: A,
    person: Person,
    summary: Summary,
    visits: Option<Visits>,
    drops: Option<DropCoins>,
}

impl<E: Environment, A: Algorithm> Simulation<E, A> {
    /// Before the first person.
    pub fn new(environment: E, algorithm: A) -> Result<Self, SimulationError> {
        let dimension = u32::try_from(environment.dimension()).unwrap_or(u32::MAX);
        let dimension = Dimension::new(dimension).map_err(ProtocolError::from)?;
        let found = Blocks::new(dimension, environment.layout())?;
        if let Some(needed) = algorithm.blocks().filter(|&needed| needed != found) {
            return Err(SimulationError::Layout { found, needed });
        }
        let (person, summary) = (Person::default(), Summary::default());
        Ok(Self { environment, algorithm, person, summary, visits: None, drops: None })
    }

    /// People come at the times of `arrivals`, and their reports are due when it says. All times
    /// come from `seed`.
    #[must_use]
    pub fn with_arrivals(self, arrivals: &Arrivals, seed: u64) -> Self {
        Self { visits: Some(Visits::new(arrivals, seed)), ..self }
    }

    /// Some reports are never sent. All coins come from `seed`.
    #[must_use]
    pub fn with_drops(self, drops: &Drops, seed: u64) -> Self {
        Self { drops: Some(drops.coins(seed)), ..self }
    }

    /// Expected reward lost against the best choice; none where nobody knows it.
    pub fn regret(&self) -> Option<f64> {
        // Environments know the mean reward of every arm for every person or for nobody.
        (!self.person.means.is_empty()).then_some(self.summary.regret)
    }

    /// How it went so far.
    pub fn summary(&self) -> Summary {
        let progress = self.algorithm.progress();
        let Progress { batches, models, reports, pads, surplus } = progress;
        Summary { batches, models, reports, pads, surplus, ..self.summary }
    }

    /// The algorithm, to look at it.
    pub fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// The environment, to look at it.
    pub fn environment(&self) -> &E {
        &self.environment
    }

    /// Serves this many people more.
    pub fn run(&mut self, people: u64) -> Result<(), SimulationError> {
        for _ in 0..people {
            self.arrive()?;
            let mut misses = 0;
            while !self.serve()? {
                misses += 1;
                if misses >= MOST_MISSES {
                    return Err(SimulationError::NothingLogged);
                }
            }
        }
        Ok(())
    }

    /// The clock goes on to the next person; what is due until then is sent.
    fn arrive(&mut self) -> Result<(), SimulationError> {
        let Self { algorithm, visits: Some(visits), .. } = self else { return Ok(()) };
        let now = visits.next_arrival();
        while let Some(report) = visits.next_due() {
            algorithm.wait_until(report.due)?;
            let arm = Arm { slot: report.slot, features: &report.features };
            algorithm.learn(arm, report.reward)?;
        }
        algorithm.wait_until(now)
    }

    /// The next person plays what the algorithm chooses; false if the data does not know what would
    /// have come of it.
    fn serve(&mut self) -> Result<bool, SimulationError> {
        let Self { environment, algorithm, person, summary, visits, drops } = self;
        environment.next_person(person);
        let d = environment.dimension();
        let chosen = match algorithm.choose(&person.arms)? {
            Choice::Arm(arm) => arm,
            Choice::Best => best(&person.means).ok_or(SimulationError::NoMeans)?,
        };
        let arms = person.arms.len() / d;
        if chosen >= arms {
            return Err(SimulationError::Arm { arm: chosen, arms });
        }
        let Some(reward) = environment.reward(chosen) else {
            return Ok(false);
        };
        let slot = if environment.layout() == Layout::Shared { 0 } else { chosen as u32 };
        let arm = Arm { slot, features: &person.arms[chosen * d..(chosen + 1) * d] };
        if drops.as_mut().is_some_and(|drops| drops.drops(reward)) {
            summary.dropped += 1;
        } else {
            summary.reward_sent += reward;
            if !visits.as_mut().is_some_and(|visits| visits.keep(arm, reward)) {
                algorithm.learn(arm, reward)?;
            }
        }
        summary.users += 1;
        summary.reward += reward;
        summary.reward_squares += reward * reward;
        if !person.means.is_empty() {
            let best = person.means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            summary.reward_best += best;
            summary.reward_random += person.means.iter().sum::<f64>() / arms as f64;
            summary.regret += best - person.means[chosen];
        }
        Ok(true)
    }
}

fn best(means: &[f64]) -> Option<usize> {
    (0..means.len()).max_by(|&a, &b| means[a].total_cmp(&means[b]))
}
