//! What the laboratory can be asked for.

pub mod audit;
pub mod demo;
pub mod evaluate;
pub mod figures;
mod part;
mod progress;
pub mod simulate;
