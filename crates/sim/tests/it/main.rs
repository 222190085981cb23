//! The tests of this crate from outside, linked once.

mod algorithms;
mod baseline;
mod coverage;
mod demo_problem;
mod environment_data;
mod environments;
mod paths;
mod presence;
mod sums;
mod visits;
mod words;
