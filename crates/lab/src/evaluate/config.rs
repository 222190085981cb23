use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use incrowd_device::{FeatureMap, FeatureMapConfig, FieldKind};

use super::{
    EvaluateError, Evaluation, Format, Log, ModelPolicy, Policy, ReadOptions, Settings,
    parse_model, parse_prior,
};

/// Files and settings of an evaluation.
#[derive(Debug, Clone)]
pub struct EvaluationConfig {
    /// The log.
    pub log: PathBuf,
    /// Its format; none: by its content.
    pub format: Option<Format>,
    /// Actions that were never logged.
    pub actions: Vec<String>,
    /// What is evaluated.
    pub policy: PolicyConfig,
    /// How.
    pub settings: Settings,
}

/// Where a policy comes from.
#[derive(Debug, Clone)]
pub enum PolicyConfig {
    /// `uniform`, `logged` or `always:ACTION`.
    Named(String),
    /// A published model, or a prior.
    Model {
        /// Its file.
        model: ModelFile,
        /// The feature map, JSON or TOML by its extension.
        features: PathBuf,
        /// The largest mean instead of the largest upper confidence bound.
        greedy: bool,
    },
}

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelFile {
    /// A bandit published it.
    Published(PathBuf),
    /// `incrowd fit` wrote a prior.
    Prior(PathBuf),
}

impl EvaluationConfig {
    /// Reads the files and evaluates.
    pub fn run(&self) -> Result<Evaluation, EvaluateError> {
        let mut texts = HashSet::new();
        let policy = match &self.policy {
            PolicyConfig::Named(name) => name.parse()?,
            PolicyConfig::Model { model, features, greedy } => {
                let map = read_map(features)?;
                texts = text_fields(&map);
                let model = match model {
                    ModelFile::Published(path) => {
                        parse_model(path, &read(path, "a published model (JSON)")?)?
                    }
                    ModelFile::Prior(path) => {
                        parse_prior(path, &read(path, "a prior (JSON)")?, &map)?
                    }
                };
                Policy::Model(Box::new(ModelPolicy::new(model, map, *greedy)?))
            }
        };
        let options = ReadOptions { format: self.format, actions: self.actions.clone(), texts };
        self.settings.evaluate(&Log::read(&self.log, &options)?, &policy)
    }
}

const A_MAP: &str = "a feature map (.json or .toml)";

fn read_map(path: &Path) -> Result<FeatureMap, EvaluateError> {
    let wrong =
        |reason: String| EvaluateError::File { path: path.to_path_buf(), reason, expected: A_MAP };
    let bytes = read(path, A_MAP)?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => serde_json::from_str(&text).map_err(|error| wrong(error.to_string())),
        Some("toml") => toml::from_str(&text).map_err(|error| wrong(error.to_string())),
        _ => Err(wrong("found another extension".into())),
    }
}

/// Fields of the map that are texts.
fn text_fields(map: &FeatureMap) -> HashSet<String> {
    let config = FeatureMapConfig::from(map.clone());
    let fields = config.context.into_iter().chain(config.action);
    let texts = fields.filter(|field| !matches!(field.kind, FieldKind::Number { .. }));
    texts.map(|field| field.name).collect()
}

fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>, EvaluateError> {
    fs::read(path).map_err(|error| EvaluateError::File {
        path: path.to_path_buf(),
        reason: error.to_string(),
        expected,
    })
}
