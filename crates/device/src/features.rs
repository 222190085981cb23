//! From an application's named fields to the features x of a context and an action, always within
//! the ball of radius L.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use incrowd_protocol::{Dimension, Layout, Mechanism};
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

/// Which weights the features of a map get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapModel {
    /// One weight each, for all actions: features describe context and action together.
    #[default]
    Shared,
    /// One weight for each action: features describe the context.
    PerAction,
    /// Bias and context have one weight for each action; action fields and interactions have one
    /// for all.
    Hybrid,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_shared(model: &MapModel) -> bool {
    *model == MapModel::Shared
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn one() -> f64 {
    1.0
}

/// The unchecked form of a [`FeatureMap`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureMapConfig {
    /// Norm that no features exceed (L).
    #[serde(default = "one")]
    pub context_bound: f64,
    /// Which weights the features get.
    #[serde(default, skip_serializing_if = "is_shared")]
    pub model: MapModel,
    /// Names of the actions that have weights of their own, in the order of their slots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// Slots for actions that come later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spare_slots: u32,
    /// What blocks of norm 1 are multiplied with, for L = 1, instead of what surely keeps features
    /// within the bound; above 0 and at most 1. Features beyond the bound are shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
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
    /// `scale` is out of range.
    #[error("scale is {0}, must be above 0 and at most 1")]
    Scale(f64),
    /// A list of actions where it has no meaning, or none where it is needed.
    #[error("actions must be {0}")]
    Actions(&'static str),
    /// Action fields where only the context is described, or none where some are needed.
    #[error("a map for a {0} model must have {1}")]
    Parts(&'static str, &'static str),
    /// Slots out of range.
    #[error("actions and spare_slots are {0} together, must be from 1 to 10000")]
    Slots(usize),
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
        if let Some(scale) = self.scale.filter(|&scale| !(scale > 0.0 && scale <= 1.0)) {
            return Err(FeatureMapError::Scale(scale));
        }
        self.check_model()?;
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

    /// Whether the parts of the map are those of its model.
    fn check_model(&self) -> Result<(), FeatureMapError> {
        let distinct: HashSet<_> = self.actions.iter().collect();
        if distinct.len() != self.actions.len() || distinct.contains(&String::new()) {
            return Err(FeatureMapError::Actions("names, each once"));
        }
        let slots = self.actions.len() + self.spare_slots as usize;
        let describes_actions = !self.action.is_empty() || !self.interactions.is_empty();
        let describes_context = self.bias || !self.context.is_empty();
        match self.model {
            MapModel::Shared if slots > 0 => {
                return Err(FeatureMapError::Actions(
                    "left out of a shared model: its action fields tell actions apart",
                ));
            }
            MapModel::Shared => return Ok(()),
            MapModel::PerAction if describes_actions => {
                let rule = "no action fields and no interactions";
                return Err(FeatureMapError::Parts("per-action", rule));
            }
            MapModel::Hybrid if !(describes_actions && describes_context) => {
                let rule = "a bias or context fields, and action fields or interactions";
                return Err(FeatureMapError::Parts("hybrid", rule));
            }
            _ => {}
        }
        if self.actions.is_empty() {
            return Err(FeatureMapError::Actions("given, because each has weights of its own"));
        }
        if slots > 10_000 { Err(FeatureMapError::Slots(slots)) } else { Ok(()) }
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

    /// What is wrong with the field's value among these, if anything.
    pub fn problem(&self, fields: &Fields) -> Option<FieldProblem> {
        self.block(fields).1
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

    /// The map as it is written.
    pub fn config(&self) -> &FeatureMapConfig {
        &self.config
    }

    /// Which parameters a model over these features has.
    pub fn layout(&self) -> Layout {
        let slots = self.config.actions.len() as u32 + self.config.spare_slots;
        match self.config.model {
            MapModel::Shared => Layout::Shared,
            MapModel::PerAction => Layout::PerAction { slots },
            MapModel::Hybrid => {
                let own = usize::from(self.config.bias)
                    + self.config.context.iter().map(Field::len).sum::<usize>();
                Layout::Hybrid { slots, shared: (self.dimension - own) as u32 }
            }
        }
    }

    /// Whether these are the features of a task with this mechanism: same dimension and layout, and
    /// no larger norm.
    pub fn fits(&self, mechanism: &Mechanism) -> bool {
        self.dimension == mechanism.dimension()
            && self.layout() == mechanism.layout()
            && self.context_bound() <= mechanism.context_bound()
    }

    /// Whether the map lets the best action depend on the context: through weights of each action's
    /// own for context fields, or through interactions. Otherwise the context adds the same to every
    /// action, and the best action is the same for everyone, unless values of action fields are of
    /// person and action together (a distance, a score).
    pub fn personalises(&self) -> bool {
        let own_weights = self.config.model != MapModel::Shared && !self.config.context.is_empty();
        own_weights || !self.pairs.is_empty()
    }

    /// What blocks of norm 1 are multiplied with, for L = 1: `scale`, or what surely keeps features
    /// within the bound.
    pub fn scale(&self) -> f64 {
        self.config.scale.unwrap_or_else(|| 1.0 / (self.blocks() as f64).sqrt())
    }

    /// The same map with another `scale`, or without one.
    pub fn with_scale(self, scale: Option<f64>) -> Result<Self, FeatureMapError> {
        FeatureMapConfig { scale, ..self.config }.check()
    }

    /// Norm of bias, blocks and products before they are scaled: features keep within the bound
    /// without being shortened where `scale` is at most its inverse.
    ///
    /// # Privacy
    /// A scale that is chosen from norms is public, and says something about the people they are
    /// of: take public or made-up data.
    pub fn unscaled_norm(&self, context: &Fields, action: &Fields) -> f64 {
        let context = Blocks::new(&self.config.context, context);
        let action = Blocks::new(&self.config.action, action);
        norm(&self.stack(&context, &action))
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
    pub fn features_of_all<'a>(
        &self,
        context: &Fields,
        actions: impl IntoIterator<Item = &'a Fields>,
    ) -> (Vec<Vec<f64>>, Vec<FieldProblem>) {
        let context = Blocks::new(&self.config.context, context);
        let mut of_actions: Vec<FieldProblem> = Vec::new();
        let features = actions.into_iter().map(|action| {
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

    /// Bias, blocks and products.
    fn stack(&self, context: &Blocks, action: &Blocks) -> Vec<f64> {
        let (contexts, actions) = (&context.blocks, &action.blocks);
        let mut x = Vec::with_capacity(self.dimension);
        x.extend(self.config.bias.then_some(1.0));
        x.extend(contexts.iter().chain(actions).flatten());
        for &(a, b) in &self.pairs {
            for left in &contexts[a] {
                x.extend(actions[b].iter().map(|right| left * right));
            }
        }
        x
    }

    /// Bias, blocks and products, scaled onto the ball.
    fn join(&self, context: &Blocks, action: &Blocks) -> Vec<f64> {
        let mut x = self.stack(context, action);
        let bound = self.config.context_bound;
        let scale = match self.config.scale {
            None => bound / (self.blocks() as f64).sqrt(),
            // Compared in units of L, whose square may be no float.
            Some(scale) => {
                let norm = norm(&x);
                bound * if scale * norm > 1.0 { 1.0 / norm } else { scale }
            }
        };
        x.iter_mut().for_each(|entry| *entry *= scale);
        x
    }

    /// Blocks of features, each of a norm of at most 1.
    fn blocks(&self) -> usize {
        let FeatureMapConfig { bias, context, action, .. } = &self.config;
        usize::from(*bias) + context.len() + action.len() + self.pairs.len()
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

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|entry| entry * entry).sum::<f64>().sqrt()
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
