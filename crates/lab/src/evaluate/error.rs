use std::path::PathBuf;

use incrowd_sim::Place;
use thiserror::Error;

/// A rule for logs or for their evaluation that is violated: where, what was found, what is
/// expected.
///
/// # Privacy
/// Messages quote the log, which its user holds.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// There is no such file.
    #[error("{0}: found no such file, expected a log")]
    Missing(Place),
    /// The file cannot be read.
    #[error("{at}: cannot be read ({reason}), expected a log")]
    Unreadable {
        /// The file.
        at: Place,
        /// What the operating system or the parser says.
        reason: String,
    },
    /// The file is no text.
    #[error("{0}: found bytes that are not UTF-8, expected UTF-8")]
    NotUtf8(Place),
    /// None of the formats.
    #[error(
        "{at}: found {found}, expected a CSV header with action, reward and pscore, one with item_id, click and propensity_score (Open Bandit), or lines of JSON (DSJSON)"
    )]
    UnknownFormat {
        /// The first line.
        at: Place,
        /// What it looks like.
        found: String,
    },
    /// Too little to estimate anything.
    #[error("{at}: found {found} events, expected at least {expected}")]
    TooFewEvents {
        /// The file.
        at: Place,
        /// Events in it.
        found: usize,
        /// The smallest number: 2, and 1 for each fold.
        expected: usize,
    },
    /// Two columns have the same name.
    #[error("{0}: found the name of this column twice, expected different names")]
    RepeatedColumn(Place),
    /// A row is shorter or longer than the header.
    #[error("{at}: found a row of {found}, expected {expected} fields as in the header")]
    Ragged {
        /// The row.
        at: Place,
        /// Its fields.
        found: usize,
        /// The header's fields.
        expected: usize,
    },
    /// A column that the format must have.
    #[error("{at}: found no column {column:?}, expected one of this name; there are {}", quoted(.known))]
    MissingColumn {
        /// The header.
        at: Place,
        /// The name.
        column: String,
        /// The names in the file.
        known: Vec<String>,
    },
    /// A column begins with something that is no action.
    #[error(
        "{at}: found no action before the colon, expected one of {} (columns of one action are named action:feature; --actions names actions that were never logged)",
        quoted(.actions)
    )]
    NoSuchAction {
        /// The column.
        at: Place,
        /// The actions.
        actions: Vec<String>,
    },
    /// One action has a feature that another one has not.
    #[error("{at}: found no column {column:?}, expected the same features for every action")]
    MissingActionColumn {
        /// The header.
        at: Place,
        /// The name of the missing column.
        column: String,
    },
    /// A value that the format does not allow.
    #[error("{at}: found {found}, expected {expected}")]
    Value {
        /// The field.
        at: Place,
        /// Its text, quoted, or what is missing.
        found: String,
        /// The rule.
        expected: String,
    },
    /// A policy that is none.
    #[error("policy is {0:?}, must be uniform, logged or always:ACTION")]
    Policy(String),
    /// An action that is nowhere in the log.
    #[error(
        "policy always:{action}: found no such action, expected one of {} (--actions names actions that were never logged)",
        quoted(.known)
    )]
    UnknownAction {
        /// The action.
        action: String,
        /// The log's.
        known: Vec<String>,
    },
    /// The file of a model or of a feature map.
    #[error("{}: {reason}, expected {expected}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A model with the features of another task.
    #[error("the model has {model} features and the feature map {map}, must be the same number")]
    Dimension {
        /// Of the model.
        model: usize,
        /// Of the map.
        map: usize,
    },
    /// The map wants a field that no event has.
    #[error(
        "the feature map has the {side} field {field:?}: found no such field in the log, expected one of {}",
        quoted(.known)
    )]
    MapField {
        /// `context` or `action`.
        side: &'static str,
        /// Its name.
        field: String,
        /// The log's fields.
        known: Vec<String>,
    },
    /// A field for the reward model that no event has.
    #[error("--context names {field:?}: found no such field in the log, expected one of {}", quoted(.known))]
    ContextField {
        /// Its name.
        field: String,
        /// The log's fields.
        known: Vec<String>,
    },
    /// A model's score that is not finite.
    #[error("{at}: action {action:?} has a score that is not finite")]
    Score {
        /// The event.
        at: Place,
        /// The action.
        action: String,
    },
    /// A limit on weights that would change a policy like the log's.
    #[error("clip is {0}, must be at least 1 and finite")]
    Clip(f64),
    /// Folds.
    #[error("folds is {0}, must be from 2 to 100")]
    Folds(u32),
    /// The penalty.
    #[error("ridge is {0}, must be from 0.000001 to 1000000")]
    Ridge(f64),
    /// A regression that would take too long.
    #[error(
        "{at}: the reward model has {found} columns, must have at most 1000 (--context chooses fields)"
    )]
    Columns {
        /// The file.
        at: Place,
        /// Columns.
        found: usize,
    },
    /// Numbers so large that the regression has no solution.
    #[error(
        "{at}: the reward model of action {action:?} is not finite; scale the fields or raise --ridge"
    )]
    Regression {
        /// The file.
        at: Place,
        /// The action.
        action: String,
    },
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
