use serde::{Deserialize, Serialize};

use crate::{Dimension, ProtocolError, triangle};

/// Most slots of a task.
const MAX_SLOTS: u32 = 10_000;
/// Most coordinates of a report: those of 1000 shared features.
const MAX_COORDINATES: u64 = 501_500;
/// Most parameters of a hybrid model, which needs one matrix over all of them.
const MAX_JOINT_PARAMETERS: u32 = 1000;

/// Which parameters a model has, and so which coordinates a report has.
///
/// An arm has d features. With slots, its first features have weights of their own in every slot,
/// and an arm says which slot it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "layout", rename_all = "kebab-case")]
pub enum Layout {
    /// One parameter for all actions, over features of context and action: the paper's model.
    #[default]
    Shared,
    /// A parameter for each slot over the same d features: what a feature is worth depends on the
    /// action.
    PerAction {
        /// Actions that the model has room for, 1 to 10000.
        slots: u32,
    },
    /// Both: the last `shared` of the d features have one weight for all actions.
    Hybrid {
        /// Actions that the model has room for, 1 to 10000.
        slots: u32,
        /// Features with one weight for all actions, 1 to d - 1.
        shared: u32,
    },
}

impl Layout {
    /// Whether all features have one weight for all actions.
    pub fn is_shared(&self) -> bool {
        *self == Self::Shared
    }

    /// What the mechanism's hash says of it: its number and its sizes.
    pub(crate) fn numbers(self) -> Vec<u32> {
        match self {
            Self::Shared => vec![1],
            Self::PerAction { slots } => vec![2, slots],
            Self::Hybrid { slots, shared } => vec![3, slots, shared],
        }
    }
}

/// A layout as it is written, beside the optional fields `slots` and `shared`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LayoutName {
    Shared,
    PerAction,
    Hybrid,
}

impl LayoutName {
    /// The layout with these fields.
    pub fn with(self, slots: Option<u32>, shared: Option<u32>) -> Result<Layout, ProtocolError> {
        match (self, slots, shared) {
            (Self::Shared, None, None) => Ok(Layout::Shared),
            (Self::PerAction, Some(slots), None) => Ok(Layout::PerAction { slots }),
            (Self::Hybrid, Some(slots), Some(shared)) => Ok(Layout::Hybrid { slots, shared }),
            (Self::Shared, ..) => Err(ProtocolError::LayoutFields("shared", "no further fields")),
            (Self::PerAction, ..) => Err(ProtocolError::LayoutFields("per-action", "slots")),
            (Self::Hybrid, ..) => Err(ProtocolError::LayoutFields("hybrid", "slots and shared")),
        }
    }

    /// The fields of a layout.
    pub fn of(layout: Layout) -> (Self, Option<u32>, Option<u32>) {
        match layout {
            Layout::Shared => (Self::Shared, None, None),
            Layout::PerAction { slots } => (Self::PerAction, Some(slots), None),
            Layout::Hybrid { slots, shared } => (Self::Hybrid, Some(slots), Some(shared)),
        }
    }
}

/// The sizes of a layout: s shared features, K slots, and q features of each slot's own.
///
/// An arm is x = (own features, shared features), of length q + s, and a slot. As one long vector
/// over all parameters it is zero in every other slot, so a report leaves out the products that
/// always vanish. Its coordinates are, in this order:
///
/// - r u of the shared features, and the lower triangle of their products row by row;
/// - for each slot r u of its own features, the lower triangle of their products, and the products
///   of each shared feature with all own ones, row by row.
///
/// # Privacy
/// Every bound on one long vector of K q + s features holds: the coordinates of a report are some
/// of its coordinates, and the others are always zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    shared: u32,
    slots: u32,
    own: u32,
}

impl From<Dimension> for Blocks {
    /// The paper's model.
    fn from(dimension: Dimension) -> Self {
        Self { shared: dimension.get(), slots: 0, own: 0 }
    }
}

impl Blocks {
    /// The blocks of a layout whose arms have `dimension` features.
    pub fn new(dimension: Dimension, layout: Layout) -> Result<Self, ProtocolError> {
        let d = dimension.get();
        let (slots, shared) = match layout {
            Layout::Shared => return Ok(dimension.into()),
            Layout::PerAction { slots } => (slots, 0),
            Layout::Hybrid { slots, shared } => {
                if shared == 0 || shared >= d {
                    return Err(ProtocolError::SharedFeatures(shared, d));
                }
                (slots, shared)
            }
        };
        if slots == 0 || slots > MAX_SLOTS {
            return Err(ProtocolError::Slots(slots, MAX_SLOTS));
        }
        let blocks = Self { shared, slots, own: d - shared };
        let parameters = u64::from(slots) * u64::from(blocks.own) + u64::from(shared);
        if shared > 0 && parameters > u64::from(MAX_JOINT_PARAMETERS) {
            return Err(ProtocolError::JointParameters(parameters, MAX_JOINT_PARAMETERS));
        }
        // Where pointers have 32 bits, the sizes below are no `usize` yet.
        let [q, s, k] = [blocks.own, shared, slots].map(u64::from);
        let found = s * (s + 3) / 2 + k * (q * (q + 3) / 2 + s * q);
        if found > MAX_COORDINATES {
            return Err(ProtocolError::Coordinates { found, most: MAX_COORDINATES });
        }
        Ok(blocks)
    }

    /// Features with one weight for all actions (s).
    pub const fn shared(self) -> usize {
        self.shared as usize
    }

    /// Slots (K), 0 where all features are shared.
    pub const fn slots(self) -> usize {
        self.slots as usize
    }

    /// Features with a weight in every slot (q).
    pub const fn own(self) -> usize {
        self.own as usize
    }

    /// Features of an arm: d = q + s.
    pub const fn features(self) -> usize {
        self.own() + self.shared()
    }

    /// Weights of a model: K q + s.
    pub const fn parameters(self) -> usize {
        self.slots() * self.own() + self.shared()
    }

    /// Coordinates of the shared features.
    pub const fn shared_coordinates(self) -> usize {
        self.shared() + triangle(self.shared())
    }

    /// Coordinates of one slot.
    pub const fn slot_coordinates(self) -> usize {
        self.own() + triangle(self.own()) + self.shared() * self.own()
    }

    /// Coordinates of a report (D).
    pub const fn coordinates(self) -> usize {
        self.shared_coordinates() + self.slots() * self.slot_coordinates()
    }

    /// Where the coordinates of a slot begin.
    pub const fn slot_start(self, slot: usize) -> usize {
        self.shared_coordinates() + slot * self.slot_coordinates()
    }

    /// Coordinates of which one arm's report can be about: all others are zero.
    pub const fn active_coordinates(self) -> usize {
        crate::coordinates(self.features())
    }

    /// Calls `term` for every coordinate that an arm of `slot` can have, with its place in a report
    /// and its place among the coordinates (moment, lower triangle row by row) of the arm's own d
    /// features. Without slots the places are equal, and in order.
    pub fn for_each_active(self, slot: usize, mut term: impl FnMut(usize, usize)) {
        let (q, s) = (self.own(), self.shared());
        let (d, start) = (q + s, self.slot_start(slot));
        if q > 0 {
            (0..q).for_each(|i| term(start + i, i));
            (0..triangle(q)).for_each(|i| term(start + q + i, d + i));
        }
        let cross = start + q + triangle(q);
        (0..s).for_each(|i| term(i, q + i));
        for i in 0..s {
            let row = d + triangle(q + i);
            (0..q).for_each(|j| term(cross + i * q + j, row + j));
            (0..=i).for_each(|j| term(s + triangle(i) + j, row + q + j));
        }
    }

    /// For each coordinate, what kind of statistic it is.
    pub fn kinds(self) -> Vec<CoordinateKind> {
        let mut kinds = Vec::with_capacity(self.coordinates());
        let mut block = |features: usize, cross: usize| {
            kinds.extend(std::iter::repeat_n(CoordinateKind::Moment, features));
            for row in 0..features {
                kinds.extend(std::iter::repeat_n(CoordinateKind::Product, row));
                kinds.push(CoordinateKind::Square);
            }
            kinds.extend(std::iter::repeat_n(CoordinateKind::Product, cross));
        };
        block(self.shared(), 0);
        (0..self.slots()).for_each(|_| block(self.own(), self.shared() * self.own()));
        kinds
    }
}

/// What a coordinate of a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoordinateKind {
    /// Reward times a feature.
    Moment,
    /// The square of a feature.
    Square,
    /// The product of two features.
    Product,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(dimension: u32, layout: Layout) -> Blocks {
        Blocks::new(Dimension::new(dimension).unwrap(), layout).unwrap()
    }

    #[test]
    fn sizes_are_those_of_the_products_that_can_be_non_zero() {
        let shared = blocks(5, Layout::Shared);
        assert_eq!((shared.coordinates(), shared.parameters(), shared.features()), (20, 5, 5));
        let disjoint = blocks(9, Layout::PerAction { slots: 10 });
        assert_eq!((disjoint.coordinates(), disjoint.parameters()), (540, 90));
        let hybrid = blocks(5, Layout::Hybrid { slots: 3, shared: 2 });
        assert_eq!((hybrid.own(), hybrid.parameters(), hybrid.coordinates()), (3, 11, 5 + 3 * 15));
    }

    /// Each coordinate of an arm's own statistic has one place, two slots meet in the shared ones
    /// only, and all slots together have every place.
    #[test]
    fn every_coordinate_has_its_place() {
        for (dimension, layout) in [
            (4, Layout::Shared),
            (3, Layout::PerAction { slots: 4 }),
            (5, Layout::Hybrid { slots: 3, shared: 2 }),
            (2, Layout::Hybrid { slots: 1, shared: 1 }),
        ] {
            let blocks = blocks(dimension, layout);
            let mut all = vec![0; blocks.coordinates()];
            for slot in 0..blocks.slots().max(1) {
                let mut locals = vec![0; blocks.active_coordinates()];
                blocks.for_each_active(slot, |place, local| {
                    locals[local] += 1;
                    if place >= blocks.shared_coordinates() {
                        let start = blocks.slot_start(slot);
                        assert!((start..start + blocks.slot_coordinates()).contains(&place));
                    }
                    all[place] += 1;
                });
                assert!(locals.iter().all(|&count| count == 1), "{layout:?}");
            }
            let shared = blocks.shared_coordinates();
            assert!(all[..shared].iter().all(|&count| count == blocks.slots().max(1)));
            assert!(all[shared..].iter().all(|&count| count == 1));
        }
    }

    #[test]
    fn without_slots_places_are_unchanged() {
        blocks(6, Layout::Shared).for_each_active(0, |place, local| assert_eq!(place, local));
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        let new = |dimension, layout| Blocks::new(Dimension::new(dimension).unwrap(), layout);
        for (dimension, layout, text) in [
            (3, Layout::PerAction { slots: 0 }, "slots is 0"),
            (3, Layout::PerAction { slots: 10_001 }, "slots is 10001"),
            (3, Layout::Hybrid { slots: 2, shared: 0 }, "shared is 0"),
            (3, Layout::Hybrid { slots: 2, shared: 3 }, "shared is 3"),
            (10, Layout::Hybrid { slots: 200, shared: 4 }, "1204 parameters"),
            (900, Layout::PerAction { slots: 2 }, "812700 coordinates"),
            (1000, Layout::PerAction { slots: 10_000 }, "5015000000 coordinates"),
        ] {
            let error = new(dimension, layout).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
