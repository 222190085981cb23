//! The tests of this crate from outside, linked once.

mod access;
mod bandit;
mod closing;
mod common;
mod config;
mod conformance;
mod faults;
mod gateway;
mod privacy_of_operation;
mod robustness;
mod sealed;
mod shelf;
mod store;
mod timed;
mod uploads;
