use std::sync::Arc;

use incrowd_protocol::{
    BatchSums, Confidence, Mechanism, Model, ModelParts, ProtocolError, TaskConfig, UpdateRule,
    check_actions,
};
use libm::log;
use thiserror::Error;

use crate::{
    Assignment, Estimate, Estimates, Statistics, Uplift,
    blocks::{Slot, blank},
    confidence::{Frame, Setting, Sizes},
    noise::{Counted, Noise},
    prior::{PriorSums, Told},
};

/// Why a release or a saved state is not taken, or a question not answered. Nothing changed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum BanditError {
    /// Not a release of this mechanism.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Not the next round's release: releases are absorbed in order, each once.
    #[error("release is of round {found}, must be of round {next}")]
    Order {
        /// Round of the release.
        found: u32,
        /// Round that comes next.
        next: u32,
    },
    /// Statistics of another task, or damaged.
    #[error("the statistics are not of this task")]
    WrongStatistics,
    /// A slot would change from one action to another.
    #[error("slot {slot} stands for {old:?}, must be retired before it can stand for {new:?}")]
    SlotTaken {
        /// Number of the slot.
        slot: usize,
        /// What it stands for.
        old: String,
        /// What it should stand for.
        new: String,
    },
    /// A slot would be filled while reports for its last action may still count.
    #[error("slot {slot} was retired after round {retired}, can be filled after round {from}")]
    SlotResting {
        /// Number of the slot.
        slot: usize,
        /// The last round with its old action.
        retired: u32,
        /// The first round after which it may be filled.
        from: u32,
    },
    /// A slot of a hybrid model would get another action, and nothing is proved about widths then.
    #[error(
        "slot {slot} had an action, must keep it: a hybrid model with confidence mode \"proven\""
    )]
    ProvenSlot {
        /// Number of the slot.
        slot: usize,
    },
    /// Assignments that releases and slots do not lead to.
    #[error("assignments must be one for each change, in order, the first one before round 1")]
    Assignments,
    /// An uplift of a task that compares nothing.
    #[error(
        "the task is no comparison: it must have one feature, the actions \"incumbent\" and \"model\", and no discount"
    )]
    NotComparison,
    /// An uplift before the first release.
    #[error("nothing is released yet: the uplift is known after the first round")]
    NoRelease,
    /// A confidence that no interval has.
    #[error("confidence is {0}, must be from 0.5 to 0.999999")]
    ConfidenceLevel(f64),
}

/// The bandit of one task.
#[derive(Debug, Clone)]
pub struct Bandit {
    task: Arc<TaskConfig>,
    statistics: Statistics,
}

impl Bandit {
    /// Before the first release.
    pub fn new(task: Arc<TaskConfig>) -> Self {
        let statistics = Statistics::new(task.mechanism(), task.actions());
        Self { task, statistics }
    }

    /// Where it was when `statistics` were written down.
    pub fn resume(task: Arc<TaskConfig>, statistics: Statistics) -> Result<Self, BanditError> {
        if !statistics.fits(task.mechanism()) {
            return Err(BanditError::WrongStatistics);
        }
        Ok(Self { task, statistics })
    }

    /// What releases and assignments lead to, from the first model on: the same bits as where they
    /// came one by one, with the same prior. Also gives the newest model.
    ///
    /// Assignments are those of [`Statistics::assignments`], of a task without slots none.
    pub fn rebuild<'a>(
        task: Arc<TaskConfig>,
        assignments: &[Assignment],
        releases: impl IntoIterator<Item = &'a BatchSums>,
    ) -> Result<(Self, Option<Model>), BanditError> {
        let (first, later) = match (task.mechanism().blocks().slots(), assignments) {
            (0, []) => (Vec::new(), assignments),
            (1.., [first, later @ ..]) if first.round == 0 => (first.actions.clone(), later),
            _ => return Err(BanditError::Assignments),
        };
        let statistics = Statistics::new(task.mechanism(), first);
        let mut bandit = Self::resume(task, statistics)?;
        let mut model = bandit.start();
        let mut later = later.iter().peekable();
        let mut releases = releases.into_iter();
        loop {
            let now = bandit.statistics.round;
            while let Some(next) = later.next_if(|next| next.round == now) {
                model = bandit.assign(next.actions.clone())?.or(model);
            }
            let Some(sums) = releases.next() else { break };
            model = bandit.absorb(sums)?.or(model);
        }
        match later.next() {
            None => Ok((bandit, model)),
            Some(_) => Err(BanditError::Assignments),
        }
    }

    /// What to write down.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The model before the first release, where there is something to say: a prior, or which slot
    /// stands for which action. None if it was given before.
    pub fn start(&mut self) -> Option<Model> {
        if self.statistics.models > 0 || self.statistics.round > 0 {
            return None;
        }
        self.publish_now()
    }

    /// Takes the next round's release; gives the new model when the update rule asks for one and V
    /// is positive definite.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Algorithm 1, step (b), and FixedBatchedShuffling-LinUCB of its
    /// appendix.
    /// # Deviation
    /// The first release always gives a model, unless a prior gave one before.
    pub fn absorb(&mut self, sums: &BatchSums) -> Result<Option<Model>, BanditError> {
        let mechanism = self.task.mechanism();
        let next = self.statistics.round + 1;
        if sums.mechanism() == mechanism.hash() && sums.round() != next {
            return Err(BanditError::Order { found: sums.round(), next });
        }
        sums.check(mechanism)?;
        let round = mechanism.round(next)?;
        let discount = self.task.learner().config().discount;
        self.statistics.add(mechanism, &round, sums, discount);
        let Some(estimates) = self.estimates() else { return Ok(None) };
        let due = match (self.task.learner().config().update, self.statistics.published_log_det) {
            (UpdateRule::Determinant { growth }, Some(last)) => {
                estimates.log_det() >= last + log(1.0 + growth)
            }
            _ => true,
        };
        Ok(if due { self.publish(Some(estimates)) } else { None })
    }

    /// From now on the slots stand for these actions; gives the model that says so, or none if
    /// nothing changes. A slot that is filled starts from nothing: it must have been without an
    /// action for as long as reports for its last one may count, and one round more.
    pub fn assign(&mut self, actions: Vec<Option<String>>) -> Result<Option<Model>, BanditError> {
        if actions == self.statistics.actions() {
            return Ok(None);
        }
        let mechanism = self.task.mechanism().clone();
        let (found, slots) = (actions.len(), mechanism.blocks().slots());
        if found != slots {
            return Err(ProtocolError::Actions { found, slots }.into());
        }
        check_actions(actions.iter().flatten().map(String::as_str))?;
        let filled = self.filled(&mechanism, &actions)?;
        let joint = if filled.is_empty() { None } else { self.estimates() };
        let ridge = joint.and_then(|found| found.joint().map(|joint| joint.ellipsoid.ridge));
        for slot in filled {
            let ridge = ridge.filter(|_| self.statistics.was_used(slot));
            self.statistics.clear(&mechanism, slot, ridge);
        }
        let round = self.statistics.round;
        self.statistics.assignments.push(Assignment { round, actions });
        Ok(self.publish_now())
    }

    /// The slots that get an action which they did not have.
    fn filled(
        &self,
        mechanism: &Mechanism,
        actions: &[Option<String>],
    ) -> Result<Vec<usize>, BanditError> {
        let mut filled = Vec::new();
        for (slot, (old, new)) in self.statistics.actions().iter().zip(actions).enumerate() {
            match (old, new) {
                (Some(old), Some(new)) if old != new => {
                    let (old, new) = (old.clone(), new.clone());
                    return Err(BanditError::SlotTaken { slot, old, new });
                }
                (None, Some(_)) => {
                    let retired = self.statistics.since(slot);
                    let used = self.statistics.was_used(slot);
                    let rest = retired.saturating_add(mechanism.grace()).saturating_add(1);
                    let from = if used { rest } else { 0 };
                    if self.statistics.round < from {
                        return Err(BanditError::SlotResting { slot, retired, from });
                    }
                    if used && self.is_proven_hybrid() {
                        return Err(BanditError::ProvenSlot { slot });
                    }
                    filled.push(slot);
                }
                _ => {}
            }
        }
        Ok(filled)
    }

    fn is_proven_hybrid(&self) -> bool {
        let proven = matches!(self.task.learner().config().confidence, Confidence::Proven {});
        proven && self.task.mechanism().blocks().shared() > 0
    }

    fn publish_now(&mut self) -> Option<Model> {
        let estimates = self.estimates();
        self.publish(estimates)
    }

    /// The next model; none if there is nothing to say, or it could not be used.
    fn publish(&mut self, estimates: Option<Estimates>) -> Option<Model> {
        let mechanism = self.task.mechanism();
        let hash = mechanism.hash();
        let number = (u64::from(self.statistics.models) + 1, self.statistics.round);
        let actions = self.statistics.actions();
        let log_det = estimates.as_ref().map(Estimates::log_det);
        let parts: ModelParts = match estimates {
            Some(estimates) => estimates.into_parts(hash, number, actions),
            None if self.statistics.round == 0 && !actions.is_empty() => {
                blank(mechanism.blocks(), hash, number, actions)
            }
            None => return None,
        };
        // Checked like a device does: what is not finite or not positive definite is not published.
        let model = parts.check().ok()?;
        self.statistics.models += 1;
        self.statistics.published_log_det = log_det.or(self.statistics.published_log_det);
        Some(model)
    }

    /// Estimates and confidence after the releases so far; none before the first one without a
    /// prior, or if V is not positive definite in floats.
    pub fn estimates(&self) -> Option<Estimates> {
        let mechanism = self.task.mechanism();
        let blocks = mechanism.blocks();
        let prior = self.task.prior();
        if self.statistics.round == 0 && prior.is_none() {
            return None;
        }
        let prior = prior.map(|prior| PriorSums::new(mechanism, prior, &self.statistics));
        let one = mechanism.context_bound() * mechanism.context_bound();
        let size = |slot: Slot| {
            let after = slot.map_or(0, |slot| self.statistics.since(slot));
            let (frame, sizes) = self.size(after);
            // Without noise and without a prior the ridge is that of one person.
            (frame, if after > 0 && prior.is_none() { sizes.with_floor(one) } else { sizes })
        };
        let prior = prior.as_ref().map(|prior| (prior, self.learnable(prior)));
        Estimates::new(blocks, &self.statistics.sums, prior, size)
    }

    /// How much of what the prior does not know can still be learned.
    fn learnable(&self, prior: &PriorSums) -> f64 {
        let mechanism = self.task.mechanism();
        let (bound, learner) = (mechanism.context_bound(), self.task.learner().config());
        let told = |until: u32| {
            let counted = Counted { after: 0, until, discount: learner.discount };
            let noise = Noise::of(mechanism, mechanism.dimension(), counted);
            let moment = bound / learner.reward_noise;
            let gram = moment * bound * learner.parameter_bound;
            Told {
                reports: noise.reports,
                noise: moment * moment * noise.moment.variance + gram * gram * noise.gram.variance,
            }
        };
        // What is forgotten can be learned again.
        let now = if learner.discount < 1.0 { 0 } else { self.statistics.round };
        prior.learnable(&told(now), &told(mechanism.schedule().last_round()))
    }

    /// Mean rewards of both groups of a comparison task after the releases so far, and how far
    /// apart they are, with intervals of this confidence.
    pub fn uplift(&self, confidence: f64) -> Result<Uplift, BanditError> {
        Uplift::of(&self.task, &self.statistics, confidence)
    }

    /// The estimate of a model without slots, as [`Bandit::estimates`].
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimates()?.joint().filter(|_| self.statistics.assignments.is_empty()).cloned()
    }

    /// The sizes of an estimate from the releases after a round.
    fn size(&self, after: u32) -> (Frame<'_>, Sizes) {
        let mechanism = self.task.mechanism();
        let (blocks, learner) = (mechanism.blocks(), self.task.learner().config());
        let until = self.statistics.round;
        let frame = Frame::new(learner, blocks, until);
        let counted = Counted { after, until, discount: learner.discount };
        let setting = Setting {
            blocks,
            context_bound: mechanism.context_bound(),
            round: mechanism.round(until).ok(),
            noise: Noise::of(mechanism, frame.dimension, counted),
            frame,
        };
        let sizes = setting.sizes();
        (setting.frame, sizes)
    }
}
