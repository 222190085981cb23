//! One run of one algorithm, and the file that remembers it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use incrowd_protocol::{Layout, LearnerConfig, MechanismHash, Prior, PriorConfig};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{AlgorithmConfig, AlgorithmName, Experiment, ExperimentError, Prepared, Setting, file};
use incrowd_sim::{Algorithm as _, ArrivalsConfig, DropConfig, Environment, Simulation, Summary};

/// To be raised when the same cell gives another result than before: then nothing old is taken for
/// new.
pub(super) const RESULTS: u32 = 2;
/// Points of a curve.
const POINTS: i32 = 50;
/// People between two reports of progress, at most.
const STEP: u64 = 10_000;

/// What one run left behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// How it went.
    pub summary: Summary,
    /// (people, regret so far), or the sum of rewards where regret is unknown.
    pub curve: Vec<(u64, f64)>,
    /// Whether the environment knew the expected rewards.
    pub knows_regret: bool,
    /// The mechanism that ran, if there is one.
    pub mechanism: Option<MechanismHash>,
    /// Noise of the last sums.
    pub noise_std: Option<f64>,
    /// |theta - theta*| of the last model.
    pub theta_error: Option<f64>,
    /// Whether |theta - theta*|_V was at most its width.
    pub covered: Option<bool>,
    /// Time of the run; in no table, as it differs from run to run.
    pub seconds: f64,
}

/// Weight of a prior that nothing is added to: only its direction matters.
const FROZEN: f64 = 1e6;

/// Identity of a run: whatever its result depends on.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cell<'a> {
    results: u32,
    learner: LearnerConfig,
    algorithm: AlgorithmConfig,
    environment: &'a str,
    /// A plan depends on it, not on anything else about the environment.
    #[serde(skip_serializing_if = "Layout::is_shared")]
    layout: Layout,
    setting: Setting,
    delta: f64,
    pub exploration: Option<f64>,
    pub seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    arrivals: Option<ArrivalsConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drop: Option<DropConfig>,
}

impl<'a> Cell<'a> {
    /// What does not matter to an algorithm is not part of its runs' identity: they are run once
    /// and shared.
    pub fn new(
        algorithm: &AlgorithmConfig,
        setting: &Setting,
        experiment: &'a Experiment,
        exploration: Option<f64>,
        seed: u64,
    ) -> Self {
        let source = experiment.source(setting);
        let (environment, layout) = (source.fingerprint(), source.layout());
        let (name, mut setting) = (algorithm.name, setting.clone());
        if !name.is_private() {
            (setting.central_epsilon, setting.local_epsilon) = (None, None);
        }
        if !name.has_batches() {
            setting.batch_size = None;
        }
        setting.assumptions = setting.assumptions.relevant_to(name);
        Self {
            results: RESULTS,
            learner: LearnerConfig::default(),
            algorithm: AlgorithmConfig { label: None, exploration: None, ..algorithm.clone() },
            environment,
            layout,
            setting,
            delta: experiment.config().delta,
            exploration,
            seed,
            arrivals: experiment.config().arrivals,
            drop: experiment.config().drop,
        }
    }

    /// What the environment's public rows say, with the weight that the algorithm gives them.
    fn prior(
        &self,
        experiment: &Experiment,
        label: &str,
    ) -> Result<Option<Prior>, ExperimentError> {
        let people = match self.algorithm.name {
            AlgorithmName::Frozen => Some(FROZEN),
            _ => self.algorithm.prior,
        };
        let Some(people) = people else { return Ok(None) };
        let algorithm = || label.into();
        let needs = "an environment with public rows";
        let values = experiment.source(&self.setting).public_statistic();
        let values =
            values.ok_or_else(|| ExperimentError::Needs { algorithm: algorithm(), needs })?;
        let prior = PriorConfig { people, values }.check();
        prior.map(Some).map_err(|error| ExperimentError::Protocol { algorithm: algorithm(), error })
    }

    /// Name of the run's file.
    pub fn key(&self) -> String {
        digest(self)
    }

    /// The same for all seeds, explorations and environments: what is planned and certified once. A
    /// plan knows the dimension and the number of people, and nothing of what they like.
    pub fn preparation(self) -> Self {
        let assumptions = self.setting.assumptions.of_plan(self.algorithm.name);
        let setting = Setting { environment: String::new(), arms: 0, assumptions, ..self.setting };
        let algorithm = AlgorithmConfig { prior: None, ..self.algorithm };
        Self { exploration: None, seed: 0, environment: "", setting, algorithm, ..self }
    }
}

pub(super) fn digest(value: &impl Serialize) -> String {
    let bytes = serde_json::to_vec(value).expect("invariant: plain data always has a JSON form");
    hex::encode(&Sha256::digest(bytes)[..16])
}

/// A finished run's result, if its file is there and whole and the run had the same mechanism.
pub(super) fn load(directory: &Path, key: &str, prepared: &Prepared) -> Option<CellResult> {
    let result: CellResult = serde_json::from_slice(&fs::read(path(directory, key)).ok()?).ok()?;
    (result.mechanism == prepared.guarantee().mechanism()).then_some(result)
}

/// Writes a result.
pub(super) fn save(
    directory: &Path,
    key: &str,
    result: &CellResult,
) -> Result<(), ExperimentError> {
    file::replace(&path(directory, key), |file| Ok(serde_json::to_writer(file, result)?))
}

/// The file of a run.
pub(super) fn path(directory: &Path, key: &str) -> PathBuf {
    directory.join("cells").join(format!("{key}.json"))
}

/// Runs one cell; `advance` hears of people served.
pub(super) fn run(
    prepared: &Prepared,
    environment: Box<dyn Environment + Send>,
    experiment: &Experiment,
    label: &str,
    cell: &Cell,
    advance: &(dyn Fn(u64) + Sync),
) -> Result<CellResult, ExperimentError> {
    let begin = Instant::now();
    let seed = cell.seed;
    let failed = |error| ExperimentError::Simulation { algorithm: label.into(), seed, error };
    let prior = cell.prior(experiment, label)?;
    let algorithm = prepared
        .start(cell.exploration, &cell.setting.assumptions, prior, seed)
        .map_err(|error| ExperimentError::Protocol { algorithm: label.into(), error })?;
    let mut simulation = Simulation::new(environment, algorithm).map_err(failed)?;
    if let Some(arrivals) = experiment.arrivals() {
        simulation = simulation.with_arrivals(arrivals, seed);
    }
    if let Some(drops) = experiment.drops() {
        simulation = simulation.with_drops(drops, seed);
    }
    let mut curve = Vec::with_capacity(POINTS as usize);
    for point in checkpoints(cell.setting.horizon) {
        while simulation.summary().users < point {
            let step = (point - simulation.summary().users).min(STEP);
            simulation.run(step).map_err(failed)?;
            advance(step);
        }
        curve.push((point, simulation.regret().unwrap_or(simulation.summary().reward)));
    }
    let (estimate, parameter) =
        (simulation.algorithm().estimate(), simulation.environment().parameter());
    let known = estimate.zip(parameter);
    Ok(CellResult {
        knows_regret: simulation.regret().is_some(),
        summary: simulation.summary(),
        curve,
        mechanism: prepared.guarantee().mechanism(),
        noise_std: simulation.algorithm().noise_std(),
        theta_error: known.as_ref().and_then(|(estimate, truth)| estimate.error(truth)),
        covered: known.as_ref().and_then(|(estimate, truth)| estimate.covers(truth)),
        seconds: begin.elapsed().as_secs_f64(),
    })
}

/// Evenly spread on a logarithmic scale from 10 (or less) to the horizon.
fn checkpoints(horizon: u64) -> Vec<u64> {
    let (first, last) = (10f64.min(horizon as f64), horizon as f64);
    let point = |i: i32| first * (last / first).powf(f64::from(i) / f64::from(POINTS - 1));
    let mut points: Vec<u64> = (0..POINTS).map(|i| point(i).round() as u64).collect();
    points.push(horizon);
    points.retain(|&point| point <= horizon);
    points.dedup();
    points
}
