//! The setting of a stage of a mechanism, whatever its law.

use incrowd_protocol::{
    BatchSize, Bits, BitsLaw, Delta, Keep, Law, Mechanism, Participations, Stage,
};

use super::{Bound, BoundName, Curve, Presence, PrivacyError, Setting, honest_others, prove};
use crate::{
    codebook::{CodebookSetting, Profile},
    local,
    numeric::{Upper, up},
};

/// Why the numbers of a mechanism are valid units.
const CHECKED: &str = "invariant: a mechanism is checked";

/// What the central guarantee of a round depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StageSetting {
    /// Reports of randomized bits.
    Bits(Setting),
    /// Reports that are words of codebooks.
    Codebook(CodebookSetting),
}

impl StageSetting {
    /// The setting of a stage of a mechanism.
    pub fn of_stage(mechanism: &Mechanism, stage: &Stage) -> Self {
        let size = BatchSize::new(u64::from(stage.size)).expect(CHECKED);
        let blocks = mechanism.blocks();
        let others = honest_others(size, mechanism.honest_fraction());
        let participations = mechanism.participations();
        let delta = mechanism.central_delta();
        let presence = Presence::of(mechanism);
        match stage.law {
            Law::Bits(BitsLaw { bits, flip }) => {
                let bits = Bits::new(bits).expect(CHECKED);
                // The nearest float may be below c.
                let keep = Keep::new(Upper::nearest(flip.keep()).value());
                let keep = keep.expect("invariant: c is at most 1 - 2^-32");
                Self::Bits(Setting { blocks, bits, keep, others, participations, delta, presence })
            }
            Law::Codebook(law) => Self::Codebook(CodebookSetting {
                blocks,
                law,
                others,
                participations,
                delta,
                presence,
            }),
        }
    }

    /// Batches one person takes part in (k).
    pub fn participations(&self) -> Participations {
        match self {
            Self::Bits(setting) => setting.participations,
            Self::Codebook(setting) => setting.participations,
        }
    }

    /// Delta of the guarantee.
    pub fn delta(&self) -> Delta {
        match self {
            Self::Bits(setting) => setting.delta,
            Self::Codebook(setting) => setting.delta,
        }
    }

    /// Whether the batches of a person's reports may depend on that person's data.
    pub fn presence(&self) -> Presence {
        match self {
            Self::Bits(setting) => setting.presence,
            Self::Codebook(setting) => setting.presence,
        }
    }

    /// The smallest proved local epsilon of one report.
    pub fn of_one_report(&self) -> Bound {
        match self {
            Self::Bits(Setting { blocks, bits, keep, .. }) => local::certify(*blocks, *bits, *keep),
            Self::Codebook(setting) => setting.local(),
        }
    }

    /// Every proved central epsilon, each at most the local one.
    pub fn bounds(&self) -> Result<Vec<Bound>, PrivacyError> {
        match self {
            Self::Bits(setting) => super::bounds(setting),
            Self::Codebook(setting) => {
                let cap = self.local();
                let (_, bounds) = Profile::prove(setting, cap.epsilon);
                Ok(std::iter::once(cap).chain(bounds).collect())
            }
        }
    }

    /// The smallest proved central epsilon.
    pub fn certify(&self) -> Result<Bound, PrivacyError> {
        Ok(self.prove()?.0)
    }

    /// The smallest proved central epsilon, and what is known at every epsilon.
    pub(crate) fn prove(&self) -> Result<(Bound, Curve), PrivacyError> {
        match self {
            Self::Bits(setting) => prove(setting),
            Self::Codebook(setting) => {
                let cap = self.local();
                let (profile, bounds) = Profile::prove(setting, cap.epsilon);
                let all = std::iter::once(cap).chain(bounds);
                let smallest = Bound::smallest(all).unwrap_or(cap);
                let profile = match smallest.bound {
                    BoundName::CodebookSum => profile,
                    _ => profile.without_words(),
                };
                Ok((smallest, Curve::of_profile(*self, smallest, cap, profile)))
            }
        }
    }

    /// The local epsilon of every report that may differ: what holds without any crowd.
    pub(crate) fn local(&self) -> Bound {
        let releases = self.presence().releases(self.participations());
        let epsilon = up(self.of_one_report().epsilon * f64::from(releases));
        Bound { bound: BoundName::Local, epsilon }
    }

    /// The same for a person who takes part once, at another delta.
    #[must_use]
    pub(super) fn once(self, delta: Delta) -> Self {
        let participations = Participations::ONE;
        match self {
            Self::Bits(setting) => Self::Bits(Setting { participations, delta, ..setting }),
            Self::Codebook(setting) => {
                Self::Codebook(CodebookSetting { participations, delta, ..setting })
            }
        }
    }
}
