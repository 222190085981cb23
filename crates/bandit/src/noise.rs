//! How noisy the sums of the first rounds are; known in advance from the schedule.

use incrowd_protocol::{BitsLaw, CodebookLaw, Law, Mechanism, QUANTISATION, STEPS, TaskConfig};
use libm::{pow, sqrt};

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
    /// Upper bound on the variance of a diagonal entry.
    pub square_variance: f64,
    /// Largest bias of an entry.
    pub bias: f64,
}

/// Releases that count, and what earlier ones count for when the next one comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// Releases before the first that counts.
    pub after: u32,
    /// The newest.
    pub until: u32,
    /// At most 1.
    pub discount: f64,
}

impl Noise {
    /// Of a block of `dimension` features, from the releases that count.
    pub fn of(mechanism: &Mechanism, dimension: usize, counted: Counted) -> Self {
        let Counted { after, until, discount } = counted;
        let coordinates = mechanism.coordinates();
        let mut noise = Self::default();
        let mut passed = 0;
        for stage in mechanism.schedule().stages() {
            let (first, last) = (passed.max(after), (passed + stage.rounds).min(until));
            passed += stage.rounds;
            let Some(rounds) = last.checked_sub(first).filter(|&rounds| rounds > 0) else {
                continue;
            };
            noise.forget(discount, rounds);
            // Weights g^(n-1), ..., g, 1 of the rounds; variances are multiplied by their squares.
            let weight = geometric(discount, rounds) * f64::from(stage.size);
            let square = geometric(discount * discount, rounds) * f64::from(stage.size);
            noise.reports += weight;
            match stage.law {
                Law::Bits(law) => noise.add_bits((weight, square), law),
                Law::Codebook(law) => {
                    noise.add_words((weight, square), law, dimension, coordinates);
                }
            }
        }
        noise
    }

    /// What is left after so many rounds more.
    fn forget(&mut self, discount: f64, rounds: u32) {
        if discount >= 1.0 {
            return;
        }
        let weight = pow(discount, f64::from(rounds));
        let square = weight * weight;
        self.reports *= weight;
        self.moment.proxy *= square;
        self.moment.variance *= square;
        self.moment.bias *= weight;
        self.gram.proxy *= square;
        self.gram.along *= square;
        self.gram.rounding *= square;
        self.gram.variance *= square;
        self.gram.square_variance *= square;
        self.gram.bias *= weight;
    }

    /// `weight` and `square` are the sums of the weights of all reports and of their squares.
    fn add_bits(&mut self, (weight, square): (f64, f64), BitsLaw { bits, flip }: BitsLaw) {
        let keep = flip.keep();
        let proxy = square / (f64::from(bits) * keep * keep);
        let variance = square * report_variance(bits, keep);
        let bias = weight * QUANTISATION / keep;
        self.moment.proxy += proxy;
        self.moment.variance += variance;
        self.moment.bias += bias;
        self.gram.proxy += proxy;
        self.gram.variance += variance;
        self.gram.square_variance += variance;
        self.gram.bias += bias;
    }

    /// `docs/confidence.md`, Codebook reports.
    fn add_words(
        &mut self,
        (total, reports): (f64, f64),
        law: CodebookLaw,
        dimension: usize,
        coordinates: usize,
    ) {
        let moments = WordMoments::of(law);
        let variance = moments.entry_variance();
        let d = dimension as f64;
        let weight = f64::from(law.moment_weight) / 256.0;
        let square = moments.gain * moments.gain;
        let step = 1.0 / f64::from(STEPS);
        // Rounding adds a uniform variable, whose proxy is its variance.
        let rounded = 1.0 + step / sqrt(12.0);
        let bias = total * bias(coordinates) / moments.gain;
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
        self.gram.variance += reports * (variance / (2.0 * (1.0 - weight)));
        self.gram.square_variance += reports * (variance / (1.0 - weight));
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

/// Upper bounds on the variances of the debiased sums that a model is made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReleasedNoise {
    /// Of a sum of r x, in units of L.
    pub moment_variance: f64,
    /// Of a sum of products of two features, in units of L^2.
    pub gram_variance: f64,
}

/// The noise of the sums after `round` releases, of which earlier ones may count for less.
pub fn released_noise(task: &TaskConfig, round: u32) -> ReleasedNoise {
    let (mechanism, discount) = (task.mechanism(), task.learner().config().discount);
    let counted = Counted { after: 0, until: round, discount };
    let noise = Noise::of(mechanism, mechanism.dimension(), counted);
    ReleasedNoise { moment_variance: noise.moment.variance, gram_variance: noise.gram.variance }
}

/// 1 + g + ... + g^(n-1).
fn geometric(ratio: f64, terms: u32) -> f64 {
    if ratio >= 1.0 {
        return f64::from(terms);
    }
    (1.0 - pow(ratio, f64::from(terms))) / (1.0 - ratio)
}

#[cfg(test)]
mod tests {
    use incrowd_protocol::{Closes, FlipProbability, Layout, MechanismConfig, Stage};

    use super::*;

    /// Against adding up round by round, over a change of the law and from any round on.
    #[test]
    fn discounted_noise_is_that_of_every_round_by_itself() {
        let stage = |rounds, size, keep| Stage {
            rounds,
            size,
            window: None,
            law: Law::bits(2, FlipProbability::from_keep(keep).unwrap()),
        };
        let mechanism = MechanismConfig {
            dimension: 3,
            context_bound: 1.0,
            schedule: vec![stage(3, 100, 0.3), stage(4, 400, 0.5)],
            layout: Layout::Shared,
            closes: Closes::Count { grace: 0 },
            central_delta: 1e-6,
            participations: 1,
            honest_fraction: 1.0,
        };
        let mechanism = mechanism.check().unwrap();
        for (after, until, discount) in [(0, 7, 0.9), (0, 3, 0.5), (2, 6, 0.8), (5, 7, 1.0)] {
            let (mut variance, mut reports) = (0.0, 0.0);
            for number in after + 1..=until {
                let round = mechanism.round(number).unwrap();
                let law = round.law.as_bits().unwrap();
                let own = report_variance(law.bits, law.flip.keep());
                variance = discount * discount * variance + f64::from(round.size) * own;
                reports = discount * reports + f64::from(round.size);
            }
            let noise = Noise::of(&mechanism, 3, Counted { after, until, discount });
            assert!((noise.gram.variance / variance - 1.0).abs() < 1e-12, "{discount}");
            assert!((noise.reports / reports - 1.0).abs() < 1e-12);
        }
    }
}
