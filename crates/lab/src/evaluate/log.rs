use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use incrowd_sim::Place;
use serde::Serialize;

use super::{
    EvaluateError,
    cells::{Cells, Names},
    csv_log, csv_rows, dsjson,
};

/// How a log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A CSV file with action, reward, pscore and the context; action:feature for features of one
    /// action.
    Csv,
    /// A CSV file of the Open Bandit data.
    OpenBandit,
    /// Lines of JSON as Vowpal Wabbit and Azure Personalizer log them.
    Dsjson,
}

/// How a log is read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The format; none: by the file's content.
    pub format: Option<Format>,
    /// Actions that can be chosen, beside the logged ones.
    pub actions: Vec<String>,
    /// Fields of CSV files that are texts even if they look like numbers.
    pub texts: HashSet<String>,
}

/// Logged bandit feedback: events with a context, a chosen action, its probability and its reward.
#[derive(Debug)]
pub struct Log {
    pub(super) file: PathBuf,
    pub(super) format: Format,
    pub(super) actions: Names,
    /// Actions that some event chose, or could have chosen as far as its probabilities say.
    pub(super) logged: Vec<bool>,
    pub(super) context_fields: Names,
    pub(super) action_fields: Names,
    pub(super) texts: Names,
    pub(super) events: Vec<Event>,
    /// Records without a decision.
    pub(super) skipped: usize,
}

/// One decision.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) line: u64,
    /// Index among the event's arms.
    pub(super) chosen: usize,
    pub(super) reward: f64,
    /// Probability with which the log's policy chose that arm, above 0.
    pub(super) propensity: f64,
    /// Those of all arms, if the log has them.
    pub(super) probabilities: Option<Box<[f64]>>,
    /// Events that this one stands for: 1 over the probability that it was kept in the log.
    pub(super) expansion: f64,
    pub(super) context: Cells,
    /// What could be chosen; none: every action of the log, without fields of their own.
    pub(super) arms: Option<Box<[EventArm]>>,
}

/// One action that an event offers.
#[derive(Debug)]
pub(super) struct EventArm {
    pub(super) action: u32,
    pub(super) fields: Cells,
}

impl Event {
    /// The action of an arm.
    pub(super) fn action(&self, arm: usize) -> usize {
        self.arms.as_ref().map_or(arm, |arms| arms[arm].action as usize)
    }
}

impl Log {
    /// Reads and checks a file.
    pub fn read(file: &Path, options: &ReadOptions) -> Result<Self, EvaluateError> {
        let bytes = fs::read(file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => EvaluateError::Missing(place(file, None)),
            _ => EvaluateError::Unreadable { at: place(file, None), reason: error.to_string() },
        })?;
        Self::parse(file, &bytes, options)
    }

    /// Checks a file's bytes. `file` is for messages.
    pub fn parse(file: &Path, bytes: &[u8], options: &ReadOptions) -> Result<Self, EvaluateError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = 1 + csv_rows::breaks(&bytes[..error.valid_up_to()]);
            EvaluateError::NotUtf8(place(file, Some(line)))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let format = match options.format {
            Some(format) => format,
            None => detect(file, text)?,
        };
        let mut log = match format {
            Format::Csv | Format::OpenBandit => csv_log::read(file, text, format, options)?,
            Format::Dsjson => dsjson::read(file, text)?,
        };
        if log.events.len() < 2 {
            let (at, found) = (log.place(), log.events.len());
            return Err(EvaluateError::TooFewEvents { at, found, expected: 2 });
        }
        options.actions.iter().for_each(|action| _ = log.actions.number(action));
        log.mark_logged();
        Ok(log)
    }

    /// Number of events.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// The names of the actions.
    pub fn actions(&self) -> &[String] {
        self.actions.list()
    }

    /// How it was written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How many arms an event offers.
    pub(super) fn arms(&self, event: &Event) -> usize {
        event.arms.as_ref().map_or(self.actions.len(), |arms| arms.len())
    }

    pub(super) fn place(&self) -> Place {
        place(&self.file, None)
    }

    fn mark_logged(&mut self) {
        let mut logged = vec![false; self.actions.len()];
        for event in &self.events {
            logged[event.action(event.chosen)] = true;
            for (arm, &probability) in event.probabilities.iter().flatten().enumerate() {
                logged[event.action(arm)] |= probability > 0.0;
            }
        }
        self.logged = logged;
    }
}

pub(super) fn place(file: &Path, line: Option<u64>) -> Place {
    Place { file: file.to_path_buf(), line, column: None }
}

/// The format by the first line with anything on it.
fn detect(file: &Path, text: &str) -> Result<Format, EvaluateError> {
    if text.trim_start().starts_with('{') {
        return Ok(Format::Dsjson);
    }
    let header = csv_rows::header(file, text)?;
    let has = |names: [&str; 3]| names.iter().all(|name| header.columns.iter().any(|c| c == name));
    if has(csv_log::OPEN_BANDIT) {
        Ok(Format::OpenBandit)
    } else if has(csv_log::OURS) {
        Ok(Format::Csv)
    } else {
        let (at, columns) = (place(file, Some(header.line)), header.columns.join(","));
        let found = if columns.is_empty() {
            "nothing".into()
        } else {
            format!("{:?}", columns.chars().take(80).collect::<String>())
        };
        Err(EvaluateError::UnknownFormat { at, found })
    }
}
