//! Feature maps in files, and in words.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use incrowd_device::{FeatureMap, Field, FieldKind};
use incrowd_protocol::Layout;
use incrowd_sim::public_data::{Examples, Survey, survey};
use serde_json::{Value, json};

/// What a map without interactions or weights of each action's own means.
pub const SAME_FOR_EVERYONE: &str = "the best action is the same for everyone: with this feature map the context adds the same to every action; give it interactions of context and action fields, or a per-action model with context fields";

/// A scale that is better than the map's by less is not worth a word.
const WORTH_A_WORD: f64 = 1.01;

/// The features of a task, from a map.
#[derive(Args)]
pub struct FeatureArguments {
    /// The devices' feature map (TOML or JSON by its extension), instead of --dimension, --slots
    /// and --shared; the task file then has its list of actions.
    #[arg(long, value_name = "MAP", conflicts_with_all = ["dimension", "slots", "shared"])]
    features: Option<PathBuf>,
    /// Rows of public or made-up people, to check the map with: a column for each context field,
    /// and ACTION:field for fields of actions.
    #[arg(long, value_name = "CSV", requires = "features", conflicts_with = "dimension")]
    sample: Option<PathBuf>,
    /// Write the map again, with the largest scale that shortens no features of the sample.
    #[arg(long, value_name = "MAP", requires = "sample")]
    write_features: Option<PathBuf>,
}

/// A map that a task is planned for.
pub struct Planned {
    /// The map as it was read.
    pub map: FeatureMap,
    survey: Option<Survey>,
    written: Option<PathBuf>,
}

impl FeatureArguments {
    /// The map, if one is given, checked with the sample.
    pub fn read(&self) -> Result<Option<Planned>, Box<dyn Error>> {
        let Some(path) = &self.features else { return Ok(None) };
        let map = read(path)?;
        let bound = map.context_bound();
        if bound.to_bits() != 1f64.to_bits() {
            let path = path.display();
            return Err(format!("{path}: context_bound is {bound}, must be 1 for a plan").into());
        }
        let survey = match &self.sample {
            None => None,
            Some(sample) => Some(survey(&Examples::sample(sample, &map)?)?),
        };
        Ok(Some(Planned { map, survey, written: self.write_features.clone() }))
    }
}

impl Planned {
    /// Writes the map with the proposed scale, if that was asked for.
    pub fn write(&self) -> Result<(), Box<dyn Error>> {
        let Some(path) = &self.written else { return Ok(()) };
        let scale = self.survey.as_ref().and_then(|survey| survey.proposed_scale);
        let map = self.map.clone().with_scale(scale)?;
        let text = match extension(path)? {
            Extension::Json => format!("{:#}\n", serde_json::to_value(&map)?),
            Extension::Toml => toml::to_string(&map)?,
        };
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("wrote {}", path.display());
        Ok(())
    }

    /// What the plan is for.
    pub fn lines(&self) -> Vec<String> {
        let d = self.map.dimension();
        let model = match self.map.layout() {
            Layout::Shared => format!("shared: one weight for each of {}", features(d)),
            Layout::PerAction { .. } => {
                format!("per-action: each action has weights of its own for {}", features(d))
            }
            Layout::Hybrid { shared, .. } => {
                let shared = shared as usize;
                format!(
                    "hybrid: each action has weights of its own for {}, {} {} one weight for all",
                    features(d - shared),
                    features(shared),
                    if shared == 1 { "has" } else { "have" }
                )
            }
        };
        let mut lines = vec![format!("Model     {model}"), format!("Features  {}", self.blocks())];
        let config = self.map.config();
        if !config.actions.is_empty() {
            let spare = match config.spare_slots {
                0 => String::new(),
                1 => ", and 1 spare slot".to_owned(),
                slots => format!(", and {slots} spare slots"),
            };
            lines.push(format!("Actions   {}{spare}", config.actions.join(", ")));
        }
        if let Some(survey) = &self.survey {
            let Survey { rows, largest_norm, scale, .. } = survey;
            let proposed = match self.gain() {
                Some((proposed, gain)) => format!(
                    "scale {proposed} makes all features {gain:.2} times as long as {scale:.6} does"
                ),
                None => format!("scale {scale:.6}"),
            };
            lines.push(format!(
                "Sample    {rows} rows, largest norm {largest_norm:.4} before scaling; {proposed}"
            ));
        }
        lines
    }

    /// A better scale, and how much longer it makes features.
    fn gain(&self) -> Option<(f64, f64)> {
        let survey = self.survey.as_ref()?;
        let proposed = survey.proposed_scale?;
        let gain = proposed / survey.scale;
        (gain > WORTH_A_WORD).then_some((proposed, gain))
    }

    /// The blocks of features.
    fn blocks(&self) -> String {
        let config = self.map.config();
        let mut blocks = Vec::new();
        if config.bias {
            blocks.push("bias".to_owned());
        }
        blocks.extend(config.context.iter().chain(&config.action).map(in_words));
        blocks.extend(config.interactions.iter().map(|(a, b)| format!("{a} times {b}")));
        blocks.join(", ")
    }

    /// What a person should know before using the map.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let by_own_fields = self.survey.as_ref().is_some_and(|survey| survey.own_fields_vary);
        if !self.map.personalises() && !by_own_fields {
            let unknown = self.survey.is_none() && !self.map.config().action.is_empty();
            let unless = if unknown {
                " (unless the action fields hold values of person and action together, like a distance: --sample shows that)"
            } else {
                ""
            };
            notes.push(format!("{SAME_FOR_EVERYONE}{unless}"));
        }
        let Some(survey) = &self.survey else { return notes };
        notes.extend(survey.warnings());
        if survey.scale * survey.largest_norm > WORTH_A_WORD {
            let most = 1.0 / survey.largest_norm;
            notes.push(format!(
                "scale {} is too large: features of the sample are shortened, which is not linear; it should be at most {most:.6}",
                survey.scale
            ));
        }
        if let Some((proposed, _)) = self.gain().filter(|_| self.written.is_none()) {
            notes.push(format!(
                "features are shorter than they may be, and noise does not shrink with them: scale = {proposed} in the map is better (--write-features)"
            ));
        }
        notes.push(
            "everyone reads the feature map: ranges, values and scale must come from public or made-up people".into(),
        );
        notes
    }

    /// For programs.
    pub fn as_json(&self) -> Value {
        let sample = self.survey.as_ref().map(|survey| {
            json!({
                "rows": survey.rows,
                "largest_norm": survey.largest_norm,
                "scale": survey.scale,
                "proposed_scale": survey.proposed_scale,
            })
        });
        let config = self.map.config();
        json!({
            "model": config.model,
            "actions": config.actions,
            "spare_slots": config.spare_slots,
            "personalises": self.map.personalises(),
            "sample": sample,
        })
    }
}

fn features(number: usize) -> String {
    format!("{number} feature{}", if number == 1 { "" } else { "s" })
}

fn in_words(field: &Field) -> String {
    let name = &field.name;
    match &field.kind {
        FieldKind::Number { min, max } => format!("{name} (from {min} to {max})"),
        FieldKind::Category { values } if values.len() <= 5 => {
            format!("{name} ({})", values.join(", "))
        }
        FieldKind::Category { values } => format!("{name} ({} values)", values.len()),
        FieldKind::Hashed { buckets } => format!("{name} ({buckets} buckets)"),
    }
}

enum Extension {
    Json,
    Toml,
}

fn extension(path: &Path) -> Result<Extension, String> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Ok(Extension::Json),
        Some("toml") => Ok(Extension::Toml),
        _ => Err(format!("{}: a feature map must be a file .toml or .json", path.display())),
    }
}

/// The map in a file.
pub fn read(path: &Path) -> Result<FeatureMap, Box<dyn Error>> {
    let extension = extension(path)?;
    let wrong = |error: &dyn Error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    Ok(match extension {
        Extension::Json => serde_json::from_str(&text).map_err(|error| wrong(&error))?,
        Extension::Toml => toml::from_str(&text).map_err(|error| wrong(&error))?,
    })
}
