use incrowd_device::Score;
use incrowd_protocol::Model;
use libm::sqrt;

use super::{Examples, PublicDataError, examples::Outcome};

/// How well a frozen prior does on rows that it was not made from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HeldOut {
    /// Parts of the rows, each held out once.
    pub folds: usize,
    /// Where devices take the action with the largest estimate; none if no row of a log has such an
    /// action.
    pub estimate: Option<MeanReward>,
    /// Where each action is as likely.
    pub uniform: MeanReward,
    /// Where the best action of each row is taken; unknown in a log.
    pub best: Option<MeanReward>,
}

/// A mean reward and its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanReward {
    /// The mean.
    pub mean: f64,
    /// Its standard error, given the model.
    pub standard_error: f64,
    /// Rows that count.
    pub rows: usize,
}

/// A model that is made once and never learns.
pub(super) struct Frozen(pub(super) Model);

/// Rewards with weights.
#[derive(Default)]
struct Rewards(Vec<(f64, f64)>);

impl Rewards {
    fn add(&mut self, weight: f64, reward: f64) {
        if weight > 0.0 {
            self.0.push((weight, reward));
        }
    }

    /// Sum of w r over sum of w: in a log with w = 1/propensity this is the self-normalised
    /// inverse propensity estimate.
    fn mean(&self) -> Option<MeanReward> {
        let total: f64 = self.0.iter().map(|(weight, _)| weight).sum();
        if self.0.is_empty() {
            return None;
        }
        let mean = self.0.iter().map(|(weight, reward)| weight * reward).sum::<f64>() / total;
        let square = |(weight, reward): &(f64, f64)| (weight * (reward - mean)).powi(2);
        let standard_error = sqrt(self.0.iter().map(square).sum::<f64>()) / total;
        Some(MeanReward { mean, standard_error, rows: self.0.len() })
    }
}

pub(super) fn measure(
    examples: &Examples<'_>,
    fold_of: &[usize],
    frozen: &[Frozen],
) -> Result<HeldOut, PublicDataError> {
    let [mut estimate, mut uniform, mut best] = [(); 3].map(|()| Rewards::default());
    for (row, &fold) in fold_of.iter().enumerate() {
        let features = examples.features(row, None)?;
        let score = |(action, features): (usize, &Vec<f64>)| {
            Score::of(&frozen[fold].0, examples.arm(action, features))
                .expect("invariant: the model is one for these features")
        };
        let scores: Vec<Score> = features.iter().enumerate().map(score).collect();
        let by_mean = shares(scores.iter().map(|score| score.mean));
        match examples.outcome(row)? {
            Some(Outcome::All(rewards)) => {
                let of = |shares: &[f64]| -> f64 {
                    shares.iter().zip(&rewards).map(|(share, reward)| share * reward).sum()
                };
                estimate.add(1.0, of(&by_mean));
                uniform.add(1.0, rewards.iter().sum::<f64>() / rewards.len() as f64);
                best.add(1.0, rewards.iter().copied().fold(0.0, f64::max));
            }
            Some(Outcome::Logged { action, reward, propensity }) => {
                let weight = 1.0 / propensity.unwrap_or(1.0);
                estimate.add(weight * by_mean[action], reward);
                uniform.add(weight, reward);
            }
            None => {}
        }
    }
    Ok(HeldOut {
        folds: frozen.len(),
        estimate: estimate.mean(),
        uniform: uniform.mean().ok_or_else(|| PublicDataError::NoRewards(examples.place()))?,
        best: best.mean(),
    })
}

/// 1 for the largest score, or equal shares for equals: a device draws lots among them.
fn shares(scores: impl Iterator<Item = f64>) -> Vec<f64> {
    let scores: Vec<f64> = scores.collect();
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let equals = scores.iter().filter(|&&score| score >= highest).count() as f64;
    scores.iter().map(|&score| if score >= highest { 1.0 / equals } else { 0.0 }).collect()
}
