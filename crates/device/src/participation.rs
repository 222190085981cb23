use incrowd_protocol::Mechanism;
use serde::{Deserialize, Serialize};

use crate::DeviceError;

/// How often a device has answered: at most one report in any batch, at most k in the life of the
/// task.
///
/// # Privacy
/// The central guarantee is about one report per batch and k in all; it is void for a device that
/// forgets this state, so an application keeps it across restarts. The rule looks at rounds only,
/// never at a context or a reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Participation {
    /// Round of the last report, 0 when there was none.
    last_round: u32,
    /// Reports made so far.
    reports: u32,
}

/// When a device may make its next report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// In any round: it has not answered yet.
    Now,
    /// From this round on: a report for round j may be counted until round j + grace, and two of
    /// one device must not meet in a batch.
    From(u64),
    /// Never: all of its reports are made.
    Spent,
}

impl Next {
    /// Whether a report for `round` may be made.
    pub fn allows(self, round: u32) -> bool {
        match self {
            Self::Now => true,
            Self::From(first) => u64::from(round) >= first,
            Self::Spent => false,
        }
    }
}

impl Participation {
    /// Reports made so far.
    pub fn reports(&self) -> u32 {
        self.reports
    }

    /// When the next report may be made: the one rule for devices and clients.
    pub fn next(&self, mechanism: &Mechanism) -> Next {
        if self.reports >= mechanism.participations().get() {
            Next::Spent
        } else if self.last_round == 0 {
            Next::Now
        } else {
            Next::From(u64::from(self.last_round) + u64::from(mechanism.grace()) + 1)
        }
    }

    /// Takes the right to one report for `round`, or says why there is none.
    pub(crate) fn claim(&mut self, round: u32, mechanism: &Mechanism) -> Result<(), DeviceError> {
        match self.next(mechanism) {
            Next::Spent => Err(DeviceError::Spent(mechanism.participations().get())),
            Next::From(next) if !Next::From(next).allows(round) => {
                Err(DeviceError::TooSoon { round, last: self.last_round, next })
            }
            Next::Now | Next::From(_) => {
                *self = Self { last_round: round, reports: self.reports + 1 };
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use incrowd_protocol::{Closes, FlipProbability, Law, Layout, MechanismConfig, Stage};

    use super::*;

    #[test]
    fn r16_the_next_report_is_past_the_grace_window_and_at_most_k_are_made() {
        let flip = FlipProbability::new(1, 2).unwrap();
        let config = MechanismConfig {
            dimension: 1,
            context_bound: 1.0,
            schedule: vec![Stage { rounds: 50, size: 1, window: None, law: Law::bits(1, flip) }],
            layout: Layout::Shared,
            closes: Closes::Count { grace: 2 },
            central_delta: 1e-6,
            participations: 2,
            honest_fraction: 1.0,
        };
        let mechanism = config.check().unwrap();
        let mut participation = Participation::default();
        assert_eq!(participation.next(&mechanism), Next::Now);
        participation.claim(4, &mechanism).unwrap();
        assert_eq!(participation.next(&mechanism), Next::From(7));
        // `next` and `claim` agree on every round.
        for round in 1..=50 {
            let claimed = participation.clone().claim(round, &mechanism).is_ok();
            assert_eq!(participation.next(&mechanism).allows(round), claimed, "round {round}");
            assert_eq!(claimed, round >= 7, "round {round}");
        }
        participation.claim(7, &mechanism).unwrap();
        assert_eq!(participation.next(&mechanism), Next::Spent);
        assert_eq!(participation.claim(50, &mechanism), Err(DeviceError::Spent(2)));
        assert!(!Next::Spent.allows(u32::MAX));
    }
}
