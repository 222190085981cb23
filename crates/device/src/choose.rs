//! Choosing an arm on the device.

use std::array::from_fn;

use incrowd_protocol::{Model, Selection};
use rand_core::Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::DeviceError;

/// Arms that are scored at once. An arm's score does not depend on the arms beside it.
const LANES: usize = 6;

/// One feature of several arms.
type Lanes = [f64; LANES];

/// Chooses an arm from a model. Keeps the buffers of a choice, so that choosing allocates nothing.
pub struct Chooser {
    theta: Vec<f64>,
    /// Feature after feature of the next arms.
    block: Vec<Lanes>,
}

impl Chooser {
    /// For arms with this many features.
    pub fn new(dimension: usize) -> Self {
        Self { theta: vec![0.0; dimension], block: vec![[0.0; LANES]; dimension] }
    }

    /// Index of the best of `arms`; without a model, or among equals, each is as likely.
    pub fn choose<'a, R: Rng>(
        &mut self,
        model: Option<&Model>,
        selection: Selection,
        arms: impl IntoIterator<Item = &'a [f64]>,
        rng: &mut R,
    ) -> Result<usize, DeviceError> {
        let Some(model) = model else {
            self.theta.fill(0.0);
            return best(arms, &mut self.block, |block| dot(&self.theta, block), rng);
        };
        if model.theta().len() != self.theta.len() {
            return Err(DeviceError::WrongModel);
        }
        match selection {
            Selection::Ucb {} => {
                let (theta, factor) = (model.theta(), model.width_factor());
                let beta = model.confidence_width();
                let score = |block: &[Lanes]| {
                    let (mean, square) = (dot(theta, block), squared_width(factor, block));
                    from_fn(|lane| mean[lane] + beta * square[lane].sqrt())
                };
                best(arms, &mut self.block, score, rng)
            }
            Selection::Sampled { scale } => {
                self.draw(model, scale * model.confidence_width(), rng);
                best(arms, &mut self.block, |block| dot(&self.theta, block), rng)
            }
        }
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

/// The arm with the highest score, or by lot one of the equally good ones. `block` has a row for
/// each feature, and a score has a term with each: one that is not finite has no finite product
/// with anything, so the score is not finite either.
fn best<'a, R: Rng>(
    arms: impl IntoIterator<Item = &'a [f64]>,
    block: &mut [Lanes],
    score: impl Fn(&[Lanes]) -> Lanes,
    rng: &mut R,
) -> Result<usize, DeviceError> {
    let mut arms = arms.into_iter().fuse();
    let mut best = None;
    let mut highest = f64::NEG_INFINITY;
    let mut equals = 0u64;
    let mut start = 0;
    loop {
        let filled = fill(&mut arms, block);
        if filled == 0 {
            return best.ok_or(DeviceError::NoArms);
        }
        let scores = score(block);
        for (index, &score) in (start..).zip(&scores[..filled]) {
            if !score.is_finite() {
                return Err(DeviceError::Arm { index, dimension: block.len() });
            }
            if score > highest {
                (best, highest, equals) = (Some(index), score, 1);
            } else if score >= highest {
                equals += 1;
                // Keep each of the n equally good arms with probability 1/n.
                if (u64::from(rng.next_u32()) * equals) >> 32 == 0 {
                    best = Some(index);
                }
            }
        }
        start += filled;
    }
}

/// Takes the next arms, as many as there are lanes, and tells how many there were. One of another
/// length becomes one that is not finite.
fn fill<'a>(arms: &mut impl Iterator<Item = &'a [f64]>, block: &mut [Lanes]) -> usize {
    for lane in 0..LANES {
        let Some(arm) = arms.next() else {
            return lane;
        };
        if arm.len() == block.len() {
            block.iter_mut().zip(arm).for_each(|(lanes, &x)| lanes[lane] = x);
        } else {
            block.iter_mut().for_each(|lanes| lanes[lane] = f64::NAN);
        }
    }
    LANES
}

/// |W x|^2 of each arm, for a packed lower triangular W; two rows at a time, so that the processor need not wait for each addition.
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
