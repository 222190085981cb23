//! The paper's own accounting, for reproduction and comparison. **Nothing here is a certificate.**
//!
//! Numbers are what Garcelon, Chaudhuri, Perchet, Pirotta 2021 print, with its slips
//! (`docs/paper-notes.md`) unless a name says `Repaired`. Outside the conditions a result states
//! there is an error that names the violated condition.

mod choice;
mod regret;

pub use choice::{Choice, corollary_1, corollary_2, remark_2, remark_2_printed_rate};
use incrowd_privacy::{
    PrivacyError,
    numeric::{Ends, bisect, whole},
};
use incrowd_protocol::{BatchSize, Bits, Delta, Dimension};
use libm::{expm1, log, sqrt, tanh};
pub use regret::{Learning, Regret, RegretCase, fixed_schedule_regret, theorem_2};

/// Batch sizes beyond it are not searched.
const LARGEST_BATCH: u64 = 1 << 62;

/// The randomizer: dimension d, bits m, flip probability p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Randomizer {
    /// d.
    pub dimension: Dimension,
    /// m.
    pub bits: Bits,
    /// p.
    pub flip: f64,
}

/// What is asked for: (`epsilon_central`, `delta`) over a whole horizon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// T.
    pub horizon: u64,
    /// epsilon.
    pub epsilon_central: f64,
    /// delta_0.
    pub delta: f64,
}

/// Which condition of Thm 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theorem1 {
    /// With 1 - 2p, as printed: for p > 1/2 it no longer depends on epsilon (slip 1).
    Printed,
    /// With 2 - 2p, as it follows from Prop. 3.
    Repaired,
}

/// How Prop. 3 was composed over the batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Composition {
    /// One batch covers the horizon.
    None,
    /// Epsilons and deltas add up.
    Basic,
    /// Dwork, Rothblum, Vadhan 2010, half of delta for the slack.
    Advanced,
}

/// A batch size from Prop. 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeededBatch {
    /// The smallest l.
    pub batch_size: u64,
    /// The composition that allows it.
    pub composition: Composition,
    /// Whether the horizon holds one such batch.
    pub feasible: bool,
}

impl Randomizer {
    /// The randomizer with the largest allowed `epsilon_local`.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Prop. 1: p = 2/(e^{2 eps0/(m d (d+3))} + 1).
    pub fn proposition_1(
        dimension: Dimension,
        bits: Bits,
        epsilon_local: f64,
    ) -> Result<Self, PrivacyError> {
        if !(epsilon_local > 0.0 && epsilon_local.is_finite()) {
            return Err(PrivacyError::EpsilonLocal(epsilon_local));
        }
        let d = f64::from(dimension.get());
        let flip = 1.0 - tanh(epsilon_local / (f64::from(bits.get()) * d * (d + 3.0)));
        Ok(Self { dimension, bits, flip })
    }

    /// Its local epsilon by Prop. 1: m D ln(2/p - 1).
    pub fn epsilon_local(&self) -> Result<f64, PrivacyError> {
        self.check()?;
        Ok(self.bits() * self.dd3() / 2.0 * log(2.0 / self.flip - 1.0))
    }

    fn check(&self) -> Result<(), PrivacyError> {
        if !(self.flip > 0.0 && self.flip < 1.0) {
            return Err(PrivacyError::Flip(self.flip));
        }
        Ok(())
    }

    fn bits(&self) -> f64 {
        f64::from(self.bits.get())
    }

    /// d(d+3).
    fn dd3(&self) -> f64 {
        let d = f64::from(self.dimension.get());
        d * (d + 3.0)
    }
}

impl Target {
    fn check(&self) -> Result<(), PrivacyError> {
        Delta::new(self.delta)?;
        check_horizon(self.horizon)?;
        if !(self.epsilon_central > 0.0 && self.epsilon_central.is_finite()) {
            return Err(PrivacyError::EpsilonCentral(self.epsilon_central));
        }
        Ok(())
    }
}

/// The central epsilon of one batch, without composition.
///
/// # Reference
/// Garcelon et al. 2021, Prop. 3, with "8 delta_0/m" read as 8m/delta_0. It composes D coordinates
/// and prints delta_0 for D delta_0 (slip 11).
///
/// # Deviation
/// The condition is l p >= 14 ln(8m/delta_0), Thm 1's form of it, which the argument needs; the
/// printed condition on epsilon_0 is the same for a single bit and stricter than needed otherwise.
pub fn proposition_3(
    randomizer: Randomizer,
    batch_size: u64,
    delta: f64,
) -> Result<f64, PrivacyError> {
    randomizer.check()?;
    Delta::new(delta)?;
    BatchSize::new(batch_size)?;
    // [GCPP21] Prop. 3: l = batch size, m = bits, p = flip probability.
    let (m, p, l) = (randomizer.bits(), randomizer.flip, batch_size as f64);
    let (ln_8, ln_2) = (log(8.0 * m / delta), log(2.0 * m / delta));
    if l * p < 14.0 * ln_8 {
        let bound = 14.0 * ln_8;
        return Err(outside(
            "Prop. 3",
            format!("l p = {} is below 14 ln(8m/delta) = {bound}", l * p),
        ));
    }
    let (q, q_8) = (sqrt(2.0 * p * ln_2 / l), sqrt(2.0 * p * ln_8 / l));
    let spread = sqrt(32.0 * ln_8 / (l * (p - q_8)));
    Ok(2.0 * randomizer.dd3() * sqrt(8.0 * m * ln_8) * (1.0 - (p - q)) * spread)
}

/// The epsilon of Prop. 3 over all batches of the horizon, by the best of no, basic and advanced
/// composition.
pub fn composed_proposition_3(
    randomizer: Randomizer,
    batch_size: u64,
    horizon: u64,
    delta: f64,
) -> Result<(f64, Composition), PrivacyError> {
    BatchSize::new(batch_size)?;
    if batch_size >= horizon {
        return Ok((proposition_3(randomizer, batch_size, delta)?, Composition::None));
    }
    let batches = horizon.div_ceil(batch_size) as f64;
    let basic = batches * proposition_3(randomizer, batch_size, delta / batches)?;
    let Ok(one) = proposition_3(randomizer, batch_size, delta / (2.0 * batches)) else {
        return Ok((basic, Composition::Basic));
    };
    let advanced = sqrt(2.0 * batches * log(2.0 / delta)) * one + batches * one * expm1(one);
    Ok(if advanced < basic {
        (advanced, Composition::Advanced)
    } else {
        (basic, Composition::Basic)
    })
}

/// The smallest batch size that Prop. 3 with the best composition allows; often larger than the
/// horizon, which is `feasible: false`.
pub fn batch_size_proposition_3(
    randomizer: Randomizer,
    target: Target,
) -> Result<NeededBatch, PrivacyError> {
    randomizer.check()?;
    target.check()?;
    let composed = |l| composed_proposition_3(randomizer, l, target.horizon, target.delta);
    let batch_size = smallest("Prop. 3", |l| {
        composed(l).is_ok_and(|(epsilon, _)| epsilon <= target.epsilon_central)
    })?;
    let (_, composition) = composed(batch_size)?;
    Ok(NeededBatch { batch_size, composition, feasible: batch_size <= target.horizon })
}

/// Whether Thm 1 accepts a batch size. Its epsilon must be at most 1.
///
/// # Reference
/// Garcelon et al. 2021, Thm 1, Eq. (equation_privacy_dp), and l p >= 14 ln(8mT/delta_0). Slip 1;
/// it also lacks 1/sqrt(m) and the second-order term of advanced composition, repaired or not.
pub fn theorem_1_accepts(
    randomizer: Randomizer,
    target: Target,
    batch_size: u64,
    form: Theorem1,
) -> Result<bool, PrivacyError> {
    randomizer.check()?;
    target.check()?;
    BatchSize::new(batch_size)?;
    check_epsilon_at_most_one("Thm 1", target.epsilon_central)?;
    // [GCPP21] Thm 1: l = batch size, T = horizon, delta_0 = delta, a = the fraction that is
    // squared.
    let (m, p) = (randomizer.bits(), randomizer.flip);
    let (l, t) = (batch_size as f64, target.horizon as f64);
    let (ln_8, ln_2) = (log(8.0 * m * t / target.delta), log(2.0 * m * t / target.delta));
    let root = sqrt(2.0 * t * log(2.0 * t / target.delta));
    let a = target.epsilon_central * l / (32.0 * randomizer.dd3() * ln_8 * root);
    // sqrt((2 + a^2)^2 - 4) - a^2, without the difference of two large numbers.
    let hypotenuse = sqrt(a * a + 4.0);
    let left = 4.0 * a / (hypotenuse + a);
    let constant = if form == Theorem1::Printed { 1.0 } else { 2.0 };
    Ok(l * p >= 14.0 * ln_8 && left >= constant - 2.0 * p + 2.0 * sqrt(2.0 * ln_2 / l))
}

/// The smallest batch size that Thm 1 accepts; may be larger than the horizon.
pub fn batch_size_theorem_1(
    randomizer: Randomizer,
    target: Target,
    form: Theorem1,
) -> Result<u64, PrivacyError> {
    theorem_1_accepts(randomizer, target, 1, form)?;
    smallest("Thm 1", |l| theorem_1_accepts(randomizer, target, l, form).unwrap_or(false))
}

/// An empty horizon: nobody takes part.
fn check_horizon(horizon: u64) -> Result<(), PrivacyError> {
    if horizon > 0 {
        return Ok(());
    }
    Err(outside("the paper's accounting", "horizon is 0, must be at least 1".into()))
}

/// The theorems say epsilon in (0, 1); one itself, their limit, is allowed.
fn check_epsilon_at_most_one(theorem: &'static str, epsilon: f64) -> Result<(), PrivacyError> {
    if epsilon <= 1.0 {
        return Ok(());
    }
    Err(outside(theorem, format!("epsilon = {epsilon} is above 1")))
}

fn outside(theorem: &'static str, condition: String) -> PrivacyError {
    PrivacyError::OutsideRegime { theorem, condition }
}

/// The smallest batch size at which a condition that stays true holds.
fn smallest(theorem: &'static str, holds: impl Fn(u64) -> bool) -> Result<u64, PrivacyError> {
    let mut high = 1;
    while !holds(high) {
        if high >= LARGEST_BATCH {
            return Err(outside(theorem, format!("no batch size up to {LARGEST_BATCH} does")));
        }
        high *= 2;
    }
    Ok(bisect(Ends { holds: high, fails: high / 2 }, whole, holds).holds)
}
