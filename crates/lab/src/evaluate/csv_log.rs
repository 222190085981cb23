//! Logs in CSV: ours, and the Open Bandit data's.

use std::{collections::BTreeSet, path::Path};

use csv::StringRecord;
use incrowd_sim::Place;

use super::{
    EvaluateError, Format, Log, ReadOptions,
    cells::{Cell, Names},
    csv_rows::{self, Header},
    log::{Event, EventArm, place},
};

/// The columns of the action, the reward and the propensity.
pub(super) const OURS: [&str; 3] = ["action", "reward", "pscore"];
/// The same in the Open Bandit data.
pub(super) const OPEN_BANDIT: [&str; 3] = ["item_id", "click", "propensity_score"];

/// Columns `user-item_affinity_7` of the Open Bandit data belong to item 7.
const AFFINITY: &str = "user-item_affinity";
/// Columns of the Open Bandit data that are no context.
const NO_CONTEXT: [&str; 1] = ["timestamp"];
/// Columns of the Open Bandit data that are texts, whatever they look like.
const TEXTS: [&str; 2] = ["position", "user_feature_"];

/// What a column is.
enum Column {
    Ignored,
    /// A field of the context.
    Context {
        field: u32,
        text: bool,
    },
    /// A field of one action.
    Action {
        action: usize,
        field: u32,
        text: bool,
    },
}

struct Reader<'a> {
    file: &'a Path,
    header: Header,
    /// Where action, reward and propensity are.
    main: [usize; 3],
    columns: Vec<Column>,
    log: Log,
}

pub(super) fn read(
    file: &Path,
    text: &str,
    format: Format,
    options: &ReadOptions,
) -> Result<Log, EvaluateError> {
    let header = csv_rows::header(file, text)?;
    let names = if format == Format::OpenBandit { OPEN_BANDIT } else { OURS };
    let mut main = [0; 3];
    for (index, name) in main.iter_mut().zip(names) {
        *index = header.columns.iter().position(|column| column == name).ok_or_else(|| {
            EvaluateError::MissingColumn {
                at: place(file, Some(header.line)),
                column: name.to_owned(),
                known: header.columns.iter().filter(|name| !name.is_empty()).cloned().collect(),
            }
        })?;
    }
    let log = Log {
        file: file.to_path_buf(),
        format,
        actions: actions(file, text, format, &header, main[0], options)?,
        logged: Vec::new(),
        context_fields: Names::default(),
        action_fields: Names::default(),
        texts: Names::default(),
        events: Vec::new(),
        skipped: 0,
    };
    let mut reader = Reader { file, header, main, columns: Vec::new(), log };
    reader.assign(format, options)?;
    csv_rows::for_each(file, text, |line, fields| reader.event(line, fields))?;
    Ok(reader.log)
}

/// All actions: logged ones, those of the options, and of Open Bandit's columns; integers in their
/// order, else in alphabetical order.
fn actions(
    file: &Path,
    text: &str,
    format: Format,
    header: &Header,
    column: usize,
    options: &ReadOptions,
) -> Result<Names, EvaluateError> {
    let mut found: BTreeSet<String> = options.actions.iter().cloned().collect();
    if format == Format::OpenBandit {
        found.extend(header.columns.iter().filter_map(|name| item(name)).map(str::to_owned));
    }
    csv_rows::for_each(file, text, |line, fields| {
        let action = &fields[column];
        if action.is_empty() {
            let at =
                Place { column: Some(header.columns[column].clone()), ..place(file, Some(line)) };
            let expected = "the name of an action".into();
            return Err(EvaluateError::Value { at, found: "\"\"".into(), expected });
        }
        if !found.contains(action) {
            found.insert(action.to_owned());
        }
        Ok(())
    })?;
    let mut sorted: Vec<String> = found.into_iter().collect();
    if sorted.iter().all(|name| name.parse::<u64>().is_ok()) {
        sorted.sort_by_key(|name| name.parse::<u64>().ok());
    }
    let mut names = Names::default();
    sorted.iter().for_each(|name| _ = names.number(name));
    Ok(names)
}

/// The item of a column of affinities.
fn item(column: &str) -> Option<&str> {
    column.strip_prefix(AFFINITY)?.strip_prefix('_')
}

impl Reader<'_> {
    /// Says what every column is.
    fn assign(&mut self, format: Format, options: &ReadOptions) -> Result<(), EvaluateError> {
        let names = self.header.columns.clone();
        for (index, name) in names.iter().enumerate() {
            let column = if name.is_empty() || self.main.contains(&index) {
                Column::Ignored
            } else if format == Format::OpenBandit {
                self.open_bandit(name, options)
            } else {
                self.ours(name, options)?
            };
            self.columns.push(column);
        }
        self.check_action_columns()
    }

    fn ours(&mut self, name: &str, options: &ReadOptions) -> Result<Column, EvaluateError> {
        if !name.contains(':') {
            let text = options.texts.contains(name);
            return Ok(Column::Context { field: self.log.context_fields.number(name), text });
        }
        // With the longest action if actions have colons themselves.
        let actions = self.log.actions.list().iter().enumerate();
        let own = actions.filter_map(|(action, prefix)| {
            Some((action, name.strip_prefix(prefix.as_str())?.strip_prefix(':')?))
        });
        let Some((action, feature)) = own.min_by_key(|(_, feature)| feature.len()) else {
            let at = self.at(self.header.line, name);
            return Err(EvaluateError::NoSuchAction { at, actions: self.log.actions().to_vec() });
        };
        let text = options.texts.contains(feature);
        Ok(Column::Action { action, field: self.log.action_fields.number(feature), text })
    }

    fn open_bandit(&mut self, name: &str, options: &ReadOptions) -> Column {
        if NO_CONTEXT.contains(&name) {
            return Column::Ignored;
        }
        match item(name).and_then(|item| self.log.actions.find(item)) {
            Some(action) => Column::Action {
                action: action as usize,
                field: self.log.action_fields.number(AFFINITY),
                text: options.texts.contains(AFFINITY),
            },
            None => Column::Context {
                field: self.log.context_fields.number(name),
                text: options.texts.contains(name)
                    || TEXTS.iter().any(|prefix| name.starts_with(prefix)),
            },
        }
    }

    /// Every action has the same features.
    fn check_action_columns(&self) -> Result<(), EvaluateError> {
        let fields = self.log.action_fields.len();
        let mut there = vec![false; self.log.actions.len() * fields];
        for column in &self.columns {
            if let Column::Action { action, field, .. } = column {
                there[action * fields + *field as usize] = true;
            }
        }
        let Some(missing) = there.iter().position(|there| !there) else {
            return Ok(());
        };
        let action = self.log.actions.get((missing / fields) as u32);
        let field = self.log.action_fields.get((missing % fields) as u32);
        let column = match self.log.format {
            Format::OpenBandit => format!("{field}_{action}"),
            _ => format!("{action}:{field}"),
        };
        let at = place(self.file, Some(self.header.line));
        Err(EvaluateError::MissingActionColumn { at, column })
    }

    fn event(&mut self, line: u64, fields: &StringRecord) -> Result<(), EvaluateError> {
        let [action, reward, propensity] = self.main;
        let chosen = self.log.actions.find(&fields[action]).expect("all actions are known");
        let reward = self.number(line, fields, reward, "a finite reward", f64::is_finite)?;
        let rule = "a probability above 0 and at most 1";
        let propensity = self.number(line, fields, propensity, rule, |p| p > 0.0 && p <= 1.0)?;
        let mut context = Vec::new();
        let count = if self.log.action_fields.len() == 0 { 0 } else { self.log.actions.len() };
        let mut own: Vec<Vec<(u32, Cell)>> = vec![Vec::new(); count];
        for (index, column) in self.columns.iter().enumerate() {
            let (field, text, cells) = match *column {
                Column::Ignored => continue,
                Column::Context { field, text } => (field, text, &mut context),
                Column::Action { action, field, text } => (field, text, &mut own[action]),
            };
            let found = &fields[index];
            let Some(cell) = cell(found, text, &mut self.log.texts) else {
                continue;
            };
            if matches!(cell, Cell::Number(number) if !number.is_finite()) {
                let at = self.at(line, &self.header.columns[index]);
                let expected = "a finite number, a text or nothing".into();
                return Err(EvaluateError::Value { at, found: format!("{found:?}"), expected });
            }
            cells.push((field, cell));
        }
        let arm = |(action, fields): (usize, Vec<(u32, Cell)>)| EventArm {
            action: action as u32,
            fields: fields.into(),
        };
        let arms: Vec<EventArm> = own.into_iter().enumerate().map(arm).collect();
        self.log.events.push(Event {
            line,
            chosen: chosen as usize,
            reward,
            propensity,
            probabilities: None,
            expansion: 1.0,
            context: context.into(),
            arms: (!arms.is_empty()).then(|| arms.into()),
        });
        Ok(())
    }

    fn number(
        &self,
        line: u64,
        fields: &StringRecord,
        column: usize,
        expected: &str,
        allowed: impl Fn(f64) -> bool,
    ) -> Result<f64, EvaluateError> {
        let found = &fields[column];
        found.parse().ok().filter(|&number| allowed(number)).ok_or_else(|| EvaluateError::Value {
            at: self.at(line, &self.header.columns[column]),
            found: format!("{found:?}"),
            expected: expected.into(),
        })
    }

    fn at(&self, line: u64, column: &str) -> Place {
        Place { column: Some(column.to_owned()), ..place(self.file, Some(line)) }
    }
}

/// A field's value; none if it is empty.
fn cell(found: &str, text: bool, texts: &mut Names) -> Option<Cell> {
    if found.is_empty() {
        return None;
    }
    Some(match found {
        _ if text => Cell::Text(texts.number(found)),
        "true" => Cell::Flag(true),
        "false" => Cell::Flag(false),
        _ => found.parse().map_or_else(|_| Cell::Text(texts.number(found)), Cell::Number),
    })
}
