//! Several releases, each of which is no easier to tell apart than two Gaussians or than the
//! answers of randomized response: composed by their privacy profiles. Proof:
//! `docs/privacy-proofs.md`, section 6.3.

use libm::{exp, expm1};

use crate::{
    gaussian::{delta_upper, epsilon_upper},
    numeric::{Ends, Pmf, Upper, bisect, relative, slack},
};

/// Points on each side of zero, fewer for many releases: a convolution takes time quadratic in its
/// length.
const POINTS: u32 = 1500;
/// Points of all releases together, on each side.
const ALL_POINTS: u32 = 6000;
/// Share of delta that losses beyond the last point may cost.
const BEYOND: f64 = 1e-3;
/// How far above the smallest epsilon the search may stop, relatively.
const SEARCH: f64 = 1e-9;

/// What every release is compared with: the worse of the two at each level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worse {
    /// Two Gaussians at this distance.
    pub mu: f64,
    /// Randomized response with this epsilon.
    pub response: f64,
}

impl Worse {
    /// At least the hockey-stick divergence at e^loss.
    fn divergence(self, loss: f64) -> f64 {
        let gaussian = if self.mu == 0.0 {
            (-expm1(loss)).max(0.0)
        } else if loss >= 0.0 {
            delta_upper(self.mu, loss).value()
        } else {
            // Both pairs are symmetric: H(E) = 1 - E + E H(1/E).
            -expm1(loss) + exp(loss) * delta_upper(self.mu, -loss).value()
        };
        let lie = 1.0 / (1.0 + exp(self.response));
        let response = if loss >= self.response {
            0.0
        } else if loss <= -self.response {
            -expm1(loss)
        } else {
            1.0 - lie - exp(loss) * lie
        };
        gaussian.max(response)
    }

    /// At least the epsilon of `times` releases at `delta`; none if there are too many. Which of
    /// the two the next one is compared with may depend on the ones before, so that the first one
    /// is either and all others are the worse of both at every level.
    pub fn epsilon_upper(self, times: u32, delta: f64) -> Option<f64> {
        let points = POINTS.min(ALL_POINTS / times);
        if points < 100 || !(delta > 0.0 && self.mu > 0.0 && self.response > 0.0) {
            return None;
        }
        let far = epsilon_upper(self.mu, BEYOND * delta / f64::from(times));
        let on_grid = |worse| Discrete::new(worse, points, far.max(self.response));
        let any = on_grid(self);
        let firsts = [Self { response: 0.0, ..self }, Self { mu: 0.0, ..self }].map(on_grid);
        // A release that tells all, in any of them.
        let (first, second) = (firsts[0].infinite, firsts[1].infinite);
        let spent = Upper::of(f64::from(times) * any.infinite.max(first).max(second));
        let left = delta - spent.value();
        let sums =
            firsts.map(|first| (1..times).fold(first.masses, |sum, _| sum.convolve(&any.masses)));
        let lowest = -f64::from(times) * f64::from(points);
        let is_enough = |epsilon: f64| {
            let of = |(i, mass): (usize, &f64)| {
                let loss = (lowest + i as f64) * any.step;
                if loss > epsilon { mass * -expm1(epsilon - loss) } else { 0.0 }
            };
            let divergence = |sum: &Pmf| Upper::of(sum.values.iter().enumerate().map(of).sum());
            sums.iter().all(|sum| divergence(sum).is_at_most(left))
        };
        let most = -lowest * any.step;
        if !is_enough(most) {
            return None;
        }
        if is_enough(0.0) {
            return Some(0.0);
        }
        Some(bisect(Ends { holds: most, fails: 0.0 }, relative(SEARCH), is_enough).holds)
    }
}

/// A pair of laws on a grid of losses whose divergence is at least another one's at every level:
/// that of the polygon through its values at the grid, which is convex and so lies above it.
struct Discrete {
    /// Distance of two losses; the middle one is zero.
    step: f64,
    /// Masses of the first law.
    masses: Pmf,
    /// Its mass where the second law has none.
    infinite: f64,
}

impl Discrete {
    fn new(worse: Worse, points: u32, most: f64) -> Self {
        let step = most / f64::from(points);
        let losses: Vec<f64> =
            (0..=2 * points).map(|i| (f64::from(i) - f64::from(points)) * step).collect();
        let heights: Vec<f64> = losses.iter().map(|&loss| worse.divergence(loss)).collect();
        // Slopes in E: from E = 0, where the divergence is 1, and flat beyond the last point.
        let mut slopes = vec![(heights[0] - 1.0) / exp(losses[0])];
        for (loss, pair) in losses.iter().zip(heights.windows(2)) {
            slopes.push((pair[1] - pair[0]) / (exp(*loss) * expm1(step)));
        }
        slopes.push(0.0);
        let mass = |(loss, pair): (&f64, &[f64])| exp(*loss) * (pair[1] - pair[0]).max(0.0);
        let values: Vec<f64> = losses.iter().zip(slopes.windows(2)).map(mass).collect();
        // Rounding may have lowered it: what is missing anywhere is added to what tells all.
        let infinite = heights[heights.len() - 1];
        let (mut above, mut above_second) = (0.0, 0.0);
        let mut missing = 0f64;
        for ((loss, mass), height) in losses.iter().zip(&values).zip(&heights).rev() {
            let found = above - exp(*loss) * above_second + infinite;
            missing = missing.max(height - found);
            above += mass;
            above_second += mass * exp(-loss);
        }
        missing = missing.max(1.0 - above - infinite);
        let rounding = slack::DIFFERENCE * f64::from(points);
        Self { step, masses: Pmf { values }, infinite: infinite + missing + rounding }
    }
}
