//! Codebook reports: one word out of N that a secret seed expands to. Proofs:
//! `docs/privacy-proofs.md`, section 10.
//!
//! With probability gamma a report is a word picked blindly, whatever the input. That alone bounds
//! what the multiset of all words tells ([`BoundName::CodebookBlanket`]). Released is only their
//! sum, in which the blind words are Gaussian noise ([`BoundName::CodebookSum`]).

mod blanket;
mod lattice;
mod losses;
mod odds;
mod slope;
mod sum;
#[cfg(test)]
mod tests;

use blanket::Blanket;
use incrowd_protocol::{Blocks, CodebookLaw, Delta, Participations};
use libm::{exp, sqrt};
use losses::Losses;
use odds::{Odds, approx_local};
pub use odds::{largest_inside, local_epsilon};
use sum::Sum;

use crate::{
    Bound, BoundName,
    central::{Changed, GaussianBound, Presence},
    gaussian::epsilon_upper,
    numeric::{Upper, slack, up},
    renyi::{self, Ideal, RenyiBound},
};

/// Share of delta that pays for what is left out of laws.
pub(crate) const TAIL_SHARE: f64 = 1e-3;

/// What the central guarantee of a round of codebook reports depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodebookSetting {
    /// The sizes of the model's layout.
    pub blocks: Blocks,
    /// Words, how many are chosen, and how likely another one is sent.
    pub law: CodebookLaw,
    /// Honest reports in the batch besides the one that is protected.
    pub others: u64,
    /// Batches one person takes part in, with one report in each.
    pub participations: Participations,
    /// Delta of the guarantee, for all of them together.
    pub delta: Delta,
    /// Whether the batches of a person's reports may depend on that person's data.
    pub presence: Presence,
}

/// Which of the two arguments a Renyi divergence is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Blanket,
    Sum,
}

impl Way {
    pub fn name(self) -> BoundName {
        match self {
            Self::Blanket => BoundName::CodebookBlanket,
            Self::Sum => BoundName::CodebookSum,
        }
    }
}

impl CodebookSetting {
    /// The proved local epsilon of one report.
    pub fn local(&self) -> Bound {
        let CodebookLaw { words, chosen, outside, .. } = self.law;
        let epsilon = local_epsilon(words, chosen, outside);
        Bound { bound: BoundName::CodebookRatio, epsilon }
    }

    /// How many releases may differ, at most.
    pub(crate) fn releases(&self) -> f64 {
        f64::from(self.presence.releases(self.participations))
    }

    fn odds(&self) -> Odds {
        Odds::of(self.law)
    }

    /// The released sum of one batch, of which a share of delta may be left out for all releases
    /// together.
    pub(crate) fn sum(&self, spent: f64) -> Option<Sum> {
        let tail = spent / self.releases() * (1.0 - slack::PRODUCT);
        let delta = self.delta.get() / self.releases();
        Sum::new(self.odds(), self.blocks, self.others, tail, delta)
    }

    /// The honest reports, the person's among them, if there is something to hide and somebody to
    /// hide among.
    fn crowd(&self) -> Option<(Odds, u64)> {
        let odds = self.odds();
        let honest = self.others.checked_add(1)?;
        (odds.gain() > 0.0 && self.others > 0).then_some((odds, honest))
    }

    fn blanket(&self) -> Option<Blanket> {
        self.crowd().map(|(odds, honest)| Blanket::new(odds, honest, self.delta.get()))
    }

    /// Two Gaussians for all releases together, of which so much is left out.
    pub(crate) fn gaussian(&self, spent: f64) -> Option<GaussianBound> {
        let sum = self.sum(spent)?;
        let mu = sum.mu() * sqrt(f64::from(self.participations.get()));
        let ideal = sum.ideal.times(self.releases());
        Some(GaussianBound { mu: Upper::of(mu).value(), spent, ideal })
    }

    /// The divergences of one report, of which so much is left out in all releases together.
    pub(crate) fn divergences(&self, way: Way, spent: f64) -> Option<Divergences> {
        let tail = spent / self.releases() * (1.0 - slack::PRODUCT);
        match way {
            Way::Sum => self.sum(spent).map(Divergences::Sum),
            Way::Blanket => {
                let (odds, honest) = self.crowd()?;
                let strong = blanket::strong(&odds, honest, tail / 2.0);
                let weak = match self.presence {
                    Presence::Fixed => Losses::default(),
                    Presence::Free => blanket::weak(&odds, honest, tail / 2.0),
                };
                (strong.spent().max(weak.spent()) <= tail)
                    .then_some(Divergences::Blanket { strong, weak })
            }
        }
    }

    /// The best Renyi bound of all releases together.
    fn renyi(&self, way: Way) -> Option<RenyiBound> {
        let divergences = self.divergences(way, TAIL_SHARE * self.delta.get())?;
        let at = |exponent: f64| {
            let bound = divergences.bound(self, 1.0 + exp(exponent));
            (bound.epsilon(), bound.order)
        };
        let (epsilon, order) = renyi::best_exponent(at);
        epsilon.is_finite().then(|| divergences.bound(self, order))
    }
}

/// Renyi divergences of one report of one person, of every order.
pub(crate) enum Divergences {
    Blanket { strong: Losses, weak: Losses },
    Sum(Sum),
}

impl Divergences {
    /// At least that of one report that is replaced or moved. A report that is moved between
    /// batches of different kinds has at most the largest of theirs for each direction.
    pub fn of_one(&self, order: f64, changed: Changed) -> f64 {
        match (self, changed) {
            (Self::Blanket { strong, weak }, _) => {
                let moved = 2.0 * weak.divergence(order).max(weak.reversed(order));
                match changed {
                    Changed::Anything => strong.divergence(order).max(moved),
                    Changed::Moved => moved,
                }
            }
            (Self::Sum(sum), Changed::Anything) => sum.divergence(order),
            (Self::Sum(sum), Changed::Moved) => 2.0 * sum.single(order),
        }
    }

    /// What one release has to do with one of normal words.
    pub fn ideal(&self) -> Ideal {
        match self {
            Self::Blanket { .. } => Ideal::NONE,
            Self::Sum(sum) => sum.ideal,
        }
    }

    fn bound(&self, setting: &CodebookSetting, order: f64) -> RenyiBound {
        RenyiBound {
            divergence: f64::from(setting.participations.get())
                * self.of_one(order, Changed::Anything),
            order,
            delta: setting.delta.get(),
            spent: TAIL_SHARE,
            ideal: self.ideal().times(setting.releases()),
        }
    }
}

/// What is proved about a round of codebook reports, at its delta and at every epsilon.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Profile {
    blanket: Option<Blanket>,
    moved: Option<RenyiBound>,
    sum: Option<Sum>,
    renyi: Vec<RenyiBound>,
    gaussian: Option<GaussianBound>,
    presence: Presence,
}

impl Profile {
    /// Every bound, each at most `cap`.
    pub fn prove(setting: &CodebookSetting, cap: f64) -> (Self, Vec<Bound>) {
        let (delta, presence) = (setting.delta.get(), setting.presence);
        let once = setting.participations == Participations::ONE;
        let spent = TAIL_SHARE * delta;
        let mut found = Vec::new();
        if cap <= 0.0 {
            return (Self::nothing(presence), Vec::new());
        }
        let mut profile = Self {
            blanket: if once { setting.blanket() } else { None },
            moved: None,
            sum: if once { setting.sum(spent) } else { None },
            renyi: Vec::new(),
            gaussian: if once { None } else { setting.gaussian(spent) },
            presence,
        };
        if !once {
            for way in [Way::Blanket, Way::Sum] {
                if let Some(bound) = setting.renyi(way) {
                    found.push((way.name(), bound.epsilon()));
                    profile.renyi.push(bound);
                }
            }
        } else if presence == Presence::Free {
            profile.moved = moved(setting);
        }
        if let Some(bound) = profile.gaussian {
            found.extend(bound.epsilon(delta).map(|e| (BoundName::CodebookSum, e)));
        }
        if let Some(blanket) = &profile.blanket {
            let replaced = blanket.epsilon(delta, cap);
            let moved = match (presence, profile.moved) {
                (Presence::Fixed, _) => 0.0,
                (Presence::Free, moved) => moved.map_or(cap, RenyiBound::epsilon),
            };
            found.push((BoundName::CodebookBlanket, replaced.max(moved)));
        }
        if let Some(sum) = &profile.sum {
            let ideal = sum.ideal.times(setting.releases());
            let at = |delta: f64| {
                let left = delta - setting.releases() * sum.spent;
                let replaced = Sum::solve(left, cap, |epsilon| sum.replaced(epsilon))?;
                match presence {
                    Presence::Fixed => Some(replaced),
                    Presence::Free => {
                        let moved = Sum::solve(left, cap, |epsilon| sum.moved(epsilon))?;
                        Some(replaced.max(moved))
                    }
                }
            };
            found.extend(ideal.epsilon(delta, at).map(|e| (BoundName::CodebookSum, e)));
        }
        let bounds = found
            .into_iter()
            .map(|(bound, epsilon)| Bound { bound, epsilon: up(epsilon).min(cap) });
        (profile, bounds.collect())
    }

    fn nothing(presence: Presence) -> Self {
        let (blanket, moved, sum, gaussian) = (None, None, None, None);
        Self { blanket, moved, sum, renyi: Vec::new(), gaussian, presence }
    }

    /// Without what needs that words are as good as random.
    #[must_use]
    pub fn without_words(self) -> Self {
        let renyi = self.renyi.into_iter().filter(|bound| bound.ideal == Ideal::NONE).collect();
        Self { sum: None, gaussian: None, renyi, ..self }
    }

    /// Whether it needs that words are as good as random.
    pub fn needs_words(&self) -> bool {
        self.sum.is_some()
            || self.gaussian.is_some()
            || self.renyi.iter().any(|bound| bound.ideal != Ideal::NONE)
    }

    /// At least delta at `epsilon`.
    pub fn delta(&self, epsilon: f64) -> f64 {
        let mut least = 1f64;
        if let Some(blanket) = &self.blanket {
            let replaced = blanket.delta(epsilon).value();
            let moved = match (self.presence, self.moved) {
                (Presence::Fixed, _) => 0.0,
                (Presence::Free, moved) => moved.map_or(1.0, |bound| bound.delta(epsilon)),
            };
            least = least.min(replaced.max(moved));
        }
        if let Some(sum) = &self.sum {
            let releases = f64::from(self.presence.releases(Participations::ONE));
            let at = |epsilon: f64| {
                let replaced = sum.replaced(epsilon);
                let larger = match self.presence {
                    Presence::Fixed => replaced.value(),
                    Presence::Free => replaced.value().max(sum.moved(epsilon).value()),
                };
                (Upper::of(larger) + Upper::of(releases * sum.spent)).value()
            };
            let ideal = sum.ideal.times(releases);
            least = least.min(ideal.delta(epsilon, releases * sum.spent, at));
        }
        let renyi = self.renyi.iter().map(|bound| bound.delta(epsilon));
        let gaussian = self.gaussian.iter().map(|bound| bound.delta(epsilon));
        renyi.chain(gaussian).fold(least, f64::min)
    }
}

/// A report that is in different rounds in the two worlds, by Renyi divergences of the blanket.
fn moved(setting: &CodebookSetting) -> Option<RenyiBound> {
    let spent = TAIL_SHARE * setting.delta.get();
    let (odds, honest) = setting.crowd()?;
    let weak = blanket::weak(&odds, honest, spent / setting.releases() / 2.0);
    if weak.spent() > spent / setting.releases() {
        return None;
    }
    let bound = |order: f64| RenyiBound {
        divergence: weak.divergence(order) + weak.reversed(order),
        order,
        delta: setting.delta.get(),
        spent: TAIL_SHARE,
        ideal: Ideal::NONE,
    };
    let at = |exponent: f64| {
        let bound = bound(1.0 + exp(exponent));
        (bound.epsilon(), bound.order)
    };
    let (epsilon, order) = renyi::best_exponent(at);
    epsilon.is_finite().then(|| bound(order))
}

/// The numbers of a law that a search is about, with the chance of a chosen word as any float.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ApproxLaw {
    /// N.
    pub words: u32,
    /// k.
    pub chosen: u32,
    /// p, the chance that the word sent is one of the chosen ones.
    pub inside: f64,
    /// w.
    pub moment_weight: f64,
}

/// A fast guess at the central epsilon of `participations` batches, for searching.
pub fn approx_epsilon(
    law: ApproxLaw,
    others: u64,
    participations: Participations,
    delta: Delta,
    presence: Presence,
) -> f64 {
    let ApproxLaw { words, chosen, inside, moment_weight } = law;
    let odds = Odds::new(words, chosen, inside, 1.0 - inside, moment_weight);
    let releases = f64::from(presence.releases(participations));
    let (k, delta) = (f64::from(participations.get()), delta.get());
    let cap = releases * approx_local(&odds);
    if others == 0 || cap <= 0.0 {
        return cap;
    }
    let mut best = cap;
    let left = delta * (1.0 - TAIL_SHARE);
    if let Some(sum) = Sum::approx(odds, others, TAIL_SHARE * delta / releases) {
        let found = if participations == Participations::ONE {
            Sum::solve(left, cap, |epsilon| sum.replaced(epsilon)).unwrap_or(cap)
        } else {
            let at = |exponent: f64| {
                let order = 1.0 + exp(exponent);
                (renyi::epsilon_upper(k * sum.divergence(order), order, left), order)
            };
            renyi::best_exponent(at).0.min(epsilon_upper(sum.mu() * sqrt(k), left))
        };
        best = best.min(found);
    }
    if participations == Participations::ONE && (best > 0.5 * approx_local(&odds) || others < 64) {
        best = best.min(Blanket::approx(odds, others.saturating_add(1), delta).epsilon(delta, cap));
    }
    best
}
