//! The tests of this crate from outside, linked once.

mod access;
mod admission;
mod attacks;
mod bandit;
mod closing;
mod codebook;
mod common;
mod config;
mod conformance;
mod database;
mod faults;
mod gateway;
mod history;
mod nodes;
mod privacy_of_operation;
mod readiness;
mod relay;
mod reload;
mod robustness;
mod round_keys;
mod sealed;
mod shelf;
mod starting;
mod store;
mod timed;
mod uploads;
