//! The tests of this crate from outside, linked once.

mod access;
mod bandit;
mod common;
mod config;
mod gateway;
mod privacy_of_operation;
mod robustness;
mod sealed;
mod store;
mod uploads;
