use std::{fmt, str::FromStr};

use ed25519_dalek::Signer;
use incrowd_protocol::{TaskId, VerificationKey, parse_hex};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::EnvelopeError;

/// What a signature is for; a signature of one kind says nothing about another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// The shuffler's notice of a task.
    Notice,
    /// The shuffler's notice of the current round.
    Round,
    /// The shuffler's release of a batch.
    Release,
    /// The shuffler's word that a closed task has no more releases.
    Ending,
    /// The bandit's model.
    Model,
}

impl Document {
    fn tag(self) -> &'static [u8] {
        match self {
            Self::Notice => b"incrowd/notice/v1\0",
            Self::Round => b"incrowd/round/v1\0",
            Self::Release => b"incrowd/release/v1\0",
            Self::Ending => b"incrowd/ending/v1\0",
            Self::Model => b"incrowd/model/v1\0",
        }
    }

    /// The bytes that are signed.
    fn message(self, task: &TaskId, body: &[u8]) -> Vec<u8> {
        [self.tag(), task.bytes(), body].concat()
    }
}

/// An Ed25519 signature, 128 hex digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Signature([u8; 64]);

/// A role's secret Ed25519 key. It cannot be printed; it is erased when it is dropped.
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// A new key from the operating system's randomness.
    pub fn generate() -> Result<Self, EnvelopeError> {
        let secret = crate::sealed::random()?;
        Ok(Self::from_bytes(&secret))
    }

    /// The key with this secret.
    pub fn from_bytes(secret: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(secret))
    }

    /// The secret, to be written to the operator's key file.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public half, which task files name.
    pub fn verification_key(&self) -> VerificationKey {
        VerificationKey(self.0.verifying_key().to_bytes())
    }

    /// Signs the exact bytes of a document of a task.
    pub fn sign(&self, document: Document, task: &TaskId, body: &[u8]) -> Signature {
        Signature(self.0.sign(&document.message(task, body)).to_bytes())
    }
}

/// Refuses a key that is no point of the curve, or one of the few (such as zero) that belong to no
/// secret: anybody could sign for them.
pub fn check_key(key: &VerificationKey) -> Result<(), EnvelopeError> {
    match ed25519_dalek::VerifyingKey::from_bytes(key.bytes()) {
        Ok(key) if !key.is_weak() => Ok(()),
        _ => Err(EnvelopeError::PublicKey),
    }
}

/// Whether the holder of `key` signed exactly these bytes as a document of this task.
pub fn verify(
    key: &VerificationKey,
    document: Document,
    task: &TaskId,
    body: &[u8],
    signature: &Signature,
) -> Result<(), EnvelopeError> {
    let key = ed25519_dalek::VerifyingKey::from_bytes(key.bytes())
        .map_err(|_| EnvelopeError::PublicKey)?;
    let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
    key.verify_strict(&document.message(task, body), &signature)
        .map_err(|_| EnvelopeError::Signature)
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

impl FromStr for Signature {
    type Err = EnvelopeError;
    fn from_str(text: &str) -> Result<Self, EnvelopeError> {
        parse_hex(text).map(Self).ok_or(EnvelopeError::SignatureText)
    }
}

impl TryFrom<String> for Signature {
    type Error = EnvelopeError;
    fn try_from(text: String) -> Result<Self, EnvelopeError> {
        text.parse()
    }
}

impl From<Signature> for String {
    fn from(signature: Signature) -> Self {
        signature.to_string()
    }
}

/// The exact bytes of a document and its signature, so that it can be checked again by whoever gets
/// both.
///
/// In a file the body is a text: documents are JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// The document.
    #[serde(with = "text")]
    pub body: Vec<u8>,
    /// Of the body, the kind of document and the task.
    pub signature: Signature,
}

impl Signed {
    /// Signs a document of a task.
    pub fn new(body: Vec<u8>, key: &SigningKey, document: Document, task: &TaskId) -> Self {
        let signature = key.sign(document, task, &body);
        Self { body, signature }
    }

    /// Whether the holder of `key` signed it as a document of this task.
    pub fn verify(
        &self,
        key: &VerificationKey,
        document: Document,
        task: &TaskId,
    ) -> Result<(), EnvelopeError> {
        verify(key, document, task, &self.body, &self.signature)
    }
}

mod text {
    use serde::{Deserialize, Deserializer, Serializer, ser::Error};

    pub fn serialize<S: Serializer>(body: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(body).map_err(|_| S::Error::custom("not a text"))?;
        serializer.serialize_str(text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        String::deserialize(deserializer).map(String::into_bytes)
    }
}
