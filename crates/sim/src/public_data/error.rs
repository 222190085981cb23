use incrowd_device::FeatureMapError;
use incrowd_protocol::ProtocolError;
use thiserror::Error;

use crate::{DataError, Place};

/// A rule for files of public data that is violated: where, what was found, what is expected.
///
/// # Privacy
/// Messages quote the file, which its user holds.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PublicDataError {
    /// No table of the right form.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Sizes or a weight that no prior can have.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Neither rewards of all actions nor of logged ones.
    #[error(
        "{0}: found no columns `action` and `reward` and none named `reward:ACTION`, expected one or the other, or the name of the column with the right action (--label)"
    )]
    NoRewards(Place),
    /// Both kinds of rewards.
    #[error(
        "{0}: found both `action` with `reward` and columns named `reward:ACTION`, expected one or the other"
    )]
    TwoKinds(Place),
    /// A field of the map without a column.
    #[error(
        "{at}: found no column {column:?}, expected one for each field of the map (fields of actions are named ACTION:field); there are {}",
        quoted(.known)
    )]
    FieldColumn {
        /// The header.
        at: Place,
        /// The name that the column must have.
        column: String,
        /// The columns of the file.
        known: Vec<String>,
    },
    /// Rewards for some actions of the map only.
    #[error("{at}: found no column {column:?}, expected the reward of every action of the map")]
    RewardColumn {
        /// The header.
        at: Place,
        /// The name that the column must have.
        column: String,
    },
    /// A context field that holds the answer.
    #[error(
        "{0}: found a context field of the map that is read as the answer, expected different columns"
    )]
    Answer(Place),
    /// An action that the map does not have, or none.
    #[error("{at}: found {found:?}, expected one of the actions {}", quoted(.known))]
    Action {
        /// The field or the column.
        at: Place,
        /// Its text.
        found: String,
        /// The map's actions.
        known: Vec<String>,
    },
    /// A map that is none.
    #[error(transparent)]
    Map(#[from] FeatureMapError),
    /// Sums whose Gram matrix is not positive definite in floats.
    #[error("the prior gives no model: its sums are not positive definite in floats")]
    NoModel,
    /// Folds out of range.
    #[error("folds is {0}, must be from 2 to 100")]
    Folds(u32),
}

/// "a", "b", "c" and 12 more
fn quoted(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(20).map(|name| format!("{name:?}")).collect();
    match names.len() - shown.len() {
        0 if shown.is_empty() => "none".into(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
