use incrowd_protocol::ComparisonSlot;
use serde::{Deserialize, Serialize};

use crate::{ClientError, chance};

/// What a device does about a comparison, for as long as it has its state file.
///
/// # Privacy
/// Drawn once, from the operating system, before there is any context or reward. Every device
/// reports to one task only, that of its group: whoever reads the releases of both tasks learns
/// about a person what the certificate of that one task says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Chooses by the model and reports to its task.
    #[default]
    Main,
    /// Takes the incumbent's action and reports to the comparison task.
    HeldOut,
    /// Chooses by the model and reports to the comparison task.
    Compared,
}

impl Group {
    /// A group by lot: the share is that of the held out, and that of the compared.
    pub(crate) fn draw(share: f64) -> Result<Self, ClientError> {
        Ok(Self::at(chance::unit()?, share))
    }

    /// The group at a place from 0 to 1.
    fn at(place: f64, share: f64) -> Self {
        if place < share {
            Self::HeldOut
        } else if place < 2.0 * share {
            Self::Compared
        } else {
            Self::Main
        }
    }

    /// Where it reports in a comparison task; none if it reports to the task of the model.
    pub(crate) fn slot(self) -> Option<ComparisonSlot> {
        match self {
            Self::Main => None,
            Self::HeldOut => Some(ComparisonSlot::Incumbent),
            Self::Compared => Some(ComparisonSlot::Model),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 1000 places, evenly spread, each group has its share.
    #[test]
    fn shares_are_those_of_the_places() {
        for (share, held_out) in [(0.0, 0), (0.05, 50), (0.2, 200), (0.5, 500)] {
            let count = |group: Group| {
                let places = (0..1000).map(|i| (f64::from(i) + 0.5) / 1000.0);
                places.filter(|&place| Group::at(place, share) == group).count()
            };
            let counts = [Group::HeldOut, Group::Compared, Group::Main].map(count);
            assert_eq!(counts, [held_out, held_out, 1000 - 2 * held_out], "{share}");
        }
    }
}
