//! What sums say about every block of a layout.

use incrowd_protocol::{
    Blocks, Confidence, LearnerConfig, MechanismHash, ModelParts, SlotParts, triangle,
};
use libm::sqrt;

use crate::{
    Estimate,
    confidence::{Frame, Sizes},
    estimate::{BlockSums, exploration},
    prior::{self, Belief, PriorSums},
};

/// Sums in the order of a report's coordinates, with noise of known size, wherever they come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoisySums<'a> {
    /// The sizes of the layout.
    pub blocks: Blocks,
    /// Sums of r x and of x x'.
    pub sums: &'a [f64],
    /// Standard deviation of the noise of a sum of r x.
    pub moment_std: f64,
    /// Standard deviation of the noise of a sum of products of two features.
    pub gram_std: f64,
    /// How often sums were released so far (j), at least 1.
    pub releases: u32,
    /// Least ridge: what regularises sums without noise.
    pub floor: f64,
}

/// Estimates for all parameters of a layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimates {
    blocks: Blocks,
    /// Of the shared features, or, where there are slots too, of all parameters: those of the slots
    /// first.
    joint: Option<Estimate>,
    /// Of each slot, where no features are shared.
    slots: Vec<Estimate>,
}

/// The one of many blocks that sizes are asked for: a slot, or all that is estimated together.
pub(crate) type Slot = Option<usize>;

impl Estimates {
    /// The `calibrated` estimates of this crate's bandit from any noisy sums: the same formulas for
    /// every algorithm that is compared with it. None if V is not positive definite in floats. In a
    /// learner of another mode the width is taken as it is (exploration 1).
    pub fn calibrated(learner: &LearnerConfig, sums: &NoisySums<'_>) -> Option<Self> {
        let &NoisySums { blocks, sums, moment_std, gram_std, releases, floor } = sums;
        let size = |_: Slot| {
            let frame = Frame::new(learner, blocks, releases);
            let stds = (moment_std, gram_std);
            (frame, Sizes::calibrated(blocks, stds, exploration(learner)).with_floor(floor))
        };
        Self::new(blocks, sums, None, size)
    }

    pub(crate) fn new<'a>(
        blocks: Blocks,
        sums: &[f64],
        prior: Option<(&PriorSums, f64)>,
        size: impl Fn(Slot) -> (Frame<'a>, Sizes),
    ) -> Option<Self> {
        let of = |sums: &[f64], slot: Slot| match slot {
            Some(slot) => slot_sums(blocks, sums, slot),
            None if blocks.slots() > 0 => joint_sums(blocks, sums),
            None => shared_sums(blocks, sums),
        };
        let all: Vec<Slot> =
            if blocks.shared() > 0 { vec![None] } else { (0..blocks.slots()).map(Some).collect() };
        let estimates: Option<Vec<Estimate>> = match prior {
            None => {
                let centre = pooled(blocks, sums, &size);
                let estimate = |&slot: &Slot| {
                    let (frame, sizes) = size(slot);
                    Estimate::new(&frame, &sizes, &of(sums, slot), centre.as_deref())
                };
                all.iter().map(estimate).collect()
            }
            Some((prior, learnable)) => {
                let found = all.iter().map(|&slot| {
                    let (frame, sizes) = size(slot);
                    let belief = Belief::new(&of(&prior.sums, slot), prior.one)?;
                    let noise = residual_noise(blocks, slot, belief.theta(), sizes.stds?);
                    belief.meet(&frame, &sizes, &of(sums, slot), &noise)
                });
                let found: Vec<_> = found.collect::<Option<_>>()?;
                let asked = all.iter().zip(&found).filter(|(slot, _)| prior.asks(**slot));
                let share = prior::share(asked.map(|(_, found)| found));
                Some(found.into_iter().map(|found| found.believed(share, learnable)).collect())
            }
        };
        let mut slots = estimates?;
        let joint = if blocks.shared() > 0 { slots.pop() } else { None };
        Some(Self { blocks, joint, slots })
    }

    /// The estimate of a model without slots.
    pub fn joint(&self) -> Option<&Estimate> {
        self.joint.as_ref()
    }

    /// ln det V over all blocks.
    pub fn log_det(&self) -> f64 {
        self.joint.iter().chain(&self.slots).map(|estimate| estimate.ellipsoid.log_det).sum()
    }

    /// The model that they give. Slots without an action say nothing.
    pub fn into_parts(
        self,
        mechanism: MechanismHash,
        (version, round): (u64, u32),
        actions: &[Option<String>],
    ) -> ModelParts {
        let blocks = self.blocks;
        let mut parts = blank(blocks, mechanism, (version, round), actions);
        if let Some(joint) = &self.joint {
            self.fill_joint(joint, &mut parts);
        }
        for (slot, estimate) in parts.slots.iter_mut().zip(self.slots) {
            if slot.action.is_some() {
                slot.confidence_width = estimate.ellipsoid.confidence_width;
                slot.theta = estimate.theta;
                slot.width_factor = estimate.width_factor;
            }
        }
        parts
    }

    /// W of the joint estimate is the inverse of a Cholesky factor whose slots come before the
    /// shared features: between two slots it is zero.
    fn fill_joint(&self, joint: &Estimate, parts: &mut ModelParts) {
        let (q, s) = (self.blocks.own(), self.blocks.shared());
        let (start, unit) = (self.blocks.slots() * q, shared_unit(self.blocks));
        let width = joint.ellipsoid.confidence_width;
        let w = |row: usize, column: usize| joint.width_factor[triangle(row) + column];
        parts.theta = joint.theta[start..].iter().map(|theta| theta / unit).collect();
        for i in 0..s {
            for j in 0..=i {
                parts.width_factor[triangle(i) + j] = w(start + i, start + j) / unit;
            }
        }
        if self.blocks.slots() == 0 {
            parts.confidence_width = width;
        }
        for (number, slot) in parts.slots.iter_mut().enumerate() {
            if slot.action.is_none() {
                continue;
            }
            let first = number * q;
            slot.confidence_width = width;
            slot.theta = joint.theta[first..first + q].to_vec();
            for i in 0..q {
                for j in 0..=i {
                    slot.width_factor[triangle(i) + j] = w(first + i, first + j);
                }
            }
            for i in 0..s {
                for j in 0..q {
                    slot.cross_factor[i * q + j] = w(start + i, first + j);
                }
            }
        }
    }
}

/// Variance of each entry of m - G theta_0 by the noise of the sums: of an entry of the moment, and
/// of the entries of the Gram matrix that meet the weights `theta`. `stds` are the standard
/// deviations of an entry of the moment and of the Gram matrix.
fn residual_noise(
    blocks: Blocks,
    slot: Slot,
    theta: &[f64],
    (moment, gram): (f64, f64),
) -> Vec<f64> {
    let square = |theta: &[f64]| theta.iter().map(|entry| entry * entry).sum::<f64>();
    let variance = |squares: f64| moment * moment + gram * gram * squares;
    if slot.is_some() || blocks.slots() == 0 {
        return vec![variance(square(theta)); theta.len()];
    }
    let (own, shared) = theta.split_at(blocks.slots() * blocks.own());
    let units = shared_unit(blocks) * shared_unit(blocks);
    let shared_square = square(shared) / units;
    let mut noise = Vec::with_capacity(theta.len());
    for slot in own.chunks_exact(blocks.own()) {
        let variance = variance(square(slot) + shared_square);
        noise.extend(std::iter::repeat_n(variance, slot.len()));
    }
    let common = variance(square(own) + shared_square) / units;
    noise.extend(std::iter::repeat_n(common, shared.len()));
    noise
}

/// A model that says which slot stands for which action, and nothing else: every arm has the score
/// 0.
pub(crate) fn blank(
    blocks: Blocks,
    mechanism: MechanismHash,
    (version, round): (u64, u32),
    actions: &[Option<String>],
) -> ModelParts {
    let identity = |dimension: usize| {
        let mut factor = vec![0.0; triangle(dimension)];
        (0..dimension).for_each(|i| factor[triangle(i + 1) - 1] = 1.0);
        factor
    };
    let slot = |action: &Option<String>| SlotParts {
        action: action.clone(),
        theta: vec![0.0; blocks.own()],
        width_factor: identity(blocks.own()),
        cross_factor: vec![0.0; blocks.shared() * blocks.own()],
        confidence_width: 0.0,
    };
    ModelParts {
        mechanism,
        version,
        round,
        theta: vec![0.0; blocks.shared()],
        width_factor: identity(blocks.shared()),
        confidence_width: 0.0,
        slots: actions.iter().map(slot).collect(),
    }
}

/// The parameter of one block that all slots have in common: what is known of an action that nobody
/// has seen yet. It has K times the reports of a slot, and sqrt(K) times the noise. None without
/// slots, and none where widths are proven, which is for a ridge that pulls towards zero.
fn pooled<'a>(
    blocks: Blocks,
    sums: &[f64],
    size: &impl Fn(Slot) -> (Frame<'a>, Sizes),
) -> Option<Vec<f64>> {
    let (q, s, slots) = (blocks.own(), blocks.shared(), blocks.slots());
    if slots < 2 {
        return None;
    }
    let (frame, sizes) = size(None);
    if matches!(frame.learner.confidence, Confidence::Proven {}) {
        return None;
    }
    let mut pool = BlockSums { moment: vec![0.0; q + s], gram: vec![0.0; triangle(q + s)] };
    for slot in 0..slots {
        let own = slot_sums(blocks, sums, slot);
        pool.moment.iter_mut().zip(&own.moment).for_each(|(sum, entry)| *sum += entry);
        pool.gram.iter_mut().zip(&own.gram).for_each(|(sum, entry)| *sum += entry);
        let cross = &sums[blocks.slot_start(slot) + q + triangle(q)..];
        for i in 0..s {
            for j in 0..q {
                pool.gram[triangle(q + i) + j] += cross[i * q + j];
            }
        }
    }
    let shared = shared_sums(blocks, sums);
    pool.moment[q..].copy_from_slice(&shared.moment);
    for i in 0..s {
        for j in 0..=i {
            pool.gram[triangle(q + i) + q + j] = shared.gram[triangle(i) + j];
        }
    }
    let sizes = sizes.scaled(sqrt(slots as f64));
    let theta = Estimate::new(&frame, &sizes, &pool, None)?.theta;
    if s == 0 {
        return Some(theta);
    }
    // As the joint estimate has them: every slot, then shared features in their own unit.
    let unit = shared_unit(blocks);
    let mut centre = theta[..q].repeat(slots);
    centre.extend(theta[q..].iter().map(|entry| entry * unit));
    Some(centre)
}

/// What shared features are divided by while they are estimated together with slots: every report
/// counts for them, and only one in K for a slot, so this makes both parts of V, and of its noise,
/// about equally large.
pub(crate) fn shared_unit(blocks: Blocks) -> f64 {
    sqrt(blocks.slots().max(1) as f64)
}

fn shared_sums(blocks: Blocks, sums: &[f64]) -> BlockSums {
    let (moment, rest) = sums.split_at(blocks.shared());
    BlockSums { moment: moment.to_vec(), gram: rest[..triangle(blocks.shared())].to_vec() }
}

fn slot_sums(blocks: Blocks, sums: &[f64], slot: usize) -> BlockSums {
    let sums = &sums[blocks.slot_start(slot)..];
    let (moment, rest) = sums.split_at(blocks.own());
    BlockSums { moment: moment.to_vec(), gram: rest[..triangle(blocks.own())].to_vec() }
}

/// Slots, then shared features in units of [`shared_unit`].
fn joint_sums(blocks: Blocks, sums: &[f64]) -> BlockSums {
    let (q, s, unit) = (blocks.own(), blocks.shared(), shared_unit(blocks));
    let start = blocks.slots() * q;
    let mut moment = Vec::with_capacity(start + s);
    let mut gram = vec![0.0; triangle(start + s)];
    for slot in 0..blocks.slots() {
        let own = slot_sums(blocks, sums, slot);
        moment.extend(own.moment);
        let first = slot * q;
        for i in 0..q {
            let row = triangle(first + i) + first;
            gram[row..=row + i].copy_from_slice(&own.gram[triangle(i)..triangle(i + 1)]);
        }
        let cross = &sums[blocks.slot_start(slot) + q + triangle(q)..];
        for i in 0..s {
            for j in 0..q {
                gram[triangle(start + i) + first + j] = cross[i * q + j] / unit;
            }
        }
    }
    let shared = shared_sums(blocks, sums);
    moment.extend(shared.moment.iter().map(|entry| entry / unit));
    for i in 0..s {
        for j in 0..=i {
            let entry = shared.gram[triangle(i) + j] / (unit * unit);
            gram[triangle(start + i) + start + j] = entry;
        }
    }
    BlockSums { moment, gram }
}
