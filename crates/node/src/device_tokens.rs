//! Tokens of single devices, which an issuing secret makes and checks without a list.

use std::{fmt, path::Path, str::FromStr};

use getrandom::{SysRng, rand_core::TryRng};
use hmac::{Hmac, KeyInit, Mac};
use incrowd_envelope::EnvelopeError;
use incrowd_files::{Readers, read_secret};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::keys::KeyError;

/// What every token of a device begins with.
const PREFIX: &str = "incrowd-device-";
/// In front of the serial in what is authenticated: the secret serves nothing else.
const LABEL: &[u8] = b"incrowd device token v1";

/// Tells one device's token from the others; drawn at random, so that it says nothing of a person.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Serial(#[serde(with = "hex::serde")] pub [u8; 16]);

impl fmt::Debug for Serial {
    /// Not the serial: it must get into no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Serial")
    }
}

impl FromStr for Serial {
    type Err = KeyError;

    /// A serial, or a token with it.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        let serial = text.split_once('-').map_or(text, |(serial, _)| serial);
        let mut bytes = [0; 16];
        hex::decode_to_slice(serial, &mut bytes).map_err(|_| KeyError::Serial)?;
        Ok(Self(bytes))
    }
}

/// The secret that tokens of devices are made with. Whoever has it can make as many as they want.
#[derive(Clone)]
pub struct Issuer(Zeroizing<[u8; 32]>);

impl Issuer {
    /// A new secret.
    pub fn generate() -> Result<Self, KeyError> {
        let mut secret = Zeroizing::new([0; 32]);
        SysRng.try_fill_bytes(secret.as_mut_slice()).map_err(EnvelopeError::Randomness)?;
        Ok(Self(secret))
    }

    /// A secret that is known.
    pub fn from_bytes(secret: [u8; 32]) -> Self {
        Self(Zeroizing::new(secret))
    }

    /// Reads a file with 64 hex digits.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = read_secret(path, Readers::Owner)?;
        let mut secret = Zeroizing::new([0; 32]);
        let message = "an issuing secret must be 64 hex digits";
        hex::decode_to_slice(text.trim_ascii(), secret.as_mut_slice())
            .map_err(|_| KeyError::Format { path: path.to_owned(), message })?;
        Ok(Self(secret))
    }

    /// Writes the secret to a file, in the place of an earlier one only if it is to `replace` it.
    pub fn save(&self, path: &Path, replace: bool) -> Result<(), KeyError> {
        let line = Zeroizing::new(format!("{}\n", *Zeroizing::new(hex::encode(*self.0))));
        let write = if replace { incrowd_files::replace_erasing } else { incrowd_files::create };
        write(path, line.as_bytes())
            .map_err(|error| KeyError::File { path: path.to_owned(), error })
    }

    /// A token with a new serial.
    pub fn mint(&self) -> Result<Zeroizing<String>, KeyError> {
        let mut serial = [0; 16];
        SysRng.try_fill_bytes(&mut serial).map_err(EnvelopeError::Randomness)?;
        Ok(self.token(Serial(serial)))
    }

    /// The token with a serial.
    pub fn token(&self, serial: Serial) -> Zeroizing<String> {
        let tag = self.mac(serial).finalize().into_bytes();
        Zeroizing::new(format!("{PREFIX}{}-{}", hex::encode(serial.0), hex::encode(tag)))
    }

    /// The serial of a token that this secret has made; none for any other text. Takes the same
    /// time for every tag.
    pub fn verify(&self, token: &[u8]) -> Option<Serial> {
        let (serial, tag) = str::from_utf8(token).ok()?.strip_prefix(PREFIX)?.split_once('-')?;
        let (mut bytes, mut found) = ([0; 16], [0; 32]);
        hex::decode_to_slice(serial, &mut bytes).ok()?;
        hex::decode_to_slice(tag, &mut found).ok()?;
        let serial = Serial(bytes);
        self.mac(serial).verify_slice(&found).ok().map(|()| serial)
    }

    fn mac(&self, serial: Serial) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&*self.0);
        let mac = mac.expect("invariant: HMAC takes keys of any length");
        mac.chain_update(LABEL).chain_update(serial.0)
    }
}
