//! delta for every epsilon: what the bounds behind a certificate say besides its one point.

use std::sync::OnceLock;

use super::{
    GaussianBound, StageSetting,
    gaussian::{self, Placed},
};
use crate::{
    Bound,
    codebook::Profile,
    renyi::{Ideal, RenyiBound},
};

/// Share of a certificate's delta for which tails are cut off a second time: the curve has a floor
/// at what tails cost.
const DEEP: f64 = 1e-7;

/// An upper bound on delta for every epsilon, of all releases together. It falls.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    settings: Vec<StageSetting>,
    /// From here on delta is zero: the local guarantee.
    cap: f64,
    /// What is certified.
    point: (f64, f64),
    gaussian: Option<GaussianBound>,
    /// The same with smaller tails, computed when it is asked for.
    deep: OnceLock<Option<GaussianBound>>,
    renyi: Option<RenyiBound>,
    /// What is known about codebook reports alone.
    profile: Option<Profile>,
}

impl Curve {
    /// What is known about settings with the same delta and the same k.
    pub fn new(
        settings: &[StageSetting],
        certified: Bound,
        cap: Bound,
        gaussian: Option<GaussianBound>,
        renyi: Option<RenyiBound>,
    ) -> Self {
        let delta = settings.first().map_or(1.0, |setting| setting.delta().get());
        Self {
            settings: settings.to_vec(),
            cap: cap.epsilon,
            point: (certified.epsilon, delta),
            gaussian,
            deep: OnceLock::new(),
            renyi,
            profile: None,
        }
    }

    /// What is known about one setting of codebook reports.
    pub fn of_profile(
        setting: StageSetting,
        certified: Bound,
        cap: Bound,
        profile: Profile,
    ) -> Self {
        let profile = Some(profile);
        Self { profile, ..Self::new(&[setting], certified, cap, None, None) }
    }

    /// Whether it needs that the words of codebooks are as good as random.
    pub fn needs_words(&self) -> bool {
        self.gaussian.is_some_and(|bound| bound.ideal != Ideal::NONE)
            || self.renyi.is_some_and(|bound| bound.ideal != Ideal::NONE)
            || self.profile.as_ref().is_some_and(Profile::needs_words)
    }

    /// At least delta at `epsilon`.
    pub fn delta(&self, epsilon: f64) -> f64 {
        if epsilon >= self.cap {
            return 0.0;
        }
        let beyond = epsilon >= self.point.0;
        let point = if beyond { self.point.1 } else { 1.0 };
        let deep = if beyond && self.gaussian.is_some() { self.deep() } else { None };
        let gaussian = self.gaussian.into_iter().chain(deep).map(|bound| bound.delta(epsilon));
        let renyi = self.renyi.iter().map(|bound| bound.delta(epsilon));
        let profile = self.profile.iter().map(|profile| profile.delta(epsilon));
        gaussian.chain(renyi).chain(profile).fold(point, f64::min)
    }

    fn deep(&self) -> Option<GaussianBound> {
        let spent = DEEP * self.point.1;
        let find = || gaussian::with_share(&self.settings, Placed::Apart, spent);
        *self.deep.get_or_init(find)
    }
}

/// Whether the rest has been asked for makes no difference.
impl PartialEq for Curve {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings && self.point == other.point
    }
}
