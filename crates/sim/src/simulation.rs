use incrowd_bandit::BanditError;
use incrowd_device::DeviceError;
use incrowd_shuffler::Refusal;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Algorithm, Choice, Environment, Person};

/// People in a row that the data knows no answer for, before it is given up.
const MOST_MISSES: u64 = 100_000_000;

/// What a simulation can stumble over; each is a mistake in the set-up.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// Features of another dimension than the algorithm's.
    #[error("the environment has dimension {found}, must be the algorithm's {needed}")]
    Dimension {
        /// Of the environment.
        found: usize,
        /// Of the algorithm.
        needed: usize,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The shuffler refused.
    #[error(transparent)]
    Shuffler(#[from] Refusal),
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
    /// Expected sum of rewards of a uniformly random choice, where it is known.
    pub reward_random: f64,
    /// Expected sum of rewards of the best choice, where it is known.
    pub reward_best: f64,
    /// Expected reward lost against the best choice, where it is known.
    pub regret: f64,
}

impl Summary {
    /// Expected regret of a uniformly random choice.
    pub fn regret_random(&self) -> f64 {
        self.reward_best - self.reward_random
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
}

impl<E: Environment, A: Algorithm> Simulation<E, A> {
    /// Before the first person.
    pub fn new(environment: E, algorithm: A) -> Result<Self, SimulationError> {
        let found = environment.dimension();
        if let Some(needed) = algorithm.dimension().filter(|&needed| needed != found) {
            return Err(SimulationError::Dimension { found, needed });
        }
        let (person, summary) = (Person::default(), Summary::default());
        Ok(Self { environment, algorithm, person, summary })
    }

    /// Expected reward lost against the best choice; none where nobody knows it.
    pub fn regret(&self) -> Option<f64> {
        // Environments know the mean reward of every arm for every person or for nobody.
        (!self.person.means.is_empty()).then_some(self.summary.regret)
    }

    /// How it went so far.
    pub fn summary(&self) -> Summary {
        let progress = self.algorithm.progress();
        Summary { batches: progress.batches, models: progress.models, ..self.summary }
    }

    /// The algorithm, to look at it.
    pub fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// Serves this many people more.
    pub fn run(&mut self, people: u64) -> Result<(), SimulationError> {
        for _ in 0..people {
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

    /// The next person plays what the algorithm chooses; false if the data does not know what would
    /// have come of it.
    fn serve(&mut self) -> Result<bool, SimulationError> {
        let Self { environment, algorithm, person, summary } = self;
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
        algorithm.learn(&person.arms[chosen * d..(chosen + 1) * d], reward)?;
        summary.users += 1;
        summary.reward += reward;
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
