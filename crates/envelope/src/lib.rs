//! What protects incrowd's messages on the way: reports sealed to the shuffler's key ([`seal`],
//! [`OpeningKey`]) and documents signed by the roles ([`SigningKey`], [`verify`]). The formats are
//! specified in `docs/formats.md`.
//!
//! Used by the client, which seals and verifies, and by the services, which open and sign.

mod error;
mod sealed;
mod signed;

pub use error::EnvelopeError;
pub use sealed::{OpeningKey, Sealed, SealedHeader, seal, sealed_len};
pub use signed::{Document, Signature, Signed, SigningKey, check_key, verify};
