//! PrivUnitG. Proof: the module's own text.

use incrowd_privacy::{
    PrivacyError,
    numeric::{
        slack,
        special::{normal_density, normal_quantile},
    },
};
use incrowd_protocol::{Blocks, CoordinateKind, Dimension};
use libm::{exp, log, log1p};

use super::{Baseline, BaselineError};

/// Share of the statistic's squared norm that the moment may have, in 256ths: a half.
pub const MOMENT_WEIGHT: u32 = 128;
/// Smallest chance of a side: below it quantiles are not computed.
const LEAST: f64 = 1e-290;
/// Largest epsilon that is calibrated for.
const MOST_EPSILON: f64 = 500.0;
/// Splits that are tried before the best is refined.
const GRID: u32 = 400;

/// What a person sends for a unit vector z: a vector g that is standard normal across z, and along
/// it a standard normal variable y conditioned on y >= t with probability 1 - `outside`, on y < t
/// otherwise, where P(y >= t) = `above` without conditions.
///
/// The density of g is that of a standard normal vector, whatever z is, times (1-o)/a where
/// <g, z> >= t and o/(1-a) elsewhere. So the densities for two vectors z differ by at most the
/// ratio of these: epsilon = ln((1-o)/o) + ln((1-a)/a), exactly, in every dimension.
///
/// # Reference
/// Asi, Feldman, Talwar 2022, *Optimal algorithms for mean estimation under local differential
/// privacy*, PrivUnitG. They write p = 1 - `outside`, q = 1 - `above`, gamma = t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrivUnit {
    outside: f64,
    above: f64,
}

impl PrivUnit {
    /// Both chances must be at most 1/2, so that vectors point along z rather than away from it.
    pub fn new(outside: f64, above: f64) -> Result<Self, BaselineError> {
        for (what, value) in [("outside", outside), ("above", above)] {
            if !(LEAST..=0.5).contains(&value) {
                return Err(BaselineError::Side { what, value });
            }
        }
        Ok(Self { outside, above })
    }

    /// The split with the largest gain among those that are certified for `epsilon_local`.
    pub fn with_largest_gain(epsilon_local: f64) -> Result<Self, BaselineError> {
        if !(epsilon_local > 0.0 && epsilon_local <= MOST_EPSILON) {
            return Err(PrivacyError::EpsilonCentral(epsilon_local).into());
        }
        // Rounding must not bring the certificate above what was asked for.
        let epsilon = epsilon_local / (1.0 + 2.0 * slack::ROUNDING) - 2.0 * slack::ROUNDING;
        let epsilon = epsilon.max(0.0);
        let split = |share: f64| Self {
            outside: chance(epsilon * (1.0 - share)),
            above: chance(epsilon * share),
        };
        let gain = |share: f64| split(share).gain();
        let best = (0..=GRID).map(|i| f64::from(i) / f64::from(GRID));
        let best = best.max_by(|a, b| gain(*a).total_cmp(&gain(*b))).unwrap_or(0.5);
        let step = 1.0 / f64::from(GRID);
        let (mut low, mut high) = ((best - step).max(0.0), (best + step).min(1.0));
        for _ in 0..60 {
            let third = (high - low) / 3.0;
            if gain(low + third) < gain(high - third) { low += third } else { high -= third }
        }
        let PrivUnit { outside, above } = split(f64::midpoint(low, high));
        Self::new(outside, above)
    }

    /// Epsilon of what one person sends, at delta = 0.
    pub fn epsilon_upper(&self) -> f64 {
        let ratio = |chance: f64| log1p(-chance) - log(chance);
        let epsilon = ratio(self.outside) + ratio(self.above);
        epsilon * (1.0 + slack::ROUNDING) + slack::ROUNDING
    }

    /// Where the two sides meet (t).
    pub fn threshold(&self) -> f64 {
        normal_quantile(self.above)
    }

    /// Mean of y: that of g is this times z.
    pub fn gain(&self) -> f64 {
        let Self { outside: o, above: a } = *self;
        normal_density(self.threshold()) * ((1.0 - o) / a - o / (1.0 - a))
    }

    /// Variance of y. Across z it is 1.
    pub fn variance_along(&self) -> f64 {
        // E[y^2; y >= t] = a + t phi(t), so that E[y^2] = 1 + t gain.
        let gain = self.gain();
        1.0 + self.threshold() * gain - gain * gain
    }

    /// Upper bounds on the variances of one report's estimate g / gain over the scale of each
    /// entry: of the moment, and of the Gram matrix off its diagonal; on it twice as much.
    pub fn variances(&self, moment_weight: u32) -> (f64, f64) {
        let weight = f64::from(moment_weight) / 256.0;
        let variance = self.variance_along().max(1.0) / (self.gain() * self.gain());
        (variance / weight, variance / (2.0 * (1.0 - weight)))
    }

    /// y, from two uniform variables on [0, 1).
    pub fn component(&self, side: f64, place: f64) -> f64 {
        let Self { outside, above } = *self;
        // The tail at y is uniform on either side of that at t.
        let is_above = side >= outside;
        let tail =
            if is_above { above * (1.0 - place) } else { above + (1.0 - above) * (1.0 - place) };
        let tail = tail.clamp(LEAST, 1.0 - 1e-16);
        if tail <= 0.5 { normal_quantile(tail) } else { -normal_quantile(1.0 - tail) }
    }
}

/// The chance c <= 1/2 with ln((1-c)/c) = `log_odds`.
fn chance(log_odds: f64) -> f64 {
    1.0 / (1.0 + exp(log_odds))
}

/// The local PrivUnitG with the largest gain that is certified for `epsilon_local`.
pub fn local_privunit(dimension: u32, epsilon_local: f64) -> Result<Baseline, BaselineError> {
    Dimension::new(dimension)?;
    let PrivUnit { outside, above } = PrivUnit::with_largest_gain(epsilon_local)?;
    let moment_weight = MOMENT_WEIGHT;
    Ok(Baseline::LocalPrivUnit { dimension, outside, above, moment_weight })
}

/// What the values (r u, lower triangle of u u' row by row) are multiplied with to become z, as for
/// codebook reports.
pub(crate) fn statistic_scales(blocks: Blocks, moment_weight: u32) -> Vec<f64> {
    let weight = f64::from(moment_weight) / 256.0;
    let square = |kind| match kind {
        CoordinateKind::Moment => weight,
        CoordinateKind::Square => 1.0 - weight,
        CoordinateKind::Product => 2.0 * (1.0 - weight),
    };
    blocks.kinds().into_iter().map(square).map(libm::sqrt).collect()
}
