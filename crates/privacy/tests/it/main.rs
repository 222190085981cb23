//! The tests of this crate from outside, linked once.

mod central;
mod certificate;
mod clones;
mod composition;
mod local;
mod plain;
