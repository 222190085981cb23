//! The tests of this crate from outside, linked once.

mod codebook;
mod coins;
mod device;
mod law;
mod pads;
mod tape;
mod vectors;
