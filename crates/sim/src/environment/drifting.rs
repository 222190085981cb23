use std::f64::consts::FRAC_1_SQRT_2;

use libm::sincos;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{
    Environment, EnvironmentError, Person, Rewards, check_arms, check_horizon,
    draw::{draw_features, mean_reward},
};

/// Tastes change: people as in [`Synthetic`](super::Synthetic), but the hidden direction w moves
/// along a great circle.
///
/// Person t = 0, 1, ... meets w(t) = cos(phi) u + sin(phi) v with phi = turn t/horizon and u, v
/// orthonormal, drawn from the seed. After `horizon` people w stays where it is. theta* = (1,
/// w)/sqrt 2 has norm 1 all the time, so only its staying the same is violated.
#[derive(Debug, Clone)]
pub struct Drifting {
    start: Vec<f64>,
    side: Vec<f64>,
    theta: Vec<f64>,
    turn: f64,
    horizon: u64,
    came: u64,
    arms: u32,
    rewards: Rewards,
    means: Vec<f64>,
    rng: ChaCha8Rng,
}

impl Drifting {
    /// `arms` arms per person, an angle of `turn` radians over `horizon` people; everything random
    /// comes from `seed`.
    pub fn new(
        dimension: u32,
        arms: u32,
        rewards: Rewards,
        turn: f64,
        horizon: u64,
        seed: u64,
    ) -> Result<Self, EnvironmentError> {
        if !(3..=1000).contains(&dimension) {
            return Err(EnvironmentError::DriftingDimension(dimension));
        }
        let arms = check_arms(arms)?;
        let turn = check_turn(turn)?;
        let horizon = check_horizon(horizon)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut start = vec![0.0; dimension as usize];
        draw_features(&mut start, &mut rng);
        let side = draw_orthogonal(&start, &mut rng);
        let theta = start.clone();
        let (came, means) = (0, Vec::new());
        Ok(Self { start, side, theta, turn, horizon, came, arms, rewards, means, rng })
    }

    /// The parameter of the current person (of the first one, before anybody came).
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }
}

impl Environment for Drifting {
    fn dimension(&self) -> usize {
        self.theta.len()
    }

    fn next_person(&mut self, person: &mut Person) {
        let (sin, cos) = sincos(self.turn * (self.came as f64 / self.horizon as f64));
        for ((theta, start), side) in self.theta.iter_mut().zip(&self.start).zip(&self.side).skip(1)
        {
            *theta = cos * start + sin * side;
        }
        self.came = self.horizon.min(self.came + 1);
        person.arms.resize(self.theta.len() * self.arms as usize, 0.0);
        self.means.clear();
        for arm in person.arms.chunks_exact_mut(self.theta.len()) {
            draw_features(arm, &mut self.rng);
            self.means.push(mean_reward(&self.theta, arm));
        }
        person.means.clone_from(&self.means);
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        let mean = *self.means.get(arm)?;
        Some(self.rewards.draw(mean, &mut self.rng))
    }
}

/// An angle.
pub(super) fn check_turn(turn: f64) -> Result<f64, EnvironmentError> {
    if (0.0..=1000.0).contains(&turn) { Ok(turn) } else { Err(EnvironmentError::Turn(turn)) }
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
