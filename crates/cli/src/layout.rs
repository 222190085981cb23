//! The layout of a model, as arguments.

use clap::Args;
use incrowd_protocol::Layout;

/// Which parameters the model has.
#[derive(Args, Clone, Copy)]
pub struct LayoutArguments {
    /// Actions with weights of their own (per-action model): the features describe the person, and
    /// each action learns what they are worth for it. Without it one set of weights is shared by
    /// all actions, and features describe person and action together.
    #[arg(long, value_name = "ACTIONS", allow_negative_numbers = true)]
    slots: Option<u32>,
    /// Features with one weight for all actions beside those with weights of each action's own
    /// (hybrid model), below the dimension.
    #[arg(long, value_name = "FEATURES", requires = "slots", allow_negative_numbers = true)]
    shared: Option<u32>,
}

impl LayoutArguments {
    /// The layout they stand for.
    pub fn layout(self) -> Layout {
        match (self.slots, self.shared) {
            (None, _) => Layout::Shared,
            (Some(slots), None) => Layout::PerAction { slots },
            (Some(slots), Some(shared)) => Layout::Hybrid { slots, shared },
        }
    }
}
