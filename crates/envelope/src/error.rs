use thiserror::Error;

/// Why something cannot be sealed, opened or believed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Too few bytes for a sealed report.
    #[error("sealed report has {found} bytes, must have at least {needed}")]
    Short {
        /// Bytes found.
        found: usize,
        /// Bytes of an empty one.
        needed: usize,
    },
    /// Another version of the format.
    #[error("sealed report has version {0}, must be 1")]
    Version(u8),
    /// Sealed to a key that the shuffler does not have, or has erased.
    #[error("sealed report is for key {0}, which does not open reports")]
    UnknownKey(u8),
    /// Changed on the way, or sealed for another task, round, id or key.
    #[error("sealed report does not open: changed on the way, or sealed for something else")]
    CannotOpen,
    /// Not a public key.
    #[error("not a valid public key")]
    PublicKey,
    /// Not made by the holder of the key, or not for this document.
    #[error("the signature does not fit the document")]
    Signature,
    /// Not the text form of a signature.
    #[error("a signature must be 128 lower-case hex digits")]
    SignatureText,
    /// The operating system gave no randomness.
    #[error("the operating system's random generator failed: {0}")]
    Randomness(getrandom::Error),
}
