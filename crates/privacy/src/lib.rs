//! Proved privacy bounds: what a mechanism guarantees, in numbers that are never too small.
//!
//! Pure mathematics: this crate is told numbers, never data. Every public epsilon is an upper
//! bound, rounded outward, and says which bound it is ([`Bound`]). The proofs are in
//! `docs/privacy-proofs.md`.

mod bound;
pub mod central;
mod certificate;
pub mod clones;
pub mod codebook;
pub mod composition;
mod error;
pub mod gaussian;
pub mod local;
pub mod numeric;
pub mod renyi;

pub use bound::{Bound, BoundName};
pub use certificate::{Certificate, RoundCertificate, Trust, certify};
pub use error::PrivacyError;
pub use numeric::{format_delta, format_epsilon};
