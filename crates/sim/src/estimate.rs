//! What a published model says about the parameter, to be compared with the truth.

use incrowd_protocol::{Model, triangle};
use libm::sqrt;

/// Estimate and confidence of one model: the parameter should be where |theta - theta*|_V is at
/// most `confidence_width`.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterEstimate {
    /// Estimated parameter.
    pub theta: Vec<f64>,
    /// W, lower triangular with a positive diagonal, packed row by row: V^-1 = W'W.
    pub width_factor: Vec<f64>,
    /// The confidence width that choices are made with: exploration is in it.
    pub confidence_width: f64,
}

impl From<&Model> for ParameterEstimate {
    fn from(model: &Model) -> Self {
        Self {
            theta: model.theta().to_vec(),
            width_factor: model.width_factor().to_vec(),
            confidence_width: model.confidence_width(),
        }
    }
}

impl ParameterEstimate {
    /// The same in other units: features times `factor`, parameters divided by it.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.theta.iter_mut().chain(&mut self.width_factor).for_each(|entry| *entry /= factor);
        self
    }

    /// |theta - theta*|; none if `parameter` has another dimension.
    pub fn error(&self, parameter: &[f64]) -> Option<f64> {
        Some(sqrt(self.difference(parameter)?.iter().map(|entry| entry * entry).sum()))
    }

    /// |theta - theta*|_V <= width; none if `parameter` has another dimension.
    pub fn covers(&self, parameter: &[f64]) -> Option<bool> {
        // V = W^-1 W^-T, so |e|_V = |y| where W' y = e: from the last row of W up.
        let mut rest = self.difference(parameter)?;
        let mut square = 0.0;
        for row in (0..rest.len()).rev() {
            let factor = &self.width_factor[triangle(row)..triangle(row + 1)];
            let solved = rest[row] / factor[row];
            square += solved * solved;
            rest.iter_mut().zip(factor).for_each(|(rest, factor)| *rest -= factor * solved);
        }
        Some(sqrt(square) <= self.confidence_width)
    }

    fn difference(&self, parameter: &[f64]) -> Option<Vec<f64>> {
        let fits = parameter.len() == self.theta.len();
        fits.then(|| self.theta.iter().zip(parameter).map(|(own, other)| own - other).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W' = [[2, 1], [0, 4]]: V^-1 = W'W = [[5, 4], [4, 16]], V = [[16, -4], [-4, 5]]/64.
    fn estimate(confidence_width: f64) -> ParameterEstimate {
        let (theta, width_factor) = (vec![1.0, 2.0], vec![2.0, 1.0, 4.0]);
        ParameterEstimate { theta, width_factor, confidence_width }
    }

    #[test]
    fn errors_and_coverage_are_those_of_the_matrix() {
        // e = (3, -4): |e| = 5, e'Ve = (144 + 96 + 80)/64 = 5.
        let parameter = [-2.0, 6.0];
        assert_eq!(estimate(1.0).error(&parameter), Some(5.0));
        let root = 5f64.sqrt();
        assert_eq!(estimate(root * (1.0 + 1e-12)).covers(&parameter), Some(true));
        assert_eq!(estimate(root * (1.0 - 1e-12)).covers(&parameter), Some(false));
        assert_eq!((estimate(1.0).error(&[1.0]), estimate(1.0).covers(&[1.0])), (None, None));
    }

    /// Coverage does not depend on units, errors do.
    #[test]
    fn other_units_are_the_same_ellipsoid() {
        for width in [2.2, 2.3] {
            let (parameter, other) = ([-2.0, 6.0], [-1.0, 3.0]);
            let scaled = estimate(width).scaled(2.0);
            assert_eq!(scaled.error(&other), Some(2.5));
            assert_eq!(scaled.covers(&other), estimate(width).covers(&parameter));
        }
        assert_ne!(estimate(2.2).covers(&[-2.0, 6.0]), estimate(2.3).covers(&[-2.0, 6.0]));
    }
}
