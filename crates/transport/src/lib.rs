//! How the roles ask each other over HTTP, once for devices, tools, tests and services.
//!
//! [`ShufflerApi`] and [`BanditApi`] give only documents that are checked against the task the
//! caller pins: its id binds the mechanism and the keys of both servers. Requests go directly or
//! through an Oblivious HTTP relay; they carry no cookies and no user agent, and follow no
//! redirects. Answers are bounded in size and time, and errors say what went wrong without
//! addresses and ids.
//!
//! [`Http`] sends any request, for what the two do not cover. Paths, media types and problems are
//! in `incrowd-protocol`.

mod address;
mod bandit;
pub mod documents;
mod error;
mod failure;
mod http;
mod relay;
pub mod retry;
mod route;
mod shuffler;
mod tls;

pub use address::Address;
pub use bandit::{BanditApi, ModelAnswer};
pub use error::{Refusal, TransportError};
pub use failure::{NetworkFailure, TlsFailure};
pub use http::{Answer, Http, Request, client};
pub use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
pub use route::Route;
pub use shuffler::{Fetched, ShufflerApi};
pub use tls::{Trust, client_config};
