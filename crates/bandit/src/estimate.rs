use incrowd_protocol::{Confidence, LearnerConfig, triangle};
use libm::log;

use crate::{
    Ellipsoid, algebra,
    confidence::{Frame, Ridge, Sizes},
};

/// What noisy sums say about the parameter of one block.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// V^-1 times the moment.
    pub theta: Vec<f64>,
    /// W, packed row by row: V^-1 = W'W.
    pub width_factor: Vec<f64>,
    /// The sizes behind the width.
    pub ellipsoid: Ellipsoid,
}

/// Sums over some features.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BlockSums {
    /// Of r x.
    pub moment: Vec<f64>,
    /// Of x x', packed lower triangle row by row.
    pub gram: Vec<f64>,
}

impl Estimate {
    /// From the sums of a block. The ridge pulls towards `centre`, or else towards zero.
    pub(crate) fn new(
        frame: &Frame<'_>,
        sizes: &Sizes,
        sums: &BlockSums,
        centre: Option<&[f64]>,
    ) -> Option<Self> {
        let (v, ridge) = sums.with_ridge(sizes);
        let mut right = sums.moment.clone();
        if let Some(theta) = centre {
            right.iter_mut().zip(theta).for_each(|(entry, theta)| *entry += ridge.total * theta);
        }
        let factor = Factor::of(&v, right.len())?;
        let theta = algebra::solve(&factor.inverse, &right);
        let smallest = ridge.smallest_of_gram + ridge.total;
        let ellipsoid = frame.ellipsoid(sizes, ridge, factor.log_det, smallest);
        Some(Self { theta, width_factor: factor.inverse, ellipsoid })
    }
}

/// A positive definite matrix, as the inverse of its Cholesky factor.
pub(crate) struct Factor {
    pub inverse: Vec<f64>,
    pub log_det: f64,
}

impl Factor {
    pub fn of(matrix: &[f64], dimension: usize) -> Option<Self> {
        let factor = algebra::cholesky(matrix, dimension)?;
        let diagonal = (0..dimension).map(|i| factor[triangle(i + 1) - 1]);
        let log_det = 2.0 * diagonal.map(log).sum::<f64>();
        Some(Self { inverse: algebra::invert_lower(&factor, dimension), log_det })
    }
}

impl BlockSums {
    /// The Gram matrix with the ridge that sizes ask for.
    pub fn with_ridge(&self, sizes: &Sizes) -> (Vec<f64>, Ridge) {
        let d = self.moment.len();
        let ridge = sizes.ridge(algebra::smallest_eigenvalue(&self.gram, d));
        (plus_ridge(&self.gram, d, ridge.total), ridge)
    }
}

/// A symmetric matrix with a ridge on its diagonal.
pub(crate) fn plus_ridge(matrix: &[f64], dimension: usize, ridge: f64) -> Vec<f64> {
    let mut sum = matrix.to_vec();
    (0..dimension).for_each(|i| sum[triangle(i + 1) - 1] += ridge);
    sum
}

/// Factor on the calibrated width.
pub(crate) fn exploration(learner: &LearnerConfig) -> f64 {
    match learner.confidence {
        Confidence::Calibrated { exploration } => exploration,
        _ => 1.0,
    }
}
