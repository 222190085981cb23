use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{
    Environment, EnvironmentError, Person, Rewards, Signal, check_arms, check_dimension,
    check_horizon,
    draw::{draw_features, mean_reward},
};

/// The worst order of contexts: new directions appear one after the other, the last one only near
/// the end.
///
/// Features are (1, z)/sqrt 2 with z of d - 1 entries, theta* = (1, w)/sqrt 2 with w uniform on the
/// unit sphere, the mean reward is 1/2 + <z, w>/2. The horizon of T people has d - 1 phases of
/// equal length (up to rounding). Person t = 0, 1, ... is in phase j = 1 + floor(t (d - 1)/T), at
/// most d - 1, and there z is uniform on the unit sphere of the first j entries while the others
/// are zero. So all features of phase j lie in a subspace of dimension j + 1, and whoever comes
/// after the horizon is as in [`Synthetic`](super::Synthetic). With fewer than d - 1 people some
/// phases are left out.
///
/// Another [`Signal`] gives other mean rewards, as in [`Synthetic`](super::Synthetic).
///
/// A learner that explores only in the beginning never sees most directions.
#[derive(Debug, Clone)]
pub struct Ordered {
    theta: Vec<f64>,
    horizon: u64,
    came: u64,
    arms: u32,
    rewards: Rewards,
    means: Vec<f64>,
    rng: ChaCha8Rng,
}

impl Ordered {
    /// `arms` arms per person, phases over `horizon` people; everything random comes from `seed`.
    pub fn new(
        dimension: u32,
        arms: u32,
        rewards: Rewards,
        horizon: u64,
        seed: u64,
    ) -> Result<Self, EnvironmentError> {
        let dimension = check_dimension(dimension)?;
        let arms = check_arms(arms)?;
        let horizon = check_horizon(horizon)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut theta = vec![0.0; dimension];
        draw_features(&mut theta, &mut rng);
        Ok(Self { theta, horizon, came: 0, arms, rewards, means: Vec::new(), rng })
    }

    /// Other mean rewards than the usual ones.
    #[must_use]
    pub fn with_signal(mut self, signal: Signal) -> Self {
        signal.scale(&mut self.theta);
        self
    }

    /// The parameter to be learned.
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Directions of z that the next person's features use (j).
    pub fn directions(&self) -> usize {
        let all = self.theta.len() - 1;
        let phase = u128::from(self.came) * all as u128 / u128::from(self.horizon);
        all.min(1 + phase as usize)
    }
}

impl Environment for Ordered {
    fn dimension(&self) -> usize {
        self.theta.len()
    }

    fn next_person(&mut self, person: &mut Person) {
        let directions = self.directions();
        self.came = self.horizon.min(self.came + 1);
        person.arms.resize(self.theta.len() * self.arms as usize, 0.0);
        self.means.clear();
        for arm in person.arms.chunks_exact_mut(self.theta.len()) {
            let (used, unused) = arm.split_at_mut(1 + directions);
            draw_features(used, &mut self.rng);
            unused.fill(0.0);
            self.means.push(mean_reward(&self.theta, arm));
        }
        person.means.clone_from(&self.means);
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        let mean = *self.means.get(arm)?;
        Some(self.rewards.draw(mean, &mut self.rng))
    }

    fn parameter(&self) -> Option<&[f64]> {
        Some(&self.theta)
    }
}
