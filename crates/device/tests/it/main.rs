//! The tests of this crate from outside, linked once.

mod codebook;
mod coins;
mod device;
mod law;
mod maps;
mod pads;
mod slots;
mod tape;
mod vectors;
