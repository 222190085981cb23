use incrowd_protocol::Mechanism;
use serde::{Deserialize, Serialize};

use crate::DeviceError;

/// How often a device has answered: at most one report in any batch, at most k in the life of the task.
///
/// # Privacy
/// The central guarantee is about one report per batch and k in all; it is void for a device that forgets this state, so an application
/// keeps it across restarts. The rule looks at rounds only, never at a context or a reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Participation {
    /// Round of the last report, 0 when there was none.
    last_round: u32,
    /// Reports made so far.
    reports: u32,
}

impl Participation {
    /// Reports made so far.
    pub fn reports(&self) -> u32 {
        self.reports
    }

    /// Takes the right to one report for `round`, or says why there is none.
    ///
    /// A report for round j may be counted until round j + grace, so the next one is for a later round than that.
    pub(crate) fn claim(&mut self, round: u32, mechanism: &Mechanism) -> Result<(), DeviceError> {
        let limit = mechanism.participations();
        if self.reports >= limit {
            return Err(DeviceError::Spent(limit));
        }
        let last = self.last_round;
        let next = u64::from(last) + u64::from(mechanism.grace()) + 1;
        if last > 0 && u64::from(round) < next {
            return Err(DeviceError::TooSoon { round, last, next });
        }
        *self = Self { last_round: round, reports: self.reports + 1 };
        Ok(())
    }
}
