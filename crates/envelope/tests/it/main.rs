//! The tests of this crate from outside, linked once.

mod envelope;
mod vectors;
