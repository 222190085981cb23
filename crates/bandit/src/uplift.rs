//! What personalization is worth: the difference of two mean rewards, from released sums alone.
//! `docs/confidence.md`, Comparisons.

use incrowd_protocol::{ComparisonSlot, TaskConfig};
use libm::{erfc, sqrt};
use serde::Serialize;

use crate::{
    BanditError, Statistics,
    noise::{Counted, Noise},
};

/// Confidences that are answered.
const CONFIDENCES: std::ops::RangeInclusive<f64> = 0.5..=0.999_999;

/// What the releases of a comparison task say.
///
/// # Privacy
/// It is computed from releases, which the comparison task's own certificate covers, and from
/// nothing else.
///
/// # Reference
/// Zou, Donner 2008: limits of a difference from the limits of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Uplift {
    /// Releases that it is made from.
    pub releases: u32,
    /// Of every interval here.
    pub confidence: f64,
    /// People who got what the incumbent chose.
    pub incumbent: MeanReward,
    /// People who got what the model chose.
    pub model: MeanReward,
    /// Mean reward with the model minus that with the incumbent; none while one is not known.
    pub difference: Option<f64>,
    /// Lower end of its interval.
    pub lower: f64,
    /// Upper end of its interval.
    pub upper: f64,
}

/// The mean reward of a group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanReward {
    /// Estimate of how many reports the group sent; the noise may make it negative.
    pub reports: f64,
    /// From 0 to 1; none while the number of reports is not clearly above its noise.
    pub mean: Option<f64>,
    /// Lower end of its interval.
    pub lower: f64,
    /// Upper end of its interval.
    pub upper: f64,
}

/// What is known in advance about the sums of one group, for L = 1.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Largest variance of the noise in the sum of rewards.
    rewards: f64,
    /// Largest variance of the noise in the number of reports.
    reports: f64,
    /// Largest bias of (sum of rewards) - mu (number of reports), mu from 0 to 1.
    bias: f64,
    /// Reports of all releases, pads included.
    capacity: f64,
    /// Reports of one person at most (k).
    participations: f64,
}

impl Uplift {
    pub(crate) fn of(
        task: &TaskConfig,
        statistics: &Statistics,
        confidence: f64,
    ) -> Result<Self, BanditError> {
        check(task, confidence)?;
        let releases = statistics.round();
        if releases == 0 {
            return Err(BanditError::NoRelease);
        }
        let (sizes, deviations) = (Sizes::new(task, releases), deviations(confidence));
        let bound = task.mechanism().context_bound();
        let group = |slot: ComparisonSlot| {
            let start = task.mechanism().blocks().slot_start(slot.number() as usize);
            let (rewards, reports) = (statistics.sums()[start], statistics.sums()[start + 1]);
            sizes.mean_reward(rewards / bound, reports / (bound * bound), deviations)
        };
        let (incumbent, model) = (group(ComparisonSlot::Incumbent), group(ComparisonSlot::Model));
        let (difference, lower, upper) = difference(&incumbent, &model);
        Ok(Self { releases, confidence, incumbent, model, difference, lower, upper })
    }
}

fn check(task: &TaskConfig, confidence: f64) -> Result<(), BanditError> {
    if !task.is_comparison() {
        return Err(BanditError::NotComparison);
    }
    if !CONFIDENCES.contains(&confidence) {
        return Err(BanditError::ConfidenceLevel(confidence));
    }
    Ok(())
}

impl Sizes {
    fn new(task: &TaskConfig, releases: u32) -> Self {
        let counted = Counted { after: 0, until: releases, discount: 1.0 };
        let noise = Noise::of(task.mechanism(), 1, counted);
        Self {
            rewards: noise.moment.variance,
            reports: noise.gram.square_variance,
            bias: noise.moment.bias + noise.gram.bias,
            capacity: noise.reports,
            participations: f64::from(task.mechanism().participations().get()),
        }
    }

    /// The mean of a group from the debiased sum of its rewards and number of its reports.
    ///
    /// # Reference
    /// Fieller 1954: the limits are all mu in [0, 1] with |A - mu B| <= z s(mu) + bias.
    fn mean_reward(&self, rewards: f64, reports: f64, deviations: f64) -> MeanReward {
        // A = rewards, B = reports, z = deviations, s(mu)^2 = a + mu^2 b + k n mu (1 - mu), a and b
        // the variances of the noise: a quadratic inequality in mu.
        let (z2, error) = (deviations * deviations, deviations * sqrt(self.reports) + self.bias);
        let unknown = MeanReward { reports, mean: None, lower: 0.0, upper: 1.0 };
        if reports <= error {
            return unknown;
        }
        let people = self.participations * (reports + error).min(self.capacity);
        // Positive, because B is above z sqrt(b).
        let square = reports * reports + z2 * (people - self.reports);
        let limit = |rewards: f64, side: f64| {
            let half = rewards * reports + z2 * people / 2.0;
            let root = half * half - square * (rewards * rewards - z2 * self.rewards);
            (root >= 0.0).then(|| (half + side * sqrt(root)) / square)
        };
        match (limit(rewards - self.bias, -1.0), limit(rewards + self.bias, 1.0)) {
            (Some(lower), Some(upper)) if lower <= 1.0 && upper >= 0.0 => {
                let (lower, upper) = (lower.max(0.0), upper.min(1.0));
                let mean = Some((rewards / reports).clamp(lower, upper));
                MeanReward { reports, mean, lower, upper }
            }
            // No mean reward explains the sums: nothing is said about it.
            _ => unknown,
        }
    }
}

/// The difference of two means with its limits. Where one is not known the limits are the extremes
/// of both intervals.
fn difference(incumbent: &MeanReward, model: &MeanReward) -> (Option<f64>, f64, f64) {
    let (Some(from), Some(to)) = (incumbent.mean, model.mean) else {
        return (None, model.lower - incumbent.upper, model.upper - incumbent.lower);
    };
    let add = |a: f64, b: f64| sqrt(a * a + b * b);
    let down = add(to - model.lower, incumbent.upper - from);
    let up = add(model.upper - to, from - incumbent.lower);
    (Some(to - from), to - from - down, to - from + up)
}

/// How far from the difference the ends of its interval will be after all rounds of a comparison
/// task, if `people` report, half of them in each group, and mean rewards are near one half.
pub fn comparison_half_width(
    task: &TaskConfig,
    people: f64,
    confidence: f64,
) -> Result<f64, BanditError> {
    check(task, confidence)?;
    let sizes = Sizes::new(task, task.mechanism().schedule().last_round());
    let group = people / 2.0;
    let variance = sizes.rewards + (sizes.reports + sizes.participations * group) / 4.0;
    Ok(deviations(confidence) * sqrt(2.0 * variance) / group)
}

/// z: a standard normal variable is between -z and z with this probability.
fn deviations(confidence: f64) -> f64 {
    let outside = 1.0 - confidence;
    let (mut low, mut high) = (0.0, 8.0);
    // Halved until two neighbouring floats are left.
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if erfc(middle / std::f64::consts::SQRT_2) > outside {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}
