//! Choosing an arm on the device.

use incrowd_protocol::{Model, Selection};
use rand_core::Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::DeviceError;

/// Chooses an arm from a model. Keeps the buffers of a choice, so that choosing allocates nothing.
pub struct Chooser {
    theta: Vec<f64>,
}

impl Chooser {
    /// For arms with this many features.
    pub fn new(dimension: usize) -> Self {
        Self { theta: vec![0.0; dimension] }
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
            return best(arms, self.theta.len(), |_| 0.0, rng);
        };
        if model.theta().len() != self.theta.len() {
            return Err(DeviceError::WrongModel);
        }
        match selection {
            Selection::Ucb => {
                let (theta, factor) = (model.theta(), model.width_factor());
                let beta = model.confidence_width();
                let score = |x: &[f64]| dot(theta, x) + beta * width(factor, x);
                best(arms, self.theta.len(), score, rng)
            }
            Selection::Sampled { scale } => {
                self.draw(model, scale * model.confidence_width(), rng);
                let theta = &self.theta;
                best(arms, theta.len(), |x| dot(theta, x), rng)
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

fn best<'a, R: Rng>(
    arms: impl IntoIterator<Item = &'a [f64]>,
    dimension: usize,
    score: impl Fn(&[f64]) -> f64,
    rng: &mut R,
) -> Result<usize, DeviceError> {
    let mut best = None;
    let mut highest = f64::NEG_INFINITY;
    let mut equals = 0u64;
    for (index, arm) in arms.into_iter().enumerate() {
        let valid = arm.len() == dimension && arm.iter().all(|x| x.is_finite());
        let score = if valid { score(arm) } else { f64::NAN };
        if !score.is_finite() {
            return Err(DeviceError::Arm { index, dimension });
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
    best.ok_or(DeviceError::NoArms)
}

/// |W x| for a packed lower triangular W.
fn width(factor: &[f64], x: &[f64]) -> f64 {
    let mut square = 0.0;
    let mut rest = factor;
    for i in 0..x.len() {
        let (row, below) = rest.split_at(i + 1);
        let entry = dot(row, &x[..=i]);
        square += entry * entry;
        rest = below;
    }
    square.sqrt()
}

/// Four running sums, so that the processor need not wait for each addition.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_chunks, a_rest) = a.as_chunks::<4>();
    let (b_chunks, b_rest) = b.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..4 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}
