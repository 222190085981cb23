//! The tests of this crate from outside, linked once.

mod codecs;
mod vectors;
