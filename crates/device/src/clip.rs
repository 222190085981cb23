//! Bringing a context and a reward into their range, always.

use incrowd_protocol::Mechanism;
use thiserror::Error;

/// Norms this little above the bound are rounding, not mistakes: (1 + 1e-9)^2.
const NORM_TOLERANCE: f64 = 1.000_000_002;

/// What was wrong with an input. The report was made all the same.
///
/// # Privacy
/// The message holds no context and no reward. A device that stayed silent on bad values would tell
/// something about them, and move every later batch boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// The report is pure noise.
    #[error("the context must have {0} entries; an empty report was sent")]
    Dimension(usize),
    /// The report is pure noise.
    #[error("context and reward must be finite numbers; an empty report was sent")]
    NotFinite,
    /// The report is pure noise.
    #[error("the slot must be below {0}; an empty report was sent")]
    Slot(usize),
    /// The context was scaled onto the ball.
    #[error("the norm of the context is above the bound; it was scaled down")]
    Norm,
    /// The reward was clipped.
    #[error("the reward must be from 0 to 1; it was clipped")]
    Reward,
}

impl InputProblem {
    /// What a report of this context will find wrong with it, while the application can still be
    /// told.
    pub fn of(context: &[f64], mechanism: &Mechanism) -> Option<Self> {
        let mut unit = vec![0.0; mechanism.dimension()];
        bound(context, 0.0, mechanism.context_bound(), &mut unit).1
    }
}

/// Writes u = x / L, brought into the unit ball, to `unit`; gives the reward, brought into [0, 1],
/// and the first problem.
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
    unit.copy_from_slice(context);
    // Skip the no-op division for L = 1: it is a third of this function's run time.
    if context_bound.to_bits() != 1f64.to_bits() {
        unit.iter_mut().for_each(|u| *u /= context_bound);
    }
    let square = squared_norm(unit);
    if square <= 1.0 && (0.0..=1.0).contains(&reward) {
        return (reward, None);
    }
    if !(reward.is_finite() && unit.iter().all(|u| u.is_finite())) {
        unit.fill(0.0);
        return (0.0, Some(InputProblem::NotFinite));
    }
    if square > 1.0 {
        let largest = unit.iter().fold(0.0, |largest: f64, u| largest.max(u.abs()));
        unit.iter_mut().for_each(|u| *u /= largest);
        let norm = squared_norm(unit).sqrt();
        unit.iter_mut().for_each(|u| *u /= norm);
    }
    let problem = if square > NORM_TOLERANCE {
        Some(InputProblem::Norm)
    } else {
        (!(0.0..=1.0).contains(&reward)).then_some(InputProblem::Reward)
    };
    (reward.clamp(0.0, 1.0), problem)
}

/// (u_1^2 + u_3^2 + ...) + (u_2^2 + u_4^2 + ...), in this order.
fn squared_norm(unit: &[f64]) -> f64 {
    let (pairs, last) = unit.as_chunks::<2>();
    let [mut odd, even] =
        pairs.iter().fold([0.0, 0.0], |[odd, even], [a, b]| [odd + a * a, even + b * b]);
    if let [u] = last {
        odd += u * u;
    }
    odd + even
}
