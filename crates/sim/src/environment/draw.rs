//! Random numbers that several places need.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

/// A generator of its own for each purpose of a run. The environment may have the same seed, so it
/// has stream 0 for itself.
pub(crate) fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}

/// A uniform number in [0, 1), of 53 bits.
pub(crate) fn uniform<R: Rng>(rng: &mut R) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A number below `count`, each with the same probability up to count/2^64.
pub(crate) fn index<R: Rng>(rng: &mut R, count: usize) -> usize {
    ((u128::from(rng.next_u64()) * count as u128) >> 64) as usize
}

/// <theta, x>, inside [0, 1] whatever floats do.
pub(super) fn mean_reward(theta: &[f64], arm: &[f64]) -> f64 {
    let product: f64 = theta.iter().zip(arm).map(|(t, x)| t * x).sum();
    product.clamp(0.0, 1.0)
}

/// (1, z)/sqrt 2, z uniform on the unit sphere.
pub(super) fn draw_features(target: &mut [f64], rng: &mut ChaCha8Rng) {
    direction(target, rng, |_, normal| normal);
}

/// (1, z)/sqrt 2, z the direction of the vector whose entries `entry` makes of their index and a
/// normal number; drawn again should they all be 0.
pub(super) fn direction(
    target: &mut [f64],
    rng: &mut ChaCha8Rng,
    entry: impl Fn(usize, f64) -> f64,
) {
    loop {
        let mut square = 0.0;
        for (index, target) in target[1..].iter_mut().enumerate() {
            *target = entry(index, StandardNormal.sample(rng));
            square += *target * *target;
        }
        if square > 0.0 {
            let scale = (2.0 * square).sqrt();
            target[1..].iter_mut().for_each(|entry| *entry /= scale);
            target[0] = std::f64::consts::FRAC_1_SQRT_2;
            return;
        }
    }
}
