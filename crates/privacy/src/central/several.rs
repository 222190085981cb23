//! A person in several batches of different kinds, or with several reports in one batch. Proof:
//! `docs/privacy-proofs.md`, sections 6.3 and 6.4.

use incrowd_protocol::{Delta, Participations};

use super::{
    BLANKET_SHARE, Bound, BoundName, Curve, PrivacyError, Setting, TAIL_SHARE, best_order,
    blank_bits, blanket_kappa, capped, certify, divergence,
    gaussian::{self, Placed},
    of_gaussian, renyi, unanimous, used_bits, uses_all_bits, worst_others_kappa,
};
use crate::{composition, renyi::RenyiBound};

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
    let renyi = mixed(settings, leader);
    let mut all = vec![cap];
    all.extend(gaussian.and_then(|bound| of_gaussian(leader, bound, cap)));
    all.extend(renyi.map(|(name, bound)| capped(name, bound.epsilon(), cap)));
    let smallest = Bound::smallest(all).unwrap_or(cap);
    let renyi = renyi.map(|(_, bound)| bound);
    (smallest, vec![Curve::new(settings, smallest, cap, gaussian, renyi)])
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
        if let Some(epsilon) = gaussian.and_then(|bound| bound.epsilon(first.delta.get())) {
            return Ok(match self.chain() {
                Ok(chain) => chain.min(epsilon),
                Err(_) => epsilon,
            });
        }
        self.chain()
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
