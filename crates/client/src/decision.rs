use std::{
    fmt,
    sync::{Arc, Mutex},
};

use incrowd_device::{DeviceError, FieldProblem, InputProblem};
use thiserror::Error;
use tokio::time::Instant;

use crate::{ClientError, core::lock};

/// What was wrong with the features of a decision. The decision was made and is reported all the
/// same.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// Fields that could not be used as they were; each is zero or clipped.
    #[error("{} of the fields could not be used as they were, the first: {}", .0.len(), .0[0])]
    Fields(Vec<FieldProblem>),
    /// The features of the chosen action; they are scaled down, or the report is pure noise.
    #[error(transparent)]
    Input(#[from] InputProblem),
    /// The actions could not be scored: the default action was taken.
    #[error("the default action was taken: {0}")]
    Choice(DeviceError),
    /// An action that no slot of the model stands for: it was left out.
    #[error("the model has no slot for the action {0:?}: it was left out")]
    UnknownAction(String),
    /// There are fewer actions than the default action needs: any one was taken.
    #[error("the default action is {default}, but there are {actions} actions: one was drawn")]
    DefaultAction {
        /// The configured one.
        default: usize,
        /// How many there are.
        actions: usize,
    },
}

/// An action that was chosen, and the place for its reward.
///
/// # Privacy
/// If this decision is the one that is reported, the report leaves at a moment that was drawn when
/// the decision was made. Giving a reward, giving it late, or dropping the decision does not change
/// that moment; without a reward the report has the default one.
#[must_use = "a decision has the action to take"]
pub struct Decision {
    pub(crate) action: usize,
    pub(crate) held_out: bool,
    pub(crate) problems: Vec<Problem>,
    /// End of the reward window.
    pub(crate) deadline: Instant,
    pub(crate) reward: Arc<Mutex<Option<f64>>>,
}

impl Decision {
    /// Index of the action to take.
    pub fn action(&self) -> usize {
        self.action
    }

    /// Whether the device is [held out](crate::Group::HeldOut): the action is the incumbent's, or
    /// any if there is none.
    pub fn held_out(&self) -> bool {
        self.held_out
    }

    /// Everything that was wrong with the features. The device reports all the same.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Gives the reward, from 0 to 1. Until the window is over the last one counts.
    ///
    /// A reward outside of its range is [taken](ClientError::Input) too: clipped, or, if it is not
    /// finite, as a report of pure noise.
    pub fn reward(&self, reward: f64) -> Result<(), ClientError> {
        if Instant::now() >= self.deadline {
            return Err(ClientError::WindowOver);
        }
        *lock(&self.reward) = Some(reward);
        if !reward.is_finite() {
            return Err(InputProblem::NotFinite.into());
        }
        if !(0.0..=1.0).contains(&reward) {
            return Err(InputProblem::Reward.into());
        }
        Ok(())
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision").field("held_out", &self.held_out).finish_non_exhaustive()
    }
}
