use incrowd_protocol::{BatchSums, BitsLaw, Law, Mechanism, MechanismHash, Round, STEPS, triangle};
use serde::{Deserialize, Serialize};

use crate::codebook::WordMoments;

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

    /// Adds a release that has been checked: an unbiased estimate of the sum of v over the batch.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Algorithm 1, step (b): Z/(m(1-p)) - l/(2(1-p)), times 2L or 2L^2.
    pub(crate) fn add(&mut self, mechanism: &Mechanism, round: &Round, sums: &BatchSums) {
        let bound = mechanism.context_bound();
        let mut estimates = estimates(mechanism, round, sums.sums()).into_iter();
        for (entry, estimate) in self.moment.iter_mut().zip(&mut estimates) {
            *entry += bound * estimate;
        }
        for (entry, estimate) in self.gram.iter_mut().zip(estimates) {
            *entry += bound * bound * estimate;
        }
        self.round = round.number;
    }
}

/// What the sums of a batch say about the sum of v: with bits (2 sum/m - l)/c, with a codebook
/// sum/(16 mu) over the scale of the coordinate.
fn estimates(mechanism: &Mechanism, round: &Round, sums: &[i64]) -> Vec<f64> {
    match round.law {
        Law::Bits(BitsLaw { bits, flip }) => {
            let (l, m, keep) = (f64::from(round.size), f64::from(bits), flip.keep());
            sums.iter().map(|&sum| (2.0 * sum as f64 / m - l) / keep).collect()
        }
        Law::Codebook(law) => {
            let unit = f64::from(STEPS) * WordMoments::of(law).gain;
            let scales = law.scales(mechanism.dimension());
            sums.iter().zip(scales).map(|(&sum, scale)| sum as f64 / (unit * scale)).collect()
        }
    }
}
