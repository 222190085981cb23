use libm::pow;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{
    Environment, EnvironmentError, Person, Rewards, Signal, check_arms, check_dimension,
    draw::{draw_features, mean_reward, uniform},
};

/// Everybody chooses among the same arms, drawn once from the seed: features (1, z)/sqrt 2 with z
/// uniform in the unit ball. The hidden parameter is that of [`Synthetic`](super::Synthetic), so
/// the mean reward is 1/2 + <z, w>/2, or that of another [`Signal`].
///
/// # Reference
/// In the style of the simulations of Chowdhury and Zhou, "Shuffle Private Linear Contextual
/// Bandits" (ICML 2022).
///
/// # Deviation
/// One of the entries is a constant, so that every mean is from 0 to 1. The usual size here is 100
/// arms of dimension 5.
#[derive(Debug, Clone)]
pub struct FixedArms {
    theta: Vec<f64>,
    person: Person,
    rewards: Rewards,
    rng: ChaCha8Rng,
}

impl FixedArms {
    /// `arms` arms, the same for all; everything random comes from `seed`.
    pub fn new(
        dimension: u32,
        arms: u32,
        rewards: Rewards,
        seed: u64,
    ) -> Result<Self, EnvironmentError> {
        let dimension = check_dimension(dimension)?;
        let arms = check_arms(arms)? as usize;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut theta = vec![0.0; dimension];
        draw_features(&mut theta, &mut rng);
        let mut person = Person { arms: vec![0.0; dimension * arms], means: Vec::new() };
        for arm in person.arms.chunks_exact_mut(dimension) {
            draw_features(arm, &mut rng);
            // A radius with P(radius <= r) = r^(d - 1) makes z uniform in its ball.
            let radius = pow(uniform(&mut rng), 1.0 / (dimension - 1) as f64);
            arm[1..].iter_mut().for_each(|entry| *entry *= radius);
            person.means.push(mean_reward(&theta, arm));
        }
        Ok(Self { theta, person, rewards, rng })
    }

    /// Other mean rewards than the usual ones.
    #[must_use]
    pub fn with_signal(mut self, signal: Signal) -> Self {
        signal.scale(&mut self.theta);
        let arms = self.person.arms.chunks_exact(self.theta.len());
        self.person.means = arms.map(|arm| mean_reward(&self.theta, arm)).collect();
        self
    }

    /// The parameter to be learned.
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }
}

impl Environment for FixedArms {
    fn dimension(&self) -> usize {
        self.theta.len()
    }

    fn next_person(&mut self, person: &mut Person) {
        person.arms.clone_from(&self.person.arms);
        person.means.clone_from(&self.person.means);
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        let mean = *self.person.means.get(arm)?;
        Some(self.rewards.draw(mean, &mut self.rng))
    }

    fn parameter(&self) -> Option<&[f64]> {
        Some(&self.theta)
    }
}
