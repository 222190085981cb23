//! Which schedule learns faster, by the bandit's own widths.

use incrowd_bandit::{forecast, released_noise};
use incrowd_protocol::{Blocks, Learner, LearnerConfig, TaskConfig};
use libm::{cos, sqrt};

use crate::{
    PlanError,
    regret::{HALF_TURN, Reports, random_regret},
};

/// Rounds are looked at in steps of this factor.
const STEP: f64 = 1.02;
/// Picked among 2, 3, 4 and 6; see [`rank`].
const ANGLE: f64 = 3.0;

/// A number that is smaller for a schedule that learns faster: about the regret of the whole
/// schedule on the problem of `incrowd demo`.
///
/// Choices are random until the first model. A model made from t reports points in a direction that
/// is off by an angle, tan(angle) = 3 h d/(L t), where h is the size of the noise: the bandit's own
/// noise size of the moment, with half of its square replaced by that of the Gram matrix (the same
/// for bits), and the rewards' noise. It costs each person the share 1 - cos(angle) of a random
/// choice's regret, `random`. Where tastes change, what was learned is old as well: see
/// [`crate::predicted_regret`], which is what a reader is told.
pub fn rank(
    task: &TaskConfig,
    random: f64,
    users_per_day: Option<f64>,
    half_life: Option<f64>,
) -> Result<f64, PlanError> {
    let schedule = task.mechanism().schedule();
    let discount = task.learner().config().discount;
    let reports = Reports { schedule, users_per_day };
    let last = schedule.last_round();
    let mut round = 1;
    let mut before = reports.until(round);
    let mut rank = random * before;
    while round < last {
        let share = lost_share(task, round, reports.weight(round, discount))?;
        let old = half_life.map_or(1.0, |half_life| {
            cos((HALF_TURN * reports.age(round, discount) / half_life).min(2.0 * HALF_TURN))
        });
        let next = ((f64::from(round) * STEP) as u32).max(round + 1).min(last);
        let after = reports.until(next);
        rank += (1.0 - (1.0 - share) * old) * random * (after - before);
        (round, before) = (next, after);
    }
    Ok(rank)
}

/// 1 - cos(angle) after a round.
fn lost_share(task: &TaskConfig, round: u32, reports: f64) -> Result<f64, PlanError> {
    let mechanism = task.mechanism();
    let bound = mechanism.context_bound();
    let Some(moment) = forecast(task, round, None)?.moment_noise else {
        // The paper's mode keeps it inside the width; the noise itself is the same in every mode.
        return lost_share(&calibrated(task)?, round, reports);
    };
    let noise = released_noise(task, round);
    let moment = moment * sqrt(f64::midpoint(1.0, noise.gram_variance / noise.moment_variance));
    let reward = task.learner().config().reward_noise;
    let blocks = mechanism.blocks();
    // Every slot learns from its own people only.
    let people = reports / blocks.slots().max(1) as f64;
    Ok(lost_to(moment / bound, reward, blocks.features(), people))
}

/// 1 - cos(angle) with a moment whose noise is of size `moment`, for L = 1.
fn lost_to(moment: f64, reward_noise: f64, dimension: usize, reports: f64) -> f64 {
    let noise = sqrt(moment * moment + reward_noise * reward_noise * reports);
    let tangent = ANGLE * noise * dimension as f64 / reports;
    1.0 - 1.0 / sqrt(1.0 + tangent * tangent)
}

/// The same for another algorithm: `models` tells for each model how many people came
/// before it and the size of the noise in its moment (L = 1), in order. For choosing the batches of
/// the algorithms that incrowd is compared with like its own.
pub fn rank_with(
    blocks: Blocks,
    horizon: f64,
    models: impl IntoIterator<Item = (f64, f64)>,
) -> f64 {
    let random = random_regret(blocks);
    let slots = blocks.slots().max(1) as f64;
    let reward_noise = LearnerConfig::default().reward_noise;
    let (mut before, mut share, mut regret) = (0.0, 1.0, 0.0);
    for (people, noise) in models {
        regret += share * random * (people.min(horizon) - before);
        before = people.min(horizon);
        share = lost_to(noise, reward_noise, blocks.features(), people / slots);
    }
    regret + share * random * (horizon - before)
}

fn calibrated(task: &TaskConfig) -> Result<TaskConfig, PlanError> {
    Ok(TaskConfig::new(task.mechanism().clone(), Learner::default(), *task.policy())?)
}
