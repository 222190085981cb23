//! The tests of this crate from outside, linked once.

mod algorithms;
mod baseline;
mod coverage;
mod demo_problem;
mod environment_data;
mod environments;
mod paths;
mod presence;
mod public_data;
mod sums;
mod uplift;
mod visits;
mod words;

/// The blocks of a model without slots.
fn shared(dimension: u32) -> incrowd_protocol::Blocks {
    incrowd_protocol::Dimension::new(dimension).unwrap().into()
}
