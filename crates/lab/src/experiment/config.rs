use std::{collections::HashSet, fmt, fs, path::Path};

use incrowd_planner::{DEFAULT_LOCAL_EPSILON, LocalLimit};
use incrowd_protocol::{BatchSize, Delta, Dimension};
use serde::{Deserialize, Serialize};

use super::{
    AlgorithmConfig, Assumptions, ClosedBy, ExperimentError, Setting, algorithm::names_or_tables,
    cross, range::check as range,
};
use incrowd_sim::{Arrivals, ArrivalsConfig, DropConfig, Drops, EnvironmentConfig, Source};

/// How exploration is tuned: the best mean regret over seeds that no result uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// What is tried.
    #[serde(default = "explorations")]
    pub explorations: Vec<f64>,
    /// Runs of each.
    #[serde(default = "tuning_runs")]
    pub runs: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { explorations: explorations(), runs: tuning_runs() }
    }
}

impl Tuning {
    fn check(&self) -> Result<(), ExperimentError> {
        some("tuning.explorations", &self.explorations)?;
        for &exploration in &self.explorations {
            let factor = |v: f64| (0.0..=100.0).contains(&v);
            range("tuning.explorations", Some(exploration), factor, "from 0 to 100")?;
        }
        let fits = |v| (1..=100_000).contains(&v);
        range("tuning.runs", Some(self.runs), fits, "from 1 to 100000")
    }
}

/// A list with something in it.
fn some<T>(what: &'static str, list: &[T]) -> Result<(), ExperimentError> {
    range(what, Some(list.len()), |length| length > 0, "at least 1 (entries)")
}

fn explorations() -> Vec<f64> {
    vec![0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
}

fn tuning_runs() -> u32 {
    10
}

/// An experiment file. Lists are grids: every combination is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentConfig {
    /// Title of the report.
    #[serde(default = "untitled")]
    pub name: String,
    /// What is compared.
    #[serde(deserialize_with = "names_or_tables")]
    pub algorithms: Vec<AlgorithmConfig>,
    /// Where people come from; synthetic people if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentConfig>,
    /// Several of them instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<EnvironmentConfig>,
    /// Numbers of features (d); data files have their own.
    #[serde(default = "dimensions")]
    pub dimensions: Vec<u32>,
    /// Numbers of people (T).
    pub horizons: Vec<u64>,
    /// Limits on the central epsilon; none: no limit.
    #[serde(default)]
    pub central_epsilons: Vec<f64>,
    /// Limits on the local epsilon; none: the default.
    #[serde(default)]
    pub local_epsilons: Vec<LocalLimit>,
    /// Batch sizes; none: the planner's.
    #[serde(default)]
    pub batch_sizes: Vec<u32>,
    /// Bounds on the parameter that learners are told (S).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameter_bounds: Vec<f64>,
    /// Bounds on contexts (L).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_bounds: Vec<f64>,
    /// Sizes of the reward noise that learners are told (sigma).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reward_noises: Vec<f64>,
    /// Growths of the determinant from model to model (eta).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub determinant_growths: Vec<f64>,
    /// Probabilities that the confidence fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_probabilities: Vec<f64>,
    /// Shares of the reports that are surely honest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honest_fractions: Vec<f64>,
    /// Numbers of reports that one person may send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub participations: Vec<u32>,
    /// Delta of every guarantee.
    #[serde(default = "delta")]
    pub delta: f64,
    /// Runs of every combination.
    #[serde(default = "runs")]
    pub runs: u32,
    /// Seed of the first run; the others follow.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Tune the exploration; without it everything runs with its default.
    pub tuning: Option<Tuning>,
    /// Label of an algorithm whose regret the others' is divided by.
    pub against: Option<String>,
    /// When people come; without it there is no clock.
    pub arrivals: Option<ArrivalsConfig>,
    /// Reports that are never sent; without it all are.
    pub drop: Option<DropConfig>,
}

fn untitled() -> String {
    "Comparison of private bandits".into()
}

fn dimensions() -> Vec<u32> {
    vec![5]
}

fn delta() -> f64 {
    1e-6
}

fn runs() -> u32 {
    20
}

fn seed() -> u64 {
    1
}

impl ExperimentConfig {
    /// Reads an experiment file.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let text = fs::read_to_string(path)
            .map_err(|error| ExperimentError::Io { path: path.into(), error })?;
        toml::from_str(&text).map_err(|error| ExperimentError::Toml {
            path: path.into(),
            message: error.to_string().trim_end().into(),
        })
    }

    /// The valid experiment, or the first rule that is violated. Data files are relative to `base`.
    pub fn check(self, base: &Path) -> Result<Experiment, ExperimentError> {
        self.check_repetitions()?;
        self.check_algorithms()?;
        self.check_grids()?;
        Delta::new(self.delta)?;
        range("runs", Some(self.runs), |v| (1..=1_000_000).contains(&v), "from 1 to 1000000")?;
        if let Some(tuning) = &self.tuning {
            tuning.check()?;
        }
        let sources = self.sources(base)?;
        self.check_assumptions(&sources)?;
        for source in &sources {
            if let Some(pass) = source.log().map(|log| log.people_per_pass() as u64)
                && let Some(&horizon) = self.horizons.iter().find(|&&horizon| horizon > pass)
            {
                return Err(ExperimentError::BeyondLog { horizon, pass });
            }
        }
        let arrivals = self.arrivals.map(ArrivalsConfig::check).transpose()?;
        let drops = self.drop.map(DropConfig::check).transpose()?;
        let experiment = Experiment { config: self, sources, arrivals, drops };
        // The results of two environments of one name could not be told apart.
        let settings = experiment.settings();
        let twice = (1..settings.len()).find(|&i| settings[..i].contains(&settings[i]));
        twice.map_or(Ok(experiment), |i| {
            let name = format!("{:?}", settings[i].environment);
            Err(ExperimentError::Twice("environments", name))
        })
    }

    /// A value twice in a list would be run, and counted, twice.
    fn check_repetitions(&self) -> Result<(), ExperimentError> {
        fn distinct<T: PartialEq + fmt::Debug>(
            what: &'static str,
            list: &[T],
        ) -> Result<(), ExperimentError> {
            let twice = (1..list.len()).find(|&i| list[..i].contains(&list[i]));
            twice.map_or(Ok(()), |i| Err(ExperimentError::Twice(what, format!("{:?}", list[i]))))
        }
        let caps: Vec<Option<f64>> = self.local_epsilons.iter().map(|limit| limit.cap()).collect();
        distinct("local_epsilons", &caps)?;
        distinct("horizons", &self.horizons)?;
        distinct("dimensions", &self.dimensions)?;
        distinct("central_epsilons", &self.central_epsilons)?;
        distinct("batch_sizes", &self.batch_sizes)?;
        distinct("parameter_bounds", &self.parameter_bounds)?;
        distinct("context_bounds", &self.context_bounds)?;
        distinct("reward_noises", &self.reward_noises)?;
        distinct("determinant_growths", &self.determinant_growths)?;
        distinct("failure_probabilities", &self.failure_probabilities)?;
        distinct("honest_fractions", &self.honest_fractions)?;
        distinct("participations", &self.participations)
    }

    fn check_algorithms(&self) -> Result<(), ExperimentError> {
        some("algorithms", &self.algorithms)?;
        let mut labels = HashSet::new();
        for algorithm in &self.algorithms {
            algorithm.check()?;
            if algorithm.closes == ClosedBy::Time && self.arrivals.is_none() {
                let algorithm = algorithm.label().into();
                let needs = "arrivals: its rounds close by time";
                return Err(ExperimentError::Needs { algorithm, needs });
            }
            if !labels.insert(algorithm.label()) {
                return Err(ExperimentError::Label(algorithm.label().into()));
            }
        }
        match self.against.as_ref().filter(|against| !labels.contains(against.as_str())) {
            Some(against) => Err(ExperimentError::Against(against.clone())),
            None => Ok(()),
        }
    }

    /// Every number of the lists that are about people and privacy.
    fn check_grids(&self) -> Result<(), ExperimentError> {
        some("horizons", &self.horizons)?;
        some("dimensions", &self.dimensions)?;
        for &dimension in &self.dimensions {
            Dimension::new(dimension)?;
        }
        for &horizon in &self.horizons {
            let fits = |t| (1..=1_000_000_000_000u64).contains(&t);
            range("horizon", Some(horizon), fits, "from 1 to 1000000000000")?;
        }
        let positive = |what, epsilon: f64| {
            range(what, Some(epsilon), |v| v > 0.0 && v.is_finite(), "above 0 and finite")
        };
        for &epsilon in &self.central_epsilons {
            positive("central_epsilon", epsilon)?;
        }
        for &limit in &self.local_epsilons {
            if let LocalLimit::AtMost(epsilon) = limit {
                positive("local_epsilon", epsilon)?;
            }
        }
        for &size in &self.batch_sizes {
            BatchSize::new(u64::from(size))?;
        }
        Ok(())
    }

    /// What learner and mechanism are told, with every algorithm and environment.
    fn check_assumptions(&self, sources: &[Source]) -> Result<(), ExperimentError> {
        for assumptions in Assumptions::grid(self) {
            assumptions.check()?;
            for algorithm in &self.algorithms {
                assumptions.check_with(algorithm)?;
            }
            for source in sources {
                source.factor(assumptions.context_bound)?;
            }
        }
        Ok(())
    }

    /// Where people come from, checked and read.
    fn sources(&self, base: &Path) -> Result<Vec<Source>, ExperimentError> {
        let single = self.environment.clone();
        let all = match (single, self.environments.as_slice()) {
            (None, []) => vec![EnvironmentConfig::default()],
            (Some(single), []) => vec![single],
            (None, several) => several.to_vec(),
            (Some(_), [_, ..]) => return Err(ExperimentError::Environments),
        };
        all.iter().map(|one| Ok(one.load(base)?)).collect()
    }
}

/// A valid experiment with its data.
#[derive(Clone)]
pub struct Experiment {
    config: ExperimentConfig,
    sources: Vec<Source>,
    arrivals: Option<Arrivals>,
    drops: Option<Drops>,
}

impl Experiment {
    /// What was asked for, all within its ranges.
    pub fn config(&self) -> &ExperimentConfig {
        &self.config
    }

    /// Where people come from, in the order of the file.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Where the people of one of [`Self::settings`] come from.
    pub(super) fn source(&self, setting: &Setting) -> &Source {
        let fits = |source: &&Source| {
            source.name() == setting.environment
                && source.dimension().is_none_or(|dimension| dimension == setting.dimension)
        };
        self.sources.iter().find(fits).expect("invariant: every setting is made from a source")
    }

    /// When people come, if there is a clock.
    pub fn arrivals(&self) -> Option<&Arrivals> {
        self.arrivals.as_ref()
    }

    /// Whose reports are never sent.
    pub fn drops(&self) -> Option<&Drops> {
        self.drops.as_ref()
    }

    /// Every combination of the grids, in order.
    pub fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let mut settings = Vec::new();
        for source in &self.sources {
            let first = Setting {
                environment: source.name().into(),
                dimension: 0,
                arms: source.arms(),
                horizon: 0,
                central_epsilon: None,
                local_epsilon: LocalLimit::default().cap(),
                batch_size: None,
                assumptions: Assumptions::default(),
            };
            let own = source.dimension().map(|dimension| vec![dimension]);
            let dimensions = own.as_ref().unwrap_or(&config.dimensions);
            let mut all = cross(vec![first], dimensions, |one, value| one.dimension = value);
            all = cross(all, &config.horizons, |one, value| one.horizon = value);
            all = cross(all, &config.central_epsilons, |one, value| {
                one.central_epsilon = Some(value);
            });
            all = cross(all, &config.local_epsilons, |one, value| one.local_epsilon = value.cap());
            all = cross(all, &config.batch_sizes, |one, value| one.batch_size = Some(value));
            let assumptions = Assumptions::grid(config);
            settings.extend(cross(all, &assumptions, |one, value| one.assumptions = value));
        }
        settings
    }
}

/// The cap as the planner wants it: in a table "none" means no cap, and the default has its number.
pub(super) fn local_limit(cap: Option<f64>) -> LocalLimit {
    match cap {
        None => LocalLimit::Unlimited,
        Some(epsilon) if epsilon == DEFAULT_LOCAL_EPSILON => LocalLimit::Default,
        Some(epsilon) => LocalLimit::AtMost(epsilon),
    }
}
