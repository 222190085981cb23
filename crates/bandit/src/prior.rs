//! Noisy sums beside what was known before: `docs/confidence.md`, Prior.

use incrowd_protocol::{Blocks, CoordinateKind, Mechanism, Prior, triangle};
use libm::sqrt;

use crate::{
    Estimate, Statistics, algebra,
    confidence::{Frame, Sizes},
    estimate::{BlockSums, Factor, plus_diagonal},
    statistics::{forget_slot, in_natural_units},
};

/// The sums that a prior stands for.
pub(crate) struct PriorSums {
    pub sums: Vec<f64>,
    /// What an average person of the prior adds to a sum of squares, if all directions are alike.
    pub one: f64,
    people: f64,
}

/// What some releases tell, as far as the schedule knows it.
pub(crate) struct Told {
    /// Reports, each with what it counts for.
    pub reports: f64,
    /// Variance of an entry of the moment by the noise, for any parameter of norm S, over that of a
    /// reward.
    pub noise: f64,
}

impl PriorSums {
    /// A slot that the prior says nothing about, or whose action is not the one it had at the start,
    /// has what one person of the prior says about whichever action.
    pub fn new(mechanism: &Mechanism, prior: &Prior, statistics: &Statistics) -> Self {
        let (blocks, people) = (mechanism.blocks(), prior.people());
        let values = prior.values().iter().map(|value| people * value);
        let mut sums: Vec<f64> = in_natural_units(mechanism, values).collect();
        let kinds = blocks.kinds();
        let squares = |sums: &[f64], kinds: &[CoordinateKind]| -> f64 {
            let square = |(kind, _): &(&CoordinateKind, &f64)| **kind == CoordinateKind::Square;
            kinds.iter().zip(sums).filter(square).map(|(_, sum)| sum).sum()
        };
        let one = squares(&sums, &kinds) / (people * blocks.parameters() as f64);
        // A prior of nothing but zeros still needs a matrix that can be inverted.
        let bound = mechanism.context_bound();
        let one = if one > 0.0 { one } else { bound * bound };
        let anyone = Anyone::new(blocks, &sums, people);
        for slot in 0..blocks.slots() {
            let start = blocks.slot_start(slot);
            let block = start..start + blocks.slot_coordinates();
            let silent = squares(&sums[block.clone()], &kinds[block]) == 0.0;
            if silent || statistics.since(slot) > 0 {
                forget_slot(blocks, &mut sums, slot, Some(one));
                anyone.add(&mut sums, start);
            }
        }
        Self { sums, one, people }
    }

    /// The share of what is not known now that is known when the task ends, as a standard deviation:
    /// optimism is worth no more than what can still be learned by it.
    pub fn learnable(&self, now: &Told, end: &Told) -> f64 {
        let precision = |told: &Told| {
            let gram = self.one * told.reports;
            let told = if gram > 0.0 { gram * gram / (gram + told.noise) } else { 0.0 };
            self.one * self.people + told
        };
        sqrt((1.0 - precision(now) / precision(end)).max(0.0))
    }
}

/// What one person of the prior says about their action, whichever it is.
struct Anyone {
    shared: Vec<f64>,
    own: Vec<f64>,
}

impl Anyone {
    fn new(blocks: Blocks, sums: &[f64], people: f64) -> Self {
        let (shared, slots) = sums.split_at(blocks.shared_coordinates());
        let mut own = vec![0.0; blocks.slot_coordinates()];
        for slot in slots.chunks_exact(own.len().max(1)) {
            own.iter_mut().zip(slot).for_each(|(entry, sum)| *entry += sum / people);
        }
        Self { shared: shared.iter().map(|sum| sum / people).collect(), own }
    }

    /// Adds that person to the slot whose sums start here.
    fn add(&self, sums: &mut [f64], start: usize) {
        sums.iter_mut().zip(&self.shared).for_each(|(sum, entry)| *sum += entry);
        sums[start..].iter_mut().zip(&self.own).for_each(|(sum, entry)| *sum += entry);
    }
}

/// What the noise of a block's sums does, in the units of its estimate.
pub(crate) struct BlockNoise {
    /// Variance of each entry of m - G theta_0; zero where nothing was released yet.
    pub residual: Vec<f64>,
    /// What it adds to the sum of the squares of all entries of G, on average.
    pub gram_squares: f64,
}

/// What a prior says about one block: the parameter is as far from `theta` as the reward noise of its
/// people lets it be.
pub(crate) struct Belief {
    theta: Vec<f64>,
    /// V_0: its Gram matrix, and the ridge of one person.
    precision: Vec<f64>,
    log_det: f64,
}

impl Belief {
    pub fn new(prior: &BlockSums, one: f64) -> Option<Self> {
        let d = prior.moment.len();
        // Not even a prior that no people can have is without a precision.
        let ridge = one - algebra::smallest_eigenvalue(&prior.gram, d).min(0.0);
        let precision = plus_diagonal(&prior.gram, d, |_| ridge);
        let factor = Factor::of(&precision, d)?;
        let theta = algebra::solve(&factor.inverse, &prior.moment);
        Some(Self { theta, precision, log_det: factor.log_det })
    }

    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// The estimate from belief and sums; `learnable` is [`PriorSums::learnable`].
    pub fn weighed_with(
        self,
        frame: &Frame<'_>,
        sizes: &Sizes,
        sums: &BlockSums,
        noise: &BlockNoise,
        learnable: f64,
    ) -> Option<Estimate> {
        let d = self.theta.len();
        let (gram, ridge) = sums.with_ridge(sizes);
        let (mut v, mut right) = (self.precision, vec![0.0; d]);
        if noise.gram_squares > 0.0 {
            let told = Information::new(frame, (sums, &gram), noise, &self.theta)?;
            for i in 0..d {
                right[i] = told.share * algebra::dot(&told.rows[i], &told.residual);
                for j in 0..=i {
                    v[triangle(i) + j] += told.share * algebra::dot(&told.rows[i], &told.rows[j]);
                }
            }
        }
        let factor = Factor::of(&v, d)?;
        let moved = algebra::solve(&factor.inverse, &right);
        let theta = self.theta.iter().zip(moved).map(|(theta, moved)| theta + moved).collect();
        let smallest = algebra::smallest_eigenvalue(&v, d);
        let learned = factor.log_det - self.log_det;
        let width = learnable * frame.width_with_prior(learned);
        let ellipsoid = sizes.ellipsoid(ridge, factor.log_det, smallest, width);
        Some(Estimate { theta, width_factor: factor.inverse, ellipsoid })
    }
}

/// What noisy sums tell about a parameter, in people without noise: with M = G + R / sigma^2 = C C',
/// G with its ridge and R the noise of the residual, they tell G M^-1 G.
struct Information {
    /// C^-1 G: the rows of its transpose.
    rows: Vec<Vec<f64>>,
    /// C^-1 (m - G theta_0), the sums without their ridge.
    residual: Vec<f64>,
    /// How much of this the sums are worth: the ridge and the noise of G are in it too.
    share: f64,
}

impl Information {
    fn new(
        frame: &Frame<'_>,
        (sums, with_ridge): (&BlockSums, &[f64]),
        noise: &BlockNoise,
        theta: &[f64],
    ) -> Option<Self> {
        let d = theta.len();
        let sigma = frame.learner.reward_noise;
        let of = |i: usize| noise.residual[i] / (sigma * sigma);
        let inverse = Factor::of(&plus_diagonal(with_ridge, d, of), d)?.inverse;
        let rows: Vec<Vec<f64>> = (0..d)
            .map(|i| algebra::multiply_lower(&inverse, &algebra::row(with_ridge, d, i)))
            .collect();
        let gram: Vec<Vec<f64>> = (0..d).map(|i| algebra::row(&sums.gram, d, i)).collect();
        let residual: Vec<f64> =
            (0..d).map(|i| sums.moment[i] - algebra::dot(&gram[i], theta)).collect();
        // The squares of the eigenvalues of G, without what the noise adds to them; over their mean
        // and that of the noise.
        let squares: f64 = gram.iter().map(|row| algebra::dot(row, row)).sum();
        let mean = (0..d).map(|i| gram[i][i].max(0.0) + of(i)).sum::<f64>() / d as f64;
        let trace: f64 = rows.iter().map(|row| algebra::dot(row, row)).sum();
        let share = ((squares - noise.gram_squares).max(0.0) / (mean * trace)).min(1.0);
        Some(Self { rows, residual: algebra::multiply_lower(&inverse, &residual), share })
    }
}
