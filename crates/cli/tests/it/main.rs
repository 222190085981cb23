//! The tests of this crate from outside, linked once.

mod attacks;
mod certify;
mod crash;
mod demo;
mod features;
mod fit;
mod plan;
mod services;
mod support;
mod uplift;
mod wrong_inputs;
