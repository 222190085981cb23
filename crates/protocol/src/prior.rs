use serde::{Deserialize, Serialize};

use crate::{Blocks, CoordinateKind, ProtocolError};

/// The unchecked form of a [`Prior`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorConfig {
    /// How many people's reports without noise it counts for, above 0 and at most 1e12.
    pub people: f64,
    /// The mean of what such a person would report: a value for each coordinate of a report, in
    /// units of the context bound.
    pub values: Vec<f64>,
}

/// What is known before the first report, from public or consented data.
///
/// It is a mean statistic, in the order of a report's coordinates, and a weight: the bandit adds
/// `people` times the values to its sums.
///
/// # Privacy
/// Everyone reads it. No guarantee depends on it, and none covers the people whose data it was made
/// from: they must be outside of the protected population, or have agreed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PriorConfig", into = "PriorConfig")]
pub struct Prior(PriorConfig);

impl PriorConfig {
    /// The valid prior, or the first rule that is violated. Whether it has the sizes of a task is
    /// checked with the task.
    pub fn check(self) -> Result<Prior, ProtocolError> {
        if !(self.people > 0.0 && self.people <= 1e12) {
            return Err(ProtocolError::PriorPeople(self.people));
        }
        let bad = |value: &f64| !(-1.0..=1.0).contains(value);
        if let Some(index) = self.values.iter().position(bad) {
            let (value, allowed) = (self.values[index], "from -1 to 1");
            return Err(ProtocolError::PriorValue { index, value, allowed });
        }
        Ok(Prior(self))
    }
}

impl Prior {
    /// How many people's reports without noise it counts for.
    pub fn people(&self) -> f64 {
        self.0.people
    }

    /// The mean statistic, in the order of a report's coordinates.
    pub fn values(&self) -> &[f64] {
        &self.0.values
    }

    /// Whether it is one for reports of these sizes.
    pub(crate) fn check_for(&self, blocks: Blocks) -> Result<(), ProtocolError> {
        let (found, needed) = (self.0.values.len(), blocks.coordinates());
        if found != needed {
            return Err(ProtocolError::Length { what: "values of the prior", found, needed });
        }
        let negative =
            |(value, kind): (&f64, CoordinateKind)| kind == CoordinateKind::Square && *value < 0.0;
        match self.0.values.iter().zip(blocks.kinds()).position(negative) {
            Some(index) => {
                let (value, allowed) = (self.0.values[index], "at least 0: it is a mean square");
                Err(ProtocolError::PriorValue { index, value, allowed })
            }
            None => Ok(()),
        }
    }
}

impl TryFrom<PriorConfig> for Prior {
    type Error = ProtocolError;
    fn try_from(config: PriorConfig) -> Result<Self, ProtocolError> {
        config.check()
    }
}

impl From<Prior> for PriorConfig {
    fn from(prior: Prior) -> Self {
        prior.0
    }
}
