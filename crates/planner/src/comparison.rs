//! Plans that measure instead of learn: how far apart two mean rewards are.

use incrowd_bandit::comparison_half_width;
use incrowd_protocol::{ComparisonSlot, TaskConfig};

use crate::{PlanError, regret::Reports};

/// Confidence of the interval that plans are about.
pub const CONFIDENCE: f64 = 0.95;

/// The task with the names of its slots.
pub fn named(task: TaskConfig) -> Result<TaskConfig, PlanError> {
    Ok(task.with_actions(ComparisonSlot::actions())?)
}

/// How far from the difference the ends of its interval will be at the end; people come at
/// `users_per_day`, or fill every batch.
pub fn half_width(task: &TaskConfig, users_per_day: Option<f64>) -> Result<f64, PlanError> {
    let schedule = task.mechanism().schedule();
    let people = Reports { schedule, users_per_day }.until(schedule.last_round());
    Ok(comparison_half_width(task, people, CONFIDENCE)?)
}
