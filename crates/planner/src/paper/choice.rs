//! The parameters that the paper's corollaries and remark choose.

use incrowd_privacy::PrivacyError;
use incrowd_protocol::{Bits, Dimension};
use libm::{exp, expm1, log, pow, sqrt};

use super::{Randomizer, Target, check_horizon, outside};

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
    pub bits: Bits,
    /// The rate it claims, without constants and logarithms.
    pub regret_rate: f64,
}

/// Most local privacy: epsilon = sqrt(e^{eps0} - 1), which Thm 1 wants below 1, so that epsilon_0 <
/// ln 2.
///
/// # Reference
/// Garcelon et al. 2021, Cor. 1. The flip probability is Prop. 1's; the corollary's rate uses that
/// of a single bit (slip 12).
pub fn corollary_1(
    dimension: Dimension,
    bits: Bits,
    horizon: u64,
    epsilon_local: f64,
) -> Result<Choice, PrivacyError> {
    check_horizon(horizon)?;
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

/// Least regret: p = 1 - eps^{2/3} T^{1/6}, m = 1 (and eta = 0.5, lambda = sqrt(T)); the rate is
/// T^{2/3}/eps^{1/3}.
///
/// # Reference
/// Garcelon et al. 2021, Cor. 2, which needs eps <= 1/(27 T^{1/4}); the caption of Table 1 has the
/// opposite direction (slip 2).
pub fn corollary_2(
    dimension: Dimension,
    horizon: u64,
    epsilon_central: f64,
) -> Result<Choice, PrivacyError> {
    Target { horizon, epsilon_central, delta: 0.5 }.check()?;
    let t = horizon as f64;
    let largest = 1.0 / (27.0 * pow(t, 0.25));
    if epsilon_central > largest {
        let condition = format!("epsilon = {epsilon_central} is above 1/(27 T^(1/4)) = {largest}");
        return Err(outside("Cor. 2", condition));
    }
    let flip = 1.0 - pow(epsilon_central, 2.0 / 3.0) * pow(t, 1.0 / 6.0);
    let randomizer = Randomizer { dimension, bits: Bits::ONE, flip };
    Ok(Choice {
        epsilon_local: randomizer.epsilon_local()?,
        epsilon_central,
        flip,
        bits: Bits::ONE,
        regret_rate: pow(t, 2.0 / 3.0) / pow(epsilon_central, 1.0 / 3.0),
    })
}

/// An adversary who sees one release only: c = 1 - p = T^{3/10} eps^{4/5} balances the rate
/// T^{3/4}/sqrt(c) + c^2/eps^2, which is then T^{3/5}/eps^{2/5}.
///
/// # Reference
/// Garcelon et al. 2021, Remark 2, whose log(T)/eps^2 lacks the factor c^2 that its optimum needs
/// (slip 13).
pub fn remark_2(
    dimension: Dimension,
    horizon: u64,
    epsilon_central: f64,
) -> Result<Choice, PrivacyError> {
    Target { horizon, epsilon_central, delta: 0.5 }.check()?;
    let t = horizon as f64;
    let c = pow(t, 0.3) * pow(epsilon_central, 0.8);
    if c >= 1.0 {
        let condition = format!("1 - p = T^(3/10) epsilon^(4/5) = {c} is not below 1");
        return Err(outside("Remark 2", condition));
    }
    let randomizer = Randomizer { dimension, bits: Bits::ONE, flip: 1.0 - c };
    Ok(Choice {
        epsilon_local: randomizer.epsilon_local()?,
        epsilon_central,
        flip: 1.0 - c,
        bits: Bits::ONE,
        regret_rate: pow(t, 0.6) / pow(epsilon_central, 0.4),
    })
}

/// Remark 2's rate as printed, T^{3/4}/sqrt(1-p) + ln(T)/eps^2.
pub fn remark_2_printed_rate(flip: f64, horizon: u64, epsilon_central: f64) -> f64 {
    let t = horizon as f64;
    pow(t, 0.75) / sqrt(1.0 - flip) + log(t) / (epsilon_central * epsilon_central)
}
