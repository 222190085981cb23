//! The tests of this crate from outside, linked once.

mod baseline;
mod central;
mod certificate;
mod clones;
mod composition;
mod local;
mod paper;
