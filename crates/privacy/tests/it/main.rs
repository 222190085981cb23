//! The tests of this crate from outside, linked once.

mod central;
mod certificate;
mod clones;
mod codebook;
mod composition;
mod gaussian;
mod layouts;
mod local;
mod plain;
