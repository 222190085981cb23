use incrowd_protocol::{Confidence, LearnerConfig, triangle};
use libm::{log, sqrt};

use crate::{
    Ellipsoid, algebra,
    confidence::{Frame, Known, PriorSize, Sizes},
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
    /// From the sums of a block. The ridge pulls towards the parameter of a prior, or else towards
    /// `centre`, or else towards zero.
    pub(crate) fn new(
        frame: &Frame<'_>,
        sizes: &Sizes,
        sums: &BlockSums,
        prior: Option<(&BlockSums, f64)>,
        centre: Option<&[f64]>,
    ) -> Option<Self> {
        let d = sums.moment.len();
        let mut v = sums.gram.clone();
        let mut right = sums.moment.clone();
        let prior = match prior {
            None => None,
            Some((prior, one)) => {
                let centre = Centre::new(prior, one)?;
                v.iter_mut().zip(&prior.gram).for_each(|(entry, known)| *entry += known);
                right.iter_mut().zip(&prior.moment).for_each(|(entry, known)| *entry += known);
                Some(centre)
            }
        };
        let smallest_of_gram = algebra::smallest_eigenvalue(&v, d);
        let ridge = sizes.ridge(smallest_of_gram);
        (0..d).for_each(|i| v[triangle(i + 1) - 1] += ridge.0);
        if let Some(theta) = prior.as_ref().map(|prior| prior.theta.as_slice()).or(centre) {
            right.iter_mut().zip(theta).for_each(|(entry, theta)| *entry += ridge.0 * theta);
        }

        let factor = algebra::cholesky(&v, d)?;
        let log_det = 2.0 * (0..d).map(|i| log(factor[triangle(i + 1) - 1])).sum::<f64>();
        let width_factor = algebra::invert_lower(&factor, d);
        let theta = algebra::solve(&width_factor, &right);
        let smallest = smallest_of_gram + ridge.0;
        let prior = prior.map(|centre| centre.size);
        let ellipsoid = frame.ellipsoid(sizes, &Known { ridge, log_det, smallest, prior });
        Some(Self { theta, width_factor, ellipsoid })
    }
}

/// Factor on the calibrated width.
pub(crate) fn exploration(learner: &LearnerConfig) -> f64 {
    match learner.confidence {
        Confidence::Calibrated { exploration } => exploration,
        _ => 1.0,
    }
}

/// The parameter that a prior is about, which the ridge pulls towards.
struct Centre {
    theta: Vec<f64>,
    size: PriorSize,
}

impl Centre {
    /// With the ridge of `one` person, so that what the prior has never seen is zero.
    fn new(prior: &BlockSums, one: f64) -> Option<Self> {
        let d = prior.moment.len();
        let smallest = algebra::smallest_eigenvalue(&prior.gram, d).max(0.0) + one;
        let mut gram = prior.gram.clone();
        (0..d).for_each(|i| gram[triangle(i + 1) - 1] += one);
        let factor = algebra::invert_lower(&algebra::cholesky(&gram, d)?, d);
        let theta = algebra::solve(&factor, &prior.moment);
        let norm = sqrt(theta.iter().map(|entry| entry * entry).sum());
        Some(Self { theta, size: PriorSize { norm, smallest } })
    }
}
