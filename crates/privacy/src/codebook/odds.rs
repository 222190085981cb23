//! The numbers of a codebook law that every bound is made of.

use incrowd_protocol::{CodebookLaw, OutsideProbability};
use libm::{exp, log, log1p};

use crate::numeric::up;

/// How likely a word is to be sent, relative to a word picked blindly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Odds {
    /// N.
    pub words: u32,
    /// k.
    pub chosen: u32,
    /// a = p N/k: for a chosen word.
    pub inside: f64,
    /// gamma = (1-p) N/(N-k): for every other word, and the chance that a report is blind.
    pub blind: f64,
    /// The cosine of the statistics of two people is at least minus this.
    pub kappa: f64,
}

impl Odds {
    pub fn new(words: u32, chosen: u32, inside: f64, outside: f64, weight: f64) -> Self {
        let (n, k) = (f64::from(words), f64::from(chosen));
        Self {
            words,
            chosen,
            inside: inside * n / k,
            blind: outside * n / (n - k),
            kappa: kappa(weight),
        }
    }

    pub fn of(law: CodebookLaw) -> Self {
        let CodebookLaw { words, chosen, outside, moment_weight } = law;
        let weight = f64::from(moment_weight) / 256.0;
        Self::new(words, chosen, outside.keep(), outside.value(), weight)
    }

    /// a - gamma.
    pub fn gain(&self) -> f64 {
        self.inside - self.blind
    }

    /// k/N.
    pub fn share(&self) -> f64 {
        f64::from(self.chosen) / f64::from(self.words)
    }

    /// At least the squared distance of what two people add to the drift of a sum, for a drift of
    /// one: 2 - 2 cos of their statistics, or 1 where one of them is a blind word.
    pub fn squares(&self) -> f64 {
        2.0 + 2.0 * self.kappa
    }
}

/// The smallest cosine of two lifted statistics is at least -kappa: w r r' t + (1-w) t^2 for a
/// cosine t of the contexts is smallest at t = -w/(2(1-w)), or at t = -1.
fn kappa(weight: f64) -> f64 {
    // Statistics in floats are off by far less than this.
    const ROUNDING: f64 = 1e-9;
    let kappa = if weight <= 2.0 / 3.0 {
        weight * weight / (4.0 * (1.0 - weight))
    } else {
        2.0 * weight - 1.0
    };
    kappa + ROUNDING
}

/// The local epsilon of one report, ln(p (N-k)/((1-p) k)), rounded up: from integers alone, and
/// whatever rule picks the k words. Zero where the chosen words are no likelier than the others.
///
/// # Privacy
/// Protects one report against whoever reads it, its seed included.
pub fn local_epsilon(words: u32, chosen: u32, outside: OutsideProbability) -> f64 {
    let [o, of] = [outside.numerator(), outside.denominator()].map(u64::from);
    let [inside, other] = [(of - o) * u64::from(words - chosen), o * u64::from(chosen)];
    // Products below 2^41 are floats.
    let excess = inside.saturating_sub(other) as f64;
    up(log1p(excess / other as f64))
}

/// The largest chance p of a chosen word whose local epsilon is at most `epsilon_local`, as a
/// float: 1 - p as a fraction is to be rounded up.
pub fn largest_inside(words: u32, chosen: u32, epsilon_local: f64) -> f64 {
    let (n, k) = (f64::from(words), f64::from(chosen));
    // A little less than e^eps0 allows: certificates are rounded up.
    let odds = exp(epsilon_local * (1.0 - 1e-8)) * k / (n - k);
    (1.0 / (1.0 + 1.0 / odds)).min(1.0 - 1e-9)
}

/// The same epsilon for a float.
pub(crate) fn approx_local(odds: &Odds) -> f64 {
    log(odds.inside / odds.blind).max(0.0)
}
