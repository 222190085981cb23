//! A law of reports while it is searched for.

use incrowd_bandit::{WordMoments, report_variance};
use incrowd_privacy::local;
use incrowd_protocol::{Bits, Blocks, CodebookLaw, FlipProbability, Keep, Law, OutsideProbability};
use libm::{log, sqrt};

use crate::{
    PlanError,
    budget::{SMALLEST_KEEP, keep_of, odds_of},
};

/// A law whose probability is still being searched for. A fraction would round it at every step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DraftLaw {
    Bits { bits: u32, keep: f64 },
    Words(DraftWords),
}

/// A codebook's law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DraftWords {
    /// N.
    pub words: u32,
    /// k.
    pub chosen: u32,
    /// w, in 256ths.
    pub moment_weight: u32,
    /// gamma: the chance that a report's word is picked blindly. What is left, 1 - gamma, is the
    /// share of the signal, like c for bits.
    pub blind: f64,
}

impl DraftWords {
    /// o = gamma (N - k)/N.
    pub fn outside(self) -> f64 {
        self.blind * f64::from(self.words - self.chosen) / f64::from(self.words)
    }
}

impl DraftLaw {
    /// The law, rounded toward more noise.
    pub fn rounded(self) -> Result<Law, PlanError> {
        Ok(match self {
            Self::Bits { bits, keep } => Law::bits(bits, FlipProbability::from_keep(keep)?),
            Self::Words(draft) => {
                let DraftWords { words, chosen, moment_weight, .. } = draft;
                let outside = OutsideProbability::from_keep(1.0 - draft.outside())?;
                Law::Codebook(CodebookLaw { words, chosen, outside, moment_weight })
            }
        })
    }

    /// The share of the signal that is left: c, or 1 - gamma.
    pub fn keep(self) -> f64 {
        match self {
            Self::Bits { keep, .. } => keep,
            Self::Words(DraftWords { blind, .. }) => 1.0 - blind,
        }
    }

    /// Whether a report has any use.
    pub fn is_useful(self) -> bool {
        self.keep() >= SMALLEST_KEEP
    }

    /// Variance of one report as it slows learning down: the mean of an entry of the moment and of
    /// an off-diagonal one of the Gram matrix, which are the same for bits. See
    /// [`crate::predicted_regret`].
    pub fn noise(self) -> f64 {
        match self {
            Self::Bits { bits, keep } => report_variance(bits, keep),
            Self::Words(draft) => {
                let weight = f64::from(draft.moment_weight) / 256.0;
                let moments = WordMoments::new(draft.words, draft.chosen, draft.outside());
                moments.entry_variance() * weighted(weight)
            }
        }
    }

    /// Local epsilon of one report, not rounded.
    pub fn epsilon_local(self, blocks: Blocks) -> Result<f64, PlanError> {
        Ok(match self {
            Self::Bits { bits, keep } => {
                local::certify(blocks, Bits::new(bits)?, Keep::new(keep)?).epsilon
            }
            Self::Words(draft) => {
                let (n, k) = (f64::from(draft.words), f64::from(draft.chosen));
                let outside = draft.outside();
                log((1.0 - outside) * (n - k) / (outside * k))
            }
        })
    }

    /// The law whose sums tell `factor` times as much, on the scale of two Gaussians' distance.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        match self {
            Self::Bits { bits, keep } => {
                Self::Bits { bits, keep: keep_of(odds_of(keep) * factor * factor) }
            }
            Self::Words(words) => {
                let odds = (1.0 - words.blind) * (1.0 - words.blind) / words.blind;
                Self::Words(DraftWords { blind: blind_of(odds * factor * factor), ..words })
            }
        }
    }

    /// What a report sends, in a few words.
    pub fn words(self) -> String {
        match self {
            Self::Bits { bits: 1, .. } => "1 bit".into(),
            Self::Bits { bits, .. } => format!("{bits} bits"),
            Self::Words(DraftWords { words, chosen, .. }) => format!("{chosen} of {words} words"),
        }
    }
}

/// Mean of 1/w and 1/(2(1-w)): what the share w of the moment makes of a word's variance.
fn weighted(weight: f64) -> f64 {
    f64::midpoint(1.0 / weight, 0.5 / (1.0 - weight))
}

/// gamma with (1 - gamma)^2/gamma = odds: the sums of a codebook are as far apart as the square
/// root of that.
pub fn blind_of(odds: f64) -> f64 {
    let half = 1.0 + odds / 2.0;
    // The smaller root of gamma^2 - 2 half gamma + 1.
    if odds.is_infinite() { 0.0 } else { 1.0 / (half + sqrt(half * half - 1.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_moves_the_distance_by_its_factor() {
        for blind in [0.01, 0.3, 0.9] {
            let words = DraftWords { words: 256, chosen: 4, moment_weight: 128, blind };
            let DraftLaw::Words(scaled) = DraftLaw::Words(words).scaled(1.5) else { panic!() };
            let odds = |blind: f64| (1.0 - blind) * (1.0 - blind) / blind;
            assert!((odds(scaled.blind) / odds(blind) - 2.25).abs() < 1e-9);
        }
        assert!((blind_of(0.0) - 1.0).abs() < 1e-12);
    }
}
