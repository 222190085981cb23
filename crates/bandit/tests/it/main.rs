//! The tests of this crate from outside, linked once.

mod bandit;
mod layouts;
mod uplift;
mod vectors;
