//! Every algorithm with coins from a seed, each with what it may see written in its types.
//!
//! - [`Sblb`] is the product: real device, real batch, real bandit.
//! - An [`Aggregator`] is what stands between people and a server nobody trusts: raw data go in, a
//!   noisy [`Release`] comes out, and the server takes nothing but releases.
//! - A [`TrustedServer`] is shown raw data, and its guarantee says so.

mod aggregator;
mod bulk;
mod directed;
mod factorized;
mod guarantee;
mod linucb;
mod prefix;
mod rounds;
mod sblb;
mod tree;
mod trusted;
mod untrusted;
mod words;

pub use aggregator::{
    Aggregator, BinomialAggregator, GaussianAggregator, GaussianNoise, PrivUnitAggregator, Release,
};
pub use bulk::Bulk;
pub use factorized::Factorized;
pub use guarantee::Guarantee;
pub use linucb::LinUcb;
pub use prefix::{PrefixNoise, PrefixServer};
pub use rounds::{Devices, Path, Rounds};
pub use sblb::Sblb;
pub use tree::Tree;
pub use trusted::{Trusted, TrustedServer};
pub use untrusted::Untrusted;

use incrowd_device::{Arm, Chooser};
use incrowd_protocol::{Blocks, Model, Selection};
use rand_chacha::ChaCha8Rng;
use rand_core::Rng;

use crate::{
    Algorithm, Choice, Progress, SimulationError,
    environment::draw::{index, stream},
};

/// Uniform on [0, 1).
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The device's side of a baseline: the same choice as in the product.
pub(crate) struct Player {
    chooser: Chooser,
    selection: Selection,
    pub blocks: Blocks,
    model: Option<Model>,
    rng: ChaCha8Rng,
}

impl Player {
    pub fn new(blocks: Blocks, selection: Selection, seed: u64) -> Self {
        let chooser = Chooser::new(blocks);
        Self { chooser, selection, blocks, model: None, rng: stream(seed, 1) }
    }

    pub fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        let arms = rows(self.blocks, arms);
        let model = self.model.as_ref();
        Ok(Choice::Arm(self.chooser.choose(model, self.selection, arms, &mut self.rng)?))
    }

    /// The newest model, if there is one.
    pub fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// Takes a new model, if there is one.
    pub fn take(&mut self, model: Option<Model>) {
        if model.is_some() {
            self.model = model;
        }
    }
}

/// The arms whose features are the rows of a matrix: where there are slots, row i has slot i.
fn rows(blocks: Blocks, arms: &[f64]) -> impl Iterator<Item = Arm<'_>> {
    let last = if blocks.slots() > 0 { u32::MAX } else { 0 };
    let slots = (0u32..).map(move |row| row.min(last));
    slots.zip(arms.chunks_exact(blocks.features())).map(|(slot, features)| Arm { slot, features })
}

/// A model that is never changed.
pub struct Frozen(Player);

impl Frozen {
    /// Without a model choices are uniform.
    pub fn new(blocks: Blocks, model: Option<Model>, selection: Selection, seed: u64) -> Self {
        let mut player = Player::new(blocks, selection, seed);
        player.take(model);
        Self(player)
    }
}

impl Algorithm for Frozen {
    fn blocks(&self) -> Option<Blocks> {
        Some(self.0.blocks)
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        self.0.choose(arms)
    }

    fn learn(&mut self, _: Arm<'_>, _: f64) -> Result<(), SimulationError> {
        Ok(())
    }

    fn progress(&self) -> Progress {
        Progress { models: 1, ..Progress::default() }
    }

    fn noise_std(&self) -> Option<f64> {
        None
    }
}

/// A uniformly random arm.
pub struct Random {
    blocks: Blocks,
    rng: ChaCha8Rng,
}

impl Random {
    /// For arms of this layout.
    pub fn new(blocks: Blocks, seed: u64) -> Self {
        Self { blocks, rng: stream(seed, 1) }
    }
}

impl Algorithm for Random {
    fn blocks(&self) -> Option<Blocks> {
        Some(self.blocks)
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        Ok(Choice::Arm(index(&mut self.rng, arms.len() / self.blocks.features())))
    }

    fn learn(&mut self, _: Arm<'_>, _: f64) -> Result<(), SimulationError> {
        Ok(())
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn noise_std(&self) -> Option<f64> {
        None
    }
}

/// The best arm, always.
pub struct Oracle;

impl Algorithm for Oracle {
    fn blocks(&self) -> Option<Blocks> {
        None
    }

    fn choose(&mut self, _: &[f64]) -> Result<Choice, SimulationError> {
        Ok(Choice::Best)
    }

    fn learn(&mut self, _: Arm<'_>, _: f64) -> Result<(), SimulationError> {
        Ok(())
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn noise_std(&self) -> Option<f64> {
        None
    }
}
