use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::{
    Contexts, Environment, EnvironmentError, Person, Signal, check_arms, check_dimension,
    draw::{draw_features, mean_reward, uniform},
    drift::Drift,
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
///
/// Knobs: another law of z, another [`Signal`], and a direction w that drifts.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// (1, w)/sqrt 2 of the first person.
    start: Vec<f64>,
    signal: Signal,
    drift: Option<Drift>,
    /// The parameter of the current person.
    theta: Vec<f64>,
    arms: u32,
    rewards: Rewards,
    contexts: Contexts,
    /// What the arms of the current person have in common.
    common: Vec<f64>,
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
        let mut start = vec![0.0; dimension];
        draw_features(&mut start, &mut rng);
        let (theta, signal, drift) = (start.clone(), Signal::default(), None);
        let (contexts, common) = (Contexts::Sphere, vec![0.0; dimension - 1]);
        let means = Vec::new();
        Ok(Self { start, signal, drift, theta, arms, rewards, contexts, common, means, rng })
    }

    /// Features of another law.
    #[must_use]
    pub fn with_contexts(self, contexts: Contexts) -> Self {
        Self { contexts, ..self }
    }

    /// Other mean rewards.
    #[must_use]
    pub fn with_signal(mut self, signal: Signal) -> Self {
        self.signal = signal;
        self.theta.clone_from(&self.start);
        signal.scale(&mut self.theta);
        self
    }

    /// The direction w turns by `angle` (radians, 0 to 1000) along a great circle over `horizon`
    /// people, and then stays. Where it turns to is drawn now, so this comes before the first
    /// person; an angle of 0 draws nothing.
    pub fn with_drift(mut self, angle: f64, horizon: u64) -> Result<Self, EnvironmentError> {
        self.drift = match angle {
            0.0 => None,
            _ => Some(Drift::new(&self.start, angle, horizon, &mut self.rng)?),
        };
        Ok(self)
    }

    /// The parameter of the current person (of the first one, before anybody came).
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }
}

impl Environment for Synthetic {
    fn dimension(&self) -> usize {
        self.theta.len()
    }

    fn next_person(&mut self, person: &mut Person) {
        if let Some(drift) = &mut self.drift {
            drift.advance(&self.start, &mut self.theta);
            self.signal.scale(&mut self.theta);
        }
        person.arms.resize(self.theta.len() * self.arms as usize, 0.0);
        self.means.clear();
        self.contexts.draw_common(&mut self.common, &mut self.rng);
        for arm in person.arms.chunks_exact_mut(self.theta.len()) {
            self.contexts.draw(&self.common, arm, &mut self.rng);
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
