use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Coverage, Estimate, EvaluateError, Format, Log, Policy,
    coverage::{UncoveredMass, absent},
    encoder::Encoder,
    policy::{Chooser, Decision},
    reward_model::RewardModel,
    warnings::warnings,
};

/// How a policy is evaluated.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Largest weight of an event; larger ones are cut to it. None: no limit.
    pub clip: Option<f64>,
    /// Parts of the log for cross-fitting, 2 to 100.
    pub folds: u32,
    /// Penalty of the reward model's regressions.
    pub ridge: f64,
    /// Fields of the context for the reward model; none: all.
    pub context: Option<Vec<String>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { clip: None, folds: 5, ridge: 1.0, context: None }
    }
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The log.
    pub log: LogSummary,
    /// The policy in words.
    pub policy: String,
    /// Largest weight.
    pub clip: Option<f64>,
    /// Folds of the cross-fitting.
    pub folds: u32,
    /// Penalty of the reward model.
    pub ridge: f64,
    /// Mean reward of the policy.
    pub estimates: Estimates,
    /// The weights of the events.
    pub weights: Weights,
    /// What the policy would do that the log cannot show.
    pub coverage: Coverage,
    /// What was wrong with fields of the feature map, and in how many events.
    pub field_problems: BTreeMap<String, usize>,
    /// Reasons not to trust the estimates.
    pub warnings: Vec<String>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogSummary {
    /// How it is written.
    pub format: Format,
    /// Decisions.
    pub events: usize,
    /// Records without a decision.
    pub skipped: usize,
    /// Different actions.
    pub actions: usize,
    /// Columns of the reward model.
    pub columns: usize,
    /// Mean reward of the policy that wrote the log.
    pub reward: Option<Estimate>,
}

/// Mean reward of the policy, by estimator. None where the log does not allow it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimates {
    /// Inverse propensity scores.
    pub ips: Option<Estimate>,
    /// Self-normalised inverse propensity scores.
    pub snips: Option<Estimate>,
    /// Doubly robust, cross-fitted.
    pub dr: Option<Estimate>,
}

/// Weights: probability of the logged action under the policy over that under the log's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Weights {
    /// Mean before clipping. It should be 1.
    pub mean: f64,
    /// Its standard error.
    pub mean_standard_error: f64,
    /// Largest before clipping.
    pub largest: f64,
    /// Share of events whose weight was cut.
    pub clipped_share: f64,
    /// (sum w)^2 / sum w^2 after clipping: as many events with equal weights tell as much.
    pub effective_sample_size: f64,
}

/// What is computed for one event.
#[derive(Debug, Clone, Copy)]
struct Term {
    expansion: f64,
    weight: f64,
    clipped: f64,
    reward: f64,
    /// The doubly robust term; NaN if it is unknown.
    robust: f64,
}

impl Settings {
    fn check(&self, log: &Log) -> Result<(), EvaluateError> {
        if let Some(clip) = self.clip.filter(|clip| !(*clip >= 1.0 && clip.is_finite())) {
            return Err(EvaluateError::Clip(clip));
        }
        if !(2..=100).contains(&self.folds) {
            return Err(EvaluateError::Folds(self.folds));
        }
        if !(1e-6..=1e6).contains(&self.ridge) {
            return Err(EvaluateError::Ridge(self.ridge));
        }
        let (at, found, expected) = (log.place(), log.events.len(), self.folds as usize);
        if found < expected {
            return Err(EvaluateError::TooFewEvents { at, found, expected });
        }
        Ok(())
    }

    /// Estimates the mean reward of a policy on the people of a log.
    ///
    /// With w the weight of an event (clipped), r its reward, q the reward model and pi the
    /// policy, IPS is the mean of w r, SNIPS the sum of w r over the sum of w, and DR the mean of
    /// sum_a pi(a) q(a) + w (r - q(chosen)). An event that stands for several counts so often.
    ///
    /// # Reference
    /// IPS: Horvitz and Thompson (1952). SNIPS: Swaminathan and Joachims, "The Self-Normalized
    /// Estimator for Counterfactual Learning" (NeurIPS 2015). DR: Dudik, Langford, Li, "Doubly
    /// Robust Policy Evaluation and Learning" (ICML 2011); cross-fitting: Chernozhukov et al.,
    /// "Double/debiased machine learning" (2018).
    pub fn evaluate(&self, log: &Log, policy: &Policy) -> Result<Evaluation, EvaluateError> {
        self.check(log)?;
        let encoder = Encoder::new(log, self.context.as_deref())?;
        let model = RewardModel::fit(log, &encoder, self.folds as usize, self.ridge)?;
        let mut chooser = Chooser::new(log, policy)?;
        let mut uncovered = UncoveredMass::new(log);
        let mut terms = Vec::with_capacity(log.events.len());
        let mut z = vec![0.0; encoder.columns()];
        for (index, event) in log.events.iter().enumerate() {
            let decision = chooser.choose(event)?;
            uncovered.add(event, &decision, policy);
            let weight = match &decision {
                Decision::AsLogged => 1.0,
                // The probabilities of the log are the policy's own.
                Decision::Arms(_) if matches!(policy, Policy::Logged) => 1.0,
                Decision::Arms(arms) => arms[event.chosen] / event.propensity,
            };
            let clipped = self.clip.map_or(weight, |clip| weight.min(clip));
            let robust = match &decision {
                Decision::AsLogged => f64::NAN,
                Decision::Arms(arms) => {
                    encoder.write_context(event, &mut z);
                    let mut q = |arm: usize| {
                        encoder.write_arm(event, arm, &mut z);
                        model.predict(index, event.action(arm), &z)
                    };
                    let wanted = arms.iter().enumerate().filter(|&(_, &share)| share > 0.0);
                    let direct: f64 = wanted.map(|(arm, share)| share * q(arm)).sum();
                    let direct = if absent(arms) { model.base(index) } else { direct };
                    direct + clipped * (event.reward - q(event.chosen))
                }
            };
            let (expansion, reward) = (event.expansion, event.reward);
            terms.push(Term { expansion, weight, clipped, reward, robust });
        }
        let weights = weights(&terms);
        let mut evaluation = Evaluation {
            log: LogSummary {
                format: log.format,
                events: log.events.len(),
                skipped: log.skipped,
                actions: log.actions.len(),
                columns: encoder.columns(),
                reward: Estimate::ratio(terms.iter().map(|term| (term.expansion, term.reward))),
            },
            policy: policy.to_string(),
            clip: self.clip,
            folds: self.folds,
            ridge: self.ridge,
            estimates: estimates(&terms),
            weights,
            coverage: uncovered.coverage(),
            field_problems: chooser.problems,
            warnings: Vec::new(),
        };
        evaluation.warnings = warnings(&evaluation);
        Ok(evaluation)
    }
}

fn estimates(terms: &[Term]) -> Estimates {
    if terms.iter().all(|term| term.weight == 0.0) {
        return Estimates { ips: None, snips: None, dr: None };
    }
    let of = |pair: fn(&Term) -> (f64, f64)| Estimate::ratio(terms.iter().map(pair));
    let known = terms.iter().all(|term| !term.robust.is_nan());
    Estimates {
        ips: of(|term| (term.expansion, term.clipped * term.reward)),
        snips: of(|term| (term.expansion * term.clipped, term.reward)),
        dr: if known { of(|term| (term.expansion, term.robust)) } else { None },
    }
}

fn weights(terms: &[Term]) -> Weights {
    let mean = Estimate::ratio(terms.iter().map(|term| (term.expansion, term.weight)));
    let (mut sum, mut squares) = (0.0, 0.0);
    for term in terms {
        let weight = term.expansion * term.clipped;
        (sum, squares) = (sum + weight, squares + weight * weight);
    }
    let cut = terms.iter().filter(|term| term.clipped < term.weight).count();
    Weights {
        mean: mean.map_or(0.0, |mean| mean.value),
        mean_standard_error: mean.map_or(0.0, |mean| mean.standard_error),
        largest: terms.iter().map(|term| term.weight).fold(0.0, f64::max),
        clipped_share: cut as f64 / terms.len() as f64,
        effective_sample_size: if squares > 0.0 { sum * sum / squares } else { 0.0 },
    }
}
