//! delta for every epsilon: what the bounds behind a certificate say besides its one point.

use std::sync::OnceLock;

use super::{
    GaussianBound, Setting,
    gaussian::{self, Placed},
};
use crate::{Bound, renyi::RenyiBound};

/// Share of a certificate's delta for which tails are cut off a second time: the curve has a floor
/// at what tails cost.
const DEEP: f64 = 1e-7;

/// An upper bound on delta for every epsilon, of all releases together. It falls.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    settings: Vec<Setting>,
    /// From here on delta is zero: the local guarantee.
    cap: f64,
    /// What is certified.
    point: (f64, f64),
    gaussian: Option<GaussianBound>,
    /// The same with smaller tails, computed when it is asked for.
    deep: OnceLock<Option<GaussianBound>>,
    renyi: Option<RenyiBound>,
}

impl Curve {
    /// What is known about settings with the same delta and the same k.
    pub fn new(
        settings: &[Setting],
        certified: Bound,
        cap: Bound,
        gaussian: Option<GaussianBound>,
        renyi: Option<RenyiBound>,
    ) -> Self {
        let delta = settings.first().map_or(1.0, |setting| setting.delta.get());
        Self {
            settings: settings.to_vec(),
            cap: cap.epsilon,
            point: (certified.epsilon, delta),
            gaussian,
            deep: OnceLock::new(),
            renyi,
        }
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
        gaussian.chain(renyi).fold(point, f64::min)
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
