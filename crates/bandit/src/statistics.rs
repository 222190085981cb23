use incrowd_protocol::{BatchSums, Mechanism, MechanismHash, QUANTISATION, Round, triangle};
use serde::{Deserialize, Serialize};

/// What the bandit remembers: debiased sums in natural units, and how far it has come. It can be
/// written down and resumed, bit for bit (with `serde_json`, switch on its feature
/// `float_roundtrip`: by default it may read a float one bit off).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    pub(crate) mechanism: MechanismHash,
    /// Last absorbed round, 0 at the start.
    pub(crate) round: u32,
    /// Estimate of the sum of r x.
    pub(crate) moment: Vec<f64>,
    /// Estimate of the sum of x x', packed lower triangle.
    pub(crate) gram: Vec<f64>,
    /// Models published so far.
    pub(crate) models: u32,
    /// ln det V of the last published model.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) published_log_det: Option<f64>,
}

impl Statistics {
    /// Before the first release.
    pub fn new(mechanism: &Mechanism) -> Self {
        let dimension = mechanism.dimension();
        Self {
            mechanism: mechanism.hash(),
            round: 0,
            moment: vec![0.0; dimension],
            gram: vec![0.0; triangle(dimension)],
            models: 0,
            published_log_det: None,
        }
    }

    /// Last absorbed round, 0 at the start.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Estimate of the sum of r x.
    pub fn moment(&self) -> &[f64] {
        &self.moment
    }

    /// Estimate of the sum of x x', packed lower triangle row by row.
    pub fn gram(&self) -> &[f64] {
        &self.gram
    }

    pub(crate) fn fits(&self, mechanism: &Mechanism) -> bool {
        let dimension = mechanism.dimension();
        self.mechanism == mechanism.hash()
            && self.round <= mechanism.schedule().last_round()
            && self.models <= self.round
            && (self.models == 0) == self.published_log_det.is_none()
            && self.moment.len() == dimension
            && self.gram.len() == triangle(dimension)
            && self.moment.iter().chain(&self.gram).all(|value| value.is_finite())
            && self.published_log_det.is_none_or(f64::is_finite)
    }

    /// Adds a release that has been checked: (2 sum/m - l)/c is an unbiased estimate of the sum of
    /// v over the batch.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Algorithm 1, step (b): Z/(m(1-p)) - l/(2(1-p)), times 2L or 2L^2.
    pub(crate) fn add(&mut self, mechanism: &Mechanism, round: &Round, sums: &BatchSums) {
        let (l, m, keep) =
            (f64::from(round.size), f64::from(round.law.bits), round.law.flip.keep());
        let bound = mechanism.context_bound();
        let estimate = |&sum: &i64| (2.0 * sum as f64 / m - l) / keep;
        let (moment, gram) = sums.sums().split_at(self.moment.len());
        for (entry, sum) in self.moment.iter_mut().zip(moment) {
            *entry += bound * estimate(sum);
        }
        for (entry, sum) in self.gram.iter_mut().zip(gram) {
            *entry += bound * bound * estimate(sum);
        }
        self.round = round.number;
    }
}

/// How noisy the sums of the first rounds are; known in advance from the schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    /// Reports (t).
    pub reports: f64,
    /// s^2 = sum of l/(m c^2): variance proxy of a debiased sum, in units of L or L^2.
    pub proxy: f64,
    /// v^2 = sum of l (1 - c^2 (1 - 1/m))/(m c^2): upper bound on its variance, at most `proxy`.
    pub variance: f64,
    /// Largest bias of a debiased sum from rounded thresholds, in the same units.
    pub bias: f64,
}

impl Noise {
    pub fn after(mechanism: &Mechanism, round: u32) -> Self {
        let mut noise = Self { reports: 0.0, proxy: 0.0, variance: 0.0, bias: 0.0 };
        let mut left = round;
        for stage in mechanism.schedule().stages() {
            let rounds = stage.rounds.min(left);
            left -= rounds;
            let keep = stage.law.flip.keep();
            let reports = f64::from(rounds) * f64::from(stage.size);
            noise.reports += reports;
            let bits = f64::from(stage.law.bits);
            noise.proxy += reports / (bits * keep * keep);
            noise.variance += reports * report_variance(stage.law.bits, keep);
            noise.bias += reports * QUANTISATION / keep;
        }
        noise
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

/// Upper bound on the variance of a debiased sum after `round` releases, in units of L (moment) or
/// L^2 (Gram matrix).
pub fn noise_variance(mechanism: &Mechanism, round: u32) -> f64 {
    Noise::after(mechanism, round).variance
}
