//! The tests of this crate from outside, linked once.

mod closing;
mod common;
mod comparison;
mod ranking;
mod relay;
mod reports;
mod services;
mod timing;
mod trust;
