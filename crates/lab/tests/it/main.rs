//! The tests of this crate from outside, linked once.

mod assumptions;
mod audit;
mod audit_command;
mod closed_apps;
mod cluster;
mod demo;
mod environments;
mod evaluate;
mod evaluate_command;
mod experiment;
mod figures;
mod learning;
mod reader;
mod shards;
mod simulate_command;
mod tutorial;
mod unchanged;
