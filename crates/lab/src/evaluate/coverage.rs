use std::collections::BTreeMap;

use serde::Serialize;

use super::{Log, Policy, log::Event, policy::Decision};

/// What the policy would do that the log cannot show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coverage {
    /// Share of the policy's choices that the log cannot show.
    pub uncovered_share: f64,
    /// Events in which the policy would, with some probability, make such a choice.
    pub uncovered_events: usize,
    /// Their actions, most wanted first.
    pub uncovered_actions: Vec<Uncovered>,
}

/// An action that the policy wants where the log never has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Uncovered {
    /// Its name.
    pub action: String,
    /// Share of the policy's choices.
    pub share: f64,
}

/// The policy's choices that the log cannot show.
pub(super) struct UncoveredMass<'a> {
    log: &'a Log,
    events: usize,
    total: f64,
    mass: f64,
    of_action: BTreeMap<String, f64>,
}

impl<'a> UncoveredMass<'a> {
    pub(super) fn new(log: &'a Log) -> Self {
        Self { log, events: 0, total: 0.0, mass: 0.0, of_action: BTreeMap::new() }
    }

    /// With logged probabilities, choices that had none; without, actions that were never logged.
    pub(super) fn add(&mut self, event: &Event, decision: &Decision, policy: &Policy) {
        self.total += event.expansion;
        let Decision::Arms(arms) = decision else {
            return;
        };
        let before = self.mass;
        for (arm, &share) in arms.iter().enumerate().filter(|&(_, &share)| share > 0.0) {
            let action = event.action(arm);
            let covered = match &event.probabilities {
                Some(probabilities) => probabilities[arm] > 0.0,
                None => self.log.logged[action],
            };
            if !covered {
                self.note(self.log.actions()[action].clone(), share * event.expansion);
            }
        }
        if let (Policy::Always(action), true) = (policy, absent(arms)) {
            self.note(action.clone(), event.expansion);
        }
        self.events += usize::from(self.mass > before);
    }

    fn note(&mut self, action: String, mass: f64) {
        self.mass += mass;
        *self.of_action.entry(action).or_default() += mass;
    }

    pub(super) fn coverage(self) -> Coverage {
        let total = self.total;
        let share = |(action, mass)| Uncovered { action, share: mass / total };
        let mut actions: Vec<Uncovered> = self.of_action.into_iter().map(share).collect();
        actions.sort_by(|left, right| right.share.total_cmp(&left.share));
        Coverage {
            uncovered_share: self.mass / total,
            uncovered_events: self.events,
            uncovered_actions: actions,
        }
    }
}

/// Whether an event does not offer what the policy takes.
pub(super) fn absent(arms: &[f64]) -> bool {
    arms.iter().all(|&share| share == 0.0)
}
