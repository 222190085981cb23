//! A person in several batches of different kinds, or with several reports in one batch. Proof:
//! `docs/privacy-proofs.md`, sections 6.3, 6.4 and 10.4.

use std::cell::Cell;

use incrowd_protocol::{Delta, Participations};
use libm::exp;

use super::{
    BLANKET_SHARE, Bound, BoundName, Curve, Presence, PrivacyError, Setting, StageSetting,
    TAIL_SHARE, approx_epsilon, best_order, blank_bits, blanket_kappa, capped, divergence,
    gaussian::{self, Placed},
    is_near_limit, of_gaussian,
    profile::Worse,
    proved_order, unanimous, used_bits, uses_all_bits, worst_others_kappa,
};
use crate::{
    codebook::{Divergences, Way},
    composition,
    gaussian::epsilon_upper,
    numeric::slack,
    renyi::{Ideal, RenyiBound, best_exponent},
};

/// Share of delta that pays for the tails of the sums where kinds are compared differently.
const PROFILE_SHARE: f64 = 1e-2;

/// A person takes part in k batches, each of any of these kinds: the smallest proved central
/// epsilon of all k together, and what is known at every epsilon. `alone` is what
/// [`StageSetting::prove`] says of each kind.
///
/// Different laws composed can exceed each of them composed with itself. Distances of Gaussians add
/// up in squares and Renyi divergences of one common order add up, whatever the kinds. Where
/// presence is free, one report can change releases of two kinds, also for k = 1.
pub(crate) fn prove_any_of(
    settings: &[StageSetting],
    alone: Vec<(Bound, Curve)>,
) -> (Bound, Vec<Curve>) {
    let bounds = alone.iter().map(|(bound, _)| *bound);
    let worst = settings.iter().zip(bounds).max_by(|a, b| a.1.epsilon.total_cmp(&b.1.epsilon));
    let (leader, worst) = worst.expect("invariant: a checked schedule has a stage");
    let once = leader.participations() == Participations::ONE;
    let curves = |alone: Vec<(Bound, Curve)>| alone.into_iter().map(|(_, curve)| curve).collect();
    if settings.len() == 1 || once && leader.presence() == Presence::Fixed {
        return (worst, curves(alone));
    }
    let changed = if once { Changed::Moved } else { Changed::Anything };
    let (together, curve) = prove_together(settings, leader, changed);
    if !once {
        return (together, vec![curve]);
    }
    // A report that is replaced, or moved to a batch of its own kind, is each kind's affair.
    let mut curves: Vec<Curve> = curves(alone);
    curves.push(curve);
    (if together.epsilon > worst.epsilon { together } else { worst }, curves)
}

/// What a person changes in batches of different kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    /// Each report is replaced, or moved to another batch.
    Anything,
    /// Each report is moved to another batch.
    Moved,
}

fn prove_together(
    settings: &[StageSetting],
    leader: &StageSetting,
    changed: Changed,
) -> (Bound, Curve) {
    let mut cap = leader.local();
    for setting in settings {
        cap.epsilon = cap.epsilon.max(setting.local().epsilon);
    }
    let gaussian = gaussian::bound(settings, Placed::Apart);
    let renyi = if settings.iter().all(is_near) { None } else { mixed(settings, leader, changed) };
    let mut all = vec![cap];
    all.extend(profile(settings, leader).map(|epsilon| capped(BoundName::Mixed, epsilon, cap)));
    all.extend(gaussian.and_then(|bound| of_gaussian(leader.delta(), bound, cap)));
    all.extend(renyi.map(|(name, bound)| capped(name, bound.epsilon(), cap)));
    let smallest = Bound::smallest(all).unwrap_or(cap);
    let renyi = renyi.map(|(_, bound)| bound);
    (smallest, Curve::new(settings, smallest, cap, gaussian, renyi))
}

/// Whether no Renyi divergence promises to be better than Gaussians.
fn is_near(setting: &StageSetting) -> bool {
    match setting {
        StageSetting::Bits(setting) => {
            gaussian::guess(setting).is_some_and(|guess| is_near_limit(setting, guess))
        }
        StageSetting::Codebook(_) => false,
    }
}

/// Kinds whose local epsilon is small next to a Gaussian's are compared with randomized response,
/// the others with Gaussians; none if all kinds are alike in that.
fn profile(settings: &[StageSetting], leader: &StageSetting) -> Option<f64> {
    if leader.presence() == Presence::Free {
        return None;
    }
    let (k, delta) = (leader.participations().get(), leader.delta().get());
    let spent = PROFILE_SHARE * delta;
    let mut worse = Worse { mu: 0.0, response: 0.0 };
    let mut ideal = Ideal::NONE;
    for setting in settings {
        let local = setting.local().epsilon / f64::from(k) * (1.0 + slack::PRODUCT);
        let gaussian = gaussian::of_one_release(setting, spent);
        let epsilon = |mu| epsilon_upper(mu, delta / f64::from(k));
        match gaussian {
            Some(bound) if epsilon(bound.mu) < local => {
                worse.mu = worse.mu.max(bound.mu);
                ideal = ideal.max(bound.ideal);
            }
            _ => worse.response = worse.response.max(local),
        }
    }
    let left = |delta: f64| (delta - spent) * (1.0 - slack::PRODUCT);
    ideal.epsilon(delta, |delta| worse.epsilon_upper(k, left(delta)))
}

/// k batches of any of these kinds at an order that suits `leader`; none if one of them has no
/// bound on its divergence.
fn mixed(
    settings: &[StageSetting],
    leader: &StageSetting,
    changed: Changed,
) -> Option<(BoundName, RenyiBound)> {
    let has_codebooks = settings.iter().any(|s| matches!(s, StageSetting::Codebook(_)));
    let ways: &[Way] = if has_codebooks { &[Way::Blanket, Way::Sum] } else { &[Way::Blanket] };
    let found = ways.iter().filter_map(|&way| mixed_by(settings, leader, changed, way));
    found.min_by(|a, b| a.1.epsilon().total_cmp(&b.1.epsilon()))
}

fn mixed_by(
    settings: &[StageSetting],
    leader: &StageSetting,
    changed: Changed,
    way: Way,
) -> Option<(BoundName, RenyiBound)> {
    let uses_all = |setting: &StageSetting| match setting {
        StageSetting::Bits(setting) => uses_all_bits(setting),
        StageSetting::Codebook(_) => true,
    };
    let all_used = settings.iter().all(uses_all);
    let spent = if all_used { TAIL_SHARE } else { BLANKET_SHARE + TAIL_SHARE };
    let (k, delta) = (leader.participations(), leader.delta().get());
    let of = |divergence: f64, order: f64, ideal: Ideal| {
        let divergence = f64::from(k.get()) * divergence;
        RenyiBound { divergence, order, delta, spent, ideal }
    };
    let codebook = |setting: &StageSetting| match setting {
        StageSetting::Bits(_) => Some(None),
        StageSetting::Codebook(setting) => setting.divergences(way, TAIL_SHARE * delta).map(Some),
    };
    let codebooks: Vec<Option<Divergences>> =
        settings.iter().map(codebook).collect::<Option<_>>()?;
    let order = match leader {
        StageSetting::Bits(leader) => {
            let sums = unanimous(leader).or_else(|| blank_bits(leader))?;
            best_order(leader, &sums, spent)?.1
        }
        StageSetting::Codebook(_) => {
            let at = |exponent: f64| {
                let order = proved_order(exp(exponent));
                let one = codebooks.iter().flatten().map(|known| known.of_one(order, changed));
                (of(one.fold(0.0, f64::max), order, Ideal::NONE).epsilon(), order)
            };
            best_exponent(at).1
        }
    };
    let mut name = BoundName::RenyiWorstOthers;
    let mut largest = 0f64;
    let mut ideal = Ideal::NONE;
    for (setting, known) in settings.iter().zip(&codebooks) {
        let one = match (setting, known) {
            (StageSetting::Bits(setting), _) => {
                let (kappa, by) = kappa_of(setting, order)?;
                name = if by == BoundName::RenyiBlanket { by } else { name };
                divergence(setting, kappa, order)
            }
            (StageSetting::Codebook(setting), Some(known)) => {
                ideal = ideal.max(known.ideal().times(setting.releases()));
                known.of_one(order, changed)
            }
            (StageSetting::Codebook(_), None) => return None,
        };
        largest = largest.max(one);
    }
    let name = if codebooks.iter().any(Option::is_some) { way.name() } else { name };
    let bound = of(largest, order, ideal);
    bound.epsilon().is_finite().then_some((name, bound))
}

/// kappa of one kind of bits, and where it comes from.
fn kappa_of(setting: &Setting, order: f64) -> Option<(f64, BoundName)> {
    if used_bits(setting).is_some() && uses_all_bits(setting) {
        Some((worst_others_kappa(setting, order)?, BoundName::RenyiWorstOthers))
    } else {
        Some((blanket_kappa(setting, order)?, BoundName::RenyiBlanket))
    }
}

/// However a person's k reports are placed, also all in one batch.
pub(crate) struct Together<'a> {
    settings: &'a [StageSetting],
    needs_words: Cell<bool>,
}

impl<'a> Together<'a> {
    pub fn new(settings: &'a [StageSetting]) -> Self {
        Self { settings, needs_words: Cell::new(false) }
    }

    /// Whether the epsilon found needs that the words of codebooks are as good as random.
    pub fn needs_words(&self) -> bool {
        self.needs_words.get()
    }

    /// At least the epsilon: k times the mu of one report, or group privacy with the worst kind at
    /// every step.
    pub fn epsilon(&self) -> Result<f64, PrivacyError> {
        let Some(first) = self.settings.first() else { return Ok(0.0) };
        let gaussian = gaussian::bound(self.settings, Placed::Anyhow);
        match gaussian.and_then(|bound| bound.epsilon(first.delta().get())) {
            Some(epsilon) if epsilon <= self.least_of_a_chain(first) => Ok(epsilon),
            Some(epsilon) => Ok(self.chain().map_or(epsilon, |chain| chain.min(epsilon))),
            None => self.chain(),
        }
    }

    /// About the least that a chain can give: k times one report's epsilon at a k-th of delta.
    fn least_of_a_chain(&self, first: &StageSetting) -> f64 {
        let k = f64::from(first.participations().get());
        let Ok(delta) = Delta::new(first.delta().get() / k) else { return 0.0 };
        let one = |setting: &StageSetting| match setting.once(delta) {
            StageSetting::Bits(setting) => approx_epsilon(&setting),
            StageSetting::Codebook(_) => 0.0,
        };
        0.95 * k * self.settings.iter().map(one).fold(0.0, f64::max)
    }

    fn chain(&self) -> Result<f64, PrivacyError> {
        let Some(first) = self.settings.first() else { return Ok(0.0) };
        let one = |delta: Delta| {
            let once: Vec<StageSetting> = self.settings.iter().map(|s| s.once(delta)).collect();
            let alone = once.iter().map(StageSetting::prove).collect::<Result<Vec<_>, _>>()?;
            let (worst, curves) = prove_any_of(&once, alone);
            if curves.iter().any(Curve::needs_words) {
                self.needs_words.set(true);
            }
            Ok(worst.epsilon)
        };
        composition::same_batch(one, first.participations(), first.delta())
    }
}
