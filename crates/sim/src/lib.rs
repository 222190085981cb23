//! The simulator: people of many kinds, through the product and the baselines; and what public
//! files of people tell before the first report ([`public_data`]).
//!
//! There is no second implementation of the product here. `Sblb` makes real devices, every batch is
//! a real [`incrowd_shuffler::Batch`], every model comes from a real [`incrowd_bandit::Bandit`].
//! The baselines sit beside it, behind the same [`Algorithm`] trait.
//!
//! Without the feature `simulation` there are only people and the loop that serves them: what the
//! product's demo needs. Coins from a seed exist only with it.

mod algorithm;
#[cfg(feature = "simulation")]
pub mod baseline;
mod coordinates;
pub mod demo;
mod environment;
mod estimate;
pub mod public_data;
#[cfg(feature = "simulation")]
mod seeded;
mod simulation;
pub mod statistics;
mod visits;

pub use algorithm::{Algorithm, Choice, Progress};
pub use environment::{
    Classification, ClassificationConfig, ClassificationPeople, Contexts, DataError, Environment,
    EnvironmentConfig, EnvironmentError, Estimate, Features, FixedArms, Logged, LoggedConfig,
    LoggedPeople, Ordered, PerAction, Person, Place, Rewards, Scaled, Signal, Source, Synthetic,
};
pub use estimate::ParameterEstimate;
#[cfg(feature = "simulation")]
pub use seeded::{
    Aggregator, BinomialAggregator, Bulk, Devices, Factorized, Frozen, GaussianAggregator,
    GaussianNoise, Guarantee, LinUcb, Oracle, Path, PrefixNoise, PrefixServer, PrivUnitAggregator,
    Random, Release, Rounds, Sblb, Tree, Trusted, TrustedServer, Untrusted,
};
pub use simulation::{Simulation, SimulationError, Summary};
pub use visits::{Arrivals, ArrivalsConfig, Clock, DropCoins, DropConfig, Drops};
