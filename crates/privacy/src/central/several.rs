//! A person in several batches of different kinds, or with several reports in one batch. Proof:
//! `docs/privacy-proofs.md`, sections 6.3 and 6.4.

use incrowd_protocol::{Delta, Participations};

use super::{
    BLANKET_SHARE, Bound, BoundName, Curve, Presence, PrivacyError, Setting, TAIL_SHARE,
    approx_epsilon, best_order, blank_bits, blanket_kappa, capped, certify, divergence,
    gaussian::{self, Placed},
    is_near_limit, of_gaussian,
    profile::Worse,
    renyi, unanimous, used_bits, uses_all_bits, worst_others_kappa,
};
use crate::{composition, gaussian::epsilon_upper, numeric::slack, renyi::RenyiBound};

/// Share of delta that pays for the tails of the sums where kinds are compared differently.
const PROFILE_SHARE: f64 = 1e-2;

/// A person takes part in k batches, each of any of these kinds: the smallest proved central
/// epsilon of all k together, and what is known at every epsilon. `alone` is what
/// [`super::prove`] says of each kind.
///
/// Different laws composed can exceed each of them composed with itself. Distances of Gaussians add
/// up in squares and Renyi divergences of one common order add up, whatever the kinds.
pub(crate) fn prove_any_of(
    settings: &[Setting],
    alone: Vec<(Bound, Curve)>,
) -> (Bound, Vec<Curve>) {
    let bounds = alone.iter().map(|(bound, _)| *bound);
    let worst = settings.iter().zip(bounds).max_by(|a, b| a.1.epsilon.total_cmp(&b.1.epsilon));
    let (leader, worst) = worst.expect("invariant: a checked schedule has a stage");
    if leader.participations == Participations::ONE || settings.len() == 1 {
        return (worst, alone.into_iter().map(|(_, curve)| curve).collect());
    }
    let mut cap = leader.local();
    for setting in settings {
        cap.epsilon = cap.epsilon.max(setting.local().epsilon);
    }
    let gaussian = gaussian::bound(settings, Placed::Apart);
    let near = |setting: &Setting| {
        gaussian::guess(setting).is_some_and(|guess| is_near_limit(setting, guess))
    };
    let renyi = if settings.iter().all(near) { None } else { mixed(settings, leader) };
    let mut all = vec![cap];
    all.extend(profile(settings, leader).map(|epsilon| capped(BoundName::Mixed, epsilon, cap)));
    all.extend(gaussian.and_then(|bound| of_gaussian(leader, bound, cap)));
    all.extend(renyi.map(|(name, bound)| capped(name, bound.epsilon(), cap)));
    let smallest = Bound::smallest(all).unwrap_or(cap);
    let renyi = renyi.map(|(_, bound)| bound);
    (smallest, vec![Curve::new(settings, smallest, cap, gaussian, renyi)])
}

/// Kinds whose local epsilon is small next to a Gaussian's are compared with randomized response,
/// the others with Gaussians; none if all kinds are alike in that.
fn profile(settings: &[Setting], leader: &Setting) -> Option<f64> {
    if leader.presence == Presence::Free {
        return None;
    }
    let (k, delta) = (leader.participations.get(), leader.delta.get());
    let spent = PROFILE_SHARE * delta;
    let mut worse = Worse { mu: 0.0, response: 0.0 };
    for setting in settings {
        let local = setting.local().epsilon / f64::from(k) * (1.0 + slack::PRODUCT);
        let mu = gaussian::of_one_release(setting, spent);
        let epsilon = mu.map_or(f64::INFINITY, |mu| epsilon_upper(mu, delta / f64::from(k)));
        match mu {
            Some(mu) if epsilon < local => worse.mu = worse.mu.max(mu),
            _ => worse.response = worse.response.max(local),
        }
    }
    worse.epsilon_upper(k, (delta - spent) * (1.0 - slack::PRODUCT))
}

/// k batches of any of these kinds at the order that suits `leader`; none if one of them has no
/// bound on its divergence.
fn mixed(settings: &[Setting], leader: &Setting) -> Option<(BoundName, RenyiBound)> {
    let all_used = settings.iter().all(uses_all_bits);
    let spent = if all_used { TAIL_SHARE } else { BLANKET_SHARE + TAIL_SHARE };
    let sums = unanimous(leader).or_else(|| blank_bits(leader))?;
    let (_, order) = best_order(leader, &sums, spent)?;
    let mut name = BoundName::RenyiWorstOthers;
    let mut largest = 0f64;
    for setting in settings {
        let kappa = if used_bits(setting).is_some() && uses_all_bits(setting) {
            worst_others_kappa(setting, order)?
        } else {
            name = BoundName::RenyiBlanket;
            blanket_kappa(setting, order)?
        };
        largest = largest.max(divergence(setting, kappa, order));
    }
    Some((name, renyi(leader, largest, order, spent)))
}

/// However a person's k reports are placed, also all in one batch.
pub(crate) struct Together<'a>(pub &'a [Setting]);

impl Together<'_> {
    /// At least the epsilon: k times the mu of one report, or group privacy with the worst kind at
    /// every step.
    pub fn epsilon(&self) -> Result<f64, PrivacyError> {
        let Some(first) = self.0.first() else { return Ok(0.0) };
        let gaussian = gaussian::bound(self.0, Placed::Anyhow);
        match gaussian.and_then(|bound| bound.epsilon(first.delta.get())) {
            Some(epsilon) if epsilon <= self.least_of_a_chain(first) => Ok(epsilon),
            Some(epsilon) => Ok(self.chain().map_or(epsilon, |chain| chain.min(epsilon))),
            None => self.chain(),
        }
    }

    /// About the least that a chain can give: k times one report's epsilon at a k-th of delta.
    fn least_of_a_chain(&self, first: &Setting) -> f64 {
        let k = f64::from(first.participations.get());
        let Ok(delta) = Delta::new(first.delta.get() / k) else { return 0.0 };
        let one = |setting: &Setting| {
            approx_epsilon(&Setting { participations: Participations::ONE, delta, ..*setting })
        };
        0.95 * k * self.0.iter().map(one).fold(0.0, f64::max)
    }

    fn chain(&self) -> Result<f64, PrivacyError> {
        let Some(first) = self.0.first() else { return Ok(0.0) };
        let one = |delta: Delta| {
            let mut worst = 0f64;
            for setting in self.0 {
                let alone = Setting { participations: Participations::ONE, delta, ..*setting };
                worst = worst.max(certify(&alone)?.epsilon);
            }
            Ok(worst)
        };
        composition::same_batch(one, first.participations, first.delta)
    }
}
