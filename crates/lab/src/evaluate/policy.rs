use std::{collections::BTreeMap, fmt, str::FromStr};

use incrowd_device::{Arm, FeatureMap, FeatureMapConfig, Fields, Score, Value};
use incrowd_protocol::Model;
use incrowd_sim::Place;

use super::{
    EvaluateError, Log,
    cells::{Cells, Names},
    log::Event,
};

/// The field that every action of a log has: its name.
pub(super) const ACTION: &str = "action";

/// How actions are chosen.
pub enum Policy {
    /// Each of the offered actions with the same probability.
    Uniform,
    /// The policy that wrote the log.
    Logged,
    /// The action of this name; `#1` is the first that an event offers.
    Always(String),
    /// The best action according to a model.
    Model(Box<ModelPolicy>),
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Logged => f.write_str("logged"),
            Self::Always(action) => write!(f, "always:{action}"),
            Self::Model(model) if model.greedy => f.write_str("model, largest mean"),
            Self::Model(_) => f.write_str("model, largest upper confidence bound"),
        }
    }
}

impl FromStr for Policy {
    type Err = EvaluateError;
    fn from_str(text: &str) -> Result<Self, EvaluateError> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "logged" => Ok(Self::Logged),
            _ => match text.strip_prefix("always:") {
                Some(action) if !action.is_empty() => Ok(Self::Always(action.to_owned())),
                _ => Err(EvaluateError::Policy(text.to_owned())),
            },
        }
    }
}

/// The policy of devices that have a model: the best score, equals by lot.
pub struct ModelPolicy {
    model: Model,
    map: FeatureMap,
    greedy: bool,
}

impl ModelPolicy {
    /// A model and the map of the features that it was trained on. With `greedy` the largest mean
    /// wins, else the largest upper confidence bound.
    pub fn new(model: Model, map: FeatureMap, greedy: bool) -> Result<Self, EvaluateError> {
        let own = model.slots().first().map_or(0, |slot| slot.theta.len());
        let (features, of_map) = (own + model.theta().len(), map.dimension());
        if features != of_map {
            return Err(EvaluateError::Dimension { model: features, map: of_map });
        }
        Ok(Self { model, map, greedy })
    }
}

impl ModelPolicy {
    /// The score of an action; none if no slot of the model stands for it.
    fn score(&self, action: &str, features: &[f64]) -> Option<Score> {
        let slot = match self.model.slots() {
            [] => 0,
            _ => self.model.slot_of(action)? as u32,
        };
        Score::of(&self.model, Arm { slot, features })
    }
}

/// What a policy does with one event.
pub(super) enum Decision {
    /// As the log's policy, with the logged probabilities.
    AsLogged,
    /// Arms with these probabilities; all 0 if the event does not offer what the policy takes.
    Arms(Vec<f64>),
}

/// A policy on a log, with what does not depend on the event.
pub(super) struct Chooser<'a> {
    log: &'a Log,
    policy: &'a Policy,
    /// Of actions without fields of their own.
    actions: Vec<Fields>,
    /// What was wrong with fields, and in how many events.
    pub(super) problems: BTreeMap<String, usize>,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(log: &'a Log, policy: &'a Policy) -> Result<Self, EvaluateError> {
        let mut actions = Vec::new();
        match policy {
            Policy::Always(action)
                if position(action).is_none() && log.actions.find(action).is_none() =>
            {
                let known = log.actions().to_vec();
                return Err(EvaluateError::UnknownAction { action: action.clone(), known });
            }
            Policy::Model(model) => {
                check_map(&model.map, log)?;
                let name =
                    |name: &String| Fields::from([(ACTION.into(), Value::Text(name.clone()))]);
                actions = log.actions().iter().map(name).collect();
            }
            _ => {}
        }
        Ok(Self { log, policy, actions, problems: BTreeMap::new() })
    }

    pub(super) fn choose(&mut self, event: &Event) -> Result<Decision, EvaluateError> {
        let arms = self.log.arms(event);
        let probabilities = match self.policy {
            Policy::Logged => {
                return Ok(match &event.probabilities {
                    Some(probabilities) => Decision::Arms(probabilities.to_vec()),
                    None => Decision::AsLogged,
                });
            }
            Policy::Uniform => vec![1.0 / arms as f64; arms],
            Policy::Always(action) => {
                let mut probabilities = vec![0.0; arms];
                if let Some(arm) = position(action) {
                    probabilities.iter_mut().skip(arm).take(1).for_each(|share| *share = 1.0);
                } else if let Some(action) = self.log.actions.find(action) {
                    let named = |&arm: &usize| event.action(arm) == action as usize;
                    let equals: Vec<usize> = (0..arms).filter(named).collect();
                    equals.iter().for_each(|&arm| probabilities[arm] = 1.0 / equals.len() as f64);
                }
                probabilities
            }
            Policy::Model(model) => self.best(model, event)?,
        };
        Ok(Decision::Arms(probabilities))
    }

    /// 1 for the best arm, or equal shares for equals: a device draws lots among them.
    fn best(&mut self, model: &ModelPolicy, event: &Event) -> Result<Vec<f64>, EvaluateError> {
        let context = fields(&event.context, &self.log.context_fields, &self.log.texts);
        let own: Option<Vec<Fields>> = event.arms.as_ref().map(|arms| {
            let with_name = |arm: &super::log::EventArm| {
                let mut own = fields(&arm.fields, &self.log.action_fields, &self.log.texts);
                let name = self.log.actions.get(arm.action).to_owned();
                own.entry(ACTION.into()).or_insert(Value::Text(name));
                own
            };
            arms.iter().map(with_name).collect()
        });
        let actions = own.as_deref().unwrap_or(&self.actions);
        let (features, problems) = model.map.features_of_all(&context, actions);
        for problem in problems {
            *self.problems.entry(problem.to_string()).or_default() += 1;
        }
        let mut scores = Vec::with_capacity(features.len());
        for (index, features) in features.iter().enumerate() {
            let action = self.log.actions.get(event.action(index) as u32);
            // An action without a slot is not shown by a device either.
            let Some(score) = model.score(action, features) else {
                scores.push(f64::NEG_INFINITY);
                continue;
            };
            let score = if model.greedy { score.mean } else { score.mean + score.width };
            if !score.is_finite() {
                let at = Place { line: Some(event.line), ..self.log.place() };
                return Err(EvaluateError::Score { at, action: action.to_owned() });
            }
            scores.push(score);
        }
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if highest == f64::NEG_INFINITY {
            return Ok(vec![0.0; scores.len()]);
        }
        let equals = scores.iter().filter(|&&score| score >= highest).count() as f64;
        let share = |score: &f64| if *score >= highest { 1.0 / equals } else { 0.0 };
        Ok(scores.iter().map(share).collect())
    }
}

/// The index in `#1`, `#2`, ...
fn position(action: &str) -> Option<usize> {
    action.strip_prefix('#')?.parse::<usize>().ok()?.checked_sub(1)
}

fn fields(cells: &Cells, names: &Names, texts: &Names) -> Fields {
    let named = |&(field, cell): &(u32, super::cells::Cell)| {
        (names.get(field).to_owned(), cell.value(texts))
    };
    cells.iter().map(named).collect()
}

/// Every field of the map is somewhere in the log.
fn check_map(map: &FeatureMap, log: &Log) -> Result<(), EvaluateError> {
    let config = FeatureMapConfig::from(map.clone());
    let mut of_actions = log.action_fields.list().to_vec();
    of_actions.push(ACTION.into());
    for (side, fields, known) in [
        ("context", &config.context, log.context_fields.list()),
        ("action", &config.action, &of_actions),
    ] {
        if let Some(field) = fields.iter().find(|field| !known.contains(&field.name)) {
            let (field, known) = (field.name.clone(), known.to_vec());
            return Err(EvaluateError::MapField { side, field, known });
        }
    }
    Ok(())
}
