//! The paper's own accounting, for reproduction and comparison. **Nothing here is a certificate.**
//!
//! Numbers are what Garcelon, Chaudhuri, Perchet, Pirotta 2021 print, with its slips (`docs/paper-notes.md`) unless a
//! name says `Repaired`. Outside the conditions a result states there is an error that names the violated condition.

use libm::{exp, expm1, log, pow, sqrt, tanh};

use crate::PrivacyError;

/// Batch sizes beyond it are not searched.
const LARGEST_BATCH: u64 = 1 << 62;

/// The randomizer: dimension d, bits m, flip probability p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Randomizer {
    /// d.
    pub dimension: u32,
    /// m.
    pub bits: u32,
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
pub struct BatchSize {
    /// The smallest l.
    pub batch_size: u64,
    /// The composition that allows it.
    pub composition: Composition,
    /// Whether the horizon holds one such batch.
    pub feasible: bool,
}

/// Parameters that a corollary or remark chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// epsilon_0.
    pub epsilon_local: f64,
    /// epsilon.
    pub epsilon_central: f64,
    /// p.
    pub flip: f64,
    /// m.
    pub bits: u32,
    /// The rate it claims, without constants and logarithms.
    pub regret_rate: f64,
}

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

impl Randomizer {
    /// The randomizer with the largest allowed `epsilon_local`.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Prop. 1: p = 2/(e^{2 eps0/(m d (d+3))} + 1).
    pub fn proposition_1(
        dimension: u32,
        bits: u32,
        epsilon_local: f64,
    ) -> Result<Self, PrivacyError> {
        if !(epsilon_local > 0.0 && epsilon_local.is_finite()) {
            return Err(PrivacyError::EpsilonLocal(epsilon_local));
        }
        crate::local::check(dimension, bits, 0.5)?;
        let d = f64::from(dimension);
        let flip = 1.0 - tanh(epsilon_local / (f64::from(bits) * d * (d + 3.0)));
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
        crate::local::check(self.dimension, self.bits, 0.5)
    }

    fn bits(&self) -> f64 {
        f64::from(self.bits)
    }

    /// d(d+3).
    fn dd3(&self) -> f64 {
        let d = f64::from(self.dimension);
        d * (d + 3.0)
    }
}

impl Target {
    fn check(&self) -> Result<(), PrivacyError> {
        check_delta(self.delta)?;
        if self.horizon == 0 {
            return Err(PrivacyError::Horizon(0, 1));
        }
        if !(self.epsilon_central > 0.0 && self.epsilon_central.is_finite()) {
            return Err(PrivacyError::EpsilonCentral(self.epsilon_central));
        }
        Ok(())
    }
}

/// The central epsilon of one batch, without composition.
///
/// # Reference
/// Garcelon et al. 2021, Prop. 3, with "8 delta_0/m" read as 8m/delta_0. It composes D coordinates and prints delta_0 for D delta_0 (slip 11).
///
/// # Deviation
/// The condition is l p >= 14 ln(8m/delta_0), Thm 1's form of it, which the argument needs; the printed condition on epsilon_0 is
/// the same for a single bit and stricter than needed otherwise.
pub fn proposition_3(
    randomizer: Randomizer,
    batch_size: u64,
    delta: f64,
) -> Result<f64, PrivacyError> {
    randomizer.check()?;
    check_delta(delta)?;
    if batch_size == 0 {
        return Err(PrivacyError::BatchSize(batch_size));
    }
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

/// The epsilon of Prop. 3 over all batches of the horizon, by the best of no, basic and advanced composition.
pub fn composed_proposition_3(
    randomizer: Randomizer,
    batch_size: u64,
    horizon: u64,
    delta: f64,
) -> Result<(f64, Composition), PrivacyError> {
    if batch_size == 0 {
        return Err(PrivacyError::BatchSize(batch_size));
    }
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

/// The smallest batch size that Prop. 3 with the best composition allows; often larger than the horizon, which is `feasible: false`.
pub fn batch_size_proposition_3(
    randomizer: Randomizer,
    target: Target,
) -> Result<BatchSize, PrivacyError> {
    randomizer.check()?;
    target.check()?;
    let composed = |l| composed_proposition_3(randomizer, l, target.horizon, target.delta);
    let batch_size = smallest("Prop. 3", |l| {
        composed(l).is_ok_and(|(epsilon, _)| epsilon <= target.epsilon_central)
    })?;
    let (_, composition) = composed(batch_size)?;
    Ok(BatchSize { batch_size, composition, feasible: batch_size <= target.horizon })
}

/// Whether Thm 1 accepts a batch size. Its epsilon must be at most 1.
///
/// # Reference
/// Garcelon et al. 2021, Thm 1, Eq. (equation_privacy_dp), and l p >= 14 ln(8mT/delta_0). Slip 1; it also lacks 1/sqrt(m) and the second-order
/// term of advanced composition, repaired or not.
pub fn theorem_1_accepts(
    randomizer: Randomizer,
    target: Target,
    batch_size: u64,
    form: Theorem1,
) -> Result<bool, PrivacyError> {
    randomizer.check()?;
    target.check()?;
    if batch_size == 0 {
        return Err(PrivacyError::BatchSize(batch_size));
    }
    check_epsilon_at_most_one("Thm 1", target.epsilon_central)?;
    // [GCPP21] Thm 1: l = batch size, T = horizon, delta_0 = delta, a = the fraction that is squared.
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

/// Most local privacy: epsilon = sqrt(e^{eps0} - 1), which Thm 1 wants below 1, so that epsilon_0 < ln 2.
///
/// # Reference
/// Garcelon et al. 2021, Cor. 1. The flip probability is Prop. 1's; the corollary's rate uses that of a single bit (slip 12).
pub fn corollary_1(
    dimension: u32,
    bits: u32,
    horizon: u64,
    epsilon_local: f64,
) -> Result<Choice, PrivacyError> {
    if horizon == 0 {
        return Err(PrivacyError::Horizon(0, 1));
    }
    let flip = Randomizer::proposition_1(dimension, bits, epsilon_local)?.flip;
    let epsilon_central = sqrt(expm1(epsilon_local));
    if epsilon_central >= 1.0 {
        let condition = format!(
            "epsilon = sqrt(e^epsilon_local - 1) = {epsilon_central} is not below 1: epsilon_local = {epsilon_local} is not below ln 2"
        );
        return Err(outside("Cor. 1", condition));
    }
    let (t, e) = (horizon as f64, exp(epsilon_local));
    let regret_rate = pow(t, 0.75) * sqrt((e + 1.0) / (e - 1.0))
        + log(t) * (e + 1.0) * (e + 1.0) / 4.0
        + sqrt(t / (e - 1.0));
    Ok(Choice { epsilon_local, epsilon_central, flip, bits, regret_rate })
}

/// Least regret: p = 1 - eps^{2/3} T^{1/6}, m = 1 (and eta = 0.5, lambda = sqrt(T)); the rate is T^{2/3}/eps^{1/3}.
///
/// # Reference
/// Garcelon et al. 2021, Cor. 2, which needs eps <= 1/(27 T^{1/4}); the caption of Table 1 has the opposite direction (slip 2).
pub fn corollary_2(
    dimension: u32,
    horizon: u64,
    epsilon_central: f64,
) -> Result<Choice, PrivacyError> {
    Target { horizon, epsilon_central, delta: 0.5 }.check()?;
    crate::local::check(dimension, 1, 0.5)?;
    let t = horizon as f64;
    let largest = 1.0 / (27.0 * pow(t, 0.25));
    if epsilon_central > largest {
        let condition = format!("epsilon = {epsilon_central} is above 1/(27 T^(1/4)) = {largest}");
        return Err(outside("Cor. 2", condition));
    }
    let flip = 1.0 - pow(epsilon_central, 2.0 / 3.0) * pow(t, 1.0 / 6.0);
    let randomizer = Randomizer { dimension, bits: 1, flip };
    Ok(Choice {
        epsilon_local: randomizer.epsilon_local()?,
        epsilon_central,
        flip,
        bits: 1,
        regret_rate: pow(t, 2.0 / 3.0) / pow(epsilon_central, 1.0 / 3.0),
    })
}

/// An adversary who sees one release only: c = 1 - p = T^{3/10} eps^{4/5} balances the rate T^{3/4}/sqrt(c) + c^2/eps^2, which is
/// then T^{3/5}/eps^{2/5}.
///
/// # Reference
/// Garcelon et al. 2021, Remark 2, whose log(T)/eps^2 lacks the factor c^2 that its optimum needs (slip 13).
pub fn remark_2(
    dimension: u32,
    horizon: u64,
    epsilon_central: f64,
) -> Result<Choice, PrivacyError> {
    Target { horizon, epsilon_central, delta: 0.5 }.check()?;
    crate::local::check(dimension, 1, 0.5)?;
    let t = horizon as f64;
    let c = pow(t, 0.3) * pow(epsilon_central, 0.8);
    if c >= 1.0 {
        let condition = format!("1 - p = T^(3/10) epsilon^(4/5) = {c} is not below 1");
        return Err(outside("Remark 2", condition));
    }
    let randomizer = Randomizer { dimension, bits: 1, flip: 1.0 - c };
    Ok(Choice {
        epsilon_local: randomizer.epsilon_local()?,
        epsilon_central,
        flip: 1.0 - c,
        bits: 1,
        regret_rate: pow(t, 0.6) / pow(epsilon_central, 0.4),
    })
}

/// Remark 2's rate as printed, T^{3/4}/sqrt(1-p) + ln(T)/eps^2.
pub fn remark_2_printed_rate(flip: f64, horizon: u64, epsilon_central: f64) -> f64 {
    let t = horizon as f64;
    pow(t, 0.75) / sqrt(1.0 - flip) + log(t) / (epsilon_central * epsilon_central)
}

/// The regret bound as printed. Its constants are not to be trusted: the determinant argument does not hold for noisy matrices
/// (slip 8) and the elliptical term lacks sqrt(2d) and the logarithms of the width (slip 9). Say so wherever the number is shown.
///
/// # Reference
/// Garcelon et al. 2021, Thm 2. Printed for epsilon_0 < 1, which Cor. 2, derived from it, leaves; only epsilon is checked here.
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
    let (d, m, p) = (f64::from(randomizer.dimension), randomizer.bits(), randomizer.flip);
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

/// The regret bound of the algorithm that updates at every batch, as printed: 2 beta sqrt(10 T/M) ln(T+1) (sqrt(M d) + d sqrt(T/M)) with the last width beta.
/// Like Thm 2 it rests on matrices without noise (slip 8).
///
/// # Reference
/// Garcelon et al. 2021, appendix on scheduled updates (FixedBatchedShuffling-LinUCB).
pub fn fixed_schedule_regret(
    confidence_width: f64,
    horizon: u64,
    batches: u64,
    dimension: u32,
) -> f64 {
    // [GCPP21] beta_M = confidence_width, T = horizon, M = batches.
    let (t, m, d) = (horizon as f64, batches as f64, f64::from(dimension));
    2.0 * confidence_width * sqrt(10.0 * t / m) * libm::log1p(t) * (sqrt(m * d) + d * sqrt(t / m))
}

impl Learning {
    fn check(&self) -> Result<(), PrivacyError> {
        check_delta(self.failure_probability)?;
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

fn check_delta(delta: f64) -> Result<(), PrivacyError> {
    if delta > 0.0 && delta < 1.0 { Ok(()) } else { Err(PrivacyError::Delta(delta)) }
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
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle }
    }
    Ok(high)
}
