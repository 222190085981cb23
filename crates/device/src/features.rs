//! From an application's named fields to the features x of a context and an action, always within
//! the ball of radius L.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use incrowd_protocol::{Dimension, Mechanism};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The value of a field. Printing it for debugging shows its type only.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// True or false.
    Flag(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag(_) => "Flag(..)",
            Self::Number(_) => "Number(..)",
            Self::Text(_) => "Text(..)",
        })
    }
}

/// Named values of a context or an action.
pub type Fields = BTreeMap<String, Value>;

/// How a field becomes a block of entries of norm at most 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FieldKind {
    /// One entry, the range mapped onto [-1, 1].
    Number {
        /// Smallest value; lower ones are clipped.
        min: f64,
        /// Largest value; higher ones are clipped.
        max: f64,
    },
    /// One entry per value, 1 where it is equal.
    Category {
        /// The values it can take.
        values: Vec<String>,
    },
    /// `buckets` entries, +1 or -1 in the one that the text is hashed to: for texts that cannot be
    /// listed.
    Hashed {
        /// Number of entries, 1 to 1000.
        buckets: u32,
    },
}

/// A field of a context or an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Its name, unique among the context's or the action's.
    pub name: String,
    /// How it becomes entries.
    #[serde(flatten)]
    pub kind: FieldKind,
}

/// The unchecked form of a [`FeatureMap`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureMapConfig {
    /// Norm that no features exceed (L).
    pub context_bound: f64,
    /// Whether the first entry is constant.
    #[serde(default)]
    pub bias: bool,
    /// Fields of the context.
    #[serde(default)]
    pub context: Vec<Field>,
    /// Fields of the action.
    #[serde(default)]
    pub action: Vec<Field>,
    /// Pairs of a context field and an action field whose products are features too.
    #[serde(default)]
    pub interactions: Vec<(String, String)>,
}

/// A rule for feature maps that is violated.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum FeatureMapError {
    /// The bound is no positive number.
    #[error("context_bound is {0}, must be above 0 and finite")]
    ContextBound(f64),
    /// Two fields with one name.
    #[error("field name {0:?} must be unique")]
    DuplicateName(String),
    /// An interaction of fields that do not exist.
    #[error("interaction [{0:?}, {1:?}] must name a context field and an action field")]
    UnknownInteractionField(String, String),
    /// A number's range.
    #[error("field {0:?}: min must be below max, and twice their difference finite")]
    Range(String),
    /// A category's values.
    #[error("field {0:?}: values must be unique, and at least one")]
    Values(String),
    /// Number of buckets.
    #[error("field {0:?}: buckets is {1}, must be from 1 to 1000")]
    Buckets(String, u32),
    /// No feature at all, or too many.
    #[error("the map has {0} features, must have from 1 to 1000")]
    Dimension(usize),
}

/// A field that could not be used as it was. Its block is zero, or its number clipped; the features
/// are valid all the same.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldProblem {
    /// No such field was given.
    #[error("field {0:?} is missing")]
    Missing(String),
    /// A value of another type.
    #[error("field {0:?} has a value of the wrong type")]
    Type(String),
    /// Neither a number nor clippable.
    #[error("field {0:?} must be a finite number")]
    NotFinite(String),
    /// Outside of [min, max].
    #[error("field {0:?} was clipped to its range")]
    Clipped(String),
    /// None of the category's values.
    #[error("field {0:?} has a value that is not listed")]
    UnknownCategory(String),
}

impl FieldProblem {
    /// Name of the field.
    pub fn field(&self) -> &str {
        match self {
            Self::Missing(name)
            | Self::Type(name)
            | Self::NotFinite(name)
            | Self::Clipped(name)
            | Self::UnknownCategory(name) => name,
        }
    }
}

/// Features of one context and action, and what was wrong with their fields. Printing them for
/// debugging shows no entries.
#[derive(Clone, PartialEq)]
pub struct Features {
    /// The vector x.
    pub x: Vec<f64>,
    /// Fields that could not be used as they were.
    pub problems: Vec<FieldProblem>,
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Features").field("problems", &self.problems).finish_non_exhaustive()
    }
}

/// A valid map from named fields to features; see `docs/formats.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "FeatureMapConfig", into = "FeatureMapConfig")]
pub struct FeatureMap {
    config: FeatureMapConfig,
    /// Indices of each interaction's context field and action field.
    pairs: Vec<(usize, usize)>,
    dimension: usize,
}

impl FeatureMapConfig {
    /// The valid map, or the first rule that is violated.
    pub fn check(self) -> Result<FeatureMap, FeatureMapError> {
        if !(self.context_bound > 0.0 && self.context_bound.is_finite()) {
            return Err(FeatureMapError::ContextBound(self.context_bound));
        }
        for fields in [&self.context, &self.action] {
            let mut names = HashSet::new();
            for field in fields {
                field.check()?;
                if !names.insert(&field.name) {
                    return Err(FeatureMapError::DuplicateName(field.name.clone()));
                }
            }
        }
        let mut pairs = Vec::new();
        for (context, action) in &self.interactions {
            let position =
                |fields: &[Field], name: &String| fields.iter().position(|f| f.name == *name);
            match (position(&self.context, context), position(&self.action, action)) {
                (Some(a), Some(b)) => pairs.push((a, b)),
                _ => {
                    let (context, action) = (context.clone(), action.clone());
                    return Err(FeatureMapError::UnknownInteractionField(context, action));
                }
            }
        }
        let fields = self.context.iter().chain(&self.action).map(Field::len);
        let products = pairs.iter().map(|&(a, b)| self.context[a].len() * self.action[b].len());
        let dimension = usize::from(self.bias) + fields.chain(products).sum::<usize>();
        if u32::try_from(dimension).map_or(true, |d| Dimension::new(d).is_err()) {
            return Err(FeatureMapError::Dimension(dimension));
        }
        Ok(FeatureMap { config: self, pairs, dimension })
    }
}

impl Field {
    fn check(&self) -> Result<(), FeatureMapError> {
        let name = || self.name.clone();
        match &self.kind {
            FieldKind::Number { min, max } => {
                let valid = min < max && (2.0 * (max - min)).is_finite();
                if valid { Ok(()) } else { Err(FeatureMapError::Range(name())) }
            }
            FieldKind::Category { values } => {
                let distinct: HashSet<_> = values.iter().collect();
                let valid = !values.is_empty() && distinct.len() == values.len();
                if valid { Ok(()) } else { Err(FeatureMapError::Values(name())) }
            }
            FieldKind::Hashed { buckets } => {
                let valid = (1..=1000).contains(buckets);
                if valid { Ok(()) } else { Err(FeatureMapError::Buckets(name(), *buckets)) }
            }
        }
    }

    fn len(&self) -> usize {
        match &self.kind {
            FieldKind::Number { .. } => 1,
            FieldKind::Category { values } => values.len(),
            FieldKind::Hashed { buckets } => *buckets as usize,
        }
    }

    /// The field's block of norm at most 1, and what was wrong with its value.
    fn block(&self, fields: &Fields) -> (Vec<f64>, Option<FieldProblem>) {
        let mut block = vec![0.0; self.len()];
        let problem = match fields.get(&self.name) {
            None => Some(FieldProblem::Missing(self.name.clone())),
            Some(value) => self.fill(value, &mut block),
        };
        (block, problem)
    }

    fn fill(&self, value: &Value, block: &mut [f64]) -> Option<FieldProblem> {
        let name = || self.name.clone();
        match (&self.kind, value) {
            (FieldKind::Number { min, max }, Value::Number(_) | Value::Flag(_)) => {
                let number = match value {
                    Value::Number(number) => *number,
                    _ => f64::from(u8::from(*value == Value::Flag(true))),
                };
                if !number.is_finite() {
                    return Some(FieldProblem::NotFinite(name()));
                }
                let clipped = number.clamp(*min, *max);
                block[0] = (2.0 * (clipped - min)) / (max - min) - 1.0;
                (!(*min..=*max).contains(&number)).then(|| FieldProblem::Clipped(name()))
            }
            (FieldKind::Category { values }, Value::Text(_) | Value::Flag(_)) => {
                match values.iter().position(|known| known == text(value)) {
                    Some(entry) => {
                        block[entry] = 1.0;
                        None
                    }
                    None => Some(FieldProblem::UnknownCategory(name())),
                }
            }
            (FieldKind::Hashed { buckets }, Value::Text(_) | Value::Flag(_)) => {
                let hash = fnv1a(self.name.bytes().chain(*b"=").chain(text(value).bytes()));
                block[((hash >> 1) % buckets) as usize] =
                    if hash.is_multiple_of(2) { 1.0 } else { -1.0 };
                None
            }
            _ => Some(FieldProblem::Type(name())),
        }
    }
}

impl FeatureMap {
    /// Number of features (d).
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Norm that no features exceed (L).
    pub fn context_bound(&self) -> f64 {
        self.config.context_bound
    }

    /// Whether these are the features of a task with this mechanism: same dimension, and no larger
    /// norm.
    pub fn fits(&self, mechanism: &Mechanism) -> bool {
        self.dimension == mechanism.dimension() && self.context_bound() <= mechanism.context_bound()
    }

    /// Features of an action in a context. Problems are for the application; the features are valid
    /// whatever the fields hold.
    ///
    /// # Privacy
    /// A problem names a field, never its value.
    pub fn features(&self, context: &Fields, action: &Fields) -> Features {
        let context = Blocks::new(&self.config.context, context);
        let action = Blocks::new(&self.config.action, action);
        let x = self.join(&context, &action);
        Features { x, problems: [context.problems, action.problems].concat() }
    }

    /// Features of each action in one context, which is encoded once, and each problem once.
    ///
    /// # Privacy
    /// As [`FeatureMap::features`].
    pub fn features_of_all(
        &self,
        context: &Fields,
        actions: &[Fields],
    ) -> (Vec<Vec<f64>>, Vec<FieldProblem>) {
        let context = Blocks::new(&self.config.context, context);
        let mut of_actions: Vec<FieldProblem> = Vec::new();
        let features = actions.iter().map(|action| {
            let action = Blocks::new(&self.config.action, action);
            let x = self.join(&context, &action);
            for problem in action.problems {
                if !of_actions.contains(&problem) {
                    of_actions.push(problem);
                }
            }
            x
        });
        let features = features.collect();
        (features, [context.problems, of_actions].concat())
    }

    /// Bias, blocks and products, scaled onto the ball.
    fn join(&self, context: &Blocks, action: &Blocks) -> Vec<f64> {
        let (contexts, actions) = (&context.blocks, &action.blocks);
        let mut x = Vec::with_capacity(self.dimension);
        x.extend(self.config.bias.then_some(1.0));
        x.extend(contexts.iter().chain(actions).flatten());
        for &(a, b) in &self.pairs {
            for left in &contexts[a] {
                x.extend(actions[b].iter().map(|right| left * right));
            }
        }
        let count =
            usize::from(self.config.bias) + contexts.len() + actions.len() + self.pairs.len();
        let scale = self.config.context_bound / (count as f64).sqrt();
        x.iter_mut().for_each(|entry| *entry *= scale);
        x
    }
}

/// The encoded fields of a context or an action.
struct Blocks {
    blocks: Vec<Vec<f64>>,
    problems: Vec<FieldProblem>,
}

impl Blocks {
    fn new(fields: &[Field], values: &Fields) -> Self {
        let mut problems = Vec::new();
        let block = |field: &Field| {
            let (block, problem) = field.block(values);
            problems.extend(problem);
            block
        };
        let blocks = fields.iter().map(block).collect();
        Self { blocks, problems }
    }
}

impl TryFrom<FeatureMapConfig> for FeatureMap {
    type Error = FeatureMapError;
    fn try_from(config: FeatureMapConfig) -> Result<Self, FeatureMapError> {
        config.check()
    }
}

impl From<FeatureMap> for FeatureMapConfig {
    fn from(map: FeatureMap) -> Self {
        map.config
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        Value::Flag(true) => "true",
        _ => "false",
    }
}

/// 32-bit FNV-1a: short, and the same in every language.
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(2_166_136_261, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}
