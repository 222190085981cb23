//! Noisy sums beside what was known before: `docs/confidence.md`, Prior.

use incrowd_protocol::{Blocks, CoordinateKind, Mechanism, Prior};
use libm::sqrt;

use crate::{
    Ellipsoid, Estimate, Statistics, algebra,
    confidence::{Frame, Sizes},
    estimate::{BlockSums, Factor, plus_ridge},
    statistics::{forget_slot, in_natural_units},
};

/// The sums that a prior stands for.
pub(crate) struct PriorSums {
    pub sums: Vec<f64>,
    /// What an average person of the prior adds to a sum of squares, if all directions are alike.
    pub one: f64,
    people: f64,
    /// For each slot, whether it stands for an action now.
    taken: Vec<bool>,
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
    /// A slot that the prior says nothing about, or whose action is not the one that it had at the
    /// start, has what one person of the prior says about whichever action.
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
        let taken = statistics.actions().iter().map(Option::is_some).collect();
        Self { sums, one, people, taken }
    }

    /// Whether what a block of sums says is asked for: that of a slot without an action is not, and
    /// how much noise is in it is not known.
    pub fn asks(&self, slot: Option<usize>) -> bool {
        slot.is_none_or(|slot| self.taken[slot])
    }

    /// The share of what is not known now that is known when the task ends, as a standard
    /// deviation: optimism is worth no more than what can still be learned by it.
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

/// What a prior says about one block: the parameter is near `theta`.
pub(crate) struct Belief {
    theta: Vec<f64>,
    /// V_0: its Gram matrix, and the ridge of one person.
    precision: Vec<f64>,
    log_det: f64,
}

/// What the sums of a block say beside a belief.
pub(crate) struct Found {
    /// theta_0.
    theta: Vec<f64>,
    /// V = V_0 + G + lambda I; the width is that of noise and rewards.
    ellipsoid: Ellipsoid,
    width_factor: Vec<f64>,
    /// From the belief to the estimate of all people together: V^-1 (m - G theta_0).
    step: Vec<f64>,
    /// |step|^2 in the norm of V_0.
    length: f64,
    /// What noise and rewards alone make of it, on average.
    chance: f64,
}

impl Belief {
    pub fn new(prior: &BlockSums, one: f64) -> Option<Self> {
        let d = prior.moment.len();
        // Not even a prior that no people can have is without a precision.
        let ridge = one - algebra::smallest_eigenvalue(&prior.gram, d).min(0.0);
        let precision = plus_ridge(&prior.gram, d, ridge);
        let factor = Factor::of(&precision, d)?;
        let theta = algebra::solve(&factor.inverse, &prior.moment);
        Some(Self { theta, precision, log_det: factor.log_det })
    }

    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// `noise` is the variance of each entry of m - G theta_0 by the noise of the sums.
    pub fn meet(
        self,
        frame: &Frame<'_>,
        sizes: &Sizes,
        sums: &BlockSums,
        noise: &[f64],
    ) -> Option<Found> {
        let d = self.theta.len();
        let (mut v, ridge) = sums.with_ridge(sizes);
        v.iter_mut().zip(&self.precision).for_each(|(entry, known)| *entry += known);
        let factor = Factor::of(&v, d)?;
        let times_theta = algebra::multiply(&sums.gram, &self.theta);
        let residual: Vec<f64> = sums.moment.iter().zip(times_theta).map(|(m, g)| m - g).collect();
        let step = algebra::solve(&factor.inverse, &residual);
        let sigma = frame.learner.reward_noise;
        let (mut chance, mut noise_width) = (0.0, 0.0);
        for (i, noise) in noise.iter().enumerate() {
            let column = algebra::solve(&factor.inverse, &unit(d, i));
            let met = algebra::multiply(&self.precision, &column);
            chance += noise * algebra::dot(&column, &met) + sigma * sigma * met[i];
            noise_width += noise * column[i];
        }
        let learned = factor.log_det - self.log_det;
        let width = frame.width_with_prior(learned, sqrt(noise_width));
        let smallest = algebra::smallest_eigenvalue(&v, d);
        let ellipsoid = sizes.ellipsoid(ridge, factor.log_det, smallest, width);
        let length = algebra::dot(&step, &algebra::multiply(&self.precision, &step));
        let width_factor = factor.inverse;
        Some(Found { theta: self.theta, ellipsoid, width_factor, step, length, chance })
    }
}

/// How much of the steps is believed. What all blocks together have moved is compared with what
/// chance alone would move them: positive-part James-Stein, with the largest factor for which
/// shrinking p normal numbers is never worse than taking them as they are.
pub(crate) fn share<'a>(found: impl Iterator<Item = &'a Found>) -> f64 {
    let add = |(length, chance, p), found: &Found| {
        (length + found.length, chance + found.chance, p + found.step.len())
    };
    let (length, chance, p) = found.fold((0.0, 0.0, 0), add);
    let chance = 2.0 * p.saturating_sub(2) as f64 / p.max(1) as f64 * chance;
    if length > chance { 1.0 - chance / length } else { 0.0 }
}

impl Found {
    /// The estimate, so much of the step along; `learnable` is [`PriorSums::learnable`].
    pub fn believed(self, share: f64, learnable: f64) -> Estimate {
        let along = |(theta, step): (&f64, f64)| theta + share * step;
        let theta = self.theta.iter().zip(self.step).map(along).collect();
        let confidence_width = learnable * self.ellipsoid.confidence_width;
        let ellipsoid = Ellipsoid { confidence_width, ..self.ellipsoid };
        Estimate { theta, width_factor: self.width_factor, ellipsoid }
    }
}

fn unit(dimension: usize, i: usize) -> Vec<f64> {
    (0..dimension).map(|j| if j == i { 1.0 } else { 0.0 }).collect()
}
