//! The tests of this crate from outside, linked once.

mod audit;
mod audit_command;
mod demo;
mod experiment;
mod figures;
mod simulate_command;
mod tutorial;
