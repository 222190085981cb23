//! The tests of this crate from outside, linked once.

mod audit;
mod certify;
mod crash;
mod demo;
mod plan;
mod services;
mod simulate;
mod support;
mod tutorial;
