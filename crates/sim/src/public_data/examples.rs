use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use incrowd_device::{Arm, FeatureMap, Field, FieldKind, Fields, MapModel, Value};

use super::PublicDataError;
use crate::{
    DataError, Place,
    environment::table::{self, Table},
};

/// The field that every action has without a column: its name.
const ACTION: &str = "action";
/// What the names of columns with the reward of one action begin with.
const REWARD_OF: &str = "reward:";

/// What a file says about rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// Nothing.
    Sample,
    /// The right action of each row: reward 1 for it, 0 for all others.
    Labelled,
    /// The reward of every action of each row.
    Rewards,
    /// The reward of one action of each row.
    Logged,
}

/// Where rewards are.
enum Answers {
    None,
    Label(usize),
    /// A column for each action.
    Rewards(Vec<usize>),
    Logged {
        action: usize,
        reward: usize,
        pscore: Option<usize>,
    },
}

/// Where the value of an action's field is.
enum Source {
    Column(usize),
    /// The action's name.
    Name,
}

/// The rows of a CSV file as a feature map sees them; see `docs/planning.md`.
///
/// Context fields are columns with their names, fields of an action are columns `ACTION:field`; an
/// action field `action` without columns is the action's name. Values of number fields are numbers,
/// `true` or `false`; values of other fields are texts, whatever they look like; an empty one is
/// missing. Columns that neither the map nor the rewards need are ignored.
pub struct Examples<'a> {
    map: &'a FeatureMap,
    table: Table,
    actions: Vec<String>,
    answers: Answers,
    /// A column for each context field.
    context: Vec<usize>,
    /// For each action, where its fields are.
    own: Vec<Vec<Source>>,
}

/// What a row says about rewards.
pub(super) enum Outcome {
    /// Of every action.
    All(Vec<f64>),
    /// Of one action, which was chosen with some probability, if that is known.
    Logged { action: usize, reward: f64, propensity: Option<f64> },
}

/// The fields of a row.
pub(super) struct RowFields {
    pub(super) context: Fields,
    pub(super) actions: Vec<Fields>,
}

impl<'a> Examples<'a> {
    /// Reads a file with rewards: of the action that the column `label` names, in columns
    /// `reward:ACTION`, or logged in the columns `action` and `reward`.
    pub fn read(
        file: &Path,
        map: &'a FeatureMap,
        label: Option<&str>,
    ) -> Result<Self, PublicDataError> {
        Self::parse(file, &table::read(file)?, map, label)
    }

    /// Reads a file of which only fields matter.
    pub fn sample(file: &Path, map: &'a FeatureMap) -> Result<Self, PublicDataError> {
        Self::parse_sample(file, &table::read(file)?, map)
    }

    /// As [`Examples::read`], from a file's bytes. `file` is for messages.
    pub fn parse(
        file: &Path,
        bytes: &[u8],
        map: &'a FeatureMap,
        label: Option<&str>,
    ) -> Result<Self, PublicDataError> {
        let table = Table::parse(file, bytes)?;
        let (action, reward) = (column(&table, "action"), column(&table, "reward"));
        let rewards = table.columns().iter().any(|name| name.starts_with(REWARD_OF));
        let answers = match (label, action.zip(reward)) {
            (Some(label), _) => Answers::Label(table.find(label)?),
            (None, Some(_)) if rewards => {
                return Err(PublicDataError::TwoKinds(table.header_place()));
            }
            (None, Some((action, reward))) => {
                Answers::Logged { action, reward, pscore: column(&table, "pscore") }
            }
            (None, None) if rewards => Answers::Rewards(Vec::new()),
            (None, None) => return Err(PublicDataError::NoRewards(table.header_place())),
        };
        Self::new(table, map, answers)
    }

    /// As [`Examples::sample`], from a file's bytes. `file` is for messages.
    pub fn parse_sample(
        file: &Path,
        bytes: &[u8],
        map: &'a FeatureMap,
    ) -> Result<Self, PublicDataError> {
        Self::new(Table::parse(file, bytes)?, map, Answers::None)
    }

    fn new(
        table: Table,
        map: &'a FeatureMap,
        mut answers: Answers,
    ) -> Result<Self, PublicDataError> {
        let actions = actions(&table, map, &answers)?;
        if let Answers::Rewards(columns) = &mut answers {
            for action in &actions {
                let name = format!("{REWARD_OF}{action}");
                columns.push(column(&table, &name).ok_or_else(|| {
                    PublicDataError::RewardColumn { at: table.header_place(), column: name }
                })?);
            }
        }
        let mut examples =
            Self { map, table, actions, answers, context: Vec::new(), own: Vec::new() };
        examples.find_columns()?;
        Ok(examples)
    }

    /// Finds the columns of the map's fields.
    fn find_columns(&mut self) -> Result<(), PublicDataError> {
        let config = self.map.config();
        let table = &self.table;
        let missing = |column: String| PublicDataError::FieldColumn {
            at: table.header_place(),
            column,
            known: table.columns().iter().filter(|name| !name.is_empty()).cloned().collect(),
        };
        let answers: Vec<usize> = match &self.answers {
            Answers::None => Vec::new(),
            Answers::Label(label) => vec![*label],
            Answers::Rewards(columns) => columns.clone(),
            Answers::Logged { action, reward, pscore } => {
                [*action, *reward].into_iter().chain(*pscore).collect()
            }
        };
        let mut context = Vec::new();
        for field in &config.context {
            let found = column(table, &field.name).ok_or_else(|| missing(field.name.clone()))?;
            if answers.contains(&found) {
                return Err(PublicDataError::Answer(table.column_place(&field.name)));
            }
            context.push(found);
        }
        let mut own = Vec::new();
        for action in &self.actions {
            let mut sources = Vec::new();
            let prefix = if action.is_empty() { "ACTION" } else { action };
            for field in &config.action {
                let name = format!("{prefix}:{}", field.name);
                sources.push(match column(table, &name) {
                    Some(column) => Source::Column(column),
                    None if field.name == ACTION => Source::Name,
                    None => return Err(missing(name)),
                });
            }
            own.push(sources);
        }
        (self.context, self.own) = (context, own);
        Ok(())
    }

    /// The map that they are seen through.
    pub fn map(&self) -> &FeatureMap {
        self.map
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.table.rows()
    }

    /// The names of the actions, in the order of their slots where they have any.
    pub fn actions(&self) -> &[String] {
        &self.actions
    }

    /// What the file says about rewards.
    pub fn kind(&self) -> DataKind {
        match self.answers {
            Answers::None => DataKind::Sample,
            Answers::Label(_) => DataKind::Labelled,
            Answers::Rewards(_) => DataKind::Rewards,
            Answers::Logged { .. } => DataKind::Logged,
        }
    }

    /// Whether the file has the probabilities of logged actions.
    pub fn has_propensities(&self) -> bool {
        matches!(self.answers, Answers::Logged { pscore: Some(_), .. })
    }

    pub(super) fn place(&self) -> Place {
        self.table.place()
    }

    /// The slot of an action.
    pub(super) fn arm<'b>(&self, action: usize, features: &'b [f64]) -> Arm<'b> {
        let shared = self.map.config().model == MapModel::Shared;
        Arm { slot: if shared { 0 } else { action as u32 }, features }
    }

    /// The fields of a row.
    pub(super) fn fields(&self, row: usize) -> Result<RowFields, PublicDataError> {
        let config = self.map.config();
        let mut context = Fields::new();
        for (field, &column) in config.context.iter().zip(&self.context) {
            self.take(field, row, column, &mut context)?;
        }
        let mut actions = Vec::with_capacity(self.actions.len());
        for (name, sources) in self.actions.iter().zip(&self.own) {
            let mut fields = Fields::new();
            for (field, source) in config.action.iter().zip(sources) {
                match source {
                    Source::Column(column) => self.take(field, row, *column, &mut fields)?,
                    Source::Name => {
                        fields.insert(field.name.clone(), Value::Text(name.clone()));
                    }
                }
            }
            actions.push(fields);
        }
        Ok(RowFields { context, actions })
    }

    fn take(
        &self,
        field: &Field,
        row: usize,
        column: usize,
        fields: &mut Fields,
    ) -> Result<(), PublicDataError> {
        let text = self.table.text(row, column);
        let value = match (&field.kind, text) {
            (_, "") => return Ok(()),
            (FieldKind::Number { .. }, "true") => Value::Flag(true),
            (FieldKind::Number { .. }, "false") => Value::Flag(false),
            (FieldKind::Number { .. }, _) => Value::Number(self.table.number(row, column)?),
            (FieldKind::Category { .. } | FieldKind::Hashed { .. }, _) => {
                Value::Text(text.to_owned())
            }
        };
        fields.insert(field.name.clone(), value);
        Ok(())
    }

    /// What a row says about rewards; none in a sample.
    pub(super) fn outcome(&self, row: usize) -> Result<Option<Outcome>, PublicDataError> {
        Ok(match &self.answers {
            Answers::None => None,
            Answers::Label(label) => {
                let right = self.action(row, *label)?;
                let reward = |action| f64::from(u8::from(action == right));
                Some(Outcome::All((0..self.actions.len()).map(reward).collect()))
            }
            Answers::Rewards(columns) => {
                let rewards = columns.iter().map(|&column| self.reward(row, column));
                Some(Outcome::All(rewards.collect::<Result<_, _>>()?))
            }
            Answers::Logged { action, reward, pscore } => Some(Outcome::Logged {
                action: self.action(row, *action)?,
                reward: self.reward(row, *reward)?,
                propensity: pscore.map(|column| self.propensity(row, column)).transpose()?,
            }),
        })
    }

    fn action(&self, row: usize, column: usize) -> Result<usize, PublicDataError> {
        let found = self.table.text(row, column);
        self.actions.iter().position(|action| action == found).ok_or_else(|| {
            PublicDataError::Action {
                at: self.table.field_place(row, column),
                found: found.to_owned(),
                known: self.actions.clone(),
            }
        })
    }

    fn reward(&self, row: usize, column: usize) -> Result<f64, PublicDataError> {
        let reward = self.table.number(row, column)?;
        if (0.0..=1.0).contains(&reward) {
            return Ok(reward);
        }
        let (at, found) = (self.table.field_place(row, column), self.table.text(row, column));
        Err(DataError::Reward { at, found: found.to_owned() }.into())
    }

    fn propensity(&self, row: usize, column: usize) -> Result<f64, PublicDataError> {
        let propensity = self.table.number(row, column)?;
        if propensity > 0.0 && propensity <= 1.0 {
            return Ok(propensity);
        }
        let (at, found) = (self.table.field_place(row, column), self.table.text(row, column));
        Err(DataError::Propensity { at, found: found.to_owned() }.into())
    }

    /// Features of every action in a row, and what was wrong with fields: how often each problem
    /// was met is added to `problems`.
    pub(super) fn features(
        &self,
        row: usize,
        problems: Option<&mut BTreeMap<String, usize>>,
    ) -> Result<Vec<Vec<f64>>, PublicDataError> {
        let fields = self.fields(row)?;
        let (features, found) = self.map.features_of_all(&fields.context, &fields.actions);
        if let Some(problems) = problems {
            found.iter().for_each(|problem| *problems.entry(problem.to_string()).or_default() += 1);
        }
        Ok(features)
    }
}

fn column(table: &Table, name: &str) -> Option<usize> {
    table.columns().iter().position(|column| column == name)
}

/// The actions of the map, in its order; else those of the file: integers in their order, other
/// names in alphabetical order.
fn actions(
    table: &Table,
    map: &FeatureMap,
    answers: &Answers,
) -> Result<Vec<String>, PublicDataError> {
    let config = map.config();
    let mut found = BTreeSet::new();
    let columns = table.columns().iter();
    match answers {
        Answers::Rewards(_) => {
            for name in columns.filter_map(|column| column.strip_prefix(REWARD_OF)) {
                if !config.actions.is_empty() && !config.actions.iter().any(|own| own == name) {
                    let (at, known) =
                        (table.column_place(&format!("{REWARD_OF}{name}")), config.actions.clone());
                    return Err(PublicDataError::Action { at, found: name.to_owned(), known });
                }
                found.insert(name.to_owned());
            }
        }
        _ if !config.actions.is_empty() => {}
        _ => {
            for column in columns {
                let own = config.action.iter().filter_map(|field| {
                    column.strip_suffix(field.name.as_str())?.strip_suffix(':')
                });
                found.extend(own.filter(|action| !action.is_empty()).map(str::to_owned));
            }
            let named = match answers {
                Answers::Label(column) | Answers::Logged { action: column, .. } => Some(*column),
                _ => column(table, ACTION),
            };
            if let Some(column) = named {
                found.extend(named_in(table, column, matches!(answers, Answers::Label(_)))?);
            }
        }
    }
    if !config.actions.is_empty() {
        return Ok(config.actions.clone());
    }
    if found.is_empty() {
        found.extend(listed(&config.action));
    }
    let mut sorted: Vec<String> = found.into_iter().collect();
    if sorted.iter().all(|name| name.parse::<u64>().is_ok()) {
        sorted.sort_by_key(|name| name.parse::<u64>().ok());
    }
    Ok(sorted)
}

/// The names in a column.
fn named_in(
    table: &Table,
    column: usize,
    label: bool,
) -> Result<BTreeSet<String>, PublicDataError> {
    let mut names = BTreeSet::new();
    for row in 0..table.rows() {
        let name = table.text(row, column);
        if name.is_empty() {
            let at = table.field_place(row, column);
            return Err(if label {
                DataError::NoLabel(at).into()
            } else {
                PublicDataError::Action { at, found: String::new(), known: Vec::new() }
            });
        }
        if !names.contains(name) {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// Actions of a sample that names none: those that the map lists in a field `action`; else one
/// without a name.
fn listed(fields: &[Field]) -> Vec<String> {
    let names = fields.iter().find_map(|field| match &field.kind {
        FieldKind::Category { values } if field.name == ACTION => Some(values.clone()),
        _ => None,
    });
    names.unwrap_or_else(|| vec![String::new()])
}
