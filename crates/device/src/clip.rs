//! Bringing a context and a reward into their range, always.

use thiserror::Error;

/// Norms this little above the bound are rounding, not mistakes: (1 + 1e-9)^2.
const NORM_TOLERANCE: f64 = 1.000_000_002;

/// What was wrong with an input. The report was made all the same.
///
/// # Privacy
/// The message holds no context and no reward. A device that stayed silent on bad values would tell something about them, and move every
/// later batch boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// The report is pure noise.
    #[error("the context must have {0} entries; an empty report was sent")]
    Dimension(usize),
    /// The report is pure noise.
    #[error("context and reward must be finite numbers; an empty report was sent")]
    NotFinite,
    /// The context was scaled onto the ball.
    #[error("the norm of the context is above the bound; it was scaled down")]
    Norm,
    /// The reward was clipped.
    #[error("the reward must be from 0 to 1; it was clipped")]
    Reward,
}

/// Writes u = x / L, brought into the unit ball, to `unit`; gives the reward, brought into [0, 1], and the first problem.
pub(crate) fn bound(
    context: &[f64],
    reward: f64,
    context_bound: f64,
    unit: &mut [f64],
) -> (f64, Option<InputProblem>) {
    if context.len() != unit.len() {
        unit.fill(0.0);
        return (0.0, Some(InputProblem::Dimension(unit.len())));
    }
    for (u, x) in unit.iter_mut().zip(context) {
        *u = x / context_bound;
    }
    if !(reward.is_finite() && unit.iter().all(|u| u.is_finite())) {
        unit.fill(0.0);
        return (0.0, Some(InputProblem::NotFinite));
    }
    let square = squared_norm(unit);
    if square > 1.0 {
        let largest = unit.iter().fold(0.0, |largest: f64, u| largest.max(u.abs()));
        unit.iter_mut().for_each(|u| *u /= largest);
        let norm = squared_norm(unit).sqrt();
        unit.iter_mut().for_each(|u| *u /= norm);
    }
    let problem = if square > NORM_TOLERANCE {
        Some(InputProblem::Norm)
    } else if (0.0..=1.0).contains(&reward) {
        None
    } else {
        Some(InputProblem::Reward)
    };
    (reward.clamp(0.0, 1.0), problem)
}

fn squared_norm(unit: &[f64]) -> f64 {
    unit.iter().fold(0.0, |sum, u| sum + u * u)
}
