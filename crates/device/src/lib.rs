//! The device: the only home of raw contexts and rewards.
//!
//! It turns an application's data into features ([`FeatureMap`]), picks an action from the
//! published model and answers with one randomized report ([`Device`]). What leaves it is the
//! report and nothing else.
//!
//! Randomness comes from the operating system. Passing a generator is possible only with the
//! feature `simulation`, which no crate that handles people's data enables.

mod arm;
mod bits;
mod choose;
mod clip;
mod codebook;
mod coins;
mod device;
mod error;
mod features;
mod normal;
mod pads;
mod participation;
mod randomizer;
mod values;

pub use arm::Arm;
#[cfg(feature = "simulation")]
pub use bits::BitsRandomizer;
#[cfg(feature = "simulation")]
pub use choose::Chooser;
pub use choose::Score;
pub use clip::InputProblem;
#[cfg(feature = "simulation")]
pub use codebook::CodebookRandomizer;
pub use device::{Answer, Device};
pub use error::DeviceError;
pub use features::{
    FeatureMap, FeatureMapConfig, FeatureMapError, Features, Field, FieldKind, FieldProblem,
    Fields, MapModel, Value,
};
pub use pads::pads;
#[cfg(feature = "simulation")]
pub use pads::simulated_pads;
pub use participation::{Next, Participation};
#[cfg(feature = "simulation")]
pub use randomizer::Randomizer;
