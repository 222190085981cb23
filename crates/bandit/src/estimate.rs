use incrowd_protocol::{Confidence, LearnerConfig, triangle};
use libm::log;

use crate::{
    Ellipsoid, algebra,
    confidence::{Frame, Sizes},
};

/// What noisy sums say about the parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// V^-1 times the moment.
    pub theta: Vec<f64>,
    /// W, packed row by row: V^-1 = W'W.
    pub width_factor: Vec<f64>,
    /// The sizes behind the width.
    pub ellipsoid: Ellipsoid,
}

/// Sums of r x and of x x' with noise of known size, wherever they come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoisySums<'a> {
    /// Sum of r x.
    pub moment: &'a [f64],
    /// Sum of x x', packed lower triangle row by row.
    pub gram: &'a [f64],
    /// Standard deviation of the noise of an entry of `moment`.
    pub moment_std: f64,
    /// Standard deviation of the noise of an off-diagonal entry of `gram`.
    pub gram_std: f64,
    /// How often sums were released so far (j), at least 1.
    pub releases: u32,
    /// Least ridge: what regularises sums without noise.
    pub floor: f64,
}

impl Estimate {
    /// The `calibrated` estimate of this crate's bandit from any noisy sums: the same formulas for
    /// every algorithm that is compared with it. None if V is not positive definite in floats. In a
    /// learner of another mode the width is taken as it is (exploration 1).
    pub fn calibrated(learner: &LearnerConfig, sums: &NoisySums) -> Option<Self> {
        let exploration = match learner.confidence {
            Confidence::Calibrated { exploration } => exploration,
            _ => 1.0,
        };
        let dimension = sums.moment.len();
        let frame = Frame { learner, dimension, releases: sums.releases };
        let stds = (sums.moment_std, sums.gram_std);
        let sizes = Sizes::calibrated(dimension, stds, exploration).with_floor(sums.floor);
        Self::new(&frame, &sizes, sums.moment, sums.gram)
    }

    pub(crate) fn new(
        frame: &Frame<'_>,
        sizes: &Sizes,
        moment: &[f64],
        gram: &[f64],
    ) -> Option<Self> {
        let d = frame.dimension;
        let smallest_of_gram = algebra::smallest_eigenvalue(gram, d);
        let ridge = sizes.ridge(smallest_of_gram);
        let mut v = gram.to_vec();
        (0..d).for_each(|i| v[triangle(i + 1) - 1] += ridge.0);

        let factor = algebra::cholesky(&v, d)?;
        let log_det = 2.0 * (0..d).map(|i| log(factor[triangle(i + 1) - 1])).sum::<f64>();
        let width_factor = algebra::invert_lower(&factor, d);
        let theta = algebra::solve(&width_factor, moment);
        let ellipsoid = frame.ellipsoid(sizes, ridge, log_det, smallest_of_gram + ridge.0);
        Some(Self { theta, width_factor, ellipsoid })
    }
}
