//! What sums say about every block of a layout.

use incrowd_protocol::{
    Blocks, Confidence, LearnerConfig, MechanismHash, ModelParts, SlotParts, triangle,
};
use libm::sqrt;

use crate::{
    Estimate, algebra,
    confidence::{Frame, Sizes},
    estimate::{BlockSums, exploration},
    prior::{Belief, BlockNoise, PriorSums},
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
        let centre = if prior.is_none() { pooled(blocks, sums, &size) } else { None };
        let estimate = |slot: Slot| {
            let (frame, sizes) = size(slot);
            let of = |sums: &[f64]| match slot {
                Some(slot) => slot_sums(blocks, sums, slot),
                None if blocks.slots() > 0 => joint_sums(blocks, sums),
                None => shared_sums(blocks, sums),
            };
            let Some((prior, learnable)) = prior else {
                return Estimate::new(&frame, &sizes, &of(sums), centre.as_deref());
            };
            let belief = Belief::new(&of(&prior.sums), prior.one)?;
            let noise = block_noise(blocks, slot, belief.theta(), sizes.stds?);
            belief.weighed_with(&frame, &sizes, &of(sums), &noise, learnable)
        };
        if blocks.shared() > 0 {
            return Some(Self { blocks, joint: Some(estimate(None)?), slots: Vec::new() });
        }
        let slots = (0..blocks.slots()).map(|slot| estimate(Some(slot))).collect::<Option<_>>()?;
        Some(Self { blocks, joint: None, slots })
    }

    /// The estimate of a model without slots.
    pub fn joint(&self) -> Option<&Estimate> {
        self.joint.as_ref()
    }

    /// ln det V over all blocks.
    pub fn log_det(&self) -> f64 {
        self.joint.iter().chain(&self.slots).map(|estimate| estimate.ellipsoid.log_det).sum()
    }

    /// The model that they give; none if it is not positive definite in floats. Slots without an
    /// action say nothing.
    pub fn into_parts(
        self,
        mechanism: MechanismHash,
        (version, round): (u64, u32),
        actions: &[Option<String>],
    ) -> Option<ModelParts> {
        let blocks = self.blocks;
        let mut parts = blank(blocks, mechanism, (version, round), actions);
        if let Some(joint) = &self.joint {
            self.fill_joint(joint, &mut parts)?;
        }
        for (slot, estimate) in parts.slots.iter_mut().zip(self.slots) {
            if slot.action.is_some() {
                slot.confidence_width = estimate.ellipsoid.confidence_width;
                slot.theta = estimate.theta;
                slot.width_factor = estimate.width_factor;
            }
        }
        Some(parts)
    }

    /// The part of the joint estimate that each slot's arms need. With S = V^-1 = W'W of the joint
    /// estimate: the shared factor is that of S between shared features, C is its share of S
    /// between shared and own ones, and a slot's own factor is that of what C leaves.
    fn fill_joint(&self, joint: &Estimate, parts: &mut ModelParts) -> Option<()> {
        let (q, s) = (self.blocks.own(), self.blocks.shared());
        let (start, unit) = (self.blocks.slots() * q, shared_unit(self.blocks));
        let width = joint.ellipsoid.confidence_width;
        parts.theta = joint.theta[start..].iter().map(|theta| theta / unit).collect();
        if self.blocks.slots() == 0 {
            parts.confidence_width = width;
            parts.width_factor.clone_from(&joint.width_factor);
            return Some(());
        }
        let columns = columns(&joint.width_factor, start + s);
        let covariance = |i: usize, j: usize| {
            let from = i.max(j);
            algebra::dot(&columns[i][from - i..], &columns[j][from - j..])
        };
        let lower = |size: usize| (0..size).flat_map(|i| (0..=i).map(move |j| (i, j)));
        let between: Vec<f64> = lower(s).map(|(i, j)| covariance(start + i, start + j)).collect();
        let shared = algebra::factor_of_inverse(&between, s)?;
        parts.width_factor = shared.iter().map(|entry| entry / unit).collect();
        for (number, slot) in parts.slots.iter_mut().enumerate() {
            if slot.action.is_none() {
                continue;
            }
            let first = number * q;
            let cross: Vec<Vec<f64>> = (0..q)
                .map(|j| (0..s).map(|i| covariance(start + i, first + j)).collect::<Vec<f64>>())
                .map(|column| algebra::solve_transposed(&shared, &column))
                .collect();
            let own: Vec<f64> = lower(q)
                .map(|(i, j)| covariance(first + i, first + j) - algebra::dot(&cross[i], &cross[j]))
                .collect();
            slot.confidence_width = width;
            slot.theta = joint.theta[first..first + q].to_vec();
            slot.width_factor = algebra::factor_of_inverse(&own, q)?;
            slot.cross_factor = (0..s).flat_map(|i| cross.iter().map(move |c| c[i])).collect();
        }
        Some(())
    }
}

/// The columns of a lower triangular matrix, each from its diagonal on.
fn columns(factor: &[f64], dimension: usize) -> Vec<Vec<f64>> {
    (0..dimension).map(|j| (j..dimension).map(|i| factor[triangle(i) + j]).collect()).collect()
}

/// What the noise of the sums does to an estimate beside a prior with the parameter `theta`. `stds`
/// are the standard deviations of an entry of the moment and of the Gram matrix.
fn block_noise(
    blocks: Blocks,
    slot: Slot,
    theta: &[f64],
    (moment, gram): (f64, f64),
) -> BlockNoise {
    let square = |theta: &[f64]| theta.iter().map(|entry| entry * entry).sum::<f64>();
    let variance = |squares: f64| moment * moment + gram * gram * squares;
    // Squares of a symmetric matrix of variance 1, and 2 on its diagonal.
    let squares = |size: usize| (size * (size + 1)) as f64;
    if slot.is_some() || blocks.slots() == 0 {
        let residual = vec![variance(square(theta)); theta.len()];
        return BlockNoise { residual, gram_squares: gram * gram * squares(theta.len()) };
    }
    let (q, s, slots) = (blocks.own(), blocks.shared(), blocks.slots());
    let (own, shared) = theta.split_at(slots * q);
    let units = shared_unit(blocks) * shared_unit(blocks);
    let shared_square = square(shared) / units;
    let mut residual = Vec::with_capacity(theta.len());
    for slot in own.chunks_exact(q) {
        residual.extend(std::iter::repeat_n(variance(square(slot) + shared_square), q));
    }
    let common = variance(square(own) + shared_square) / units;
    residual.extend(std::iter::repeat_n(common, s));
    let cross = 2.0 * (slots * q * s) as f64 / units;
    let all = slots as f64 * squares(q) + cross + squares(s) / (units * units);
    BlockNoise { residual, gram_squares: gram * gram * all }
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
