//! The tests of this crate from outside, linked once.

mod codebook;
mod comparison;
mod paper;
mod plan;
mod time;
