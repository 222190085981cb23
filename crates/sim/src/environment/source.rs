use std::{
    f64::consts::FRAC_PI_2,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Classification, ClassificationConfig, Contexts, Drifting, Environment, EnvironmentError,
    FixedArms, Logged, LoggedConfig, Ordered, Rewards, Synthetic, check_arms, check_dimension,
    check_gap, drifting::check_turn, table,
};

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
        /// Mean rewards are 1/2 + gap <z, w>; above 0, at most 0.5.
        #[serde(default = "half", skip_serializing_if = "is_half")]
        gap: f64,
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
    },
    /// See [`Drifting`].
    Drifting {
        /// Arms per person, 2 to 100000.
        #[serde(default = "ten")]
        arms: u32,
        /// The law of rewards.
        #[serde(default)]
        rewards: Rewards,
        /// How far the parameter turns over the horizon, 0 to 1000 radians.
        #[serde(default = "right_angle")]
        turn: f64,
    },
    /// See [`Ordered`].
    Ordered {
        /// Arms per person, 2 to 100000.
        #[serde(default = "ten")]
        arms: u32,
        /// The law of rewards.
        #[serde(default)]
        rewards: Rewards,
        /// Mean rewards are 1/2 + gap <z, w>; above 0, at most 0.5.
        #[serde(default = "half", skip_serializing_if = "is_half")]
        gap: f64,
        /// Number of features (d), 2 to 1000; that of the experiment if not given.
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
fn is_half(gap: &f64) -> bool {
    gap.total_cmp(&half()).is_eq()
}

fn right_angle() -> f64 {
    FRAC_PI_2
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        let (rewards, contexts) = (Rewards::default(), Contexts::default());
        Self::Synthetic { arms: ten(), rewards, contexts, gap: half(), dimension: None }
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
            &Self::Synthetic { arms, rewards, contexts, gap, dimension } => {
                let (arms, gap) = (check_arms(arms)?, check_gap(gap)?);
                dimension.map(check_dimension).transpose()?;
                Kind::Synthetic { arms, rewards, contexts, gap, dimension }
            }
            &Self::FixedArms { arms, rewards } => {
                Kind::FixedArms { arms: check_arms(arms)?, rewards }
            }
            &Self::Drifting { arms, rewards, turn } => {
                Kind::Drifting { arms: check_arms(arms)?, rewards, turn: check_turn(turn)? }
            }
            &Self::Ordered { arms, rewards, gap, dimension } => {
                let (arms, gap) = (check_arms(arms)?, check_gap(gap)?);
                dimension.map(check_dimension).transpose()?;
                Kind::Ordered { arms, rewards, gap, dimension }
            }
            Self::Classification(config) => {
                let config = ClassificationConfig { file: inside(&config.file), ..config.clone() };
                let bytes = table::read(&config.file)?;
                fingerprint.update(&bytes);
                Kind::Classification(Arc::new(Classification::parse(&config, &bytes)?))
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
    Synthetic { arms: u32, rewards: Rewards, contexts: Contexts, gap: f64, dimension: Option<u32> },
    FixedArms { arms: u32, rewards: Rewards },
    Drifting { arms: u32, rewards: Rewards, turn: f64 },
    Ordered { arms: u32, rewards: Rewards, gap: f64, dimension: Option<u32> },
    Classification(Arc<Classification>),
    Logged(Arc<Logged>),
}

impl Kind {
    /// As in a file, with every knob that is not where it usually is.
    fn name(&self) -> String {
        let with_gap = |name: String, gap: f64| {
            if is_half(&gap) { name } else { format!("{name}, gap {gap}") }
        };
        match *self {
            Self::Synthetic { contexts, gap, .. } => {
                let name = match contexts {
                    Contexts::Sphere => "synthetic".into(),
                    _ => format!("synthetic, {}", contexts.name()),
                };
                with_gap(name, gap)
            }
            Self::FixedArms { .. } => "fixed-arms".into(),
            Self::Drifting { .. } => "drifting".into(),
            Self::Ordered { gap, .. } => with_gap("ordered".into(), gap),
            Self::Classification(_) => "classification".into(),
            Self::Logged(_) => "logged".into(),
        }
    }
}

impl Source {
    /// The people of one run of `horizon` people; everything random comes from `seed`. Data has its
    /// own dimension, which `dimension` must be; so may synthetic people.
    pub fn people(
        &self,
        dimension: u32,
        horizon: u64,
        seed: u64,
    ) -> Result<Box<dyn Environment + Send>, EnvironmentError> {
        if let Some(expected) = self.dimension().filter(|&expected| expected != dimension) {
            return Err(EnvironmentError::DataDimension { found: dimension, expected });
        }
        Ok(match &self.kind {
            &Kind::Synthetic { arms, rewards, contexts, gap, .. } => Box::new(
                Synthetic::new(dimension, arms, rewards, seed)?
                    .with_contexts(contexts)
                    .with_gap(gap)?,
            ),
            &Kind::FixedArms { arms, rewards } => {
                Box::new(FixedArms::new(dimension, arms, rewards, seed)?)
            }
            &Kind::Drifting { arms, rewards, turn } => {
                Box::new(Drifting::new(dimension, arms, rewards, turn, horizon, seed)?)
            }
            &Kind::Ordered { arms, rewards, gap, .. } => {
                Box::new(Ordered::new(dimension, arms, rewards, horizon, seed)?.with_gap(gap)?)
            }
            Kind::Classification(data) => Box::new(data.people(seed)),
            Kind::Logged(log) => Box::new(log.people(seed)),
        })
    }

    /// The dimension, if the data or the configuration fixes it.
    pub fn dimension(&self) -> Option<u32> {
        match &self.kind {
            Kind::Synthetic { dimension, .. } | Kind::Ordered { dimension, .. } => *dimension,
            Kind::Classification(data) => Some(data.dimension() as u32),
            Kind::Logged(log) => Some(log.dimension() as u32),
            _ => None,
        }
    }

    /// Arms per person.
    pub fn arms(&self) -> u32 {
        match &self.kind {
            Kind::Synthetic { arms, .. }
            | Kind::FixedArms { arms, .. }
            | Kind::Drifting { arms, .. }
            | Kind::Ordered { arms, .. } => *arms,
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
