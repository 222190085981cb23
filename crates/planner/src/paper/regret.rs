//! The paper's regret bounds, as printed.

use incrowd_privacy::PrivacyError;
use incrowd_protocol::{Delta, Dimension};
use libm::{log, log1p, pow, sqrt};

use super::{Randomizer, Target, check_epsilon_at_most_one, outside};

/// What Thm 2 needs beyond randomizer and target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Learning {
    /// L.
    pub context_bound: f64,
    /// S.
    pub parameter_bound: f64,
    /// lambda.
    pub ridge: f64,
    /// eta.
    pub growth: f64,
    /// delta, the probability that the bound fails.
    pub failure_probability: f64,
}

/// Which of the two cases of Thm 2 applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegretCase {
    /// p^2 (1-p) is small: the batch size comes from p.
    Flip,
    /// The batch size comes from epsilon.
    Epsilon,
}

/// Thm 2 as printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regret {
    /// Which case.
    pub case: RegretCase,
    /// The printed bound; its constants are not to be trusted.
    pub regret: f64,
}

/// The regret bound as printed. Its constants are not to be trusted: the determinant argument does
/// not hold for noisy matrices (slip 8) and the elliptical term lacks sqrt(2d) and the logarithms
/// of the width (slip 9). Say so wherever the number is shown.
///
/// # Reference
/// Garcelon et al. 2021, Thm 2. Printed for epsilon_0 < 1, which Cor. 2, derived from it, leaves;
/// only epsilon is checked here.
pub fn theorem_2(
    randomizer: Randomizer,
    target: Target,
    learning: Learning,
) -> Result<Regret, PrivacyError> {
    randomizer.check()?;
    target.check()?;
    learning.check()?;
    check_epsilon_at_most_one("Thm 2", target.epsilon_central)?;
    // [GCPP21] Thm 2: T = horizon, delta_0 = delta.
    let (d, m, p) = (f64::from(randomizer.dimension.get()), randomizer.bits(), randomizer.flip);
    let (t, epsilon) = (target.horizon as f64, target.epsilon_central);
    let ln_8 = log(8.0 * m * t / target.delta);
    let edge =
        7.0 * epsilon / (sqrt(t) * 64.0 * sqrt(2.0 * log(2.0 * t / target.delta)) * d * (d + 1.0));
    let models = learning.models(d, p, t);
    let scale = m * learning.context_bound / sqrt(learning.ridge) * models;
    let (case, batches) = if p * p * (1.0 - p) <= edge {
        (RegretCase::Flip, d * scale * 14.0 * ln_8 / (p * p))
    } else {
        let size = sqrt(t) * (1.0 - p) / epsilon;
        (RegretCase::Epsilon, 264.0 * sqrt(2.0) * pow(d, 3.0) * pow(ln_8, 1.5) * scale * size)
    };
    let width = 2.0 * sqrt(3.0) * (learning.parameter_bound + m * d) * pow(t, 0.75);
    let optimism = (1.0 + learning.growth) * log(1.0 + t / (d * learning.ridge));
    Ok(Regret { case, regret: width / sqrt(1.0 - p) * sqrt(optimism) + batches })
}

/// The regret bound of the algorithm that updates at every batch, as printed: 2 beta sqrt(10 T/M)
/// ln(T+1) (sqrt(M d) + d sqrt(T/M)) with the last width beta. Like Thm 2 it rests on matrices
/// without noise (slip 8).
///
/// # Reference
/// Garcelon et al. 2021, appendix on scheduled updates (FixedBatchedShuffling-LinUCB).
pub fn fixed_schedule_regret(
    confidence_width: f64,
    horizon: u64,
    batches: u64,
    dimension: Dimension,
) -> f64 {
    // [GCPP21] beta_M = confidence_width, T = horizon, M = batches.
    let (t, m, d) = (horizon as f64, batches as f64, f64::from(dimension.get()));
    2.0 * confidence_width * sqrt(10.0 * t / m) * log1p(t) * (sqrt(m * d) + d * sqrt(t / m))
}

impl Learning {
    fn check(&self) -> Result<(), PrivacyError> {
        Delta::new(self.failure_probability)?;
        let positive = [
            ("L", self.context_bound),
            ("S", self.parameter_bound),
            ("lambda", self.ridge),
            ("eta", self.growth),
        ];
        for (name, value) in positive {
            if !(value > 0.0 && value.is_finite()) {
                return Err(outside(
                    "Thm 2",
                    format!("{name} = {value} is not above 0 and finite"),
                ));
            }
        }
        Ok(())
    }

    /// The printed factor 1 + d^{3/2} ln(...)^{3/2}/ln(1+eta).
    fn models(&self, d: f64, p: f64, t: f64) -> f64 {
        let noise = 16.0 * sqrt(t) * log(2.0 * t / self.failure_probability) / (1.0 - p);
        let inner = log(self.context_bound * self.context_bound * t / d + noise);
        1.0 + pow(d, 1.5) * pow(inner, 1.5) / log(1.0 + self.growth)
    }
}
