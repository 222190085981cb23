//! Who may ask for what. Tokens are kept as hashes and compared in constant time.

use std::{fs, path::Path};

use getrandom::{SysRng, rand_core::TryRng};
use incrowd_envelope::EnvelopeError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::keys::KeyError;

/// Whose token it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Uploads reports; the same token for all devices.
    Device,
    /// Collects releases.
    Bandit,
    /// Carries Oblivious HTTP requests.
    Relay,
    /// Reads metrics and closes tasks.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Device, Self::Bandit, Self::Relay, Self::Admin];

    /// The role in a token's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Bandit => "bandit",
            Self::Relay => "relay",
            Self::Admin => "admin",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    role: Role,
    #[serde(with = "hex::serde")]
    sha256: [u8; 32],
}

/// The tokens that a service knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    #[serde(default, rename = "token")]
    entries: Vec<Entry>,
}

/// Tokens with their roles.
pub(crate) type NewTokens = Vec<(Role, Zeroizing<String>)>;

/// What a request's token is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A token of this role.
    Known(Role),
    /// No token of ours.
    Unknown,
}

impl Tokens {
    /// Reads a token file.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let failed = |error| KeyError::File { path: path.to_owned(), error };
        let text = fs::read_to_string(path).map_err(failed)?;
        let message = "it must be a list of [[token]] with role and sha256";
        toml::from_str(&text).map_err(|_| KeyError::Format { path: path.to_owned(), message })
    }

    /// A new token for a role. This is the only time its text is seen.
    pub fn add(&mut self, role: Role) -> Result<Zeroizing<String>, KeyError> {
        let mut secret = Zeroizing::new([0; 32]);
        SysRng.try_fill_bytes(secret.as_mut_slice()).map_err(EnvelopeError::Randomness)?;
        let token =
            Zeroizing::new(format!("incrowd-{}-{}", role.name(), hex::encode(secret.as_slice())));
        self.entries.push(Entry { role, sha256: Sha256::digest(token.as_bytes()).into() });
        Ok(token)
    }

    /// Knows a token that was made before; none if the text is no token of the role.
    pub(crate) fn insert(&mut self, role: Role, token: &str) -> Option<()> {
        let secret =
            token.strip_prefix("incrowd-")?.strip_prefix(role.name())?.strip_prefix('-')?;
        hex::decode(secret).ok().filter(|secret| secret.len() == 32)?;
        self.entries.push(Entry { role, sha256: Sha256::digest(token.as_bytes()).into() });
        Some(())
    }

    /// Writes the hashes.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let message = "it cannot be written";
        let text = toml::to_string(self)
            .map_err(|_| KeyError::Format { path: path.to_owned(), message })?;
        incrowd_files::replace(path, text.as_bytes())
            .map_err(|error| KeyError::File { path: path.to_owned(), error })
    }

    /// Forgets every token of a role.
    pub fn revoke(&mut self, role: Role) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.role != role);
        before - self.entries.len()
    }

    /// Whether there is a token for a role.
    pub fn has(&self, role: Role) -> bool {
        self.entries.iter().any(|entry| entry.role == role)
    }

    /// What a token is worth. Takes the same time whichever it is.
    pub fn verdict(&self, token: &[u8]) -> Verdict {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut verdict = Verdict::Unknown;
        for entry in &self.entries {
            if bool::from(entry.sha256.ct_eq(&digest)) {
                verdict = Verdict::Known(entry.role);
            }
        }
        verdict
    }
}
