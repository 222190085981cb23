//! How noisy the sums of the first rounds are; known in advance from the schedule.

use incrowd_protocol::{BitsLaw, CodebookLaw, Law, Mechanism, QUANTISATION, STEPS};
use libm::sqrt;

use crate::codebook::{WordMoments, bias};

/// The noise of all debiased sums together, for L = 1.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Noise {
    /// Reports (t).
    pub reports: f64,
    pub moment: MomentNoise,
    pub gram: GramNoise,
}

/// The noise of the moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MomentNoise {
    /// s^2: variance proxy in every direction.
    pub proxy: f64,
    /// v^2: upper bound on the variance of an entry, at most `proxy`.
    pub variance: f64,
    /// Largest bias of an entry.
    pub bias: f64,
}

/// The noise of the Gram matrix, as a sum of up to three matrix martingales.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GramNoise {
    /// Variance proxy of a matrix of independent entries, divided by d.
    pub proxy: f64,
    /// Variance proxy of the part along the people's own statistics.
    pub along: f64,
    /// Variance proxy of the rounding of words, divided by d.
    pub rounding: f64,
    /// Upper bound on the variance of an off-diagonal entry.
    pub variance: f64,
    /// Largest bias of an entry.
    pub bias: f64,
}

impl Noise {
    /// After so many releases.
    pub fn after(mechanism: &Mechanism, round: u32) -> Self {
        let mut noise = Self::default();
        let mut left = round;
        for stage in mechanism.schedule().stages() {
            let rounds = stage.rounds.min(left);
            left -= rounds;
            let reports = f64::from(rounds) * f64::from(stage.size);
            noise.reports += reports;
            match stage.law {
                Law::Bits(law) => noise.add_bits(reports, law),
                Law::Codebook(law) => noise.add_words(reports, law, mechanism.dimension()),
            }
        }
        noise
    }

    fn add_bits(&mut self, reports: f64, BitsLaw { bits, flip }: BitsLaw) {
        let keep = flip.keep();
        let proxy = reports / (f64::from(bits) * keep * keep);
        let variance = reports * report_variance(bits, keep);
        let bias = reports * QUANTISATION / keep;
        self.moment.proxy += proxy;
        self.moment.variance += variance;
        self.moment.bias += bias;
        self.gram.proxy += proxy;
        self.gram.variance += variance;
        self.gram.bias += bias;
    }

    /// `docs/confidence.md`, Codebook reports.
    fn add_words(&mut self, reports: f64, law: CodebookLaw, dimension: usize) {
        let moments = WordMoments::of(law);
        let variance = moments.entry_variance();
        let d = dimension as f64;
        let weight = f64::from(law.moment_weight) / 256.0;
        let square = moments.gain * moments.gain;
        let step = 1.0 / f64::from(STEPS);
        // Rounding adds a uniform variable, whose proxy is its variance.
        let rounded = 1.0 + step / sqrt(12.0);
        let bias = reports * bias(incrowd_protocol::coordinates(dimension)) / moments.gain;
        self.moment.proxy +=
            reports * moments.proxy_along.max(1.0) * rounded * rounded / (weight * square);
        self.moment.variance += reports * (variance / weight);
        self.moment.bias += bias / sqrt(weight);
        // Entries of variance 1 on the diagonal and 1/2 off it: the squares add up to (d + 1)/2.
        let gram = reports / ((1.0 - weight) * square) * (d + 1.0) / (2.0 * d);
        self.gram.proxy += gram;
        self.gram.rounding += gram * step * step / 12.0;
        // The word along the statistic, and the normal variable that takes its place above.
        self.gram.along += reports * (1.0 + moments.proxy_along) / square;
        // Off the diagonal; on it twice as much.
        self.gram.variance += reports * (variance / (2.0 * (1.0 - weight)));
        self.gram.bias += bias / sqrt(1.0 - weight);
    }
}

/// Upper bound on the variance of one report's debiased coordinate, for L = 1: (1 - c^2 (1 -
/// 1/m))/(m c^2).
///
/// Before they are flipped all but one of the m bits are sure, so their coins have variance (1 -
/// c^2)/4; the last one's has at most 1/4.
pub fn report_variance(bits: u32, keep: f64) -> f64 {
    let (m, square) = (f64::from(bits), keep * keep);
    (1.0 - square * (1.0 - 1.0 / m)) / (m * square)
}

/// Upper bounds on the variances, after `round` releases, of an entry of the debiased moment and of
/// an off-diagonal one of the Gram matrix, in units of L and L^2.
pub fn noise_variances(mechanism: &Mechanism, round: u32) -> (f64, f64) {
    let noise = Noise::after(mechanism, round);
    (noise.moment.variance, noise.gram.variance)
}
