use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::{
    Environment, EnvironmentError, Person, check_arms, check_dimension,
    draw::{draw_features, mean_reward, uniform},
};

/// The law of a reward with a given mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rewards {
    /// 1 with the probability of the mean, else 0.
    #[default]
    Bernoulli,
    /// Uniform on the widest interval inside [0, 1] that has this mean as its middle.
    Bounded,
}

impl Rewards {
    /// A reward.
    pub fn draw<R: Rng>(self, mean: f64, rng: &mut R) -> f64 {
        let uniform = uniform(rng);
        match self {
            Self::Bernoulli => f64::from(u8::from(uniform < mean)),
            Self::Bounded => mean + (2.0 * uniform - 1.0) * mean.min(1.0 - mean),
        }
    }
}

/// The demo problem: features (1, z)/sqrt 2 with z uniform on the unit sphere, a hidden direction
/// w, and a mean reward of 1/2 + <z, w>/2. So |x| = 1 = L, |theta*| = 1 = S, and every mean from 0
/// to 1 occurs.
#[derive(Debug, Clone)]
pub struct Synthetic {
    theta: Vec<f64>,
    arms: u32,
    rewards: Rewards,
    means: Vec<f64>,
    rng: ChaCha8Rng,
}

impl Synthetic {
    /// `arms` arms per person; everything random comes from `seed`.
    pub fn new(
        dimension: u32,
        arms: u32,
        rewards: Rewards,
        seed: u64,
    ) -> Result<Self, EnvironmentError> {
        let dimension = check_dimension(dimension)?;
        let arms = check_arms(arms)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut theta = vec![0.0; dimension];
        draw_features(&mut theta, &mut rng);
        Ok(Self { theta, arms, rewards, means: Vec::new(), rng })
    }

    /// The parameter to be learned.
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }
}

impl Environment for Synthetic {
    fn dimension(&self) -> usize {
        self.theta.len()
    }

    fn next_person(&mut self, person: &mut Person) {
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
