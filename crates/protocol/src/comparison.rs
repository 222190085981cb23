//! Tasks that compare what a model earns with what the incumbent does.

use crate::{Layout, TaskConfig};

/// What a slot of a comparison task stands for.
///
/// A comparison task has one feature, the constant L, and these two slots in this order, so its
/// sums are the rewards and the number of the reports of either group. Both groups are in the same
/// releases: they cover the same people and the same days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonSlot {
    /// People who got what the incumbent chose.
    Incumbent,
    /// People who got what the model of another task chose.
    Model,
}

impl ComparisonSlot {
    /// All of them, in the order of the slots.
    pub const ALL: [Self; 2] = [Self::Incumbent, Self::Model];

    /// Its action in the task.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incumbent => "incumbent",
            Self::Model => "model",
        }
    }

    /// The actions of a comparison task.
    pub fn actions() -> Vec<String> {
        Self::ALL.iter().map(|slot| slot.name().to_owned()).collect()
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Incumbent => 0,
            Self::Model => 1,
        }
    }
}

impl TaskConfig {
    /// Whether it is a comparison task: one feature, the two slots with their names, and nothing
    /// is forgotten.
    pub fn is_comparison(&self) -> bool {
        let names = ComparisonSlot::ALL.map(|slot| Some(slot.name()));
        let slots = ComparisonSlot::ALL.len() as u32;
        self.mechanism().dimension() == 1
            && self.mechanism().layout() == Layout::PerAction { slots }
            && self.actions().iter().map(Option::as_deref).eq(names)
            && self.learner().config().discount >= 1.0
    }
}
