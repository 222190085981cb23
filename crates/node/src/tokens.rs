//! Who may ask for what. Tokens are kept as hashes and compared in constant time.

use std::{collections::BTreeSet, fs, path::Path};

use getrandom::{SysRng, rand_core::TryRng};
use incrowd_envelope::EnvelopeError;
use incrowd_files::{Readers, read_secret};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::{ServiceError, device_tokens::Serial, keys::KeyError};

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
    /// Reads metrics and how far tasks are.
    Monitor,
    /// Closes tasks, and may do what a monitor may.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] =
        [Self::Device, Self::Bandit, Self::Relay, Self::Monitor, Self::Admin];

    /// The role in a token's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Bandit => "bandit",
            Self::Relay => "relay",
            Self::Monitor => "monitor",
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
    /// Devices whose own tokens are refused.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    revoked_devices: BTreeSet<Serial>,
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
    /// A device's own token.
    OneDevice(Serial),
    /// No token of ours.
    Unknown,
}

impl Tokens {
    /// Reads a token file.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let failed = |error| KeyError::File { path: path.to_owned(), error };
        let text = fs::read_to_string(path).map_err(failed)?;
        let message = "it must be a list of [[token]] with role and sha256, and revoked_devices with serials before";
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

    /// Refuses the own token of a device. Whether that is new.
    pub fn revoke_device(&mut self, serial: Serial) -> bool {
        self.revoked_devices.insert(serial)
    }

    /// Whether the own token of a device is refused.
    pub fn is_revoked(&self, serial: Serial) -> bool {
        self.revoked_devices.contains(&serial)
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.revoked_devices.is_empty()
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

/// The token in a file, without the line's end.
pub fn read_token(path: &Path) -> Result<Zeroizing<String>, ServiceError> {
    if !path.exists() {
        return Err(ServiceError::NoTokenFile(path.to_owned()));
    }
    let bytes = read_secret(path, Readers::Group)?;
    let message = "a token is text in one line";
    let no_token = |_| KeyError::Format { path: path.to_owned(), message };
    Ok(Zeroizing::new(str::from_utf8(&bytes).map_err(no_token)?.trim().to_owned()))
}

/// Writes a new token to a file of its own, that must not exist and only its owner can read.
pub fn write_token(path: &Path, token: &str) -> Result<(), KeyError> {
    let line = Zeroizing::new(format!("{token}\n"));
    incrowd_files::create(path, line.as_bytes())
        .map_err(|error| KeyError::File { path: path.to_owned(), error })
}
