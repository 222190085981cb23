use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use incrowd_protocol::Layout;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Classification, ClassificationConfig, Contexts, Environment, EnvironmentError, FixedArms,
    Logged, LoggedConfig, Ordered, PerAction, Rewards, Scaled, Signal, Synthetic, check_arms,
    check_dimension,
    drift::check_angle,
    per_action::{check_own, layout},
    table,
};

/// The largest |theta*|.
const LARGEST_NORM: f64 = 1e6;

/// An environment as it stands in a file: `kind = "synthetic"` and so on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum EnvironmentConfig {
    /// See [`Synthetic`].
    Synthetic {
        /// Arms per person, 2 to 100000.
        #[serde(default = "ten")]
        arms: u32,
        /// The law of rewards.
        #[serde(default)]
        rewards: Rewards,
        /// The law of the features.
        #[serde(default, skip_serializing_if = "Contexts::is_sphere")]
        contexts: Contexts,
        /// Mean rewards are around this, above 0 and below 1.
        #[serde(default = "half", skip_serializing_if = "is_half")]
        click_rate: f64,
        /// Mean rewards are click_rate + gap <z, w>; above 0, and all of them from 0 to 1. The
        /// largest such gap if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<f64>,
        /// |theta*|: with the same mean rewards, the larger it is, the shorter the features. As
        /// long as their bound allows if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parameter_norm: Option<f64>,
        /// How far the hidden direction turns over the horizon, 0 to 1000 radians.
        #[serde(default, skip_serializing_if = "is_zero")]
        drift: f64,
        /// Number of features (d), 2 to 1000; that of the experiment if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dimension: Option<u32>,
    },
    /// See [`FixedArms`].
    FixedArms {
        /// Arms, 2 to 100000.
        #[serde(default = "hundred")]
        arms: u32,
        /// The law of rewards.
        #[serde(default)]
        rewards: Rewards,
        /// Mean rewards are around this, above 0 and below 1.
        #[serde(default = "half", skip_serializing_if = "is_half")]
        click_rate: f64,
        /// Mean rewards are click_rate + gap <z, w>; above 0, and all of them from 0 to 1. The
        /// largest such gap if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<f64>,
        /// |theta*|: with the same mean rewards, the larger it is, the shorter the features. As
        /// long as their bound allows if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parameter_norm: Option<f64>,
    },
    /// See [`Ordered`].
    Ordered {
        /// Arms per person, 2 to 100000.
        #[serde(default = "ten")]
        arms: u32,
        /// The law of rewards.
        #[serde(default)]
        rewards: Rewards,
        /// Mean rewards are around this, above 0 and below 1.
        #[serde(default = "half", skip_serializing_if = "is_half")]
        click_rate: f64,
        /// Mean rewards are click_rate + gap <z, w>; above 0, and all of them from 0 to 1. The
        /// largest such gap if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<f64>,
        /// |theta*|: with the same mean rewards, the larger it is, the shorter the features. As
        /// long as their bound allows if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parameter_norm: Option<f64>,
        /// Number of features (d), 2 to 1000; that of the experiment if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dimension: Option<u32>,
    },
    /// See [`PerAction`].
    PerAction {
        /// Actions, 2 to 10000.
        #[serde(default = "ten")]
        arms: u32,
        /// The law of rewards.
        #[serde(default)]
        rewards: Rewards,
        /// The law of the context.
        #[serde(default, skip_serializing_if = "Contexts::is_sphere")]
        contexts: Contexts,
        /// Mean rewards are around this, above 0 and below 1.
        #[serde(default = "half", skip_serializing_if = "is_half")]
        click_rate: f64,
        /// Mean rewards are click_rate + gap <z, w>; above 0, and all of them from 0 to 1. The
        /// largest such gap if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<f64>,
        /// Features with one weight for all actions.
        #[serde(default, skip_serializing_if = "is_none")]
        shared: u32,
        /// Features of an action, shared ones included, 2 to 1000; that of the experiment if not
        /// given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dimension: Option<u32>,
    },
    /// See [`Classification`].
    Classification(ClassificationConfig),
    /// See [`Logged`].
    Logged(LoggedConfig),
}

fn ten() -> u32 {
    10
}

fn hundred() -> u32 {
    100
}

fn half() -> f64 {
    0.5
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_half(value: &f64) -> bool {
    value.total_cmp(&half()).is_eq()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    value.total_cmp(&0.0).is_eq()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        Self::Synthetic {
            arms: ten(),
            rewards: Rewards::default(),
            contexts: Contexts::default(),
            click_rate: half(),
            gap: None,
            parameter_norm: None,
            drift: 0.0,
            dimension: None,
        }
    }
}

impl EnvironmentConfig {
    /// Checks the numbers and reads the file, if there is one. Its name is relative to `base`.
    pub fn load(&self, base: &Path) -> Result<Source, EnvironmentError> {
        let inside = |file: &PathBuf| base.join(file);
        let mut fingerprint = Sha256::new_with_prefix(
            serde_json::to_vec(self).expect("invariant: plain data always has a JSON form"),
        );
        let kind = match self {
            &Self::Synthetic {
                arms,
                rewards,
                contexts,
                click_rate,
                gap,
                parameter_norm,
                drift,
                dimension,
            } => {
                let problem = Problem::new(click_rate, gap, parameter_norm)?;
                let (arms, drift) = (check_arms(arms)?, check_angle(drift)?);
                dimension.map(check_dimension).transpose()?;
                Kind::Synthetic { arms, rewards, contexts, problem, drift, dimension }
            }
            &Self::FixedArms { arms, rewards, click_rate, gap, parameter_norm } => {
                let problem = Problem::new(click_rate, gap, parameter_norm)?;
                Kind::FixedArms { arms: check_arms(arms)?, rewards, problem }
            }
            &Self::Ordered { arms, rewards, click_rate, gap, parameter_norm, dimension } => {
                let problem = Problem::new(click_rate, gap, parameter_norm)?;
                dimension.map(check_dimension).transpose()?;
                Kind::Ordered { arms: check_arms(arms)?, rewards, problem, dimension }
            }
            &Self::PerAction { arms, rewards, contexts, click_rate, gap, shared, dimension } => {
                let problem = Problem::new(click_rate, gap, None)?;
                dimension.map(|dimension| check_own(dimension, shared)).transpose()?;
                let arms = check_arms(arms)?;
                Kind::PerAction { arms, rewards, contexts, problem, shared, dimension }
            }
            Self::Classification(config) => {
                let public = config.public.as_ref().map(inside);
                let file = inside(&config.file);
                let config = ClassificationConfig { file, public, ..config.clone() };
                let bytes = table::read(&config.file)?;
                fingerprint.update(&bytes);
                let public = config.public.as_deref().map(table::read).transpose()?;
                fingerprint.update(public.as_deref().unwrap_or_default());
                let data = Classification::parse(&config, &bytes, public.as_deref())?;
                Kind::Classification(Arc::new(data))
            }
            Self::Logged(config) => {
                let config = LoggedConfig { file: inside(&config.file), ..config.clone() };
                let bytes = table::read(&config.file)?;
                fingerprint.update(&bytes);
                Kind::Logged(Arc::new(Logged::parse(&config, &bytes)?))
            }
        };
        let (name, fingerprint) = (kind.name(), hex::encode(fingerprint.finalize()));
        Ok(Source { kind, name, fingerprint })
    }
}

/// A checked environment: makes people for as many runs as wanted. Data is read once and shared by
/// all copies.
#[derive(Debug, Clone)]
pub struct Source {
    kind: Kind,
    name: String,
    fingerprint: String,
}

#[derive(Debug, Clone)]
enum Kind {
    Synthetic {
        arms: u32,
        rewards: Rewards,
        contexts: Contexts,
        problem: Problem,
        drift: f64,
        dimension: Option<u32>,
    },
    FixedArms {
        arms: u32,
        rewards: Rewards,
        problem: Problem,
    },
    Ordered {
        arms: u32,
        rewards: Rewards,
        problem: Problem,
        dimension: Option<u32>,
    },
    PerAction {
        arms: u32,
        rewards: Rewards,
        contexts: Contexts,
        problem: Problem,
        shared: u32,
        dimension: Option<u32>,
    },
    Classification(Arc<Classification>),
    Logged(Arc<Logged>),
}

/// What every made-up problem has: its mean rewards, and what is divided between the lengths of
/// features and parameter.
#[derive(Debug, Clone, Copy)]
struct Problem {
    signal: Signal,
    parameter_norm: Option<f64>,
}

impl Problem {
    fn new(
        click_rate: f64,
        gap: Option<f64>,
        parameter_norm: Option<f64>,
    ) -> Result<Self, EnvironmentError> {
        Ok(Self { signal: Signal::new(click_rate, gap)?, parameter_norm })
    }

    /// Factor on features of norm at most 1 that makes them fit the bound: as long as it allows, or
    /// as short as the parameter is long.
    fn factor(self, bound: f64) -> Result<f64, EnvironmentError> {
        let Some(norm) = self.parameter_norm else {
            return Ok(bound);
        };
        let least = self.signal.parameter_norm() / bound;
        if !(least..=LARGEST_NORM).contains(&norm) {
            return Err(EnvironmentError::ParameterNorm { norm, least, bound });
        }
        Ok(self.signal.parameter_norm() / norm)
    }

    /// Every knob that is not where it usually is.
    fn words(self) -> impl Iterator<Item = String> {
        let Self { signal, parameter_norm } = self;
        let rate = signal.click_rate();
        [
            (!is_half(&rate)).then(|| format!("click rate {rate}")),
            (!signal.is_widest()).then(|| format!("gap {}", signal.gap())),
            parameter_norm.map(|norm| format!("norm {norm}")),
        ]
        .into_iter()
        .flatten()
    }
}

impl Kind {
    /// As in a file, with every knob that is not where it usually is.
    fn name(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        match *self {
            Self::Synthetic { contexts, problem, drift, .. } => {
                words.push("synthetic".into());
                if contexts != Contexts::Sphere {
                    words.push(contexts.name().into());
                }
                words.extend(problem.words());
                if !is_zero(&drift) {
                    words.push(format!("drift {drift}"));
                }
            }
            Self::FixedArms { problem, .. } => {
                words.push("fixed-arms".into());
                words.extend(problem.words());
            }
            Self::Ordered { problem, .. } => {
                words.push("ordered".into());
                words.extend(problem.words());
            }
            Self::PerAction { contexts, problem, shared, .. } => {
                words.push("per-action".into());
                if contexts != Contexts::Sphere {
                    words.push(contexts.name().into());
                }
                words.extend(problem.words());
                if shared > 0 {
                    words.push(format!("{shared} shared"));
                }
            }
            Self::Classification(_) => words.push("classification".into()),
            Self::Logged(_) => words.push("logged".into()),
        }
        words.join(", ")
    }
}

impl Source {
    /// The people of one run of `horizon` people; everything random comes from `seed`. Data has its
    /// own dimension, which `dimension` must be; so may synthetic people. Features have a norm of
    /// at most 1.
    pub fn people(
        &self,
        dimension: u32,
        horizon: u64,
        seed: u64,
    ) -> Result<Box<dyn Environment + Send>, EnvironmentError> {
        self.people_within(1.0, dimension, horizon, seed)
    }

    /// The same people with features of a norm of at most `context_bound`: rewards stay what they
    /// are, features are multiplied, and the parameter is divided.
    pub fn people_within(
        &self,
        context_bound: f64,
        dimension: u32,
        horizon: u64,
        seed: u64,
    ) -> Result<Box<dyn Environment + Send>, EnvironmentError> {
        if let Some(expected) = self.dimension().filter(|&expected| expected != dimension) {
            return Err(EnvironmentError::DataDimension { found: dimension, expected });
        }
        let factor = self.factor(context_bound)?;
        let people: Box<dyn Environment + Send> = match &self.kind {
            &Kind::Synthetic { arms, rewards, contexts, problem, drift, .. } => Box::new(
                Synthetic::new(dimension, arms, rewards, seed)?
                    .with_contexts(contexts)
                    .with_drift(drift, horizon)?
                    .with_signal(problem.signal),
            ),
            &Kind::FixedArms { arms, rewards, problem } => Box::new(
                FixedArms::new(dimension, arms, rewards, seed)?.with_signal(problem.signal),
            ),
            &Kind::Ordered { arms, rewards, problem, .. } => Box::new(
                Ordered::new(dimension, arms, rewards, horizon, seed)?.with_signal(problem.signal),
            ),
            &Kind::PerAction { arms, rewards, contexts, problem, shared, .. } => Box::new(
                PerAction::new(dimension, shared, arms, rewards, seed)?
                    .with_contexts(contexts)
                    .with_signal(problem.signal),
            ),
            Kind::Classification(data) => Box::new(data.people(seed)),
            Kind::Logged(log) => Box::new(log.people(seed)),
        };
        let same = factor.total_cmp(&1.0).is_eq();
        Ok(if same { people } else { Box::new(Scaled::new(people, factor)) })
    }

    /// Factor on features of norm at most 1 for this bound, or why there is none.
    pub fn factor(&self, context_bound: f64) -> Result<f64, EnvironmentError> {
        if !(1e-6..=1e6).contains(&context_bound) {
            return Err(EnvironmentError::ContextBound(context_bound));
        }
        match &self.kind {
            Kind::Synthetic { problem, .. }
            | Kind::FixedArms { problem, .. }
            | Kind::Ordered { problem, .. }
            | Kind::PerAction { problem, .. } => problem.factor(context_bound),
            Kind::Classification(_) | Kind::Logged(_) => Ok(context_bound),
        }
    }

    /// The dimension, if the data or the configuration fixes it.
    pub fn dimension(&self) -> Option<u32> {
        match &self.kind {
            Kind::Synthetic { dimension, .. }
            | Kind::Ordered { dimension, .. }
            | Kind::PerAction { dimension, .. } => *dimension,
            Kind::Classification(data) => Some(data.dimension() as u32),
            Kind::Logged(log) => Some(log.dimension() as u32),
            Kind::FixedArms { .. } => None,
        }
    }

    /// The mean statistic of a report about what is public, where something is.
    pub fn public_statistic(&self) -> Option<Vec<f64>> {
        match &self.kind {
            Kind::Classification(data) => data.public_statistic(),
            _ => None,
        }
    }

    /// How features are weighted.
    pub fn layout(&self) -> Layout {
        match &self.kind {
            &Kind::PerAction { arms, shared, .. } => layout(arms, shared),
            Kind::Classification(data) => data.layout(),
            Kind::Logged(log) => log.layout(),
            _ => Layout::Shared,
        }
    }

    /// Arms per person.
    pub fn arms(&self) -> u32 {
        match &self.kind {
            Kind::Synthetic { arms, .. }
            | Kind::FixedArms { arms, .. }
            | Kind::Ordered { arms, .. }
            | Kind::PerAction { arms, .. } => *arms,
            Kind::Classification(data) => data.arms() as u32,
            Kind::Logged(log) => log.arms() as u32,
        }
    }

    /// The name of the kind, as in a file, with the knobs that are not where they usually are.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the configuration and the data: equal ones make equal people.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The log, if people come from one: it gives estimates of the mean rewards of its own and the
    /// uniform policy.
    pub fn log(&self) -> Option<&Logged> {
        match &self.kind {
            Kind::Logged(log) => Some(log),
            _ => None,
        }
    }
}
