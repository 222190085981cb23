use serde::{Deserialize, Serialize};

use crate::{Dimension, MechanismHash, ProtocolError, triangle, wire};

/// The unchecked form of a [`Model`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelParts {
    /// The mechanism whose reports made it.
    pub mechanism: MechanismHash,
    /// Published models are numbered from 1.
    #[serde(with = "wire::integer")]
    pub version: u64,
    /// Last round that is in the model, 0 before the first.
    pub round: u32,
    /// Estimated parameter.
    pub theta: Vec<f64>,
    /// W, lower triangular with a positive diagonal, packed row by row: |x|_{V^-1} = |W x|.
    pub width_factor: Vec<f64>,
    /// beta: how many widths the optimism is.
    pub confidence_width: f64,
}

impl ModelParts {
    /// The valid model, or the first rule that is violated.
    pub fn check(self) -> Result<Model, ProtocolError> {
        if self.version == 0 {
            return Err(ProtocolError::Unnumbered);
        }
        let dimension = self.theta.len();
        Dimension::new(u32::try_from(dimension).unwrap_or(u32::MAX))?;
        let (found, needed) = (self.width_factor.len(), triangle(dimension));
        if found != needed {
            return Err(ProtocolError::Length { what: "width_factor", found, needed });
        }
        if !self.theta.iter().all(|value| value.is_finite()) {
            return Err(ProtocolError::NotFinite("theta"));
        }
        if !self.width_factor.iter().all(|value| value.is_finite()) {
            return Err(ProtocolError::NotFinite("width_factor"));
        }
        // Row i of a packed triangle ends with its diagonal entry. W'W is then positive definite
        // whatever the rest is.
        if (0..dimension).any(|i| self.width_factor[triangle(i + 1) - 1] <= 0.0) {
            return Err(ProtocolError::NotPositiveDefinite);
        }
        if !self.confidence_width.is_finite() {
            return Err(ProtocolError::NotFinite("confidence_width"));
        }
        if self.confidence_width < 0.0 {
            return Err(ProtocolError::ConfidenceWidth(self.confidence_width));
        }
        Ok(Model(self))
    }
}

/// What the bandit publishes, the same for everyone: everything a device needs to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ModelParts", into = "ModelParts")]
pub struct Model(ModelParts);

impl Model {
    /// The mechanism whose reports made it.
    pub fn mechanism(&self) -> MechanismHash {
        self.0.mechanism
    }

    /// Published models are numbered from 1.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// Last round that is in the model, 0 before the first.
    pub fn round(&self) -> u32 {
        self.0.round
    }

    /// Estimated parameter.
    pub fn theta(&self) -> &[f64] {
        &self.0.theta
    }

    /// W, lower triangular, packed row by row: |x|_{V^-1} = |W x|.
    pub fn width_factor(&self) -> &[f64] {
        &self.0.width_factor
    }

    /// beta: how many widths the optimism is.
    pub fn confidence_width(&self) -> f64 {
        self.0.confidence_width
    }
}

impl TryFrom<ModelParts> for Model {
    type Error = ProtocolError;
    fn try_from(parts: ModelParts) -> Result<Self, ProtocolError> {
        parts.check()
    }
}

impl From<Model> for ModelParts {
    fn from(model: Model) -> Self {
        model.0
    }
}
