//! From runs to one line per algorithm and setting.

use serde::Serialize;

use super::{Row, Setting};
use incrowd_sim::statistics::{mean, ratio, standard_error};

/// One algorithm in one setting, over all its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryRow {
    /// Label of the algorithm.
    pub algorithm: String,
    /// `default` or `tuned`: where `exploration` comes from.
    pub variant: String,
    /// What it was run in; the horizon is its own field.
    #[serde(flatten)]
    pub setting: Setting,
    /// Runs.
    pub runs: u64,
    /// Factor on the confidence width.
    pub exploration: Option<f64>,
    /// Mean regret.
    pub regret_mean: Option<f64>,
    /// Its standard error.
    pub regret_stderr: Option<f64>,
    /// Mean regret of a random choice.
    pub regret_random: Option<f64>,
    /// Mean reward per person.
    pub reward_mean: f64,
    /// Its standard error. From run to run where runs are independent; runs on one log are not, and
    /// there it is that of a single run.
    pub reward_stderr: Option<f64>,
    /// Mean of |theta - theta*| of the last models, over the runs where it is known.
    pub theta_error: Option<f64>,
    /// Share of these runs whose last width covered theta*.
    pub coverage: Option<f64>,
    /// Proved about one report on the wire.
    #[serde(rename = "epsilon_local")]
    pub epsilon_local_certified: Option<f64>,
    /// Proved about releases and models.
    #[serde(rename = "epsilon_central")]
    pub epsilon_central_certified: Option<f64>,
    /// Delta of both.
    pub delta: Option<f64>,
    /// Whether they are proved for the very mechanism that ran.
    pub certified: bool,
    /// Mean noise of the final sums.
    pub noise_std: Option<f64>,
    /// Mean number of batches.
    pub batches: f64,
    /// Mean number of models.
    pub model_versions: f64,
    /// Mean share of pads in released batches; none where they close by count.
    pub padding: Option<f64>,
    /// Mean share of people whose report its round had no room for; none where batches close by
    /// count.
    pub surplus: Option<f64>,
    /// Mean share of people whose report was never sent; none if nobody's.
    pub dropped: Option<f64>,
    /// Mean reward of the people whose report was sent; none if everyone's was.
    pub reward_sent: Option<f64>,
    /// Regret over that of another algorithm, if one was named.
    pub ratio: Option<Ratio>,
    /// Speed of one core.
    pub rounds_per_second: f64,
}

/// One mean regret over another, over the same seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The other algorithm.
    pub against: String,
    /// Of the means.
    pub ratio: f64,
    /// Upper end of a one-sided 95% confidence interval: bootstrap over seeds; none below ten runs.
    pub upper: Option<f64>,
}

impl SummaryRow {
    /// From the rows of one line; none without rows.
    pub(super) fn new(rows: &[Row], seconds: f64) -> Option<Self> {
        let first = rows.first()?;
        let numbers =
            |pick: fn(&Row) -> Option<f64>| rows.iter().filter_map(pick).collect::<Vec<f64>>();
        let average = |pick| mean(&numbers(pick));
        let people: u64 = rows.iter().map(|row| row.people).sum();
        let dropped: u64 = rows.iter().map(|row| row.dropped).sum();
        Some(Self {
            algorithm: first.algorithm.clone(),
            variant: first.variant.clone(),
            setting: first.setting(),
            runs: rows.len() as u64,
            exploration: first.exploration,
            regret_mean: average(|row| row.regret),
            regret_stderr: standard_error(&numbers(|row| row.regret)),
            regret_random: average(|row| row.regret_random),
            reward_mean: rows.iter().map(|row| row.reward).sum::<f64>() / people as f64,
            reward_stderr: reward_stderr(rows),
            theta_error: average(|row| row.theta_error),
            coverage: average(|row| row.covered.map(|covered| f64::from(u8::from(covered)))),
            epsilon_local_certified: first.epsilon_local_certified,
            epsilon_central_certified: first.epsilon_central_certified,
            delta: first.delta,
            certified: first.certified,
            noise_std: average(|row| row.noise_std),
            batches: rows.iter().map(|row| row.batches).sum::<u64>() as f64 / rows.len() as f64,
            model_versions: rows.iter().map(|row| row.model_versions).sum::<u64>() as f64
                / rows.len() as f64,
            padding: average(Row::padding),
            surplus: average(Row::surplus_share),
            dropped: (dropped > 0).then(|| dropped as f64 / people as f64),
            reward_sent: (0 < dropped && dropped < people).then(|| {
                let sent: f64 = rows.iter().map(|row| row.reward_sent).sum();
                sent / (people - dropped) as f64
            }),
            ratio: None,
            rounds_per_second: people as f64 / seconds,
        })
    }
}

/// See [`SummaryRow::reward_stderr`].
fn reward_stderr(rows: &[Row]) -> Option<f64> {
    let independent = rows.iter().all(|row| row.regret.is_some());
    let means: Vec<f64> = rows.iter().map(|row| row.reward / row.people as f64).collect();
    let own: Vec<f64> = rows.iter().filter_map(|row| row.reward_stderr).collect();
    standard_error(&means).filter(|_| independent).or_else(|| mean(&own))
}

/// Fills in the ratios: each line against the same variant of the other algorithm (or its only one)
/// in the same setting.
pub(super) fn compare(summary: &mut [SummaryRow], rows: &[Row], against: Option<&str>) {
    let Some(against) = against else {
        return;
    };
    let regrets = |algorithm: &str, variant: &str, setting: &Setting| -> Vec<f64> {
        let fits = |row: &&Row| {
            row.algorithm == algorithm && row.variant == variant && row.setting() == *setting
        };
        rows.iter().filter(fits).filter_map(|row| row.regret).collect()
    };
    for line in summary {
        let own = regrets(&line.algorithm, &line.variant, &line.setting);
        let mut other = regrets(against, &line.variant, &line.setting);
        if other.is_empty() {
            other = regrets(against, "default", &line.setting);
        }
        line.ratio = ratio(&own, &other).map(|(ratio, upper)| Ratio {
            against: against.into(),
            ratio,
            upper,
        });
    }
}
