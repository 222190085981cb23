use std::{fmt, path::PathBuf};

use thiserror::Error;

/// Where in a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was opened.
    pub file: PathBuf,
    /// The line, from 1 (the header); none if it is about all of them.
    pub line: Option<u64>,
    /// The name of the column; none if it is about all of them.
    pub column: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column {column:?}")?;
        }
        Ok(())
    }
}

/// A rule for data files that is violated: where, what was found, what is expected.
///
/// # Privacy
/// Messages quote the file. They are for data that an experimenter holds; nothing of a device ever
/// passes here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no such file.
    #[error("{0}: found no such file, expected a CSV file with a header")]
    Missing(Place),
    /// The file cannot be read.
    #[error("{at}: cannot be read ({reason}), expected a CSV file with a header")]
    Unreadable {
        /// The file.
        at: Place,
        /// What the operating system says.
        reason: String,
    },
    /// The file is no text.
    #[error("{0}: found bytes that are not UTF-8, expected UTF-8")]
    NotUtf8(Place),
    /// There is not even a header.
    #[error("{0}: found an empty file, expected a header with the names of the columns")]
    Empty(Place),
    /// There is a header and nothing else.
    #[error("{0}: found no row after the header, expected at least 1")]
    NoRows(Place),
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
    /// A column that the configuration names does not exist.
    #[error("{at}: found no column {column:?}, expected one of {}", quoted(.known))]
    UnknownColumn {
        /// The header.
        at: Place,
        /// The name in the configuration.
        column: String,
        /// The names in the file.
        known: Vec<String>,
    },
    /// No column is left for features.
    #[error("{0}: found no column besides the label, expected at least 1 column of features")]
    NoFeatures(Place),
    /// Text, or nothing, where a number belongs.
    #[error("{at}: found {found:?}, expected a number")]
    NotNumber {
        /// The field.
        at: Place,
        /// Its text.
        found: String,
    },
    /// A number that is none.
    #[error("{at}: found {found:?}, expected a finite number")]
    NotFinite {
        /// The field.
        at: Place,
        /// Its text.
        found: String,
    },

    /// A row without a label.
    #[error("{0}: found no label, expected the name of a class")]
    NoLabel(Place),
    /// All rows have the same label.
    #[error("{at}: found only the class {found:?}, expected at least 2 classes")]
    OneClass {
        /// The column of labels.
        at: Place,
        /// The class.
        found: String,
    },
    /// The labels are no classes.
    #[error("{at}: found {found} classes, expected at most 100000")]
    Classes {
        /// The column of labels.
        at: Place,
        /// How many.
        found: usize,
    },
    /// A column begins with something that is no class.
    #[error(
        "{at}: found no class before the colon, expected one of {} (columns of one arm are named class:feature)",
        quoted(.classes)
    )]
    NoSuchClass {
        /// The column.
        at: Place,
        /// The classes.
        classes: Vec<String>,
    },
    /// One arm has a feature that another one has not.
    #[error("{at}: found no column {column:?}, expected the same features for every arm")]
    MissingArmColumn {
        /// The header.
        at: Place,
        /// The name of the missing column.
        column: String,
    },
    /// All arms would look the same.
    #[error(
        "{0}: found no column named class:feature, expected at least 1 for each arm (or features = \"shared\")"
    )]
    NoArmColumns(Place),

    /// An action that is no number of an arm.
    #[error("{at}: found {found:?}, expected an integer from 0 to 99999")]
    Action {
        /// The field.
        at: Place,
        /// Its text.
        found: String,
    },
    /// Nothing to choose.
    #[error("{0}: found only the action 0, expected at least 2 actions")]
    OneAction(Place),
    /// Replay would wait for this action forever.
    #[error(
        "{at}: found no event with action {missing}, expected each action from 0 to {largest} at least once"
    )]
    ActionNeverLogged {
        /// The column of actions.
        at: Place,
        /// The action.
        missing: usize,
        /// The largest action.
        largest: usize,
    },
    /// A reward out of range.
    #[error("{at}: found {found:?}, expected a reward from 0 to 1")]
    Reward {
        /// The field.
        at: Place,
        /// Its text.
        found: String,
    },
    /// A propensity that is no probability, or zero.
    #[error("{at}: found {found:?}, expected a probability above 0 and at most 1")]
    Propensity {
        /// The field.
        at: Place,
        /// Its text.
        found: String,
    },
    /// What is being predicted, or how it was logged, is no context.
    #[error(
        "{0}: found this column in `context`, expected columns other than action, reward and pscore, each once"
    )]
    NoContext(Place),

    /// More dimensions than a model can have.
    #[error("{at}: found {found} dimensions, expected at most 1000 (use `project`)")]
    Dimensions {
        /// The file.
        at: Place,
        /// Dimensions of the arms' features.
        found: usize,
    },
    /// A projection that is none.
    #[error("{at}: found project = {found}, expected from 2 to {largest}")]
    Project {
        /// The file.
        at: Place,
        /// The value.
        found: u32,
        /// The number of dimensions before, at most 1000.
        largest: usize,
    },
    /// A projection that would need too much memory.
    #[error(
        "{at}: found a projection with {found} entries ({dimensions} dimensions times `project`), expected at most 100000000"
    )]
    ProjectionSize {
        /// The file.
        at: Place,
        /// Entries of its matrix.
        found: usize,
        /// Dimensions before.
        dimensions: usize,
    },
}

/// "a", "b", "c" and 12 more
fn quoted(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(20).map(|name| format!("{name:?}")).collect();
    let text = shown.join(", ");
    match names.len() - shown.len() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}
