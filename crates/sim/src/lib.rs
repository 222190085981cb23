//! The simulator: people of many kinds, through the product and its rivals.
//!
//! There is no second implementation of the product here. [`Sblb`] makes real devices, every batch is a real
//! [`incrowd_shuffler::Batch`], every model comes from a real [`incrowd_bandit::Bandit`]. The rivals sit beside it, behind the same
//! [`Algorithm`] trait.

mod algorithm;
pub mod audit;
pub mod baseline;
mod environment;
pub mod experiment;
pub mod figures;
mod simulation;
pub mod statistics;

pub use algorithm::{
    Algorithm, BinomialCrowd, Choice, Crowd, Devices, GaussianCrowd, GaussianNoise, Guarantee,
    LinUcb, Oracle, Path, Progress, Random, Release, Sblb, Tree, Trusted, TrustedServer, Untrusted,
};
pub use environment::{
    Classification, ClassificationConfig, ClassificationPeople, DataError, Drifting, Environment,
    EnvironmentConfig, EnvironmentError, Estimate, Features, FixedArms, Logged, LoggedConfig,
    LoggedPeople, Ordered, Person, Place, Rewards, Source, Synthetic,
};
pub use simulation::{Simulation, SimulationError, Summary};
