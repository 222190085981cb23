//! Runs an experiment's cells on all cores.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::Path,
};

use rayon::prelude::*;
use serde_json::{Value, json};

use super::{
    AlgorithmConfig, CellResult, ClosedBy, Experiment, ExperimentError, Prepared, Row, Setting,
    SummaryRow,
    cell::{self, Cell},
    manifest, origin,
    part::{Part, Shard},
    plans::Plans,
    summary,
    table::{self, CurvePoint},
};

/// What happens while an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// So many algorithms in their settings are to be planned and certified.
    Preparing(usize),
    /// One of them is being planned.
    Planning(&'a str),
    /// It is planned and certified.
    Planned(&'a str),
    /// Exploration is being tuned: people in all that are still to be served.
    Tuning(u64),
    /// The runs that count: people in all that are still to be served.
    Running(u64),
    /// So many more people have been served.
    Served(u64),
}

/// What a call did, and what it found done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Cells that were found finished.
    pub reused: usize,
    /// Cells that were run now.
    pub ran: usize,
    /// Algorithms in their settings that were planned and certified now; the others were found.
    pub planned: usize,
}

/// A finished experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// One row per run.
    pub rows: Vec<Row>,
    /// One line per algorithm and setting.
    pub summary: Vec<SummaryRow>,
    /// Cells that were found finished.
    pub reused: usize,
    /// Cells that were run now.
    pub ran: usize,
    /// Algorithms in their settings that were planned and certified now; the others were found.
    pub planned: usize,
}

/// One line of the results before its seeds: an algorithm in a setting, with an exploration.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub algorithm: &'a AlgorithmConfig,
    pub setting: &'a Setting,
    pub variant: &'static str,
    pub exploration: Option<f64>,
}

/// Runs what is not finished yet and writes `table.csv`, `curves.csv` and `manifest.json` into
/// `directory`. A run that was finished before, by this or an interrupted call, is not run again.
/// The files do not depend on the number of threads or on interruptions.
pub fn run(
    experiment: &Experiment,
    directory: &Path,
    threads: Option<usize>,
    command: &str,
    report: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Finished, ExperimentError> {
    origin::check(experiment, directory)?;
    let mut runner = Runner::new(experiment, directory, report)?;
    pool(threads)?.install(|| runner.run(command))
}

/// Runs what is not finished yet of one part of an experiment and writes no tables: [`run`] does,
/// in the folder that all parts were run in or copied to, and gives the same bytes as without
/// parts.
///
/// `tuning_command` is how the tuning phase is run; an error names it.
pub fn run_part(
    experiment: &Experiment,
    directory: &Path,
    threads: Option<usize>,
    part: Part,
    tuning_command: &str,
    report: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Work, ExperimentError> {
    origin::check(experiment, directory)?;
    let mut runner = Runner::new(experiment, directory, report)?;
    pool(threads)?.install(|| runner.run_part(part, tuning_command))
}

fn pool(threads: Option<usize>) -> Result<rayon::ThreadPool, ExperimentError> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .map_err(|error| ExperimentError::Threads(error.to_string()))
}

pub(super) struct Runner<'a> {
    pub experiment: &'a Experiment,
    pub directory: &'a Path,
    report: &'a (dyn Fn(Event<'_>) + Sync),
    results: HashMap<String, CellResult>,
    /// Planned and certified algorithms by their key.
    prepared: HashMap<String, Prepared>,
    pub work: Work,
}

/// A run without its result yet: its line, its identity and the name of its file.
pub(super) type Missing<'l> = (&'l Line<'l>, Cell<'l>, String);

impl<'a> Runner<'a> {
    fn new(
        experiment: &'a Experiment,
        directory: &'a Path,
        report: &'a (dyn Fn(Event<'_>) + Sync),
    ) -> Result<Self, ExperimentError> {
        let cells = directory.join("cells");
        fs::create_dir_all(&cells).map_err(|error| ExperimentError::Io { path: cells, error })?;
        let (results, prepared, work) = (HashMap::new(), HashMap::new(), Work::default());
        Ok(Self { experiment, directory, report, results, prepared, work })
    }

    fn run(&mut self, command: &str) -> Result<Finished, ExperimentError> {
        let settings = self.experiment.settings();
        let mut lines = self.lines(&settings);
        // First of all: what cannot be planned should fail before hours of running.
        self.prepare(&lines)?;
        let tried = self.tried(&lines);
        let missing = self.missing(&tried, &self.tuning_seeds(), Shard::WHOLE);
        self.finish(missing, Event::Tuning)?;
        self.add_tuned(&mut lines, &tried);
        let seeds = self.seeds();
        let missing = self.missing(&lines, &seeds, Shard::WHOLE);
        self.finish(missing, Event::Running)?;

        let mut rows = Vec::new();
        let mut curves = Vec::new();
        let mut summary = Vec::new();
        for line in &lines {
            let runs: Vec<(u64, &CellResult)> =
                seeds.iter().filter_map(|&seed| Some((seed, self.result(line, seed)?))).collect();
            for &(seed, result) in &runs {
                let (run, row) = (rows.len() as u64, row(line, seed, result, self.prepared(line)));
                curves.extend(result.curve.iter().map(|&(people, regret)| CurvePoint {
                    run,
                    people,
                    regret,
                    key: row.key.clone(),
                }));
                rows.push(row);
            }
            let seconds = runs.iter().map(|(_, result)| result.seconds).sum();
            summary.extend(SummaryRow::new(&rows[rows.len() - runs.len()..], seconds));
        }
        summary::compare(&mut summary, &rows, self.experiment.config().against.as_deref());
        table::write(&self.directory.join("table.csv"), &rows)?;
        table::write(&self.directory.join("curves.csv"), &curves)?;
        let certificates: Vec<Value> =
            lines.iter().map(|line| certificate(line, self.prepared(line))).collect();
        manifest::write(self.directory, self.experiment, command, &seeds, &certificates)?;
        let Work { reused, ran, planned } = self.work;
        Ok(Finished { rows, summary, reused, ran, planned })
    }

    /// Every algorithm in every setting, with its default exploration.
    pub fn lines<'l>(&self, settings: &'l [Setting]) -> Vec<Line<'l>>
    where
        'a: 'l,
    {
        let algorithms = &self.experiment.config().algorithms;
        let line = |setting, algorithm: &'l AlgorithmConfig| {
            let exploration = algorithm.name.explores().then(|| default_exploration(algorithm));
            Line { algorithm, setting, variant: "default", exploration }
        };
        let all = |setting| algorithms.iter().map(move |algorithm| line(setting, algorithm));
        settings.iter().flat_map(all).collect()
    }

    /// Seeds of the results.
    pub fn seeds(&self) -> Vec<u64> {
        let config = self.experiment.config();
        (0..u64::from(config.runs)).map(|i| config.seed.wrapping_add(i)).collect()
    }

    pub fn cell(&self, line: &Line<'_>, seed: u64) -> Cell<'_> {
        Cell::new(line.algorithm, line.setting, self.experiment, line.exploration, seed)
    }

    fn prepared(&self, line: &Line<'_>) -> &Prepared {
        &self.prepared[&self.cell(line, 0).preparation().key()]
    }

    pub fn result(&self, line: &Line<'_>, seed: u64) -> Option<&CellResult> {
        self.results.get(&self.cell(line, seed).key())
    }

    /// The runs of a shard that are not finished; results of the others are read.
    ///
    /// Runs are numbered over all lines and seeds, whatever is finished, so that the shards of one
    /// experiment never leave one out.
    pub fn missing<'l>(
        &mut self,
        lines: &'l [Line<'l>],
        seeds: &[u64],
        shard: Shard,
    ) -> Vec<Missing<'l>>
    where
        'a: 'l,
    {
        let experiment = self.experiment;
        let mut missing = Vec::new();
        let mut known = HashSet::new();
        for line in lines {
            for &seed in seeds {
                let cell =
                    Cell::new(line.algorithm, line.setting, experiment, line.exploration, seed);
                let key = cell.key();
                let number = known.len() as u64;
                if !known.insert(key.clone()) || !shard.takes(number) {
                    continue;
                }
                if self.results.contains_key(&key) {
                    continue;
                }
                match cell::load(self.directory, &key, self.prepared(line)) {
                    Some(result) => {
                        self.work.reused += 1;
                        self.results.insert(key, result);
                    }
                    None => missing.push((line, cell, key)),
                }
            }
        }
        missing
    }

    /// Makes sure that all of these have their results.
    pub fn finish(
        &mut self,
        missing: Vec<Missing<'_>>,
        event: fn(u64) -> Event<'static>,
    ) -> Result<(), ExperimentError> {
        let people = missing.iter().map(|(line, _, _)| line.setting.horizon).sum();
        if people > 0 {
            (self.report)(event(people));
        }
        let advance = |people| (self.report)(Event::Served(people));
        let fresh: Vec<(String, CellResult)> = missing
            .into_par_iter()
            .map(|(line, cell, key)| {
                let Setting { dimension, horizon, .. } = *line.setting;
                let source = self.experiment.source(line.setting);
                let bound = line.setting.assumptions.context_bound;
                let people = source.people_within(bound, dimension, horizon, cell.seed)?;
                let prepared = self.prepared(line);
                let (experiment, label) = (self.experiment, line.algorithm.label());
                let result = cell::run(prepared, people, experiment, label, &cell, &advance)?;
                cell::save(self.directory, &key, &result)?;
                Ok((key, result))
            })
            .collect::<Result<_, ExperimentError>>()?;
        self.work.ran += fresh.len();
        self.results.extend(fresh);
        Ok(())
    }

    /// Plans and certifies every algorithm in every setting, once; what this program planned before
    /// is found.
    pub fn prepare(&mut self, lines: &[Line<'_>]) -> Result<(), ExperimentError> {
        let plans = Plans::new(self.directory)?;
        let mut missing: BTreeMap<String, (Cell<'_>, &Line<'_>)> = BTreeMap::new();
        let mut prepared = HashMap::new();
        for line in lines {
            let preparation = self.cell(line, 0).preparation();
            let key = preparation.key();
            if prepared.contains_key(&key) || missing.contains_key(&key) {
                continue;
            }
            match plans.load(&preparation) {
                Some(plan) => {
                    prepared.insert(key, plan);
                }
                None => {
                    missing.insert(key, (preparation, line));
                }
            }
        }
        if !missing.is_empty() {
            (self.report)(Event::Preparing(missing.len()));
        }
        let planned = missing.len();
        let delta = self.experiment.config().delta;
        let arrivals = self.experiment.arrivals();
        let fresh = missing.into_par_iter().map(|(key, (preparation, line))| {
            let name = name(line);
            (self.report)(Event::Planning(&name));
            let layout = self.experiment.source(line.setting).layout();
            let plan = Prepared::new(line.algorithm, line.setting, layout, delta, arrivals)?;
            plans.save(&preparation, &plan)?;
            (self.report)(Event::Planned(&name));
            Ok((key, plan))
        });
        let fresh: Vec<(String, Prepared)> = fresh.collect::<Result<_, ExperimentError>>()?;
        prepared.extend(fresh);
        (self.prepared, self.work.planned) = (prepared, planned);
        Ok(())
    }
}

/// A line as a person would call it while it is planned.
fn name(line: &Line<'_>) -> String {
    let Setting { dimension, horizon, central_epsilon, .. } = line.setting;
    let epsilon = central_epsilon.map_or(String::new(), |limit| format!(", epsilon {limit}"));
    let told = line.setting.assumptions.of_plan(line.algorithm.name).words();
    let told = if told.is_empty() { told } else { format!(", {told}") };
    format!("{} (d = {dimension}, T = {horizon}{epsilon}{told})", line.algorithm.label())
}

/// What was proved for one line of the results.
fn certificate(line: &Line<'_>, prepared: &Prepared) -> Value {
    json!({
        "algorithm": line.algorithm.label(),
        "variant": line.variant,
        "exploration": line.exploration,
        "setting": line.setting,
        "guarantee": prepared.guarantee(),
        "proof": prepared.certificate(),
    })
}

fn default_exploration(algorithm: &AlgorithmConfig) -> f64 {
    let default = match incrowd_protocol::LearnerConfig::default().confidence {
        incrowd_protocol::Confidence::Calibrated { exploration } => exploration,
        _ => 1.0,
    };
    algorithm.exploration.unwrap_or(default)
}

fn row(line: &Line<'_>, seed: u64, result: &CellResult, prepared: &Prepared) -> Row {
    let (setting, summary) = (line.setting.clone(), &result.summary);
    let guarantee = prepared.guarantee();
    let known = |value: f64| result.knows_regret.then_some(value);
    let sends = line.algorithm.name.name().starts_with("sblb");
    let by_time = line.algorithm.closes == ClosedBy::Time;
    let told = setting.assumptions;
    let mut row = Row {
        algorithm: line.algorithm.label().into(),
        variant: line.variant.into(),
        environment: setting.environment,
        dimension: setting.dimension,
        arms: setting.arms,
        horizon: setting.horizon,
        central_epsilon: setting.central_epsilon,
        local_epsilon: setting.local_epsilon,
        batch_size: setting.batch_size,
        seed,
        exploration: line.exploration,
        regret: known(summary.regret),
        regret_random: known(summary.regret_random()),
        reward: summary.reward,
        people: summary.users,
        batches: summary.batches,
        model_versions: summary.models,
        epsilon_local_certified: guarantee.epsilon_local(),
        epsilon_central_certified: guarantee.epsilon_central(),
        delta: guarantee.delta(),
        certified: guarantee.is_certified(),
        noise_std: result.noise_std,
        reports: sends.then_some(summary.reports),
        pads: by_time.then_some(summary.pads),
        surplus: by_time.then_some(summary.surplus),
        dropped: summary.dropped,
        reward_sent: summary.reward_sent,
        reward_stderr: summary.reward_stderr(),
        theta_error: result.theta_error,
        covered: result.covered,
        parameter_bound: told.parameter_bound,
        context_bound: told.context_bound,
        reward_noise: told.reward_noise,
        determinant_growth: told.determinant_growth,
        failure_probability: told.failure_probability,
        honest_fraction: told.honest_fraction,
        participations: told.participations,
        key: String::new(),
    };
    row.key = row.make_key();
    row
}
