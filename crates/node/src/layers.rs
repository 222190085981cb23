//! Where settings come from: defaults, a TOML file, the environment, flags; the later ones win.

use std::{
    fmt, fs, io,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use crate::{ConfigError, NodeConfig};

/// Variables that set something begin with this.
const PREFIX: &str = "INCROWD_";
/// Names the file, so it is not a setting of its own.
const FILE_VARIABLE: &str = "INCROWD_CONFIG";

/// Settings that have no default.
const OPTIONAL: [&str; 10] = [
    "bandit.shuffler_ca",
    "bandit.token_file",
    "postgres.ca",
    "postgres.password_file",
    "shuffler.heads",
    "shuffler.model_ca",
    "shuffler.model_url",
    "shuffler.round_keys",
    "tls.certificate",
    "tls.key",
];

#[derive(Debug, Clone, PartialEq)]
enum Origin {
    Default,
    File(PathBuf),
    Environment,
    Flag,
}

impl Origin {
    /// The name of one setting's source.
    fn of(&self, key: &str) -> String {
        match self {
            Self::Default => "default".into(),
            Self::File(path) => path.display().to_string(),
            Self::Environment => format!("{PREFIX}{}", key.to_uppercase().replace('.', "__")),
            Self::Flag => "flag".into(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "the defaults"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment => write!(f, "the variables {PREFIX}*"),
            Self::Flag => write!(f, "the flags"),
        }
    }
}

/// What can come from all of these places.
pub trait Settings: Default + Serialize + DeserializeOwned {
    /// The settings that hold, or the first rule that is violated.
    fn check(self) -> Result<Self, ConfigError>;
}

impl Settings for NodeConfig {
    fn check(self) -> Result<Self, ConfigError> {
        NodeConfig::check(self)
    }
}

/// Settings of a service with where each comes from.
pub type Layers = LayersOf<NodeConfig>;

/// Settings with where each comes from.
pub struct LayersOf<C> {
    layers: Vec<(Origin, Table)>,
    merged: Table,
    settings: PhantomData<C>,
}

impl<C: Settings> LayersOf<C> {
    /// Defaults, then the file, then variables of the environment (`INCROWD_LISTEN`,
    /// `INCROWD_LIMITS__EPSILON_LOCAL`), then `flags`, which has what was given on the command
    /// line in the shape of the settings.
    pub fn new(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &impl Serialize,
    ) -> Result<Self, ConfigError> {
        let defaults =
            Table::try_from(C::default()).expect("invariant: the defaults can be written as TOML");
        let environment = variables(environment, &defaults);
        let (layers, merged, settings) = (Vec::new(), Table::new(), PhantomData);
        let mut layers = Self { layers, merged, settings };
        layers.add(Origin::Default, defaults)?;
        if let Some(path) = file {
            layers.add(Origin::File(path.to_owned()), read(path)?)?;
        }
        layers.add(Origin::Environment, environment)?;
        let flags =
            Table::try_from(flags).map_err(|error| invalid(&Origin::Flag, error.to_string()))?;
        layers.add(Origin::Flag, flags)?;
        Ok(layers)
    }

    /// Puts a layer on top. It is checked at once, so an error names the layer that has it.
    fn add(&mut self, origin: Origin, table: Table) -> Result<(), ConfigError> {
        merge(&mut self.merged, &table);
        self.parse().map_err(|error| {
            let message = error.to_string();
            let (message, key) = message.trim_end().split_once("\nin `").unwrap_or((&message, ""));
            let named = if key.is_empty() {
                String::new()
            } else {
                format!("{}: ", key.trim_end_matches('`'))
            };
            invalid(&origin, format!("{named}{}", message.trim_end()))
        })?;
        self.layers.push((origin, table));
        Ok(())
    }

    fn parse(&self) -> Result<C, toml::de::Error> {
        self.merged.clone().try_into()
    }

    /// The settings, checked.
    pub fn config(&self) -> Result<C, ConfigError> {
        self.parse().expect("invariant: every layer was parsed when it was added").check()
    }

    /// Every setting with its value and its origin, in order.
    pub fn settings(&self) -> Result<Vec<Setting>, ConfigError> {
        self.config()?;
        let mut settings = Vec::new();
        self.collect("", &self.merged, &mut settings);
        Ok(settings)
    }

    /// Settings without a default that nobody sets.
    pub fn unset(&self) -> impl Iterator<Item = &'static str> {
        let unset = |key: &&str| find(&self.merged, key).is_none();
        OPTIONAL.into_iter().filter(unset)
    }

    fn collect(&self, section: &str, table: &Table, settings: &mut Vec<Setting>) {
        for (name, value) in table {
            let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
            if let Value::Table(table) = value {
                self.collect(&key, table, settings);
                continue;
            }
            let (origin, _) = self
                .layers
                .iter()
                .rfind(|(_, layer)| find(layer, &key).is_some())
                .expect("invariant: every merged value comes from a layer");
            settings.push(Setting { origin: origin.of(&key), value: value.to_string(), key });
        }
    }
}

fn invalid(origin: &Origin, message: String) -> ConfigError {
    ConfigError::Value { origin: origin.to_string(), message }
}

fn read(path: &Path) -> Result<Table, ConfigError> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ConfigError::NoFile(path.to_owned()),
        _ => ConfigError::File { path: path.to_owned(), error },
    })?;
    let wrong = |error: toml::de::Error| invalid(&Origin::File(path.to_owned()), error.to_string());
    text.parse().map_err(wrong)
}

/// The variables that are settings: sections are separated by two underscores, and a value is
/// TOML, except where the default is a string, and everything is taken as it is, or a number.
fn variables(all: impl IntoIterator<Item = (String, String)>, defaults: &Table) -> Table {
    let mut table = Table::new();
    for (name, text) in all {
        if name == FILE_VARIABLE {
            continue;
        }
        let Some(key) = name.strip_prefix(PREFIX) else { continue };
        let key = key.to_lowercase().replace("__", ".");
        let value = match find(defaults, &key) {
            Some(Value::String(_)) => Value::String(text),
            Some(Value::Float(_)) => float(&text).unwrap_or(Value::String(text)),
            Some(Value::Integer(_)) => integer(&text).unwrap_or(Value::String(text)),
            _ => toml_value(&text).unwrap_or(Value::String(text)),
        };
        let mut nested = value;
        for name in key.rsplit('.') {
            nested = Value::Table(Table::from_iter([(name.to_owned(), nested)]));
        }
        if let Value::Table(nested) = nested {
            merge(&mut table, &nested);
        }
    }
    table
}

fn toml_value(text: &str) -> Option<Value> {
    format!("value = {text}").parse::<Table>().ok()?.remove("value")
}

/// A number as people write one, also without the point that TOML wants.
fn float(text: &str) -> Option<Value> {
    text.trim().replace('_', "").parse().ok().map(Value::Float)
}

/// Below this every whole number is a float exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number, also as `1e5` or `0x10`.
fn integer(text: &str) -> Option<Value> {
    if let Some(value @ Value::Integer(_)) = toml_value(text) {
        return Some(value);
    }
    let Some(Value::Float(number)) = float(text) else { return None };
    let whole = number.fract() == 0.0 && number.abs() <= EXACT;
    whole.then_some(Value::Integer(number as i64))
}

/// Overwrites what `upper` has; tables are merged.
fn merge(lower: &mut Table, upper: &Table) {
    for (name, value) in upper {
        match (lower.get_mut(name), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => merge(lower, upper),
            _ => {
                lower.insert(name.clone(), value.clone());
            }
        }
    }
}

fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, rest)) => find(table.get(section)?.as_table()?, rest),
        None => table.get(key),
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name, sections separated by dots.
    pub key: String,
    /// Its value, as TOML.
    pub value: String,
    /// Where it comes from: default, a file, a variable of the environment, or a flag.
    pub origin: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}
