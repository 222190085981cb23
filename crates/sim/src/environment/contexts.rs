use libm::{pow, sqrt};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use super::draw::{direction, index, uniform};

/// Share of the variance that correlated arms have in common.
const COMMON: f64 = 0.8;
/// A radius of the heavy tail is cut here, and everything divided by it.
const LARGEST_RADIUS: f64 = 10.0;

/// The law of an arm's features z, before the constant is put in front: |z| <= 1 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contexts {
    /// Uniform on the unit sphere.
    #[default]
    Sphere,
    /// One entry is 1, each with the same probability, the others are 0: categories. Several arms
    /// of a person may be in the same one.
    OneHot,
    /// The arms of a person look alike: z is the direction of sqrt(0.8) g + sqrt(0.2) h with g, h
    /// normal, g one for all arms of the person and h one for each.
    Correlated,
    /// The direction of (g_1, g_2/2, g_3/3, ...) with g normal: the later an entry, the less of it
    /// is seen.
    Anisotropic,
    /// A uniform direction with the length min(R, 10)/10, P(R > r) = 1/r^2 for r >= 1: most people
    /// have 0.1 to 0.2 of the length that the bound must leave room for, one in a hundred all.
    HeavyTailed,
}

impl Contexts {
    /// Every law.
    pub const ALL: [Self; 5] =
        [Self::Sphere, Self::OneHot, Self::Correlated, Self::Anisotropic, Self::HeavyTailed];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sphere => "sphere",
            Self::OneHot => "one-hot",
            Self::Correlated => "correlated",
            Self::Anisotropic => "anisotropic",
            Self::HeavyTailed => "heavy-tailed",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_sphere(&self) -> bool {
        *self == Self::Sphere
    }

    /// What the arms of the next person have in common, into `common`.
    pub(super) fn draw_common(self, common: &mut [f64], rng: &mut ChaCha8Rng) {
        if self == Self::Correlated {
            common.iter_mut().for_each(|entry| *entry = StandardNormal.sample(rng));
        }
    }

    /// (1, z)/sqrt 2. `common` has the length of z and is from [`Self::draw_common`].
    pub(super) fn draw(self, common: &[f64], target: &mut [f64], rng: &mut ChaCha8Rng) {
        match self {
            Self::Sphere => direction(target, rng, |_, normal| normal),
            Self::OneHot => {
                target.fill(0.0);
                let category = index(rng, target.len() - 1);
                target[0] = std::f64::consts::FRAC_1_SQRT_2;
                target[1 + category] = std::f64::consts::FRAC_1_SQRT_2;
            }
            Self::Correlated => {
                let (shared, own) = (sqrt(COMMON), sqrt(1.0 - COMMON));
                direction(target, rng, |entry, normal| shared * common[entry] + own * normal);
            }
            Self::Anisotropic => {
                direction(target, rng, |entry, normal| normal / (1 + entry) as f64);
            }
            Self::HeavyTailed => {
                direction(target, rng, |_, normal| normal);
                // 1 - uniform is never 0.
                let radius = pow(1.0 - uniform(rng), -0.5).min(LARGEST_RADIUS);
                target[1..].iter_mut().for_each(|entry| *entry *= radius / LARGEST_RADIUS);
            }
        }
    }
}
