//! The secret files of a service in one file under a passphrase, for backups and moves.
//! `docs/formats.md` has the format.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::{
    ChaCha20Poly1305, KeyInit, Nonce,
    aead::{Aead, Payload},
};
use getrandom::{SysRng, rand_core::TryRng};
use incrowd_files::{Readers, SecretError, read_secret};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::Files;

const MAGIC: &[u8] = b"incrowd/secrets/v1\0";
const SALT: usize = 16;
/// Magic, three numbers, salt.
const HEADER: usize = MAGIC.len() + 12 + SALT;
/// Bytes of a passphrase from the standard input that are read.
const LONGEST: usize = 4096;
/// What a passphrase must have at least.
const SHORTEST: usize = 12;
/// The cost of a guess: KiB of memory, passes, lanes.
const COST: [u32; 3] = [64 << 10, 3, 1];
/// The most that a file may ask for.
const LARGEST: [u32; 3] = [1 << 20, 64, 16];

/// Why secrets cannot be sealed, opened or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretsError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// A secret that others can read, or that cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A passphrase that is no text.
    #[error("{0} is not UTF-8 text")]
    NoText(PathBuf),
    /// A passphrase that is easily guessed.
    #[error("the passphrase has {found} characters, must have at least {SHORTEST}")]
    Short {
        /// How many it has.
        found: usize,
    },
    /// Not a file of this format.
    #[error("{path} is not a file with the secrets of a backup: {rule}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        rule: &'static str,
    },
    /// It does not open.
    #[error(
        "{path} does not open: the passphrase is another one, or the file is damaged. Nothing is restored"
    )]
    Passphrase {
        /// Which file.
        path: PathBuf,
    },
    /// A secret that this program has no place for.
    #[error("{path} has the secret {name}, which this program does not know: use a newer one")]
    Unknown {
        /// Which file.
        path: PathBuf,
        /// The name of the secret.
        name: String,
    },
    /// No randomness.
    #[error("the operating system gives no randomness: {0}")]
    Randomness(getrandom::Error),
}

/// What opens the secrets of a backup. It cannot be printed.
pub struct Passphrase(Zeroizing<String>);

impl Passphrase {
    /// A passphrase that is long enough, without the line's end.
    pub fn new(text: &str) -> Result<Self, SecretsError> {
        let text = text.trim_end_matches(['\n', '\r']);
        match text.chars().count() {
            found if found < SHORTEST => Err(SecretsError::Short { found }),
            _ => Ok(Self(Zeroizing::new(text.to_owned()))),
        }
    }

    /// The passphrase in a file; `-` is the standard input.
    pub fn read(path: &Path) -> Result<Self, SecretsError> {
        if path != Path::new("-") {
            let bytes = read_secret(path, Readers::Owner)?;
            let text = str::from_utf8(&bytes).map_err(|_| SecretsError::NoText(path.to_owned()))?;
            return Self::new(text);
        }
        // One buffer that does not grow: a smaller one would stay behind in memory.
        let mut text = Zeroizing::new(String::with_capacity(LONGEST + 1));
        io::stdin()
            .take(LONGEST as u64)
            .read_to_string(&mut text)
            .map_err(|error| SecretsError::File { path: path.to_owned(), error })?;
        Self::new(&text)
    }
}

/// The secret files of a data folder, by name.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(BTreeMap<String, Secret>);

/// The content of a file, hex digits in the list, erased when dropped.
struct Secret(Zeroizing<Vec<u8>>);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(hex::encode(&*self.0)))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let bytes = hex::decode(text.as_bytes());
        // The parser's own message would show a part of the secret.
        let bytes = bytes.map_err(|_| serde::de::Error::custom("not hex digits"))?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

impl Secrets {
    /// Those that a data folder has.
    pub fn of(files: &Files) -> Result<Self, SecretsError> {
        let mut all = BTreeMap::new();
        for (name, path) in files.secrets() {
            if path.exists() {
                all.insert(name, Secret(read_secret(&path, Readers::Owner)?));
            }
        }
        Ok(Self(all))
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Where they belong in a data folder. One that this program has no place for is an error.
    pub fn places(&self, files: &Files, from: &Path) -> Result<Vec<PathBuf>, SecretsError> {
        let known: BTreeMap<_, _> = files.secrets().into_iter().collect();
        let place = |name: &String| {
            let unknown = || SecretsError::Unknown { path: from.to_owned(), name: name.clone() };
            known.get(name).cloned().ok_or_else(unknown)
        };
        self.0.keys().map(place).collect()
    }

    /// Writes them, for the owner only. None of the files may exist.
    pub fn write(&self, files: &Files, from: &Path) -> Result<(), SecretsError> {
        for (path, content) in self.places(files, from)?.into_iter().zip(self.0.values()) {
            incrowd_files::create(&path, &content.0)
                .map_err(|error| SecretsError::File { path, error })?;
        }
        Ok(())
    }

    /// The file for a backup.
    pub fn seal(&self, passphrase: &Passphrase) -> Result<Vec<u8>, SecretsError> {
        let mut salt = [0; SALT];
        SysRng.try_fill_bytes(&mut salt).map_err(SecretsError::Randomness)?;
        let mut bytes = MAGIC.to_vec();
        COST.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
        bytes.extend_from_slice(&salt);
        let text = serde_json::to_vec(self)
            .expect("invariant: names and hex digits can always be written");
        let text = Zeroizing::new(text);
        let key = key(passphrase, COST, &salt).expect("invariant: the cost is within the limits");
        let payload = Payload { msg: &text, aad: &bytes };
        let sealed = cipher(&key)
            .encrypt(&Nonce::default(), payload)
            .expect("invariant: secrets are shorter than 256 GiB");
        bytes.extend_from_slice(&sealed);
        Ok(bytes)
    }

    /// Opens the file of a backup.
    pub fn open(path: &Path, passphrase: &Passphrase) -> Result<Self, SecretsError> {
        let bytes =
            fs::read(path).map_err(|error| SecretsError::File { path: path.to_owned(), error })?;
        let wrong = |rule| SecretsError::Format { path: path.to_owned(), rule };
        let Some((header, sealed)) = bytes.split_at_checked(HEADER) else {
            return Err(wrong("it is too short"));
        };
        if !header.starts_with(MAGIC) {
            return Err(wrong("it begins with something else than incrowd/secrets/v1"));
        }
        let (numbers, salt) = header[MAGIC.len()..].split_at(12);
        let mut cost = [0; 3];
        for (number, bytes) in cost.iter_mut().zip(numbers.chunks_exact(4)) {
            *number = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let unusual = || wrong("its costs are beyond 1 GiB, 64 passes or 16 lanes, or too small");
        if cost.iter().zip(LARGEST).any(|(cost, largest)| *cost > largest) {
            return Err(unusual());
        }
        let key = key(passphrase, cost, salt).ok_or_else(unusual)?;
        let payload = Payload { msg: sealed, aad: header };
        let closed = || SecretsError::Passphrase { path: path.to_owned() };
        let opened = cipher(&key).decrypt(&Nonce::default(), payload).map_err(|_| closed())?;
        let opened = Zeroizing::new(opened);
        serde_json::from_slice(&opened).map_err(|_| wrong("there is no list of secrets inside"))
    }
}

/// The key of a passphrase; none if the costs are not allowed by the algorithm.
fn key(passphrase: &Passphrase, cost: [u32; 3], salt: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let [memory, passes, lanes] = cost;
    let params = Params::new(memory, passes, lanes, Some(32)).ok()?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut key = Zeroizing::new([0; 32]);
    argon2.hash_password_into(passphrase.0.as_bytes(), salt, key.as_mut_slice()).ok()?;
    Some(key)
}

/// Every file has a salt, and so a key, of its own: the nonce is zero.
fn cipher(key: &[u8; 32]) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(key.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `vectors/v1/secrets.json`, made by an independent script.
    const VECTORS: &str = include_str!("../../../vectors/v1/secrets.json");

    #[test]
    fn files_of_the_vectors_open_or_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let vectors: serde_json::Value = serde_json::from_str(VECTORS).unwrap();
        for case in vectors["cases"].as_array().unwrap() {
            let path = folder.path().join("secrets");
            fs::write(&path, hex::decode(case["file"].as_str().unwrap()).unwrap()).unwrap();
            let passphrase = Passphrase::new(case["passphrase"].as_str().unwrap()).unwrap();
            let name = &case["name"];
            match (Secrets::open(&path, &passphrase), case["error"].as_str()) {
                (Ok(found), None) => {
                    assert_eq!(serde_json::to_value(&found).unwrap(), case["secrets"], "{name}");
                }
                (Err(SecretsError::Format { .. }), Some("format"))
                | (Err(SecretsError::Passphrase { .. }), Some("passphrase")) => {}
                (found, error) => panic!("{name}: {:?}, {error:?}", found.err()),
            }
        }
    }

    #[test]
    fn r33_secrets_come_back_whole_and_only_with_their_passphrase() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let (from, to) = (Files::of(&from), Files::of(&to));
        for files in [&from, &to] {
            fs::create_dir(&files.data).unwrap();
        }
        for (name, path) in from.secrets() {
            let secret = format!("the secret of {name} \0\u{ff}");
            incrowd_files::create(&path, secret.as_bytes()).unwrap();
        }
        let sealed = folder.path().join("sealed");
        let good = Passphrase::new("correct horse battery\n").unwrap();
        let secrets = Secrets::of(&from).unwrap();
        fs::write(&sealed, secrets.seal(&good).unwrap()).unwrap();
        let bytes = fs::read(&sealed).unwrap();
        assert!(!bytes.windows(10).any(|window| window == b"the secret"));
        let other = Passphrase::new("correct horse batter").unwrap();
        let refused = Secrets::open(&sealed, &other).err().unwrap();
        assert!(matches!(refused, SecretsError::Passphrase { .. }), "{refused}");
        let opened = Secrets::open(&sealed, &good).unwrap();
        opened.write(&to, &sealed).unwrap();
        for ((_, before), (_, after)) in from.secrets().iter().zip(to.secrets()) {
            assert_eq!(fs::read(before).unwrap(), fs::read(after).unwrap());
        }
        assert!(opened.write(&to, &sealed).is_err(), "nothing is overwritten");
        let strange = Secrets(BTreeMap::from([("../x".to_owned(), Secret(Zeroizing::default()))]));
        assert!(matches!(strange.write(&to, &sealed), Err(SecretsError::Unknown { .. })));
        for short in ["", "\n", "eleven char"] {
            assert!(matches!(Passphrase::new(short), Err(SecretsError::Short { .. })), "{short}");
        }
    }
}
