//! The device over HTTP: fetch the task and its models, rank locally, and send at most one sealed
//! report for each round.
//!
//! [`Client::rank`] decides on the device from the last model, without network. The [`Decision`]
//! takes a reward until its window is over; then, at a moment that was drawn before any reward, the
//! report is made and leaves, whatever the reward and whether there was one. [`blocking::Client`]
//! has the same calls for programs without an async runtime; [`transport`] has the requests alone,
//! for tools.
//!
//! # Privacy
//! A device pins its task's id, which binds the mechanism and the keys of both servers, and
//! computes the certificate itself: nobody can give it other noise than it agreed to. What leaves
//! are reports (randomized, sealed to the shuffler) and requests whose times do not depend on
//! contexts or rewards. The limits of one report per batch and k in all hold across restarts only
//! with a [state file](Builder::state_file).

mod action;
pub mod blocking;
mod builder;
mod chance;
mod client;
mod clock;
mod connect;
mod core;
mod decision;
mod error;
mod group;
mod models;
mod reporter;
mod state;
mod status;
mod uploads;

pub use action::Action;
pub use builder::{Builder, Limits};
pub use client::Client;
pub use decision::{Decision, Problem};
pub use error::ClientError;
pub use group::Group;
pub use incrowd_device::{
    Arm, FeatureMap, FeatureMapConfig, FieldProblem, Fields, InputProblem, Value,
};
pub use incrowd_protocol::TaskId;
pub use incrowd_transport as transport;
pub use status::{Phase, Status};

/// The examples of the project's README, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
