//! What an operator allows, checked against what is proved.

use incrowd_planner::{DEFAULT_LOCAL_EPSILON, SMALLEST_BATCH};
use incrowd_privacy::{Certificate, PrivacyError, certify, format_epsilon};
use incrowd_protocol::{Mechanism, Task};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most an operator lets a task tell about a person. A task beyond it is not served.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest local epsilon of one report.
    pub epsilon_local: f64,
    /// Largest central epsilon of all releases together, at the task's delta.
    pub epsilon_central: f64,
    /// Largest delta of the central guarantee.
    pub delta: f64,
    /// Smallest batch.
    pub smallest_batch: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            epsilon_local: DEFAULT_LOCAL_EPSILON,
            epsilon_central: 1.0,
            delta: 1e-5,
            smallest_batch: SMALLEST_BATCH,
        }
    }
}

/// Why a task is not served.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The guarantee cannot be proved.
    #[error("the task has no certificate: {0}")]
    Uncertified(#[from] PrivacyError),
    /// A guarantee weaker than the operator allows.
    #[error("{what} of the task is {found}, this operator's limit is {limit} (limits.{key})")]
    Exceeded {
        /// Which number.
        what: &'static str,
        /// What is proved.
        found: String,
        /// What is allowed.
        limit: String,
        /// The setting to change.
        key: &'static str,
    },
}

impl Limits {
    /// No limit at all: for synthetic people.
    pub fn unlimited() -> Self {
        let none = f64::INFINITY;
        Self { epsilon_local: none, epsilon_central: none, delta: 1.0, smallest_batch: 1 }
    }

    /// The certificate of a task, computed here and now, if it is within the limits.
    pub fn admit(&self, task: &Task) -> Result<Certificate, LimitError> {
        self.admit_mechanism(task.mechanism())
    }

    /// The same, for a mechanism that is no task yet.
    #[allow(clippy::neg_cmp_op_on_partial_ord)]
    pub fn admit_mechanism(&self, mechanism: &Mechanism) -> Result<Certificate, LimitError> {
        let certificate = certify(mechanism)?;
        let exceeded = |what, found: f64, limit: f64, key| LimitError::Exceeded {
            what,
            found: format_epsilon(found),
            limit: limit.to_string(),
            key,
        };
        // Written so that a NaN among the limits refuses.
        let local = certificate.epsilon_local();
        if !(local <= self.epsilon_local) {
            return Err(exceeded("the local epsilon", local, self.epsilon_local, "epsilon_local"));
        }
        let central = certificate.epsilon_central();
        if !(central <= self.epsilon_central) {
            let limit = self.epsilon_central;
            return Err(exceeded("the central epsilon", central, limit, "epsilon_central"));
        }
        let delta = certificate.delta();
        if !(delta <= self.delta) {
            return Err(exceeded("the delta", delta, self.delta, "delta"));
        }
        let smallest = mechanism.schedule().smallest_batch();
        if smallest < self.smallest_batch {
            return Err(LimitError::Exceeded {
                what: "the smallest batch",
                found: smallest.to_string(),
                limit: self.smallest_batch.to_string(),
                key: "smallest_batch",
            });
        }
        Ok(certificate)
    }
}
