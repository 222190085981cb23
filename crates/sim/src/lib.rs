//! The simulator: synthetic people through the real device, shuffler and bandit.
//!
//! There is no second implementation of the algorithm here. Every person makes a real device, every batch is a real
//! [`incrowd_shuffler::Batch`], every model comes from a real [`incrowd_bandit::Bandit`].

pub mod audit;
mod environment;
mod simulation;

pub use environment::{Environment, EnvironmentError, Synthetic};
pub use simulation::{Path, Simulation, SimulationError, Summary};
