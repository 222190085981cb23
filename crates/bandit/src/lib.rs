//! The bandit server: released sums to Gram matrix and moment, to confidence, to the next model.
//!
//! It never sees a report. Everything it does is post-processing of releases, so no privacy
//! guarantee depends on it. It is deterministic: the same sums in the same order give the
//! bit-identical model on every machine.

mod algebra;
mod bandit;
mod blocks;
mod codebook;
mod confidence;
mod estimate;
mod forecast;
mod noise;
mod prior;
mod statistics;
mod uplift;

pub use algebra::cholesky;
pub use bandit::{Bandit, BanditError};
pub use blocks::{Estimates, NoisySums};
pub use codebook::{WordMoments, largest_normals};
pub use confidence::Ellipsoid;
pub use estimate::Estimate;
pub use forecast::forecast;
pub use noise::{ReleasedNoise, released_noise, report_variance};
pub use statistics::{Assignment, Statistics};
pub use uplift::{MeanReward, Uplift, comparison_half_width};
