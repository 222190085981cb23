//! The three ways to size the confidence ellipsoid; formulas and proof in `docs/confidence.md`.

use incrowd_protocol::{BitsLaw, Blocks, Confidence, Law, LearnerConfig, Round};
use libm::{cbrt, log, sqrt};

use crate::{
    blocks::shared_unit,
    estimate::exploration,
    noise::{GramNoise, Noise},
};

/// One-sided 95% quantile of the Tracy-Widom law, real case.
const TRACY_WIDOM: f64 = 0.9793;
/// 95% quantile of the standard normal law.
const NORMAL: f64 = 1.6449;

/// Sizes behind a model's confidence: with them, ||theta - theta*||_V <= `confidence_width`, as far
/// as the mode promises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ellipsoid {
    /// nu: size of the Gram matrix's noise.
    pub gram_noise: f64,
    /// eta: size of the moment's noise; none in the paper's mode, which has it inside the width.
    pub moment_noise: Option<f64>,
    /// z: V is at least the true Gram matrix plus z I when the noise is as it should be.
    pub floor: f64,
    /// lambda: what is added to the diagonal of the Gram estimate.
    pub ridge: f64,
    /// The part of `ridge` that was added because the noise was larger than it should be.
    pub ridge_shift: f64,
    /// ln det V.
    pub log_det: f64,
    /// lmin(V).
    pub smallest_eigenvalue: f64,
    /// beta.
    pub confidence_width: f64,
}

/// Noise sizes and ridge of a mode, before the Gram matrix is looked at.
pub(crate) struct Sizes {
    /// Standard deviations of an entry of the moment and of an off-diagonal entry of the Gram
    /// matrix; none where the mode has bounds instead.
    pub stds: Option<(f64, f64)>,
    gram_noise: f64,
    moment_noise: Option<f64>,
    floor: f64,
    width: Width,
}

enum Width {
    /// The common formula, times this factor.
    Scaled(f64),
    /// The paper's equation.
    Paper(f64),
}

/// What every width depends on.
pub(crate) struct Frame<'a> {
    pub learner: &'a LearnerConfig,
    /// Parameters that are estimated together (d).
    pub dimension: usize,
    /// j.
    pub releases: u32,
    /// Estimates with a confidence of their own: each may fail with a share of the probability.
    pub estimates: usize,
    /// Share of ln det V that the width of an arm depends on.
    pub volume_share: f64,
    /// How much longer than S the parameter can be in the units of the estimate.
    pub stretch: f64,
}

/// What the sizes depend on.
pub(crate) struct Setting<'a> {
    pub frame: Frame<'a>,
    pub blocks: Blocks,
    /// L.
    pub context_bound: f64,
    /// Newest absorbed round; none before the first.
    pub round: Option<Round>,
    pub noise: Noise,
}

impl Setting<'_> {
    pub fn sizes(&self) -> Sizes {
        match self.frame.learner.confidence {
            Confidence::Proven {} => self.proven(),
            Confidence::Calibrated { .. } => {
                let bound = self.context_bound;
                let moment = bound * sqrt(self.noise.moment.variance);
                let gram = bound * bound * sqrt(self.noise.gram.variance);
                Sizes::calibrated(self.blocks, (moment, gram), exploration(self.frame.learner))
            }
            Confidence::Paper { ridge } => self.paper(ridge),
        }
    }

    fn proven(&self) -> Sizes {
        let Frame { learner, dimension, .. } = self.frame;
        let (d, bound) = (dimension as f64, self.context_bound);
        let log_failure = self.frame.log_failure();
        let moment = self.noise.moment;
        let moment =
            sqrt(moment.proxy) * (sqrt(d) + sqrt(2.0 * log_failure)) + sqrt(d) * moment.bias;
        let GramNoise { proxy, along, rounding, bias, .. } = self.noise.gram;
        // Each of the martingales may fail with a share of the probability.
        let parts = if along > 0.0 { 3.0 } else { 1.0 };
        let logs = log_failure + log(2.0 * d * parts);
        let gram = (sqrt(proxy) + sqrt(rounding)) * sqrt(2.0 * d * logs)
            + sqrt(2.0 * along * logs)
            + d * bias;
        let (nu, eta) = (bound * bound * gram, bound * moment);
        Sizes {
            stds: None,
            gram_noise: nu,
            moment_noise: Some(eta),
            floor: best_floor(learner.parameter_bound, nu, eta),
            width: Width::Scaled(1.0),
        }
    }

    /// # Reference
    /// Garcelon et al. 2021, Eq. (lambda_reg) and Eq. (confidence_width).
    /// # Deviation
    /// Slips 4 and 5 of `docs/paper-notes.md` are repaired: 2 lambda_j throughout, and one unit for
    /// all terms.
    fn paper(&self, ridge: f64) -> Sizes {
        let learner = self.frame.learner;
        let (d, bound) = (self.frame.dimension as f64, self.context_bound);
        let (t, m, p) = match self.round.map(|round| round.law) {
            Some(Law::Bits(BitsLaw { bits, flip })) => {
                (self.noise.reports, f64::from(bits), flip.value())
            }
            _ => unreachable!("the paper's widths are for bits, and after the first release"),
        };
        let g = log(2.0 * t / learner.failure_probability);
        let root = sqrt(8.0 * t * g);
        let lambda = root / m + 2.0 * root / ((1.0 - p) * sqrt(m)) + ridge;
        let noise = 2.0 * sqrt(p * (1.0 - p / 2.0) * t * m * g)
            + 8.0 * g / 3.0
            + sqrt(8.0) / m * sqrt(t * g);
        let width = learner.reward_noise * sqrt(8.0 * g + d * log(3.0 + t / lambda))
            + learner.parameter_bound * sqrt(3.0 * 2.0 * bound * bound * lambda)
            + sqrt(2.0) * d / sqrt(lambda) * noise;
        let nu = 2.0 * bound * bound * lambda;
        let width = Width::Paper(width);
        Sizes { stds: None, gram_noise: nu, moment_noise: None, floor: nu, width }
    }
}

impl Sizes {
    /// From the law of the noise: `stds` are the standard deviations of an entry of the moment and
    /// of an off-diagonal entry of the Gram matrix.
    pub fn calibrated(blocks: Blocks, stds: (f64, f64), exploration: f64) -> Self {
        let (d, (moment, gram)) = (blocks.features() as f64, stds);
        let edge = match (blocks.shared(), blocks.slots()) {
            (0, _) | (_, 0) => 2.0 * sqrt(d),
            // Three parts of the noise, in units of `shared_unit`: within slots, between slots and
            // shared features, among shared features.
            (s, k) => {
                let (q, s, k) = (blocks.own() as f64, s as f64, k as f64);
                3.0 * sqrt(q) + sqrt(s / k) + 2.0 * sqrt(s) / k
            }
        };
        let nu = gram * (edge + TRACY_WIDOM / cbrt(sqrt(d)));
        let w = 1.0 - 2.0 / (9.0 * d) + NORMAL * sqrt(2.0 / (9.0 * d));
        let eta = moment * sqrt(d) * (w * sqrt(w));
        Self {
            stds: Some(stds),
            gram_noise: nu,
            moment_noise: Some(eta),
            floor: nu,
            width: Width::Scaled(exploration),
        }
    }

    /// The same for sums with so many times the noise.
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            stds: self.stds.map(|(moment, gram)| (factor * moment, factor * gram)),
            gram_noise: factor * self.gram_noise,
            moment_noise: self.moment_noise.map(|noise| factor * noise),
            floor: factor * self.floor,
            ..self
        }
    }

    /// The same with V at least `floor` above the true Gram matrix.
    pub fn with_floor(self, floor: f64) -> Self {
        Self { floor: self.floor.max(floor), ..self }
    }

    /// Ridge for a Gram estimate whose smallest eigenvalue is given.
    pub fn ridge(&self, smallest_of_gram: f64) -> Ridge {
        let ridge = self.gram_noise + self.floor;
        let shift = (self.floor - (smallest_of_gram + ridge)).max(0.0);
        Ridge { total: ridge + shift, shift, smallest_of_gram }
    }
}

impl<'a> Frame<'a> {
    /// For the estimates of a layout.
    pub fn new(learner: &'a LearnerConfig, blocks: Blocks, releases: u32) -> Self {
        let (dimension, estimates) = match (blocks.shared(), blocks.slots()) {
            (0, slots) => (blocks.own(), slots),
            _ => (blocks.parameters(), 1),
        };
        let proven = matches!(learner.confidence, Confidence::Proven {});
        let (volume_share, stretch) = match (blocks.shared(), blocks.slots()) {
            (0, _) | (_, 0) => (1.0, 1.0),
            (_, _) if proven => (1.0, shared_unit(blocks)),
            (_, slots) => (1.0 / slots as f64, 1.0),
        };
        Self { learner, dimension, releases, estimates, volume_share, stretch }
    }

    /// ln(3/delta_j), delta_j = delta/(j(j+1)).
    fn log_failure(&self) -> f64 {
        let j = f64::from(self.releases.max(1));
        log(3.0 * self.estimates as f64 * j * (j + 1.0) / self.learner.failure_probability)
    }

    /// The whole ellipsoid, once V is known.
    pub fn ellipsoid(&self, sizes: &Sizes, ridge: Ridge, log_det: f64, smallest: f64) -> Ellipsoid {
        let (nu, z) = (sizes.gram_noise, sizes.floor);
        let bound = self.stretch * self.learner.parameter_bound;
        let eta = sizes.moment_noise.unwrap_or(0.0);
        let width = match sizes.width {
            Width::Paper(width) => width,
            Width::Scaled(scale) => {
                let largest = nu + ridge.total;
                let regulariser = bound * sqrt(largest).min(largest / sqrt(smallest));
                let reward = self.reward_width(log_det - self.dimension as f64 * log(z));
                scale * (reward + regulariser + eta / sqrt(smallest.max(z)))
            }
        };
        sizes.ellipsoid(ridge, log_det, smallest, width)
    }

    /// The width beside a prior. `learned` is how much ln det V exceeds the prior's, `noise` how
    /// far the noise of the sums moves the estimate, in the norm of V.
    pub fn width_with_prior(&self, learned: f64, noise: f64) -> f64 {
        exploration(self.learner) * (self.reward_width(learned) + noise)
    }

    /// sigma sqrt(2 ln(3/delta_j) + volume).
    fn reward_width(&self, volume: f64) -> f64 {
        let volume = volume.max(0.0) * self.volume_share;
        self.learner.reward_noise * sqrt(2.0 * self.log_failure() + volume)
    }
}

/// lambda.
#[derive(Clone, Copy)]
pub(crate) struct Ridge {
    pub total: f64,
    /// The part of it that was added because the noise was larger than it should be.
    pub shift: f64,
    /// Smallest eigenvalue of the Gram estimate that it was made for.
    pub smallest_of_gram: f64,
}

impl Sizes {
    /// What is known of the confidence beside its width.
    pub fn ellipsoid(&self, ridge: Ridge, log_det: f64, smallest: f64, width: f64) -> Ellipsoid {
        Ellipsoid {
            gram_noise: self.gram_noise,
            moment_noise: self.moment_noise,
            floor: self.floor,
            ridge: ridge.total,
            ridge_shift: ridge.shift,
            log_det,
            smallest_eigenvalue: smallest,
            confidence_width: width,
        }
    }
}

/// The positive root of S^2 z^3 = eta^2 (z + 2 nu), which minimises S sqrt(z + 2 nu) + eta/sqrt(z):
/// Newton's method from above, where it decreases monotonically.
fn best_floor(parameter_bound: f64, nu: f64, eta: f64) -> f64 {
    let ratio = eta / parameter_bound;
    let square = ratio * ratio;
    let mut z = (2.0 * nu).max(sqrt(2.0) * ratio);
    let newton = |z: f64| z - (z * z * z - square * (z + 2.0 * nu)) / (3.0 * z * z - square);
    let mut next = newton(z);
    while next < z {
        z = next;
        next = newton(z);
    }
    z
}
