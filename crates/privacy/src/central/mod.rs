//! Central privacy of released batches: adversaries (b) and (c). Proofs: `docs/privacy-proofs.md`,
//! sections 2 to 4 and 9.
//!
//! All that leaves the shuffler is D sums. Against the worst inputs of all other people, and for
//! the worst pair of inputs of one person, a sum is no easier to tell apart than two Gaussians at a
//! distance of theta m |v - v'|, and its Renyi divergence is at most kappa (v - v')^2; the values v
//! of one person have an L2 diameter of at most sqrt(4.5). Tails of the sums are cut off and paid
//! for in delta.

mod cover;
mod curve;
mod divergence;
mod gaussian;
mod profile;
mod several;
mod stage;
mod steepness;

pub(crate) use curve::Curve;
use divergence::{Effort, Laws};
pub(crate) use gaussian::GaussianBound;
use gaussian::Placed;
use incrowd_protocol::{
    BatchSize, Bits, Blocks, Closes, Delta, HonestFraction, Keep, Mechanism, Participations,
};
use libm::exp;
pub(crate) use several::{Changed, Together, prove_any_of};
pub use stage::StageSetting;

use crate::{
    Bound, BoundName, PrivacyError, clones, composition, local,
    numeric::{Binomial, Pmf, up},
    renyi::{self, Ideal, RenyiBound},
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

/// Where theta is within this share of what the central limit theorem says, no Renyi divergence is
/// tried: its conversion alone costs more. A choice between proved bounds, nothing more.
const NEAR_LIMIT: f64 = 0.03;

/// What the central guarantee of a round of bits depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// The sizes of the model's layout.
    pub blocks: Blocks,
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
    /// Whether the batches of a person's reports may depend on that person's data.
    pub presence: Presence,
}

/// What one person may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The values of the reports. Whether and when they are sent is the same.
    Fixed,
    /// The values, and which rounds they are in, if any: each round closes at its time and is
    /// filled up with reports of v = 0, or with words picked blindly.
    Free,
}

impl Presence {
    /// What a mechanism lets a person change.
    fn of(mechanism: &Mechanism) -> Self {
        match mechanism.closes() {
            Closes::Count { .. } => Self::Fixed,
            Closes::Time { .. } => Self::Free,
        }
    }

    /// How many releases may differ, at most, between two ways in which one person takes part.
    pub(crate) fn releases(self, participations: Participations) -> u32 {
        match self {
            Self::Fixed => participations.get(),
            Self::Free => participations.get().saturating_mul(2),
        }
    }
}

impl Setting {
    /// The setting of one report's law in a batch of which everybody is honest, for a person who
    /// takes part once.
    pub fn new(
        blocks: impl Into<Blocks>,
        bits: Bits,
        keep: Keep,
        batch_size: BatchSize,
        delta: Delta,
    ) -> Self {
        let blocks = blocks.into();
        let participations = Participations::ONE;
        let others = batch_size.get() - 1;
        let presence = Presence::Fixed;
        Self { blocks, bits, keep, others, participations, delta, presence }
    }

    fn coordinates(&self) -> f64 {
        local::coordinates(self.blocks)
    }

    fn releases(&self) -> u32 {
        self.presence.releases(self.participations)
    }

    /// The local epsilon of every report that may differ: what holds without any crowd.
    pub(crate) fn local(&self) -> Bound {
        let one = local::certify(self.blocks, self.bits, self.keep).epsilon;
        Bound { bound: BoundName::Local, epsilon: up(one * f64::from(self.releases())) }
    }

    /// At least the squared L2 distance of a report in one world and what is in its place in the
    /// other; with [`Presence::Free`] also that of two reports that are each in one world only.
    fn squares(&self) -> f64 {
        let replaced = local::squared_diameter_2(self.blocks, self.keep);
        match self.presence {
            Presence::Fixed => replaced,
            Presence::Free => replaced.max(2.0 * local::squared_radius_2(self.blocks, self.keep)),
        }
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
    Ok(prove(setting)?.0)
}

/// The smallest proved central epsilon, and what is known at every epsilon.
pub(crate) fn prove(setting: &Setting) -> Result<(Bound, Curve), PrivacyError> {
    let cap = setting.local();
    let any = [StageSetting::Bits(*setting)];
    let gaussian = gaussian::bound(&any, Placed::Apart);
    let renyi = match gaussian {
        Some(gaussian) if is_near_limit(setting, gaussian) => None,
        _ if setting.others == 0 => None,
        _ if uses_all_bits(setting) => {
            worst_others(setting).map(|bound| (BoundName::RenyiWorstOthers, bound))
        }
        _ => {
            let blanket = blanket(setting).map(|bound| (BoundName::RenyiBlanket, bound));
            let worst = worst_others(setting).map(|bound| (BoundName::RenyiWorstOthers, bound));
            let both = [blanket, worst].into_iter().flatten();
            both.min_by(|a, b| a.1.epsilon().total_cmp(&b.1.epsilon()))
        }
    };
    let mut all = vec![cap];
    all.extend(gaussian.and_then(|bound| of_gaussian(setting.delta, bound, cap)));
    all.extend(renyi.map(|(name, bound)| capped(name, bound.epsilon(), cap)));
    if gaussian.is_none() && setting.others > 0 {
        all.push(capped(BoundName::Clones, clones(setting)?, cap));
    }
    let smallest = Bound::smallest(all).unwrap_or(cap);
    let renyi = renyi.map(|(_, bound)| bound);
    Ok((smallest, Curve::new(&any, smallest, cap, gaussian, renyi)))
}

/// Whether no Renyi divergence promises to be better. The blanket loses sqrt(1 + c).
fn is_near_limit(setting: &Setting, found: GaussianBound) -> bool {
    let lost =
        if uses_all_bits(setting) { 1.0 } else { 1.07 * libm::sqrt(1.0 + setting.keep.get()) };
    found.mu <= gaussian::limit(setting) * (1.0 + NEAR_LIMIT) * lost
}

fn of_gaussian(delta: Delta, bound: GaussianBound, cap: Bound) -> Option<Bound> {
    let epsilon = bound.epsilon(delta.get())?;
    Some(capped(BoundName::Gaussian, epsilon, cap))
}

/// Every proved central epsilon, each at most the local one.
pub fn bounds(setting: &Setting) -> Result<Vec<Bound>, PrivacyError> {
    let cap = setting.local();
    let gaussian = gaussian::bound(&[StageSetting::Bits(*setting)], Placed::Apart);
    let gaussian = gaussian.and_then(|bound| of_gaussian(setting.delta, bound, cap));
    if setting.others == 0 {
        return Ok([Some(cap), gaussian].into_iter().flatten().collect());
    }
    let clones = Some((BoundName::Clones, clones(setting)?));
    let blanket = blanket(setting).map(|bound| (BoundName::RenyiBlanket, bound.epsilon()));
    let worst = worst_others(setting).map(|bound| (BoundName::RenyiWorstOthers, bound.epsilon()));
    let others = [clones, blanket, worst].into_iter().flatten();
    let others = others.map(|(name, epsilon)| capped(name, epsilon, cap));
    Ok(std::iter::once(cap).chain(others).chain(gaussian).collect())
}

fn capped(bound: BoundName, epsilon: f64, cap: Bound) -> Bound {
    Bound { bound, epsilon: up(epsilon).min(cap.epsilon) }
}

/// A fast guess at [`certify`], for searching: the others unanimous, which is not proved to be the
/// worst.
pub fn approx_epsilon(setting: &Setting) -> f64 {
    let cap = setting.local().epsilon;
    let guess = gaussian::guess(setting);
    let gaussian = guess.and_then(|bound| bound.epsilon(setting.delta.get())).unwrap_or(cap);
    let renyi = match (used_bits(setting), guess) {
        (_, Some(guess)) if is_near_limit(setting, guess) => cap,
        (Some(bits), _) => {
            let sums = Binomial::new(bits, (1.0 - setting.keep.get()) / 2.0).pmf();
            best_order(setting, &sums, TAIL_SHARE).map_or(cap, |(epsilon, _)| epsilon)
        }
        (None, _) => cap,
    };
    gaussian.min(renyi).min(cap)
}

/// A fast guess at the mu of all k batches together: that of a setting with the smaller mu has the
/// smaller epsilon at the same delta, so that a search for a c may compare these.
pub fn approx_mu(setting: &Setting) -> Option<f64> {
    gaussian::guess(setting).map(|bound| bound.mu)
}

/// The proved mu of all k batches together, and the part of delta that it spends.
pub fn mu_upper(setting: &Setting) -> Option<(f64, f64)> {
    gaussian::bound(&[StageSetting::Bits(*setting)], Placed::Apart)
        .map(|bound| (bound.mu, bound.spent))
}

/// # Reference
/// Feldman, McMillan, Talwar 2021, for any report with our local epsilon; k batches by optimal
/// composition.
fn clones(setting: &Setting) -> Result<f64, PrivacyError> {
    let epsilon_local = local::certify(setting.blocks, setting.bits, setting.keep).epsilon;
    let honest = BatchSize::new(setting.others.saturating_add(1))?;
    let at = |delta| clones::epsilon_upper(epsilon_local, honest, delta);
    composition::best_for(at, Participations::new(setting.releases())?, setting.delta)
}

/// Given how many of the others' bits are blank (fair coins), the sum is the person's bits plus a
/// fair binomial. Proof: section 4.
fn blanket(setting: &Setting) -> Option<RenyiBound> {
    let (_, order) = best_order(setting, &blank_bits(setting)?, BLANKET_SHARE + TAIL_SHARE)?;
    let kappa = blanket_kappa(setting, order)?;
    Some(renyi(setting, divergence(setting, kappa, order), order, BLANKET_SHARE + TAIL_SHARE))
}

fn blanket_kappa(setting: &Setting, order: f64) -> Option<f64> {
    kappa(setting, &blank_bits(setting)?, order)
}

/// The law of the blank bits' sum when there are as few as [`BLANKET_SHARE`] of delta allows.
fn blank_bits(setting: &Setting) -> Option<Pmf> {
    if setting.bits.get() > MOST_GRID {
        return None;
    }
    let times = f64::from(setting.releases()) * setting.coordinates();
    let bits = setting.others.checked_mul(u64::from(setting.bits.get()))?;
    let miss = BLANKET_SHARE * setting.delta.get() / times;
    let blank = Binomial::new(bits, 1.0 - setting.keep.get()).lower_quantile(miss);
    (blank > 0).then(|| Binomial::new(blank, 0.5).pmf())
}

/// The sum of the others' bits is as bad as it can be. Proof: sections 2 and 3.
fn worst_others(setting: &Setting) -> Option<RenyiBound> {
    let (_, order) = best_order(setting, &unanimous(setting)?, TAIL_SHARE)?;
    let kappa = worst_others_kappa(setting, order)?;
    Some(renyi(setting, divergence(setting, kappa, order), order, TAIL_SHARE))
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
    TAIL_SHARE * setting.delta.get() / (f64::from(setting.releases()) * setting.coordinates())
}

/// Renyi divergence of all sums that one report may change, from D_alpha <= kappa (v - v')^2 for
/// each; with what cutting off tails costs in every release.
fn divergence(setting: &Setting, kappa: f64, order: f64) -> f64 {
    let releases = match setting.presence {
        Presence::Fixed => 1.0,
        Presence::Free => 2.0,
    };
    let cut = order / (order - 1.0) * f64::from(setting.bits.get()) / 2.0
        * tail_mass(setting)
        * local::diameter_1(setting.blocks, setting.keep);
    kappa * setting.squares() + releases * cut
}

/// k reports with this divergence each, with the share of delta that is already spent.
fn renyi(setting: &Setting, divergence: f64, order: f64, spent: f64) -> RenyiBound {
    let divergence = f64::from(setting.participations.get()) * divergence;
    RenyiBound { divergence, order, delta: setting.delta.get(), spent, ideal: Ideal::NONE }
}

/// The order 1 + `excess`, or the nearest one in (1, 2] or [3, inf).
fn proved_order(excess: f64) -> f64 {
    match 1.0 + excess {
        order if order > 2.0 && order < 2.5 => 2.0,
        order if (2.5..3.0).contains(&order) => 3.0,
        order => order,
    }
}

/// The order alpha in (1, 2] or [3, inf) with the smallest epsilon for this law of the others' sum,
/// by golden section over ln(alpha - 1). Every order is valid, so this may be rough.
fn best_order(setting: &Setting, sums: &Pmf, spent: f64) -> Option<(f64, f64)> {
    let groups = if setting.bits == Bits::ONE { 100 } else { 60 };
    let effort = Effort { tolerance: 0.02, pieces: 16 };
    let laws = Laws::new(sums, setting.bits.get(), setting.keep.get(), tail_mass(setting), groups)?;
    let at = |exponent: f64| -> (f64, f64) {
        let order = proved_order(exp(exponent));
        let kappa = laws.kappa(order, effort).unwrap_or(f64::INFINITY);
        (renyi(setting, divergence(setting, kappa, order), order, spent).epsilon(), order)
    };
    let best = renyi::best_exponent(at);
    best.0.is_finite().then_some(best)
}
