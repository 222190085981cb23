//! The tests of this crate from outside, linked once.

mod paper;
mod plan;
mod time;
