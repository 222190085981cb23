use std::{collections::BTreeMap, sync::Arc};

use incrowd_bandit::Bandit;
use incrowd_device::FeatureMap;
use incrowd_protocol::{
    Blocks, Closes, Confidence, Dimension, FlipProbability, Law, Layout, LearnerConfig,
    MechanismConfig, Model, Policy, Prior, PriorConfig, ProtocolError, Stage, TaskConfig,
};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::{
    DataKind, Examples, HeldOut, PublicDataError,
    examples::Outcome,
    held_out::{self, Frozen},
};
use crate::coordinates::for_each_coordinate;

/// How a prior is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitConfig {
    /// Weight of the prior: how many people's reports without noise it counts for, above 0 and at
    /// most 1e12; the number of rows if not given.
    pub people: Option<f64>,
    /// Parts of the rows, 2 to 100: each is held out once.
    pub folds: u32,
}

impl Default for FitConfig {
    fn default() -> Self {
        Self { people: None, folds: 5 }
    }
}

/// A prior, and how well it does on rows that it was not made from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// The prior.
    pub prior: Prior,
    /// What the file says about rewards.
    pub kind: DataKind,
    /// Rows.
    pub rows: usize,
    /// Rewards of an action in a row that the file has: rows times actions, or rows of a log.
    pub answers: usize,
    /// The actions.
    pub actions: Vec<String>,
    /// How well the frozen prior does on held-out rows; none if there are fewer than two rows.
    pub held_out: Option<HeldOut>,
    /// What was wrong with fields, and in how many rows.
    pub problems: BTreeMap<String, usize>,
}

/// The prior of a file: the mean of what a person would report without noise.
///
/// A person is shown one action and reports about that one. A logged row is such a report. A row
/// with the rewards of all K actions stands for a person who was shown each of them with
/// probability 1/K: it adds the mean of the K reports. So the weight has one meaning for both
/// kinds: a prior that counts for n people adds the sums of n reports.
///
/// # Privacy
/// The people in the file are not protected by anything: whoever reads the task reads their mean.
pub fn fit(examples: &Examples<'_>, config: &FitConfig) -> Result<Fit, PublicDataError> {
    if !(2..=100).contains(&config.folds) {
        return Err(PublicDataError::Folds(config.folds));
    }
    let (map, rows) = (examples.map(), examples.rows());
    let people = config.people.unwrap_or(rows as f64);
    let folds = (config.folds as usize).min(rows);
    let fold_of = shuffled_folds(rows, folds);
    let blocks = blocks(map)?;
    let mut parts = vec![Part { sums: vec![0.0; blocks.coordinates()], rows: 0 }; folds];
    let mut problems = BTreeMap::new();
    for (row, &fold) in fold_of.iter().enumerate() {
        parts[fold].add(blocks, examples, row, &mut problems)?;
    }
    let prior = mean(parts.iter(), people)?;
    let held_out = if folds < 2 {
        None
    } else {
        let mut frozen = Vec::new();
        for fold in 0..folds {
            let others = parts.iter().enumerate().filter(|&(other, _)| other != fold);
            let share = 1.0 - parts[fold].rows as f64 / rows as f64;
            let prior = mean(others.map(|(_, part)| part), people * share)?;
            frozen.push(Frozen(first_model(map, prior)?));
        }
        Some(held_out::measure(examples, &fold_of, &frozen)?)
    };
    let answers = match examples.kind() {
        DataKind::Logged | DataKind::Sample => rows,
        DataKind::Labelled | DataKind::Rewards => rows * examples.actions().len(),
    };
    let actions = examples.actions().to_vec();
    Ok(Fit { prior, kind: examples.kind(), rows, answers, actions, held_out, problems })
}

/// The fold of each row: about equally many, in an order that has nothing to do with the file's.
fn shuffled_folds(rows: usize, folds: usize) -> Vec<usize> {
    let mut fold_of: Vec<usize> = (0..rows).map(|row| row % folds).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for last in (1..rows).rev() {
        let other = (rng.next_u64() % (last as u64 + 1)) as usize;
        fold_of.swap(last, other);
    }
    fold_of
}

/// Sums over some rows of what a person would report, for L = 1.
#[derive(Clone)]
struct Part {
    sums: Vec<f64>,
    rows: usize,
}

impl Part {
    fn add(
        &mut self,
        blocks: Blocks,
        examples: &Examples<'_>,
        row: usize,
        problems: &mut BTreeMap<String, usize>,
    ) -> Result<(), PublicDataError> {
        let outcome =
            examples.outcome(row)?.ok_or_else(|| PublicDataError::NoRewards(examples.place()))?;
        let bound = examples.map().context_bound();
        let features = examples.features(row, Some(problems))?;
        let mut report = |action: usize, reward: f64, share: f64| {
            let unit: Vec<f64> = features[action].iter().map(|x| x / bound).collect();
            let arm = examples.arm(action, &unit);
            for_each_coordinate(blocks, arm, reward, |i, value| self.sums[i] += share * value);
        };
        match outcome {
            Outcome::All(rewards) => {
                let share = 1.0 / rewards.len() as f64;
                let each = rewards.iter().enumerate();
                each.for_each(|(action, &reward)| report(action, reward, share));
            }
            Outcome::Logged { action, reward, .. } => report(action, reward, 1.0),
        }
        self.rows += 1;
        Ok(())
    }
}

/// The prior of some rows.
fn mean<'a>(
    parts: impl Iterator<Item = &'a Part> + Clone,
    people: f64,
) -> Result<Prior, PublicDataError> {
    let rows: usize = parts.clone().map(|part| part.rows).sum();
    let mut values = vec![0.0; parts.clone().next().map_or(0, |part| part.sums.len())];
    for part in parts {
        values.iter_mut().zip(&part.sums).for_each(|(value, sum)| *value += sum);
    }
    // A mean of ones may be above 1 by rounding.
    values.iter_mut().for_each(|value| *value = (*value / rows as f64).clamp(-1.0, 1.0));
    Ok(PriorConfig { people, values }.check()?)
}

fn blocks(map: &FeatureMap) -> Result<Blocks, PublicDataError> {
    let dimension = Dimension::new(map.dimension() as u32).map_err(ProtocolError::from)?;
    Ok(Blocks::new(dimension, map.layout())?)
}

/// The model of a prior alone, as the bandit of a task with this map serves it before the first
/// report, without exploration: widths depend on what a schedule can still learn.
pub fn first_model(map: &FeatureMap, prior: Prior) -> Result<Model, PublicDataError> {
    let (dimension, actions) = (map.dimension() as u32, map.config().actions.clone());
    frozen_model(dimension, map.context_bound(), map.layout(), actions, prior)?
        .ok_or(PublicDataError::NoModel)
}

/// The same for any layout; none if it is not positive definite in floats.
pub fn frozen_model(
    dimension: u32,
    context_bound: f64,
    layout: Layout,
    actions: Vec<String>,
    prior: Prior,
) -> Result<Option<Model>, ProtocolError> {
    // Nothing of the mechanism but its shape is in the model.
    let law = Law::bits(1, FlipProbability::new(1, 2)?);
    let mechanism = MechanismConfig {
        dimension,
        context_bound,
        layout,
        schedule: vec![Stage { rounds: 1, size: 1, window: None, law }],
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    let confidence = Confidence::Calibrated { exploration: 0.0 };
    let learner = LearnerConfig { confidence, ..LearnerConfig::default() }.check()?;
    let task = TaskConfig::new(mechanism.check()?, learner, Policy::default())?;
    let task = task.with_actions(actions)?.with_prior(prior)?;
    Ok(Bandit::new(Arc::new(task)).start())
}
