use super::Evaluation;

/// Below this effective sample size an interval is not to be trusted.
const SMALL_SAMPLE: f64 = 100.0;
/// A mean weight is suspicious when it is this many standard errors away from 1: chance does that
/// once in 16000 logs.
const SUSPICIOUS: f64 = 4.0;

/// Reasons not to trust the estimates.
pub(super) fn warnings(evaluation: &Evaluation) -> Vec<String> {
    let mut warnings = Vec::new();
    let (weights, coverage) = (&evaluation.weights, &evaluation.coverage);
    if coverage.uncovered_share > 0.0 {
        let most: Vec<String> = coverage
            .uncovered_actions
            .iter()
            .take(5)
            .map(|of| format!("{:?}", of.action))
            .collect();
        warnings.push(format!(
            "{:.2} % of the policy's choices, in {} of {} events, are not in the log ({}): ips and snips know nothing about their rewards, dr has only the reward model",
            100.0 * coverage.uncovered_share,
            coverage.uncovered_events,
            evaluation.log.events,
            most.join(", "),
        ));
    }
    if weights.largest == 0.0 {
        warnings.push("no event has an action that the policy takes: there is no estimate".into());
        return warnings;
    }
    // What is known to be uncovered explains a mean below 1.
    let off = (weights.mean + coverage.uncovered_share - 1.0).abs();
    if off > SUSPICIOUS * weights.mean_standard_error + 1e-9 {
        warnings.push(format!(
            "the mean weight is {:.4} +- {:.4}, should be {:.4}: the logged probabilities are wrong, or the policy takes actions where the log never has them",
            weights.mean,
            weights.mean_standard_error,
            1.0 - coverage.uncovered_share,
        ));
    }
    if weights.effective_sample_size < SMALL_SAMPLE {
        warnings.push(format!(
            "the effective sample size is {:.1}, below 100: do not trust the intervals",
            weights.effective_sample_size
        ));
    }
    let snips = evaluation.estimates.snips;
    if snips.is_some_and(|snips| snips.standard_error == 0.0) {
        warnings.push(
            "all rewards that count are equal: a standard error of 0 says nothing about others"
                .into(),
        );
    }
    if weights.clipped_share > 0.0 {
        warnings.push(format!(
            "{:.2} % of the weights were cut: the estimates are biased (ips downward if rewards are not negative), and the intervals do not contain that bias",
            100.0 * weights.clipped_share
        ));
    }
    for (problem, events) in &evaluation.field_problems {
        warnings.push(format!("{problem}, in {events} of {} events", evaluation.log.events));
    }
    warnings
}
