//! Predicted regret: what a plan will lose, and whether it will learn at all.

use incrowd_bandit::{forecast, released_noise};
use incrowd_protocol::{Blocks, Schedule, TaskConfig};
use libm::{cos, pow, sqrt};

use crate::{PlanError, timetable::DAY};

/// Rounds are looked at in steps of this factor.
const STEP: f64 = 1.02;
/// What is left of a taste after its half-life is half of it: cos(60 degrees) = 1/2.
pub(crate) const HALF_TURN: f64 = std::f64::consts::FRAC_PI_3;

/// The problem that a prediction is about.
///
/// Contexts are a constant and a direction z, uniform on a sphere; the mean reward of an action is
/// `click_rate` + `gap` <z, w>. Without slots each action has its own z and all have one w, with
/// slots there is one z and each action has its own w.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Problem {
    /// Actions to choose from, at least 2.
    pub actions: u32,
    /// Mean rewards differ from the click rate by at most this, above 0 and at most 1/2.
    pub gap: f64,
    /// Mean reward of an action that is neither good nor bad.
    pub click_rate: f64,
}

impl Problem {
    /// The usual problem of a layout: 10 actions, or one for each slot, and every mean from 0 to 1.
    pub fn of(blocks: Blocks) -> Self {
        let actions = if blocks.slots() > 0 { blocks.slots() as u32 } else { 10 };
        Self { actions, gap: 0.5, click_rate: 0.5 }
    }
}

/// What a plan loses on a problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Regret over the whole schedule.
    pub regret: f64,
    /// Regret of uniform choices.
    pub random_regret: f64,
    /// How many people have come, and which share of uniform choices' regret was lost until then:
    /// after each tenth of the schedule's rounds, and at its end.
    pub course: Vec<(f64, f64)>,
}

impl Prediction {
    /// Share of the regret of uniform choices.
    pub fn share(&self) -> f64 {
        self.regret / self.random_regret
    }
}

/// Regret over the whole schedule on a problem.
///
/// Choices are uniform until the first model. Scores of actions are right up to errors of a known
/// size: the noise of the released sums and of rewards, over what the reports say about a feature.
/// To that comes what optimism adds to some actions and not to others.
/// If rho is the correlation of true and estimated scores, the chosen action is rho times as good
/// as the best one, so the share 1 - rho of a uniform choice's regret is lost. Where tastes have a
/// half-life, what the sums say is `age` people old, and rho is multiplied by the cosine of how far
/// tastes turned since.
///
/// One constant is fitted. `docs/planning.md` compares it with simulations.
///
/// Where batches close by time the reports are those expected at `users_per_day`, the noise is that
/// of the whole capacity; without a rate every batch is full.
pub fn predicted_regret(
    task: &TaskConfig,
    users_per_day: Option<f64>,
    problem: Problem,
    half_life: Option<f64>,
) -> Result<Prediction, PlanError> {
    let schedule = task.mechanism().schedule();
    let reports = Reports { schedule, users_per_day };
    let blocks = task.mechanism().blocks();
    let random = uniform_loss(blocks, problem);
    let discount = task.learner().config().discount;
    let last = schedule.last_round();
    let mut round = 1;
    let mut before = reports.until(round);
    let mut regret = random * before;
    let mut course = vec![(before, 1.0)];
    while round < last {
        let people = reports.weight(round, discount);
        let noise = released_noise(task, round);
        let bound = task.mechanism().context_bound();
        let ellipsoid = forecast(task, round, Some(people))?;
        let bonus = bound * ellipsoid.confidence_width / sqrt(ellipsoid.smallest_eigenvalue);
        let errors = Errors {
            bonus: bonus * uneven(blocks),
            moment: noise.moment_variance,
            gram: noise.gram_variance,
            reward: task.learner().config().reward_noise / bound,
            people,
        };
        let mut right = errors.correlation(blocks, problem);
        if let Some(half_life) = half_life {
            let turned = HALF_TURN * reports.age(round, discount) / half_life;
            right *= cos(turned.min(std::f64::consts::PI));
        }
        let next = ((f64::from(round) * STEP) as u32).max(round + 1).min(last);
        let after = reports.until(next);
        regret += (1.0 - right) * random * (after - before);
        (round, before) = (next, after);
        course.push((before, regret / (random * before)));
    }
    Ok(Prediction { regret, random_regret: random * before, course })
}

/// How much the optimism of two actions differs, as a share of its size. Without slots it differs
/// only along the direction that was learned, one of n; with slots also because actions were not
/// chosen equally often. Fitted to 62 simulations, none of those that `docs/planning.md` shows.
fn uneven(blocks: Blocks) -> f64 {
    if blocks.slots() == 0 {
        let n = (blocks.shared() as f64 - 1.0).max(1.0);
        return (1.7 / n).min(0.42);
    }
    let n = (blocks.features() as f64 - 1.0).max(1.0);
    1.2 / sqrt(n) * (1.0 + 2.0 / n)
}

/// Sizes of the errors behind estimated scores, for L = 1.
struct Errors {
    /// How much optimism differs between actions.
    bonus: f64,
    /// Variance of the noise of a sum of r x.
    moment: f64,
    /// Variance of the noise of a sum of products of two features.
    gram: f64,
    /// Standard deviation of a reward.
    reward: f64,
    /// Reports that the sums are of.
    people: f64,
}

impl Errors {
    /// Correlation of true and estimated scores of an action.
    fn correlation(&self, blocks: Blocks, problem: Problem) -> f64 {
        let Problem { gap, click_rate, .. } = problem;
        let (q, s, slots) = (blocks.own() as f64, blocks.shared() as f64, blocks.slots() as f64);
        // |theta*|^2, which the noise of the Gram matrix is multiplied with.
        let square = 2.0 * (click_rate * click_rate + gap * gap);
        let noise = self.moment + square * self.gram;
        // Variance of the score of features whose squares add up to `norm`, in `number` directions
        // that each have an equal part of `norm` times the reports.
        let score = |people: f64, norm: f64, number: f64| {
            let of_each = norm * people / number;
            let rewards = self.reward * self.reward * of_each;
            norm * (noise + rewards) / (of_each * of_each)
        };
        let people = self.people / slots.max(1.0);
        let (signal, error) = match (blocks.shared(), blocks.slots()) {
            (_, 0) => {
                let n = (s - 1.0).max(1.0);
                (gap * gap / n, score(people, 0.5, n) * (n - 1.0) / n)
            }
            (0, _) => {
                let n = (q - 1.0).max(1.0);
                (gap * gap / n, score(people, 0.5, n) + score(people, 0.5, 1.0))
            }
            (_, _) => {
                let n = (q - 1.0).max(1.0);
                let signal = gap * gap / 4.0 * (1.0 / n + 1.0 / s);
                let own = score(people, 0.25, n) + score(people, 0.25, 1.0);
                (signal, own + score(self.people, 0.5, s))
            }
        };
        sqrt(signal / (signal + error + self.bonus * self.bonus))
    }
}

/// Reports of a schedule, without pads.
pub(crate) struct Reports<'a> {
    pub schedule: &'a Schedule,
    pub users_per_day: Option<f64>,
}

impl Reports<'_> {
    /// Of all rounds until this one.
    pub fn until(&self, round: u32) -> f64 {
        self.weighted(round, |_, rounds| rounds)
    }

    /// What they count for when the later ones came.
    pub fn weight(&self, round: u32, discount: f64) -> f64 {
        if discount >= 1.0 {
            return self.until(round);
        }
        self.weighted(round, |later, rounds| {
            pow(discount, later) * (1.0 - pow(discount, rounds)) / (1.0 - discount)
        })
    }

    /// How many people have come on average since a report that counts, when half of the next
    /// round's people have.
    pub fn age(&self, round: u32, discount: f64) -> f64 {
        let each = self.until(round) / f64::from(round);
        if discount >= 1.0 {
            return f64::midpoint(f64::from(round), 1.0) * each;
        }
        let n = f64::from(round);
        let left = pow(discount, n);
        // Mean of k under weights g^k, k = 0, ..., n - 1.
        let mean = discount / (1.0 - discount) - n * left / (1.0 - left);
        (mean + 1.0) * each
    }

    /// `share` gives the weight of so many rounds of a stage with so many rounds after them.
    fn weighted(&self, round: u32, share: impl Fn(f64, f64) -> f64) -> f64 {
        let mut passed = 0;
        let mut reports = 0.0;
        for stage in self.schedule.stages() {
            let rounds = stage.rounds.min(round - passed);
            passed += rounds;
            let each = match (stage.window, self.users_per_day) {
                (Some(window), Some(users)) => f64::from(window) / DAY * users,
                _ => f64::from(stage.size),
            };
            reports += share(f64::from(round - passed), f64::from(rounds)) * each;
        }
        reports
    }
}

/// Regret per person of a uniform choice on the usual problem of a layout.
pub fn random_regret(blocks: impl Into<Blocks>) -> f64 {
    let blocks = blocks.into();
    uniform_loss(blocks, Problem::of(blocks))
}

/// Regret per person of a uniform choice: the gap times the mean of the largest of as many
/// coordinates, each of the uniform law on a sphere, as there are actions.
pub fn uniform_loss(blocks: Blocks, problem: Problem) -> f64 {
    let Problem { actions, gap, .. } = problem;
    let largest = |dimension: usize| largest_coordinate(dimension, f64::from(actions));
    match (blocks.shared(), blocks.slots()) {
        (shared, 0) => gap * largest(shared),
        (0, _) => gap * largest(blocks.own()),
        // Two independent parts of half the gap, about one normal variable.
        (shared, _) => {
            let (own, common) = (largest(blocks.own()), largest(shared + 1));
            gap / 2.0 * sqrt(own * own + common * common)
        }
    }
}

/// Mean of the largest of `number` coordinates of the uniform law on the sphere in `dimension` - 1
/// dimensions.
fn largest_coordinate(dimension: usize, number: f64) -> f64 {
    if dimension <= 2 {
        // A sign.
        return 1.0 - pow(0.5, number - 1.0);
    }
    // x = sin(angle) has a density proportional to cos^(d-3)(angle) in the angle.
    let steps = 2000;
    let width = std::f64::consts::PI / f64::from(steps);
    let angle = |i: i32| (f64::from(i) + 0.5) * width - std::f64::consts::FRAC_PI_2;
    let density = |i: i32| pow(cos(angle(i)), dimension as f64 - 3.0);
    let densities: Vec<f64> = (0..steps).map(density).collect();
    let total: f64 = densities.iter().sum();
    // The chance that one coordinate, and that all of them, are below.
    let (mut below, mut all_below, mut mean) = (0.0, 0.0, 0.0);
    for (i, density) in (0..steps).zip(densities) {
        below = (below + density / total).min(1.0);
        let all = pow(below, number);
        mean += libm::sin(angle(i)) * (all - all_below);
        all_below = all;
    }
    mean
}

#[cfg(test)]
mod tests {
    use incrowd_protocol::Dimension;

    use super::*;

    /// `incrowd demo` and the project's prototype measured 0.3654 at d = 5.
    #[test]
    fn random_regret_is_the_measured_one() {
        let regret = |d| random_regret(Dimension::new(d).unwrap());
        assert!((regret(5) - 0.3654).abs() < 1e-3, "{}", regret(5));
        assert!(regret(2) > regret(3) && regret(50) > 0.0);
    }
}
