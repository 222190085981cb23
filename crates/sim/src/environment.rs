//! Where people come from: synthetic problems and data files, all behind one trait.

mod classification;
mod contexts;
mod data_error;
pub(crate) mod draw;
mod drift;
mod fixed_arms;
mod logged;
mod ordered;
mod per_action;
mod scaled;
mod signal;
mod source;
mod synthetic;
pub(crate) mod table;
mod vectors;

pub use classification::{Classification, ClassificationConfig, ClassificationPeople, Features};
pub use contexts::Contexts;
pub use data_error::{DataError, Place};
pub use fixed_arms::FixedArms;
pub use logged::{Estimate, Logged, LoggedConfig, LoggedPeople};
pub use ordered::Ordered;
pub use per_action::PerAction;
pub use scaled::Scaled;
pub use signal::Signal;
pub use source::{EnvironmentConfig, Source};
pub use synthetic::{Rewards, Synthetic};

use incrowd_protocol::Layout;
use thiserror::Error;

/// One person: the features of each arm, and what is known about each arm's reward.
///
/// Belongs to the environment and to that person's device. Nothing here is ever given to a shuffler
/// or a server as a whole.
#[derive(Debug, Clone, Default)]
pub struct Person {
    /// Features of the arms, one row of the environment's dimension after the other; each of norm
    /// at most 1, unless another bound was asked for.
    pub arms: Vec<f64>,
    /// Expected reward of each arm, 0 to 1; empty if nobody knows it (logged data).
    pub means: Vec<f64>,
}

/// People arriving one after the other, each with a few arms to choose from.
pub trait Environment {
    /// Features of an arm (d).
    fn dimension(&self) -> usize;

    /// How the features are weighted. Where there are slots, arm i has slot i.
    fn layout(&self) -> Layout {
        Layout::Shared
    }

    /// The next person replaces the one in `person`.
    fn next_person(&mut self, person: &mut Person);

    /// The reward of the current person for playing the arm with this index, 0 to 1; none if the
    /// data does not know it, and then this person does not count.
    fn reward(&mut self, arm: usize) -> Option<f64>;

    /// theta*: the mean reward of features x is <x, theta*>, for the current person at least; none
    /// if there is no such parameter or nobody knows it.
    fn parameter(&self) -> Option<&[f64]> {
        None
    }
}

impl<E: Environment + ?Sized> Environment for Box<E> {
    fn dimension(&self) -> usize {
        (**self).dimension()
    }

    fn layout(&self) -> Layout {
        (**self).layout()
    }

    fn next_person(&mut self, person: &mut Person) {
        (**self).next_person(person);
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        (**self).reward(arm)
    }

    fn parameter(&self) -> Option<&[f64]> {
        (**self).parameter()
    }
}

/// A rule for environments that is violated.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// No room for a bias and a direction.
    #[error("dimension is {0}, must be from 2 to 1000")]
    Dimension(u32),
    /// No room for a constant and a direction beside the shared features.
    #[error("shared is {shared}, must be at most {dimension} - 2, the dimension less two")]
    Shared {
        /// Shared features.
        shared: u32,
        /// All features.
        dimension: u32,
    },
    /// Nothing to choose.
    #[error("arms is {0}, must be from 2 to 100000")]
    Arms(u32),
    /// A direction cannot turn when there is only one.
    #[error("dimension is {0}, must be from 3 to 1000 where there is a drift")]
    DriftDimension(u32),
    /// `drift` is no reasonable angle.
    #[error("drift is {0}, must be from 0 to 1000 (radians)")]
    Drift(f64),
    /// `click_rate` is no probability of a click.
    #[error("click_rate is {0}, must be above 0 and below 1")]
    ClickRate(f64),
    /// `gap` would give probabilities outside of 0 to 1, or nothing to learn.
    #[error("gap is {gap}, must be above 0 and at most {most}")]
    Gap {
        /// The gap asked for.
        gap: f64,
        /// The smaller of the click rate and 1 minus it.
        most: f64,
    },
    /// `parameter_norm` would need features beyond their bound, or is out of range.
    #[error(
        "parameter_norm is {norm}, must be from {least} to 1000000, so that features are within {bound}"
    )]
    ParameterNorm {
        /// The norm asked for.
        norm: f64,
        /// The norm whose features are as long as the bound.
        least: f64,
        /// The bound on features.
        bound: f64,
    },
    /// A bound on features is out of range.
    #[error("context_bound is {0}, must be from 0.000001 to 1000000")]
    ContextBound(f64),
    /// Nobody comes.
    #[error("horizon is {0}, must be at least 1")]
    Horizon(u64),
    /// `per_day` is no rate.
    #[error("per_day is {0}, must be above 0 and at most 1000000000")]
    PerDay(f64),
    /// `swing` would make a rate negative.
    #[error("swing is {0}, must be from 0 to 1")]
    Swing(f64),
    /// `reward_window` is out of range.
    #[error("reward_window is {0}, must be from 0 to 2678400 (seconds)")]
    RewardWindow(f64),
    /// A probability of drop-outs is none.
    #[error("drop.{0} is {1}, must be from 0 to 1")]
    Drop(&'static str, f64),
    /// The data has another dimension than the task.
    #[error("dimension is {found}, but the data gives {expected}")]
    DataDimension {
        /// The dimension asked for.
        found: u32,
        /// The dimension of the data.
        expected: u32,
    },
    /// A data file breaks a rule.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// Room for a bias and a direction.
fn check_dimension(dimension: u32) -> Result<usize, EnvironmentError> {
    if (2..=1000).contains(&dimension) {
        Ok(dimension as usize)
    } else {
        Err(EnvironmentError::Dimension(dimension))
    }
}

/// Something to choose.
fn check_arms(arms: u32) -> Result<u32, EnvironmentError> {
    if (2..=100_000).contains(&arms) { Ok(arms) } else { Err(EnvironmentError::Arms(arms)) }
}

/// Somebody comes.
fn check_horizon(horizon: u64) -> Result<u64, EnvironmentError> {
    if horizon > 0 { Ok(horizon) } else { Err(EnvironmentError::Horizon(horizon)) }
}
