use incrowd_protocol::Layout;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{
    Contexts, Environment, EnvironmentError, Person, Rewards, Signal, check_arms, check_dimension,
    draw::{draw_features, mean_reward},
};

/// One context for all actions, which each action uses in its own way.
///
/// A person has features (1, z)/sqrt 2, z uniform on the unit sphere, the same for every action;
/// action a has a hidden direction w_a, and its mean reward is 1/2 + <z, w_a>/2. With `shared`
/// features there is also y, uniform on a sphere and drawn for each action, with one direction v
/// for all: features ((1, z)/sqrt 2, y)/sqrt 2 and a mean reward of 1/2 + (<z, w_a> + <y, v>)/4.
///
/// Knobs: another law of z, another [`Signal`].
#[derive(Debug, Clone)]
pub struct PerAction {
    /// The parameter of each action; the last `shared` entries are equal.
    thetas: Vec<Vec<f64>>,
    shared: usize,
    rewards: Rewards,
    contexts: Contexts,
    common: Vec<f64>,
    means: Vec<f64>,
    rng: ChaCha8Rng,
}

impl PerAction {
    /// `arms` actions with `dimension` features, `shared` of them with one weight for all; anything
    /// random comes from `seed`.
    pub fn new(
        dimension: u32,
        shared: u32,
        arms: u32,
        rewards: Rewards,
        seed: u64,
    ) -> Result<Self, EnvironmentError> {
        let arms = check_arms(arms)?;
        let own = check_own(dimension, shared)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut drawn = |length: usize| {
            let mut features = vec![0.0; length];
            draw_features(&mut features, &mut rng);
            features
        };
        let mut thetas: Vec<Vec<f64>> = (0..arms).map(|_| drawn(own)).collect();
        if shared > 0 {
            // Without the constant.
            let direction = drawn(shared as usize + 1).split_off(1);
            for theta in &mut thetas {
                theta[0] *= std::f64::consts::SQRT_2;
                let halved = |entry: &mut f64| *entry *= std::f64::consts::FRAC_1_SQRT_2;
                theta[1..].iter_mut().for_each(halved);
                theta.extend(direction.iter().map(|entry| entry / 2.0));
            }
        }
        let common = vec![0.0; own - 1];
        let (shared, contexts, means) = (shared as usize, Contexts::Sphere, Vec::new());
        Ok(Self { thetas, shared, rewards, contexts, common, means, rng })
    }

    /// Features z of another law.
    #[must_use]
    pub fn with_contexts(self, contexts: Contexts) -> Self {
        Self { contexts, ..self }
    }

    /// Other mean rewards.
    #[must_use]
    pub fn with_signal(mut self, signal: Signal) -> Self {
        self.thetas.iter_mut().for_each(|theta| signal.scale(theta));
        self
    }
}

/// Room for a constant and a direction beside the shared features.
pub(super) fn check_own(dimension: u32, shared: u32) -> Result<usize, EnvironmentError> {
    check_dimension(dimension)?;
    match dimension.checked_sub(shared) {
        Some(own) if own >= 2 => Ok(own as usize),
        _ => Err(EnvironmentError::Shared { shared, dimension }),
    }
}

impl Environment for PerAction {
    fn dimension(&self) -> usize {
        self.common.len() + 1 + self.shared
    }

    fn layout(&self) -> Layout {
        layout(self.thetas.len() as u32, self.shared as u32)
    }

    fn next_person(&mut self, person: &mut Person) {
        let (d, own) = (self.dimension(), self.common.len() + 1);
        person.arms.resize(d * self.thetas.len(), 0.0);
        self.contexts.draw_common(&mut self.common, &mut self.rng);
        let mut context = vec![0.0; own];
        self.contexts.draw(&self.common, &mut context, &mut self.rng);
        let mut action = vec![0.0; self.shared + 1];
        self.means.clear();
        for (arm, theta) in person.arms.chunks_exact_mut(d).zip(&self.thetas) {
            arm[..own].copy_from_slice(&context);
            if self.shared > 0 {
                let halved = |entry: &mut f64| *entry *= std::f64::consts::FRAC_1_SQRT_2;
                arm[..own].iter_mut().for_each(halved);
                // (1, y)/sqrt 2 without its constant is y/sqrt 2.
                draw_features(&mut action, &mut self.rng);
                arm[own..].copy_from_slice(&action[1..]);
            }
            self.means.push(mean_reward(theta, arm));
        }
        person.means.clone_from(&self.means);
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        let mean = *self.means.get(arm)?;
        Some(self.rewards.draw(mean, &mut self.rng))
    }
}

/// A slot for each action.
pub(super) fn layout(slots: u32, shared: u32) -> Layout {
    if shared == 0 { Layout::PerAction { slots } } else { Layout::Hybrid { slots, shared } }
}
