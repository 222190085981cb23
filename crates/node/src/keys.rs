//! The secret keys of a role, in a file that only its operator reads.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use incrowd_envelope::{EnvelopeError, OpeningKey, Sealed, SealedHeader, SigningKey};
use incrowd_files::{Readers, SecretError, read_secret};
use incrowd_protocol::{KeyState, SealingKey, TaskId, VerificationKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

/// How long devices may use the earlier keys after others became active: a cache keeps the notice
/// for 60 s, and a device for 60 s more.
const NOTICED: Duration = Duration::from_secs(120);

/// Why keys cannot be read, written or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A secret file cannot be read, or others can read it.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// Not a key file.
    #[error("{path}: {message}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, without its content.
        message: &'static str,
    },
    /// A step of a rotation that does not come next.
    #[error("{0}")]
    Rotation(&'static str),
    /// Devices may not know the newest keys yet.
    #[error(
        "keys {id} have been active for {seconds} s, must be for {} s: devices may still use the earlier ones", NOTICED.as_secs()
    )]
    TooEarly {
        /// The newest active keys.
        id: u8,
        /// For how long.
        seconds: u64,
    },
    /// Text without a serial.
    #[error("this is no serial of a device's token: it must be 32 hex digits, or the token")]
    Serial,
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

impl KeyRole {
    /// The role in a command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shuffler => "shuffler",
            Self::Bandit => "bandit",
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    role: KeyRole,
    signing: Secret,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sealing: Vec<OpeningSecrets>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpeningSecrets {
    id: u8,
    state: KeyState,
    /// When they became active by a rotation, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    active_since: Option<u64>,
    public: incrowd_protocol::SealingPublicKey,
    /// What opens reports; none once the keys are expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Secret>,
    /// The seed of the gateway's key with the same id; none once the keys are expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<Secret>,
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
        let mut content = Content { role, signing, sealing: Vec::new() };
        if role == KeyRole::Shuffler {
            content.sealing.push(opening_secrets(1, KeyState::Active)?);
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
        let bytes = read_secret(path, Readers::Owner)?;
        let format = |message| KeyError::Format { path: path.to_owned(), message };
        // The parser's own message would show a part of the file.
        let content: Content = toml::from_slice(&bytes).map_err(|_| format("it is no key file"))?;
        if content.role != role {
            return Err(format("it has another role's keys"));
        }
        let opens = |key: &OpeningSecrets| key.secret.is_some();
        if content.sealing.iter().any(|key| opens(key) != key.gateway.is_some()) {
            return Err(format("a gateway's secret is missing"));
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

    /// The ids, states and seeds of the Oblivious HTTP gateway's keys that open requests, oldest
    /// first.
    pub(crate) fn gateway_seeds(&self) -> impl Iterator<Item = (u8, KeyState, &[u8; 32])> {
        let keys = self.content.sealing.iter();
        keys.filter_map(|key| Some((key.id, key.state, &*key.gateway.as_ref()?.0)))
    }

    /// The public sealing keys, as the notice has them.
    pub fn sealing_keys(&self) -> Vec<SealingKey> {
        let public =
            |key: &OpeningSecrets| SealingKey { id: key.id, key: key.public, state: key.state };
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

    /// First step of a rotation of what opens reports and the gateway's requests: a new sealing key
    /// is published, but nobody seals to it yet, and a new key of the gateway opens.
    pub fn add_pending(&mut self) -> Result<u8, KeyError> {
        if self.content.sealing.iter().any(|key| key.state == KeyState::Pending) {
            return Err(KeyError::Rotation("a key is pending already: activate it first"));
        }
        let last = self.content.sealing.iter().map(|key| key.id).max().unwrap_or(0);
        let id = last.checked_add(1).ok_or(KeyError::Rotation("all 255 key numbers are used"))?;
        self.content.sealing.push(opening_secrets(id, KeyState::Pending)?);
        self.save()?;
        Ok(id)
    }

    /// Second step: devices use the pending keys from `now` on. The earlier ones still open what is
    /// on its way.
    pub fn activate_pending(&mut self, now: SystemTime) -> Result<u8, KeyError> {
        let pending = self.content.sealing.iter_mut().find(|key| key.state == KeyState::Pending);
        let key = pending.ok_or(KeyError::Rotation("no key is pending: add one first"))?;
        key.state = KeyState::Active;
        key.active_since = Some(since_1970(now));
        let id = key.id;
        self.save()?;
        Ok(id)
    }

    /// Last step: removes the secrets of all active keys but the newest. The old file is
    /// overwritten; what the medium keeps of overwritten blocks is beyond this. Unless it is to be
    /// done `at_once`, devices must have had time to know the newest.
    pub fn expire_old(&mut self, now: SystemTime, at_once: bool) -> Result<Vec<u8>, KeyError> {
        let newest = self.content.sealing.iter().rposition(|key| key.state == KeyState::Active);
        if let Some(key) = newest.map(|index| &self.content.sealing[index])
            && let Some(since) = key.active_since
            && !at_once
        {
            let seconds = since_1970(now).saturating_sub(since);
            if seconds < NOTICED.as_secs() {
                return Err(KeyError::TooEarly { id: key.id, seconds });
            }
        }
        let mut expired = Vec::new();
        for (index, key) in self.content.sealing.iter_mut().enumerate() {
            if key.state == KeyState::Active && Some(index) != newest {
                key.state = KeyState::Expired;
                (key.secret, key.gateway) = (None, None);
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

fn opening_secrets(id: u8, state: KeyState) -> Result<OpeningSecrets, KeyError> {
    let key = OpeningKey::generate()?;
    Ok(OpeningSecrets {
        id,
        state,
        active_since: None,
        public: key.public(),
        secret: Some(Secret(key.to_bytes())),
        gateway: Some(Secret(OpeningKey::generate()?.to_bytes())),
    })
}

fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn text(content: &Content, path: &Path) -> Result<String, KeyError> {
    let failed = |_| KeyError::Format { path: path.to_owned(), message: "it cannot be written" };
    toml::to_string(content).map_err(failed)
}
