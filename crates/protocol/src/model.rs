use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{Blocks, Dimension, MechanismHash, ProtocolError, triangle, wire};

/// Longest name of an action, in bytes.
const LONGEST_ACTION: usize = 200;

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
    /// Estimated weights of the shared features; empty where there are none.
    pub theta: Vec<f64>,
    /// W, lower triangular with a positive diagonal, packed row by row: |x|_{V^-1} = |W x| for the
    /// shared features.
    pub width_factor: Vec<f64>,
    /// beta: how many widths the optimism is; 0 where there are slots, which have their own.
    pub confidence_width: f64,
    /// A model for each slot; left out where all features are shared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotParts>,
}

/// What a model says about the arms of one slot. |x|_{V^-1}^2 = |W own|^2 + |C own + W_shared
/// shared|^2 for x = (own, shared).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotParts {
    /// The action that the slot stands for; `null` while it stands for none.
    #[serde(deserialize_with = "Option::deserialize")]
    pub action: Option<String>,
    /// Estimated weights of the slot's own features.
    pub theta: Vec<f64>,
    /// W, lower triangular with a positive diagonal, packed row by row.
    pub width_factor: Vec<f64>,
    /// C, a row of own features for each shared one; left out where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cross_factor: Vec<f64>,
    /// beta: how many widths the optimism is.
    pub confidence_width: f64,
}

impl ModelParts {
    /// The valid model, or the first rule that is violated.
    pub fn check(self) -> Result<Model, ProtocolError> {
        if self.version == 0 {
            return Err(ProtocolError::Unnumbered);
        }
        let shared = self.theta.len();
        let own = self.slots.first().map_or(0, |slot| slot.theta.len());
        let features = u32::try_from(shared + own).unwrap_or(u32::MAX);
        Dimension::new(features)?;
        check_factor(&self.theta, &self.width_factor)?;
        check_width(self.confidence_width)?;
        check_actions(self.slots.iter().filter_map(|slot| slot.action.as_deref()))?;
        for slot in &self.slots {
            needs("theta of a slot", slot.theta.len(), own.max(1))?;
            needs("cross_factor", slot.cross_factor.len(), shared * own)?;
            check_factor(&slot.theta, &slot.width_factor)?;
            check_finite("cross_factor", &slot.cross_factor)?;
            check_width(slot.confidence_width)?;
        }
        Ok(Model(self))
    }
}

fn needs(what: &'static str, found: usize, needed: usize) -> Result<(), ProtocolError> {
    if found == needed { Ok(()) } else { Err(ProtocolError::Length { what, found, needed }) }
}

fn check_finite(what: &'static str, values: &[f64]) -> Result<(), ProtocolError> {
    let finite = values.iter().all(|value| value.is_finite());
    if finite { Ok(()) } else { Err(ProtocolError::NotFinite(what)) }
}

/// Row i of a packed triangle ends with its diagonal entry. W'W is then positive definite whatever
/// the rest is.
fn check_factor(theta: &[f64], width_factor: &[f64]) -> Result<(), ProtocolError> {
    needs("width_factor", width_factor.len(), triangle(theta.len()))?;
    check_finite("theta", theta)?;
    check_finite("width_factor", width_factor)?;
    if (0..theta.len()).any(|i| width_factor[triangle(i + 1) - 1] <= 0.0) {
        return Err(ProtocolError::NotPositiveDefinite);
    }
    Ok(())
}

fn check_width(width: f64) -> Result<(), ProtocolError> {
    if !width.is_finite() {
        return Err(ProtocolError::NotFinite("confidence_width"));
    }
    if width < 0.0 {
        return Err(ProtocolError::ConfidenceWidth(width));
    }
    Ok(())
}

/// Whether texts can name the actions of different slots: each has 1 to 200 bytes and no other has
/// it too.
pub fn check_actions<'a>(actions: impl IntoIterator<Item = &'a str>) -> Result<(), ProtocolError> {
    let mut known = HashSet::new();
    for action in actions {
        if action.is_empty() || action.len() > LONGEST_ACTION {
            return Err(ProtocolError::ActionName { found: action.len(), most: LONGEST_ACTION });
        }
        if !known.insert(action) {
            return Err(ProtocolError::DuplicateAction(action.to_owned()));
        }
    }
    Ok(())
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

    /// Estimated weights of the shared features.
    pub fn theta(&self) -> &[f64] {
        &self.0.theta
    }

    /// W, lower triangular, packed row by row: |x|_{V^-1} = |W x| for the shared features.
    pub fn width_factor(&self) -> &[f64] {
        &self.0.width_factor
    }

    /// beta: how many widths the optimism is.
    pub fn confidence_width(&self) -> f64 {
        self.0.confidence_width
    }

    /// A model for each slot; none where all features are shared.
    pub fn slots(&self) -> &[SlotParts] {
        &self.0.slots
    }

    /// The slot that stands for an action.
    pub fn slot_of(&self, action: &str) -> Option<usize> {
        self.0.slots.iter().position(|slot| slot.action.as_deref() == Some(action))
    }

    /// Whether it has the sizes of a layout.
    pub fn fits(&self, blocks: Blocks) -> bool {
        self.0.theta.len() == blocks.shared()
            && self.0.slots.len() == blocks.slots()
            && self.0.slots.first().is_none_or(|slot| slot.theta.len() == blocks.own())
    }

    /// Whether it only says which slot stands for which action: nothing is known about rewards, and
    /// every arm has the same score.
    pub fn is_blank(&self) -> bool {
        let zero = |theta: &[f64], width: f64| width == 0.0 && theta.iter().all(|w| *w == 0.0);
        zero(&self.0.theta, self.0.confidence_width)
            && self.0.slots.iter().all(|slot| zero(&slot.theta, slot.confidence_width))
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
