use std::fmt;

/// A release as it is served: signed once, when its batch was full.
pub use incrowd_envelope::Signed as SignedRelease;
use sha2::{Digest, Sha256};

/// Names a release: SHA-256 of its signed body.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReleaseHash([u8; 32]);

impl ReleaseHash {
    /// The name of the release with this body.
    pub fn of(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ReleaseHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ReleaseHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReleaseHash({self})")
    }
}
