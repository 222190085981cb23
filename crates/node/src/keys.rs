//! The secret keys of a role, in a file that only its operator reads.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use incrowd_envelope::{EnvelopeError, OpeningKey, Sealed, SealedHeader, SigningKey};
use incrowd_protocol::{KeyState, SealingKey, TaskId, VerificationKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

/// Why keys cannot be read, written or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// Others can read the secrets.
    #[error("{path} is readable by others (mode {mode:o}), must be 600")]
    Permissions {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Not a key file.
    #[error("{path} is not a key file of this role: {message}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, without its content.
        message: &'static str,
    },
    /// A step of a rotation that does not come next.
    #[error("{0}")]
    Rotation(&'static str),
    /// No randomness.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
}

/// Which service a key file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyRole {
    /// Signs notices and releases, opens reports.
    Shuffler,
    /// Signs models.
    Bandit,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    role: KeyRole,
    signing: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<Secret>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sealing: Vec<SealingSecret>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealingSecret {
    id: u8,
    state: KeyState,
    public: incrowd_protocol::SealingPublicKey,
    /// None once the key is expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Secret>,
}

/// 32 secret bytes, hex in the file, erased when dropped, never printed.
struct Secret(Zeroizing<[u8; 32]>);

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0.as_slice()))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(text.as_bytes(), bytes.as_mut_slice())
            .map_err(|_| serde::de::Error::custom("a secret must be 64 hex digits"))?;
        Ok(Self(bytes))
    }
}

/// The keys of a role.
pub struct Keys {
    path: PathBuf,
    content: Content,
    signing: SigningKey,
    opening: Vec<(u8, OpeningKey)>,
}

impl Keys {
    /// New keys for a role, written to a file that must not exist yet. A shuffler gets a first
    /// sealing key, active at once.
    pub fn create(path: &Path, role: KeyRole) -> Result<Self, KeyError> {
        let keys = Self::generate(path, role)?;
        keys.write()?;
        Ok(keys)
    }

    /// The same, which are only in memory until they are written.
    pub(crate) fn generate(path: &Path, role: KeyRole) -> Result<Self, KeyError> {
        let signing = Secret(SigningKey::generate()?.to_bytes());
        let mut content = Content { role, signing, gateway: None, sealing: Vec::new() };
        if role == KeyRole::Shuffler {
            content.gateway = Some(Secret(OpeningKey::generate()?.to_bytes()));
            content.sealing.push(sealing_secret(1, KeyState::Active)?);
        }
        Self::from_content(path, content)
    }

    /// Writes keys to their file, which must not exist yet.
    pub(crate) fn write(&self) -> Result<(), KeyError> {
        let text = Zeroizing::new(text(&self.content, &self.path)?);
        incrowd_files::create(&self.path, text.as_bytes())
            .map_err(|error| KeyError::File { path: self.path.clone(), error })
    }

    /// Reads a key file.
    pub fn load(path: &Path, role: KeyRole) -> Result<Self, KeyError> {
        let failed = |error| KeyError::File { path: path.to_owned(), error };
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Permissions { path: path.to_owned(), mode });
        }
        let text = Zeroizing::new(fs::read_to_string(path).map_err(failed)?);
        let format = |message| KeyError::Format { path: path.to_owned(), message };
        // The parser's own message would show a part of the file.
        let content: Content = toml::from_str(&text).map_err(|_| format("it does not parse"))?;
        if content.role != role {
            return Err(format("it is another role's"));
        }
        if role == KeyRole::Shuffler && content.gateway.is_none() {
            return Err(format("the gateway's secret is missing"));
        }
        Self::from_content(path, content)
    }

    fn from_content(path: &Path, content: Content) -> Result<Self, KeyError> {
        let signing = SigningKey::from_bytes(&content.signing.0);
        let mut opening = Vec::new();
        for key in &content.sealing {
            if let Some(secret) = &key.secret {
                opening.push((key.id, OpeningKey::from_bytes(&secret.0)?));
            }
        }
        Ok(Self { path: path.to_owned(), content, signing, opening })
    }

    /// What this role signs with.
    pub fn signing(&self) -> &SigningKey {
        &self.signing
    }

    /// What task files name.
    pub fn verification_key(&self) -> VerificationKey {
        self.signing.verification_key()
    }

    /// The seed of the Oblivious HTTP gateway's key.
    pub(crate) fn gateway_seed(&self) -> Option<&[u8; 32]> {
        self.content.gateway.as_ref().map(|secret| &*secret.0)
    }

    /// The public sealing keys, as the notice has them.
    pub fn sealing_keys(&self) -> Vec<SealingKey> {
        let public =
            |key: &SealingSecret| SealingKey { id: key.id, key: key.public, state: key.state };
        self.content.sealing.iter().map(public).collect()
    }

    /// Opens a sealed report of a task: its header, and the bytes inside.
    pub fn open(
        &self,
        task: &TaskId,
        bytes: &[u8],
    ) -> Result<(SealedHeader, Vec<u8>), EnvelopeError> {
        let sealed = Sealed::decode(bytes)?;
        let number = sealed.header().key;
        let key = self.opening.iter().find(|(id, _)| *id == number);
        let (_, key) = key.ok_or(EnvelopeError::UnknownKey(number))?;
        Ok((*sealed.header(), key.open_sealed(task, &sealed)?))
    }

    /// First step of a rotation: a new key is published, but nobody seals to it yet.
    pub fn add_pending(&mut self) -> Result<u8, KeyError> {
        if self.content.sealing.iter().any(|key| key.state == KeyState::Pending) {
            return Err(KeyError::Rotation("a key is pending already: activate it first"));
        }
        let last = self.content.sealing.iter().map(|key| key.id).max().unwrap_or(0);
        let id = last.checked_add(1).ok_or(KeyError::Rotation("all 255 key numbers are used"))?;
        self.content.sealing.push(sealing_secret(id, KeyState::Pending)?);
        self.save()?;
        Ok(id)
    }

    /// Second step: devices seal to the pending key. The earlier ones still open what is on its
    /// way.
    pub fn activate_pending(&mut self) -> Result<u8, KeyError> {
        let pending = self.content.sealing.iter_mut().find(|key| key.state == KeyState::Pending);
        let key = pending.ok_or(KeyError::Rotation("no key is pending: add one first"))?;
        key.state = KeyState::Active;
        let id = key.id;
        self.save()?;
        Ok(id)
    }

    /// Last step: removes the secrets of all active keys but the newest. The old file is
    /// overwritten; what the medium keeps of overwritten blocks is beyond this.
    pub fn expire_old(&mut self) -> Result<Vec<u8>, KeyError> {
        let newest = self.content.sealing.iter().rposition(|key| key.state == KeyState::Active);
        let mut expired = Vec::new();
        for (index, key) in self.content.sealing.iter_mut().enumerate() {
            if key.state == KeyState::Active && Some(index) != newest {
                key.state = KeyState::Expired;
                key.secret = None;
                expired.push(key.id);
            }
        }
        if expired.is_empty() {
            return Err(KeyError::Rotation("there is no active key but the newest one"));
        }
        self.save()?;
        Ok(expired)
    }

    fn save(&mut self) -> Result<(), KeyError> {
        let text = Zeroizing::new(text(&self.content, &self.path)?);
        incrowd_files::replace_erasing(&self.path, text.as_bytes())
            .map_err(|error| KeyError::File { path: self.path.clone(), error })?;
        self.opening.clear();
        for key in &self.content.sealing {
            if let Some(secret) = &key.secret {
                self.opening.push((key.id, OpeningKey::from_bytes(&secret.0)?));
            }
        }
        Ok(())
    }
}

fn sealing_secret(id: u8, state: KeyState) -> Result<SealingSecret, KeyError> {
    let key = OpeningKey::generate()?;
    Ok(SealingSecret { id, state, public: key.public(), secret: Some(Secret(key.to_bytes())) })
}

fn text(content: &Content, path: &Path) -> Result<String, KeyError> {
    let failed = |_| KeyError::Format { path: path.to_owned(), message: "it cannot be written" };
    toml::to_string(content).map_err(failed)
}
