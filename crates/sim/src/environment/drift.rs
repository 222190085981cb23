use std::f64::consts::FRAC_1_SQRT_2;

use libm::sincos;
use rand_chacha::ChaCha8Rng;

use super::{EnvironmentError, check_horizon, draw::draw_features};

/// Tastes change: the hidden direction w moves along a great circle.
///
/// Person t = 0, 1, ... meets w(t) = cos(phi) u + sin(phi) v with phi = angle t/horizon and u, v
/// orthonormal. After `horizon` people w stays where it is.
#[derive(Debug, Clone)]
pub(super) struct Drift {
    /// (0, v)/sqrt 2.
    side: Vec<f64>,
    angle: f64,
    horizon: u64,
    came: u64,
}

impl Drift {
    /// `start` is (1, u)/sqrt 2; v is drawn.
    pub fn new(
        start: &[f64],
        angle: f64,
        horizon: u64,
        rng: &mut ChaCha8Rng,
    ) -> Result<Self, EnvironmentError> {
        if start.len() < 3 {
            return Err(EnvironmentError::DriftDimension(start.len() as u32));
        }
        let (angle, horizon) = (check_angle(angle)?, check_horizon(horizon)?);
        Ok(Self { side: draw_orthogonal(start, rng), angle, horizon, came: 0 })
    }

    /// Turns `theta` to the direction of the next person.
    pub fn advance(&mut self, start: &[f64], theta: &mut [f64]) {
        let (sin, cos) = sincos(self.angle * (self.came as f64 / self.horizon as f64));
        for ((theta, start), side) in theta.iter_mut().zip(start).zip(&self.side).skip(1) {
            *theta = cos * start + sin * side;
        }
        theta[0] = start[0];
        self.came = self.horizon.min(self.came + 1);
    }
}

/// An angle.
pub(super) fn check_angle(angle: f64) -> Result<f64, EnvironmentError> {
    if (0.0..=1000.0).contains(&angle) { Ok(angle) } else { Err(EnvironmentError::Drift(angle)) }
}

/// (0, v)/sqrt 2 for a random unit vector v that is orthogonal to the direction of `start`.
fn draw_orthogonal(start: &[f64], rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut side = vec![0.0; start.len()];
    loop {
        draw_features(&mut side, rng);
        side[0] = 0.0;
        // Both directions have the square 1/2. A second pass removes what rounding left.
        for _ in 0..2 {
            let product: f64 = side.iter().zip(start).map(|(v, u)| v * u).sum();
            side[1..].iter_mut().zip(&start[1..]).for_each(|(v, u)| *v -= 2.0 * product * u);
        }
        let norm = side.iter().map(|v| v * v).sum::<f64>().sqrt();
        // Almost parallel draws would leave rounding errors only.
        if norm > 1e-6 {
            side.iter_mut().for_each(|v| *v *= FRAC_1_SQRT_2 / norm);
            return side;
        }
    }
}
