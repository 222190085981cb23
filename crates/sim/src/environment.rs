use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_distr::{Bernoulli, Distribution, StandardNormal};
use thiserror::Error;

/// People arriving one after the other, each with a few arms to choose from.
pub trait Environment {
    /// Number of features (d).
    fn dimension(&self) -> usize;

    /// Writes the next person's arms to `arms`, one row of features after the other.
    fn next_person(&mut self, arms: &mut Vec<f64>);

    /// Expected reward of an arm.
    fn mean_reward(&self, arm: &[f64]) -> f64;

    /// A reward, when the current person plays `arm`.
    fn draw_reward(&mut self, arm: &[f64]) -> f64;
}

/// A rule for environments that is violated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// No room for a bias and a direction.
    #[error("dimension is {0}, must be from 2 to 1000")]
    Dimension(u32),
    /// Nothing to choose.
    #[error("arms is {0}, must be from 2 to 100000")]
    Arms(u32),
}

/// The demo problem: features (1, z)/sqrt 2 with z uniform on the unit sphere, a hidden direction w, and a click (reward 1) with
/// probability 1/2 + <z, w>/2. So |x| = 1 = L, |theta*| = 1 = S, and every probability from 0 to 1 occurs.
#[derive(Debug, Clone)]
pub struct Synthetic {
    theta: Vec<f64>,
    arms: u32,
    rng: ChaCha8Rng,
}

impl Synthetic {
    /// `arms` arms per person; everything random comes from `seed`.
    pub fn new(dimension: u32, arms: u32, seed: u64) -> Result<Self, EnvironmentError> {
        if !(2..=1000).contains(&dimension) {
            return Err(EnvironmentError::Dimension(dimension));
        }
        if !(2..=100_000).contains(&arms) {
            return Err(EnvironmentError::Arms(arms));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut theta = vec![0.0; dimension as usize];
        draw_features(&mut theta, &mut rng);
        Ok(Self { theta, arms, rng })
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

    fn next_person(&mut self, arms: &mut Vec<f64>) {
        arms.resize(self.theta.len() * self.arms as usize, 0.0);
        for arm in arms.chunks_exact_mut(self.theta.len()) {
            draw_features(arm, &mut self.rng);
        }
    }

    fn mean_reward(&self, arm: &[f64]) -> f64 {
        let product: f64 = self.theta.iter().zip(arm).map(|(t, x)| t * x).sum();
        product.clamp(0.0, 1.0)
    }

    fn draw_reward(&mut self, arm: &[f64]) -> f64 {
        let click =
            Bernoulli::new(self.mean_reward(arm)).is_ok_and(|coin| coin.sample(&mut self.rng));
        f64::from(u8::from(click))
    }
}

/// (1, z)/sqrt 2, z uniform on the unit sphere.
fn draw_features(target: &mut [f64], rng: &mut ChaCha8Rng) {
    loop {
        let mut square = 0.0;
        for entry in &mut target[1..] {
            *entry = StandardNormal.sample(rng);
            square += *entry * *entry;
        }
        if square > 0.0 {
            let scale = (2.0 * square).sqrt();
            target[1..].iter_mut().for_each(|entry| *entry /= scale);
            target[0] = std::f64::consts::FRAC_1_SQRT_2;
            return;
        }
    }
}
