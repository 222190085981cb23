//! The tests of this crate from outside, linked once.

mod closing;
mod common;
mod ranking;
mod relay;
mod reports;
mod services;
mod timing;
mod trust;
