//! Choosing an arm on the device.

use std::array::from_fn;

use incrowd_protocol::{Blocks, Model, Selection, SlotParts, triangle};
use rand_core::Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::{Arm, DeviceError};

/// Arms that are scored at once. An arm's score does not depend on the arms beside it.
const LANES: usize = 6;

/// One feature of several arms.
type Lanes = [f64; LANES];

/// Chooses an arm from a model. Keeps the buffers of a choice, so that choosing allocates nothing.
pub struct Chooser {
    blocks: Blocks,
    theta: Vec<f64>,
    /// Feature after feature of the next arms.
    block: Vec<Lanes>,
}

impl Chooser {
    /// For the arms of a layout.
    pub fn new(blocks: Blocks) -> Self {
        let d = blocks.features();
        Self { blocks, theta: vec![0.0; d], block: vec![[0.0; LANES]; d] }
    }

    /// Index of the best of `arms`; without a model, or among equals, each is as likely.
    pub fn choose<'a, A: Into<Arm<'a>>, R: Rng>(
        &mut self,
        model: Option<&Model>,
        selection: Selection,
        arms: impl IntoIterator<Item = A>,
        rng: &mut R,
    ) -> Result<usize, DeviceError> {
        let blocks = self.blocks;
        let d = blocks.features();
        let mut arms = arms.into_iter().map(Into::into).map(|arm: Arm<'a>| {
            let known = (arm.slot as usize) < blocks.slots().max(1);
            if known && arm.features.len() == d { arm } else { Arm { slot: 0, features: &[] } }
        });
        let Some(model) = model else {
            self.theta.fill(0.0);
            return best(&mut arms, &mut self.block, |block| dot(&self.theta, block), rng);
        };
        if !model.fits(blocks) {
            return Err(DeviceError::WrongModel);
        }
        if blocks.slots() > 0 {
            return self.choose_slot(model, selection, arms, rng);
        }
        match selection {
            Selection::Ucb {} => {
                let (theta, factor) = (model.theta(), model.width_factor());
                let beta = model.confidence_width();
                let score = |block: &[Lanes]| {
                    let (mean, square) = (dot(theta, block), squared_width(factor, block));
                    from_fn(|lane| mean[lane] + beta * square[lane].sqrt())
                };
                best(&mut arms, &mut self.block, score, rng)
            }
            Selection::Sampled { scale } => {
                self.draw(model, scale * model.confidence_width(), rng);
                best(&mut arms, &mut self.block, |block| dot(&self.theta, block), rng)
            }
        }
    }

    /// The same where arms have slots: each has a parameter and a factor of its own.
    fn choose_slot<'a, R: Rng>(
        &self,
        model: &Model,
        selection: Selection,
        arms: impl Iterator<Item = Arm<'a>>,
        rng: &mut R,
    ) -> Result<usize, DeviceError> {
        let q = self.blocks.own();
        // Shared features have one parameter, also for a draw: the same normal variables for all.
        let shared: Vec<f64> = match selection {
            Selection::Ucb {} => Vec::new(),
            Selection::Sampled { .. } => {
                model.theta().iter().map(|_| StandardNormal.sample(&mut *rng)).collect()
            }
        };
        let mut leader = Leader::default();
        for (index, arm) in arms.enumerate() {
            let Some(slot) =
                model.slots().get(arm.slot as usize).filter(|_| !arm.features.is_empty())
            else {
                return Err(DeviceError::Arm { index, dimension: self.blocks.features() });
            };
            let (own, common) = arm.features.split_at(q);
            let mean = mean(model, slot, own, common);
            let score = match selection {
                Selection::Ucb {} => mean + width(model, slot, own, common),
                // theta + scale W' z: the arm's score moves by scale <z, W x>.
                Selection::Sampled { scale } => {
                    let fresh = |_: &f64| StandardNormal.sample(&mut *rng);
                    let normal: Vec<f64> = slot.theta.iter().map(fresh).collect();
                    let moved = rows(model, slot, own, common).0;
                    let moved = product(&moved, &[normal, shared.clone()].concat());
                    mean + scale * slot.confidence_width * moved
                }
            };
            if !score.is_finite() {
                return Err(DeviceError::Arm { index, dimension: self.blocks.features() });
            }
            leader.offer(index, score, rng);
        }
        leader.index.ok_or(DeviceError::NoArms)
    }

    /// theta + scale W' z with z standard normal: N(theta, scale^2 V^-1), as V^-1 = W'W.
    fn draw<R: Rng>(&mut self, model: &Model, scale: f64, rng: &mut R) {
        self.theta.copy_from_slice(model.theta());
        let mut rest = model.width_factor();
        for i in 0..self.theta.len() {
            let (row, below) = rest.split_at(i + 1);
            let normal: f64 = StandardNormal.sample(rng);
            for (value, w) in self.theta.iter_mut().zip(row) {
                *value += scale * normal * w;
            }
            rest = below;
        }
    }
}

/// What a model says about an arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Estimated mean reward.
    pub mean: f64,
    /// Half width of its confidence interval: the rule `ucb` takes the largest mean + width.
    pub width: f64,
}

impl Score {
    /// The score of an arm; none if it is no arm of the model.
    pub fn of<'a>(model: &Model, arm: impl Into<Arm<'a>>) -> Option<Self> {
        let Arm { slot, features } = arm.into();
        let Some(first) = model.slots().first() else {
            if slot > 0 || features.len() != model.theta().len() {
                return None;
            }
            let row = |i: usize| &model.width_factor()[triangle(i)..triangle(i + 1)];
            let square: f64 =
                (0..features.len()).map(|i| product(row(i), features)).map(|y| y * y).sum();
            let width = model.confidence_width() * square.sqrt();
            return Some(Self { mean: product(model.theta(), features), width });
        };
        let slot = model.slots().get(slot as usize)?;
        if features.len() != first.theta.len() + model.theta().len() {
            return None;
        }
        let (own, common) = features.split_at(first.theta.len());
        let mean = mean(model, slot, own, common);
        Some(Self { mean, width: width(model, slot, own, common) })
    }
}

/// The best arm so far.
struct Leader {
    index: Option<usize>,
    highest: f64,
    equals: u64,
}

impl Default for Leader {
    fn default() -> Self {
        Self { index: None, highest: f64::NEG_INFINITY, equals: 0 }
    }
}

impl Leader {
    /// Takes an arm that is better; of equally good ones each is kept with the same probability.
    fn offer<R: Rng>(&mut self, index: usize, score: f64, rng: &mut R) {
        if score > self.highest {
            *self = Self { index: Some(index), highest: score, equals: 1 };
        } else if score >= self.highest {
            self.equals += 1;
            // Keep each of the n equally good arms with probability 1/n.
            if (u64::from(rng.next_u32()) * self.equals) >> 32 == 0 {
                self.index = Some(index);
            }
        }
    }
}

/// The arm with the highest score, or by lot one of the equally good ones. `block` has a row for
/// each feature, and a score has a term with each: one that is not finite has no finite product
/// with anything, so the score is not finite either.
fn best<'a, R: Rng>(
    arms: &mut impl Iterator<Item = Arm<'a>>,
    block: &mut [Lanes],
    score: impl Fn(&[Lanes]) -> Lanes,
    rng: &mut R,
) -> Result<usize, DeviceError> {
    let mut arms = arms.fuse();
    let mut leader = Leader::default();
    let mut start = 0;
    loop {
        let filled = fill(&mut arms, block);
        if filled == 0 {
            return leader.index.ok_or(DeviceError::NoArms);
        }
        let scores = score(block);
        for (index, &score) in (start..).zip(&scores[..filled]) {
            if !score.is_finite() {
                return Err(DeviceError::Arm { index, dimension: block.len() });
            }
            leader.offer(index, score, rng);
        }
        start += filled;
    }
}

/// theta'x of an arm with a slot.
fn mean(model: &Model, slot: &SlotParts, own: &[f64], common: &[f64]) -> f64 {
    product(&slot.theta, own) + product(model.theta(), common)
}

/// beta |W x| of an arm with a slot.
fn width(model: &Model, slot: &SlotParts, own: &[f64], common: &[f64]) -> f64 {
    slot.confidence_width * rows(model, slot, own, common).1.sqrt()
}

/// W x of an arm with a slot, the rows of the slot's own features first, and its squared norm.
fn rows(model: &Model, slot: &SlotParts, own: &[f64], common: &[f64]) -> (Vec<f64>, f64) {
    let row = |i: usize| triangle(i)..triangle(i + 1);
    let mut rows: Vec<f64> =
        (0..own.len()).map(|i| product(&slot.width_factor[row(i)], own)).collect();
    for i in 0..common.len() {
        let cross = &slot.cross_factor[i * own.len()..(i + 1) * own.len()];
        let shared = &model.width_factor()[row(i)];
        rows.push(product(cross, own) + product(shared, common));
    }
    let square = rows.iter().map(|entry| entry * entry).sum();
    (rows, square)
}

/// Over the shorter of the two.
fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Takes the next arms, as many as there are lanes, and tells how many there were. One of another
/// length becomes one that is not finite.
fn fill<'a>(arms: &mut impl Iterator<Item = Arm<'a>>, block: &mut [Lanes]) -> usize {
    for lane in 0..LANES {
        let Some(arm) = arms.next() else {
            return lane;
        };
        if arm.features.len() == block.len() {
            block.iter_mut().zip(arm.features).for_each(|(lanes, &x)| lanes[lane] = x);
        } else {
            block.iter_mut().for_each(|lanes| lanes[lane] = f64::NAN);
        }
    }
    LANES
}

/// |W x|^2 of each arm, for a packed lower triangular W; two rows at a time, so that the processor
/// need not wait for each addition.
fn squared_width(factor: &[f64], block: &[Lanes]) -> Lanes {
    let mut squares = [0.0; LANES];
    let mut rest = factor;
    for i in (1..block.len()).step_by(2) {
        let (upper, below) = rest.split_at(i);
        let (lower, below) = below.split_at(i + 1);
        let (first, mut second) = dots(upper, lower, block);
        for lane in 0..LANES {
            second[lane] += lower[i] * block[i][lane];
            squares[lane] += first[lane] * first[lane] + second[lane] * second[lane];
        }
        rest = below;
    }
    if !rest.is_empty() {
        let last = dot(rest, block);
        squares = from_fn(|lane| squares[lane] + last[lane] * last[lane]);
    }
    squares
}

/// The products of two rows with each arm.
fn dots(first: &[f64], second: &[f64], block: &[Lanes]) -> (Lanes, Lanes) {
    let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
    for ((v, w), lanes) in first.iter().zip(second).zip(block) {
        for lane in 0..LANES {
            a[lane] += v * lanes[lane];
            b[lane] += w * lanes[lane];
        }
    }
    (a, b)
}

/// The product with each arm.
fn dot(row: &[f64], block: &[Lanes]) -> Lanes {
    let mut sums = [0.0; LANES];
    for (w, lanes) in row.iter().zip(block) {
        for lane in 0..LANES {
            sums[lane] += w * lanes[lane];
        }
    }
    sums
}
