//! The tests of this crate from outside, linked once.

mod attacks;
mod certify;
mod crash;
mod demo;
mod doctor;
mod features;
mod fit;
mod moving;
mod plan;
mod services;
mod support;
mod terminal;
mod uplift;
mod wrong_inputs;
