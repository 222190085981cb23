use std::path::Path;

use incrowd_protocol::{Model, triangle};
use serde::Deserialize;

use super::EvaluateError;

/// An action as a model sees it.
#[derive(Debug, Clone, Copy)]
pub struct Arm<'a> {
    /// Its name, for models that have parameters of their own for each action.
    pub action: &'a str,
    /// Features of the context and the action.
    pub features: &'a [f64],
}

/// What a model says about an arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Estimated mean reward.
    pub mean: f64,
    /// Half width of its confidence interval: the upper confidence bound is mean + width.
    pub width: f64,
}

/// Scores arms. Everything that evaluation knows about the inside of a model is here.
pub trait Scorer {
    /// Number of features that an arm must have.
    fn dimension(&self) -> usize;

    /// The score of an arm with as many features.
    fn score(&self, arm: &Arm<'_>) -> Score;
}

impl Scorer for Model {
    fn dimension(&self) -> usize {
        self.theta().len()
    }

    // docs/formats.md: theta'x + beta |W x|, with W lower triangular and packed.
    fn score(&self, arm: &Arm<'_>) -> Score {
        let x = arm.features;
        let factor = self.width_factor();
        let squares = (0..x.len()).map(|i| dot(&factor[triangle(i)..triangle(i + 1)], x).powi(2));
        let width = self.confidence_width() * squares.sum::<f64>().sqrt();
        Score { mean: dot(self.theta(), x), width }
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// A model in a file: the model itself, or the signed document that a bandit serves.
///
/// The signature is not checked: whoever evaluates a file chose it.
pub fn parse_model(path: &Path, bytes: &[u8]) -> Result<Model, EvaluateError> {
    #[derive(Deserialize)]
    struct Signed {
        body: String,
    }
    let model = match serde_json::from_slice::<Signed>(bytes) {
        Ok(signed) => serde_json::from_str(&signed.body),
        Err(_) => serde_json::from_slice(bytes),
    };
    model.map_err(|error| EvaluateError::File {
        path: path.to_path_buf(),
        reason: error.to_string(),
        expected: "a published model (JSON)",
    })
}
