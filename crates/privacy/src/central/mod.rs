//! Central privacy of one released batch: adversaries (b) and (c). Proofs:
//! `docs/privacy-proofs.md`, sections 2 to 4.
//!
//! All that leaves the shuffler is D sums. Against the worst inputs of all other people, and for
//! the worst pair of inputs of one person, the Renyi divergence of a sum is at most kappa (v -
//! v')^2; the values v of one person have an L2 diameter of at most sqrt(4.5); the conversion to
//! (epsilon, delta) is pointwise, so that tails of the sums may be cut off and paid for in delta.

mod cover;
mod divergence;

use divergence::{Effort, Laws};
use incrowd_protocol::{
    BatchSize, Bits, Delta, Dimension, HonestFraction, Keep, Law, Mechanism, Participations, Stage,
};
use libm::exp;

use crate::{
    Bound, BoundName, PrivacyError, clones, composition, local,
    numeric::{Binomial, Pmf, Upper, up},
    renyi,
};

/// Share of delta that pays for cutting off the tails of the sums.
const TAIL_SHARE: f64 = 1e-3;
/// Share of delta that pays for few blank bits, in the blanket bound.
const BLANKET_SHARE: f64 = 0.05;
/// More of the others' bits are not used by the bound over worst others (using fewer is sound).
const MOST_BITS: u64 = 1 << 20;
/// Most bits per coordinate for which all pairs of grid points are compared.
const MOST_GRID: u32 = 64;
/// Most bits per coordinate for the bound over worst others, which does that many times.
const MOST_GRID_COVERED: u32 = 8;

/// Why the numbers of a mechanism are valid units.
const CHECKED: &str = "invariant: a mechanism is checked";

/// What the central guarantee of a round depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Dimension of the contexts (d).
    pub dimension: Dimension,
    /// Bits per coordinate (m).
    pub bits: Bits,
    /// c = 1 - p.
    pub keep: Keep,
    /// Honest reports in the batch besides the one that is protected.
    pub others: u64,
    /// Batches one person takes part in (k), with one report in each.
    pub participations: Participations,
    /// Delta of the guarantee, for all k together.
    pub delta: Delta,
}

impl Setting {
    /// The setting of one report's law in a batch of which everybody is honest, for a person who
    /// takes part once.
    pub fn new(
        dimension: Dimension,
        bits: Bits,
        keep: Keep,
        batch_size: BatchSize,
        delta: Delta,
    ) -> Self {
        let participations = Participations::ONE;
        let others = batch_size.get() - 1;
        Self { dimension, bits, keep, others, participations, delta }
    }

    /// The setting of a stage of a mechanism.
    pub fn of_stage(mechanism: &Mechanism, stage: &Stage) -> Self {
        let Law { bits, flip } = stage.law;
        // The nearest float may be below c.
        let keep = Keep::new(Upper::nearest(flip.keep()).value());
        let size = BatchSize::new(u64::from(stage.size));
        Self {
            dimension: mechanism.dimension_unit(),
            bits: Bits::new(bits).expect(CHECKED),
            keep: keep.expect("invariant: c is at most 1 - 2^-32"),
            others: honest_others(size.expect(CHECKED), mechanism.honest_fraction()),
            participations: mechanism.participations(),
            delta: mechanism.central_delta(),
        }
    }

    fn coordinates(&self) -> f64 {
        local::coordinates(self.dimension)
    }

    /// k times the local epsilon: what holds without any crowd.
    fn local(&self) -> Bound {
        let one = local::certify(self.dimension, self.bits, self.keep).epsilon;
        let epsilon = up(one * f64::from(self.participations.get()));
        Bound { bound: BoundName::Local, epsilon }
    }
}

/// Reports of a batch that are surely honest besides one's own: floor(h l) - 1.
pub fn honest_others(batch_size: BatchSize, honest_fraction: HonestFraction) -> u64 {
    // Rounded down: floats above 2^53 are far beyond any batch.
    let honest = (honest_fraction.get() * batch_size.get() as f64).floor() as u64;
    honest.min(batch_size.get()).saturating_sub(1)
}

/// The smallest proved central epsilon.
pub fn certify(setting: &Setting) -> Result<Bound, PrivacyError> {
    let cap = setting.local();
    let all = if uses_all_bits(setting) && setting.others > 0 {
        let worst =
            worst_others(setting).map(|epsilon| capped(BoundName::RenyiWorstOthers, epsilon, cap));
        [Some(cap), worst].into_iter().flatten().collect()
    } else {
        bounds(setting)?
    };
    Ok(Bound::smallest(all).unwrap_or(cap))
}

/// Every proved central epsilon, each at most the local one.
pub fn bounds(setting: &Setting) -> Result<Vec<Bound>, PrivacyError> {
    let cap = setting.local();
    if setting.others == 0 {
        return Ok(vec![cap]);
    }
    let clones = Some((BoundName::Clones, clones(setting)?));
    let blanket = blanket(setting).map(|epsilon| (BoundName::RenyiBlanket, epsilon));
    let worst = worst_others(setting).map(|epsilon| (BoundName::RenyiWorstOthers, epsilon));
    let others = [clones, blanket, worst].into_iter().flatten();
    Ok(std::iter::once(cap)
        .chain(others.map(|(name, epsilon)| capped(name, epsilon, cap)))
        .collect())
}

fn capped(bound: BoundName, epsilon: f64, cap: Bound) -> Bound {
    Bound { bound, epsilon: up(epsilon).min(cap.epsilon) }
}

/// A fast guess at [`certify`], for searching: the others unanimous, which is not proved to be the
/// worst.
pub fn approx_epsilon(setting: &Setting) -> f64 {
    let cap = setting.local().epsilon;
    let bits = setting.others.saturating_mul(u64::from(setting.bits.get()));
    if bits == 0 || setting.bits.get() > MOST_GRID {
        return cap;
    }
    let sums = Binomial::new(bits, (1.0 - setting.keep.get()) / 2.0).pmf();
    let guess = best_order(setting, &sums, TAIL_SHARE).map_or(cap, |(epsilon, _)| epsilon);
    guess.min(cap)
}

/// # Reference
/// Feldman, McMillan, Talwar 2021, for any report with our local epsilon; k batches by optimal
/// composition.
fn clones(setting: &Setting) -> Result<f64, PrivacyError> {
    let epsilon_local = local::certify(setting.dimension, setting.bits, setting.keep).epsilon;
    let honest = BatchSize::new(setting.others.saturating_add(1))?;
    let at = |delta| clones::epsilon_upper(epsilon_local, honest, delta);
    composition::best_for(at, setting.participations, setting.delta)
}

/// Given how many of the others' bits are blank (fair coins), the sum is the person's bits plus a
/// fair binomial. Proof: section 4.
fn blanket(setting: &Setting) -> Option<f64> {
    let (_, order) = best_order(setting, &blank_bits(setting)?, BLANKET_SHARE + TAIL_SHARE)?;
    let kappa = blanket_kappa(setting, order)?;
    Some(epsilon(setting, divergence(setting, kappa, order), order, BLANKET_SHARE + TAIL_SHARE))
}

fn blanket_kappa(setting: &Setting, order: f64) -> Option<f64> {
    kappa(setting, &blank_bits(setting)?, order)
}

/// The law of the blank bits' sum when there are as few as [`BLANKET_SHARE`] of delta allows.
fn blank_bits(setting: &Setting) -> Option<Pmf> {
    if setting.bits.get() > MOST_GRID {
        return None;
    }
    let times = f64::from(setting.participations.get()) * setting.coordinates();
    let bits = setting.others.checked_mul(u64::from(setting.bits.get()))?;
    let miss = BLANKET_SHARE * setting.delta.get() / times;
    let blank = Binomial::new(bits, 1.0 - setting.keep.get()).lower_quantile(miss);
    (blank > 0).then(|| Binomial::new(blank, 0.5).pmf())
}

/// The sum of the others' bits is as bad as it can be. Proof: sections 2 and 3.
fn worst_others(setting: &Setting) -> Option<f64> {
    let (_, order) = best_order(setting, &unanimous(setting)?, TAIL_SHARE)?;
    let kappa = worst_others_kappa(setting, order)?;
    Some(epsilon(setting, divergence(setting, kappa, order), order, TAIL_SHARE))
}

fn worst_others_kappa(setting: &Setting, order: f64) -> Option<f64> {
    cover::worst_kappa(used_bits(setting)?, setting.keep.get(), |sums| kappa(setting, sums, order))
}

/// The law of the others' sum when they all lean one way.
fn unanimous(setting: &Setting) -> Option<Pmf> {
    Some(Binomial::new(used_bits(setting)?, (1.0 - setting.keep.get()) / 2.0).pmf())
}

/// How many of the others' bits the bound over worst others uses; none where it would take too
/// long.
fn used_bits(setting: &Setting) -> Option<u64> {
    if setting.bits.get() > MOST_GRID_COVERED || setting.others == 0 {
        return None;
    }
    Some(setting.others.checked_mul(u64::from(setting.bits.get()))?.min(MOST_BITS))
}

/// Whether the bound over worst others uses all of the others' bits; then it is below the blanket
/// and the clones.
fn uses_all_bits(setting: &Setting) -> bool {
    let bits = setting.others.checked_mul(u64::from(setting.bits.get()));
    bits.is_some() && used_bits(setting) == bits
}

/// A person takes part in k batches, each of any of these kinds: the smallest proved central
/// epsilon of all k together. `alone` is what [`certify`] says of each kind.
///
/// Different laws composed can exceed each of them composed with itself, so the kinds are compared
/// at one common order, where divergences add up. Proof: section 6.3.
pub(crate) fn certify_any_of(settings: &[Setting], alone: &[Bound]) -> Bound {
    let worst = settings.iter().zip(alone).max_by(|(_, a), (_, b)| a.epsilon.total_cmp(&b.epsilon));
    let (leader, &worst) = worst.expect("invariant: a checked schedule has a stage");
    if leader.participations == Participations::ONE || settings.len() == 1 {
        return worst;
    }
    let mut cap = leader.local();
    for setting in settings {
        cap.epsilon = cap.epsilon.max(setting.local().epsilon);
    }
    mixed(settings, leader).map_or(cap, |mixed| capped(mixed.bound, mixed.epsilon, cap))
}

/// The epsilon of k batches of any of these kinds at the order that suits `leader`; none if one of
/// them has no bound on its divergence.
fn mixed(settings: &[Setting], leader: &Setting) -> Option<Bound> {
    let spent =
        if settings.iter().all(uses_all_bits) { TAIL_SHARE } else { BLANKET_SHARE + TAIL_SHARE };
    let sums = unanimous(leader).or_else(|| blank_bits(leader))?;
    let (_, order) = best_order(leader, &sums, spent)?;
    let mut bound = BoundName::RenyiWorstOthers;
    let mut largest = 0f64;
    for setting in settings {
        let kappa = if uses_all_bits(setting) {
            worst_others_kappa(setting, order)?
        } else {
            bound = BoundName::RenyiBlanket;
            blanket_kappa(setting, order)?
        };
        largest = largest.max(divergence(setting, kappa, order));
    }
    Some(Bound { bound, epsilon: epsilon(leader, largest, order, spent) })
}

/// kappa of one law of the others' sum, as finely as time allows: pairs of grid points grow with
/// the square of m.
fn kappa(setting: &Setting, sums: &Pmf, order: f64) -> Option<f64> {
    let (groups, effort) = match setting.bits.get() {
        1 => (300, Effort { tolerance: 0.003, pieces: 24 }),
        2..=4 => (200, Effort { tolerance: 0.01, pieces: 16 }),
        _ => (100, Effort { tolerance: 0.01, pieces: 16 }),
    };
    Laws::new(sums, setting.bits.get(), setting.keep.get(), tail_mass(setting), groups)?
        .kappa(order, effort)
}

/// Mass that each coordinate of each batch may lose.
fn tail_mass(setting: &Setting) -> f64 {
    TAIL_SHARE * setting.delta.get()
        / (f64::from(setting.participations.get()) * setting.coordinates())
}

/// Renyi divergence of all sums of one batch, from D_alpha <= kappa (v - v')^2 for each; with what
/// cutting off tails costs.
fn divergence(setting: &Setting, kappa: f64, order: f64) -> f64 {
    let squares = local::squared_diameter_2(setting.dimension, setting.keep);
    let cut = order / (order - 1.0) * f64::from(setting.bits.get()) / 2.0
        * tail_mass(setting)
        * local::diameter_1(setting.dimension, setting.keep);
    kappa * squares + cut
}

/// Epsilon of k batches with this divergence each, with the share of delta that is already spent.
fn epsilon(setting: &Setting, divergence: f64, order: f64, spent: f64) -> f64 {
    let delta = setting.delta.get() * (1.0 - spent);
    renyi::epsilon_upper(f64::from(setting.participations.get()) * divergence, order, delta)
}

/// The order alpha in (1, 2] or [3, inf) with the smallest epsilon for this law of the others' sum,
/// by golden section over ln(alpha - 1). Every order is valid, so this may be rough.
fn best_order(setting: &Setting, sums: &Pmf, spent: f64) -> Option<(f64, f64)> {
    let groups = if setting.bits == Bits::ONE { 100 } else { 60 };
    let effort = Effort { tolerance: 0.02, pieces: 16 };
    let laws = Laws::new(sums, setting.bits.get(), setting.keep.get(), tail_mass(setting), groups)?;
    let at = |exponent: f64| -> (f64, f64) {
        let order = match 1.0 + exp(exponent) {
            order if order > 2.0 && order < 2.5 => 2.0,
            order if (2.5..3.0).contains(&order) => 3.0,
            order => order,
        };
        let kappa = laws.kappa(order, effort).unwrap_or(f64::INFINITY);
        (epsilon(setting, divergence(setting, kappa, order), order, spent), order)
    };
    let best = renyi::best_exponent(at);
    best.0.is_finite().then_some(best)
}
