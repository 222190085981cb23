//! How much signal the privacy limits leave: fast guesses for searching, and a guess good enough to
//! certify.

use std::{cell::RefCell, collections::BTreeMap};

use incrowd_bandit::largest_normals;
use incrowd_privacy::{
    PrivacyError,
    central::{Setting, approx_epsilon, honest_others},
    codebook::{self, ApproxLaw},
    gaussian::delta_upper,
    local,
    numeric::{Ends, bisect, halvings},
};
use incrowd_protocol::{BatchSize, Bits, Keep};
use libm::{exp, floor, log, sqrt};

use crate::{
    Request,
    law::{DraftLaw, DraftWords, blind_of},
    request::Units,
};

/// A smaller keep probability is no plan: a report would weigh less than a millionth of an open
/// one.
pub const SMALLEST_KEEP: f64 = 1e-3;
/// gamma stays above it even when nothing limits it.
const SMALLEST_BLIND: f64 = 1e-3;
/// c stays below it even when nothing limits it.
const LARGEST_KEEP: f64 = 0.999;
/// Share of the allowed mu at which a solution is good enough.
const NEAR: f64 = 0.998;
/// How much above the Gaussian limit a proved theta is at least.
const PROVED: f64 = 1.005;
/// A sum's quantiles move faster in its tails, by this times theta for each standard deviation: one
/// for the tilt of the coin that moves, 2/3 for the skewness of unanimous others.
const TAIL: f64 = 5.0 / 3.0;
/// Share of delta that the certificate pays for tails.
const TAIL_SHARE: f64 = 1e-3;
/// With few bits Renyi divergences take over where tails are steep: theta is then about this share
/// of the Gaussian limit's.
const RENYI: f64 = 0.65;
/// Most bits for which they do.
const MOST_RENYI: u32 = 8;
/// How much above the Gaussian limit the distance of two proved sums of words is, with many words
/// that are picked blindly; with B of them another 1/sqrt(B) more.
const PROVED_WORDS: f64 = 1.03;

/// The privacy limits of a request, with what has been found out about them.
pub struct Budget {
    units: Units,
    local: Option<f64>,
    central: Option<f64>,
    /// Two Gaussians at this distance are as private as the central limit.
    mu: f64,
    local_keeps: RefCell<BTreeMap<u32, f64>>,
    alone_keeps: RefCell<BTreeMap<u32, f64>>,
}

impl Budget {
    /// Whether another request has the same privacy limits.
    pub fn fits(&self, request: &Request) -> bool {
        let config = request.config();
        self.units == request.units
            && (self.local, self.central) == (config.local_epsilon.cap(), config.central_epsilon)
    }

    pub fn new(request: &Request) -> Self {
        let (config, units) = (request.config(), request.units);
        Self {
            units,
            local: config.local_epsilon.cap(),
            central: config.central_epsilon,
            mu: config.central_epsilon.map_or(f64::INFINITY, |e| mu_of(e, units.delta.get())),
            local_keeps: RefCell::default(),
            alone_keeps: RefCell::default(),
        }
    }

    /// The largest c that the local limit allows.
    pub fn local_keep(&self, bits: u32) -> Result<f64, PrivacyError> {
        let Some(epsilon) = self.local else { return Ok(LARGEST_KEEP) };
        if let Some(&keep) = self.local_keeps.borrow().get(&bits) {
            return Ok(keep);
        }
        let keep = local::largest_keep(self.units.blocks, Bits::new(bits)?, epsilon)?.get();
        let keep = keep.min(LARGEST_KEEP);
        self.local_keeps.borrow_mut().insert(bits, keep);
        Ok(keep)
    }

    /// A c at which the central limit is met without any crowd: all reports of a person together
    /// are local enough. 0 if there is none.
    fn alone_keep(&self, bits: u32) -> Result<f64, PrivacyError> {
        let Some(central) = self.central else { return Ok(LARGEST_KEEP) };
        if let Some(&keep) = self.alone_keeps.borrow().get(&bits) {
            return Ok(keep);
        }
        let each = central / self.units.releases() * (1.0 - 1e-6);
        let keep = match local::largest_keep(self.units.blocks, Bits::new(bits)?, each) {
            Ok(keep) => keep.get().min(LARGEST_KEEP),
            Err(PrivacyError::EpsilonLocalTooSmall { .. }) => 0.0,
            Err(error) => return Err(error),
        };
        self.alone_keeps.borrow_mut().insert(bits, keep);
        Ok(keep)
    }

    /// A fast guess at the largest c that both limits allow.
    pub fn guess_keep(&self, size: u32, bits: u32) -> Result<f64, PrivacyError> {
        let cap = self.local_keep(bits)?;
        if self.central_never_binds() {
            return Ok(cap);
        }
        Ok(self.closed_form(size, bits).max(self.alone_keep(bits)?).min(cap))
    }

    /// The largest c, to a few percent of epsilon, at which [`approx_epsilon`] meets the limits.
    pub fn keep(&self, size: u32, bits: u32) -> Result<f64, PrivacyError> {
        let cap = self.local_keep(bits)?;
        if self.central_never_binds() {
            return Ok(cap);
        }
        let start = self.guess_keep(size, bits)?;
        Ok(self.solve(size, bits, start, cap)?.max(self.alone_keep(bits)?.min(cap)))
    }

    /// The draft with the least chance of a blind pick that both limits allow, by a guess: sums of
    /// words are sqrt(q) (1 - gamma) e/sqrt(n gamma) apart, e the mean of the k largest of N
    /// normals.
    pub fn guess_words(
        &self,
        size: u32,
        words: u32,
        chosen: u32,
        moment_weight: u32,
    ) -> DraftWords {
        let draft = |blind| DraftWords { words, chosen, moment_weight, blind };
        let local = self.local.map_or(0.0, |epsilon| blind_at(words, chosen, epsilon));
        if self.central_never_binds() {
            return draft(local.max(SMALLEST_BLIND));
        }
        let honest = floor(self.units.honest_fraction.get() * f64::from(size));
        let weight = f64::from(moment_weight) / 256.0;
        let squares = 2.0 + weight * weight / (2.0 * (1.0 - weight));
        let mean = largest_normals(words, chosen).0;
        let k = f64::from(self.units.participations.get());
        let mut crowd = 1.0;
        for _ in 0..4 {
            // The fewer words are picked blindly, the more room their number needs.
            let proved = PROVED_WORDS + 1.0 / sqrt((crowd * honest).max(1.0));
            let reach = self.mu / (proved * mean * sqrt(squares * k));
            crowd = blind_of(reach * reach * honest);
        }
        let alone = self
            .central
            .map_or(0.0, |epsilon| blind_at(words, chosen, epsilon / self.units.releases()));
        draft(crowd.min(alone).max(local).clamp(SMALLEST_BLIND, 1.0))
    }

    /// The same law with the least noise, to a few percent of epsilon, at which [`Budget::approx`]
    /// meets the limits.
    pub fn solve_words(&self, size: u32, draft: DraftWords) -> Result<DraftWords, PrivacyError> {
        if self.central_never_binds() {
            return Ok(draft);
        }
        let local = self.local.map_or(0.0, |epsilon| blind_at(draft.words, draft.chosen, epsilon));
        let (delta, least) = (self.units.delta.get(), local.max(SMALLEST_BLIND));
        let (mut tried, mut good) = (draft, None);
        for _ in 0..8 {
            let used = mu_of(self.approx(size, DraftLaw::Words(tried))?, delta) / self.mu;
            if used <= 1.0 {
                good = Some(tried);
                if used >= NEAR || tried.blind <= least {
                    break;
                }
            }
            let ratio = f64::midpoint(1.0, NEAR) / used;
            let DraftLaw::Words(next) = DraftLaw::Words(tried).scaled(ratio) else { break };
            tried = DraftWords { blind: next.blind.clamp(least, 1.0), ..next };
        }
        Ok(good.unwrap_or(tried))
    }

    /// A guess at the central epsilon of a batch.
    pub fn approx(&self, size: u32, law: DraftLaw) -> Result<f64, PrivacyError> {
        match law {
            DraftLaw::Bits { bits, keep } => self.approx_bits(size, bits, keep),
            DraftLaw::Words(words) => self.approx_words(size, words),
        }
    }

    fn approx_words(&self, size: u32, words: DraftWords) -> Result<f64, PrivacyError> {
        let Units { delta, participations, honest_fraction, presence, .. } = self.units;
        let others = honest_others(BatchSize::new(u64::from(size))?, honest_fraction);
        let law = ApproxLaw {
            words: words.words,
            chosen: words.chosen,
            inside: 1.0 - words.outside(),
            moment_weight: f64::from(words.moment_weight) / 256.0,
        };
        Ok(codebook::approx_epsilon(law, others, participations, delta, presence))
    }

    fn approx_bits(&self, size: u32, bits: u32, keep: f64) -> Result<f64, PrivacyError> {
        let Units { blocks, delta, participations, honest_fraction, presence, .. } = self.units;
        let size = BatchSize::new(u64::from(size))?;
        Ok(approx_epsilon(&Setting {
            blocks,
            bits: Bits::new(bits)?,
            keep: Keep::new(keep)?,
            others: honest_others(size, honest_fraction),
            participations,
            delta,
            presence,
        }))
    }

    /// The smallest batch in which one bit per coordinate has any use, by the closed form.
    pub fn smallest_useful_batch(&self) -> u64 {
        let theta = self.theta(1);
        let honest = SMALLEST_KEEP * SMALLEST_KEEP / (theta * theta);
        ((honest + 1.0) / self.units.honest_fraction.get()).ceil() as u64
    }

    /// Whether the local limit decides how much a law keeps.
    pub fn is_at_local_limit(&self, law: DraftLaw) -> Result<bool, PrivacyError> {
        Ok(match law {
            DraftLaw::Bits { bits, keep } => keep >= self.local_keep(bits)?,
            DraftLaw::Words(DraftWords { words, chosen, blind, .. }) => {
                self.local.is_some_and(|epsilon| blind <= blind_at(words, chosen, epsilon))
            }
        })
    }

    fn central_never_binds(&self) -> bool {
        let (Some(central), local) = (self.central, self.local) else { return true };
        local.is_some_and(|local| local * self.units.releases() <= central)
    }

    /// c if the sum of the others' coins were Gaussian but for its tails: its variance is n m (1 -
    /// c^2)/4, and it moves by c/2 for each coin that does.
    fn closed_form(&self, size: u32, bits: u32) -> f64 {
        let honest = floor(self.units.honest_fraction.get() * f64::from(size));
        let theta = self.theta(bits);
        keep_of(theta * theta * honest * f64::from(bits))
    }

    /// A guess at how much a coin may move quantiles of its sum: mu is theta m sqrt(4.5 k).
    fn theta(&self, bits: u32) -> f64 {
        let squares = if self.units.blocks.parameters() == 1 { 4.0 } else { 4.5 };
        let reach = self.mu / sqrt(squares * f64::from(self.units.participations.get()));
        let theta = reach / f64::from(bits);
        let places = 2.0 * self.units.releases() * self.units.blocks.coordinates() as f64;
        let edge = sqrt(2.0 * log(places / (TAIL_SHARE * self.units.delta.get())));
        let share = 1.0 / (PROVED * (1.0 + TAIL * theta * (edge + 2.0 * reach)));
        theta * if bits <= MOST_RENYI { share.max(RENYI) } else { share }
    }

    /// Newton's method on the scale of mu, which grows like the square root of the odds, kept
    /// inside a bracket.
    fn solve(&self, size: u32, bits: u32, start: f64, cap: f64) -> Result<f64, PrivacyError> {
        let delta = self.units.delta.get();
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut keep = start.min(cap);
        for _ in 0..10 {
            let used = mu_of(self.approx_bits(size, bits, keep)?, delta) / self.mu;
            if used <= 1.0 {
                low = keep;
                if used >= NEAR || keep >= cap {
                    break;
                }
            } else {
                high = keep;
            }
            let ratio = f64::midpoint(1.0, NEAR) / used;
            let newton = keep_of(odds_of(keep) * ratio * ratio);
            let inside = newton > low && newton < high.min(cap * 1.000_001);
            keep = if inside {
                newton.min(cap)
            } else if high.is_infinite() {
                cap
            } else {
                let low = if low > 0.0 { odds_of(low) } else { odds_of(high) / 64.0 };
                keep_of(sqrt(low * odds_of(high)))
            };
        }
        Ok(low)
    }
}

/// gamma at which one of `words` words with `chosen` picked has this local epsilon: with p = e^eps
/// k/(e^eps k + N - k) the chance (1-p) N/(N-k).
fn blind_at(words: u32, chosen: u32, epsilon: f64) -> f64 {
    // Less by more than a certificate is rounded up.
    let grown = exp(epsilon * (1.0 - 1e-8)) * f64::from(chosen);
    f64::from(words) / (grown + f64::from(words - chosen))
}

/// c with c^2/(1 - c^2) = odds.
pub fn keep_of(odds: f64) -> f64 {
    if odds.is_infinite() { 1.0 } else { sqrt(odds / (1.0 + odds)) }
}

/// c^2/(1 - c^2).
pub fn odds_of(keep: f64) -> f64 {
    keep * keep / ((1.0 - keep) * (1.0 + keep))
}

/// The distance at which two Gaussians are (epsilon, delta)-close.
pub fn mu_of(epsilon: f64, delta: f64) -> f64 {
    let fits = |exponent: f64| delta_upper(exp(exponent), epsilon).is_at_most(delta);
    exp(bisect(Ends { holds: -60.0, fails: 12.0 }, halvings(60), fits).holds)
}

#[cfg(test)]
mod tests {
    use incrowd_privacy::{central::Presence, gaussian::epsilon_upper};

    use super::*;
    use crate::{LocalLimit, PlanRequest};

    #[test]
    fn mu_inverts_the_curve() {
        for epsilon in [0.01, 0.3, 1.0, 8.0, 50.0] {
            let mu = mu_of(epsilon, 1e-6);
            assert!((epsilon_upper(mu, 1e-6) / epsilon - 1.0).abs() < 1e-6, "{epsilon} {mu}");
        }
    }

    /// In c, for few and many bits, with and without free presence.
    #[test]
    fn the_guess_is_near_the_solution() {
        for central in [0.1, 1.0, 10.0] {
            let request = PlanRequest {
                central_epsilon: Some(central),
                local_epsilon: LocalLimit::Unlimited,
                ..PlanRequest::new(5, 100_000)
            };
            let mut request = request.check().unwrap();
            for presence in [Presence::Fixed, Presence::Free] {
                request.units.presence = presence;
                let budget = Budget::new(&request);
                for (size, bits) in [(150, 1), (700, 1), (3000, 63), (700, 255), (30_000, 1023)] {
                    if bits == 1 && central > 1.0 {
                        continue;
                    }
                    let guess = budget.guess_keep(size, bits).unwrap();
                    let keep = budget.keep(size, bits).unwrap();
                    let name = format!("{central} {size} {bits}: {guess} {keep}");
                    let off = if bits > 8 { 0.02 } else { 0.15 };
                    assert!((guess / keep - 1.0).abs() < off, "{name}");
                    let epsilon = budget.approx_bits(size, bits, keep).unwrap();
                    assert!(epsilon <= central && epsilon > 0.98 * central, "{name}: {epsilon}");
                }
            }
        }
    }
}
