//! The tests of this crate from outside, linked once.

mod codebook;
mod paper;
mod plan;
mod time;
