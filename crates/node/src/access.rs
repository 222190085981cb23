//! Who may ask what, as the files of the data folder say now.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    KeyError, ServiceError,
    device_tokens::Issuer,
    role::{Change, Reload},
    tokens::{Tokens, Verdict},
};

/// How often the files are looked at: how soon a revoked token is refused.
const PERIOD: Duration = Duration::from_secs(1);

/// The tokens of a service, followed while it runs.
pub struct Access {
    tokens: PathBuf,
    /// Where tokens of single devices are taken.
    issuer: Option<PathBuf>,
    known: RwLock<Arc<Known>>,
    seen: Mutex<Seen>,
}

/// The files as they were last looked at.
#[derive(Default)]
struct Seen {
    /// What is in use was read from these.
    used: Option<Files>,
    /// These could not be read, which is logged.
    failed: Option<Files>,
}

struct Known {
    tokens: Tokens,
    issuer: Option<Issuer>,
}

type Files = [Option<Stamp>; 2];

/// What changes with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self {
            file: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

impl Access {
    /// Tokens that were read from a file, and the issuing secret in another one, if tokens of
    /// single devices are taken.
    pub fn new(
        path: PathBuf,
        tokens: Tokens,
        issuer: Option<PathBuf>,
    ) -> Result<Arc<Self>, KeyError> {
        let known = Known { tokens, issuer: issuer.as_deref().map(Issuer::load).transpose()? };
        let (known, seen) = (RwLock::new(Arc::new(known)), Mutex::default());
        Ok(Arc::new(Self { tokens: path, issuer, known, seen }))
    }

    /// What a token is worth now.
    pub fn verdict(&self, token: &[u8]) -> Verdict {
        let known = self.known();
        let serial = known.issuer.as_ref().and_then(|issuer| issuer.verify(token));
        match serial {
            Some(serial) if known.tokens.is_revoked(serial) => Verdict::Unknown,
            Some(serial) => Verdict::OneDevice(serial),
            None => known.tokens.verdict(token),
        }
    }

    /// Names the tokens: they differ where this does.
    pub(crate) fn tokens_digest(&self) -> [u8; 32] {
        let text = toml::to_string(&self.known().tokens)
            .expect("invariant: hashes and serials can always be written");
        Sha256::digest(text).into()
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn read(&self) -> Result<Known, KeyError> {
        // A service may have no tokens at all; those that it had do not go by mistake.
        let tokens = if self.known().tokens.is_empty() && !self.tokens.exists() {
            Tokens::default()
        } else {
            Tokens::load(&self.tokens)?
        };
        let issuer = self.issuer.as_deref().map(Issuer::load).transpose()?;
        Ok(Known { tokens, issuer })
    }

    fn take(&self, known: Known) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
    }

    /// Takes changed files into use. Those that cannot be read leave everything as it is; they are
    /// read again the next time, also if they have not changed.
    fn look(&self) {
        self.take_changed(|| self.read());
    }

    fn take_changed(&self, read: impl FnOnce() -> Result<Known, KeyError>) {
        let now = [Stamp::of(&self.tokens), self.issuer.as_deref().and_then(Stamp::of)];
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.used == Some(now) {
            return;
        }
        match read() {
            Ok(known) => {
                self.take(known);
                // At first they are those that the service started with.
                if seen.used.is_some() {
                    tracing::info!("changed tokens are in use");
                }
                *seen = Seen { used: Some(now), failed: None };
            }
            Err(error) => {
                if seen.failed.replace(now) != Some(now) {
                    tracing::error!(%error, "the tokens stay as they were");
                }
            }
        }
    }

    /// Follows the files until it is aborted.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            self.look();
            tokio::time::sleep(PERIOD).await;
        }
    }
}

impl Reload for Access {
    fn reload(&self) -> Result<Change<'_>, ServiceError> {
        let known = self.read()?;
        Ok(Box::new(|| {
            // What was read since may be newer: the next look reads again.
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            self.take(known);
            *seen = Seen::default();
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::Role;

    /// A service's access that follows a file with one token, and that token.
    fn followed(folder: &Path) -> (Arc<Access>, Tokens, String) {
        let path = folder.join("tokens.toml");
        let mut tokens = Tokens::default();
        let token = tokens.add(Role::Device).unwrap().to_string();
        tokens.save(&path).unwrap();
        let access = Access::new(path, tokens.clone(), None).unwrap();
        access.look();
        (access, tokens, token)
    }

    #[test]
    fn a_revocation_that_could_not_be_read_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (access, mut tokens, token) = followed(folder.path());
        tokens.revoke(Role::Device);
        tokens.save(&access.tokens).unwrap();
        for _ in 0..2 {
            access.take_changed(|| {
                let (path, error) = (access.tokens.clone(), io::Error::other("no descriptor"));
                Err(KeyError::File { path, error })
            });
            assert_eq!(access.verdict(token.as_bytes()), Verdict::Known(Role::Device));
            let seen = access.seen.lock().unwrap();
            assert!(seen.failed.is_some() && seen.failed != seen.used, "logged once");
        }
        access.look();
        assert_eq!(access.verdict(token.as_bytes()), Verdict::Unknown);
        assert!(access.seen.lock().unwrap().failed.is_none());
        access.take_changed(|| panic!("unchanged files are not read again"));
    }

    #[test]
    fn a_reload_that_read_before_a_revocation_does_not_undo_it() {
        let folder = tempfile::tempdir().unwrap();
        let (access, mut tokens, token) = followed(folder.path());
        let reload = access.reload().unwrap();
        tokens.revoke(Role::Device);
        tokens.save(&access.tokens).unwrap();
        access.look();
        assert_eq!(access.verdict(token.as_bytes()), Verdict::Unknown);
        reload();
        access.look();
        assert_eq!(access.verdict(token.as_bytes()), Verdict::Unknown);
    }

    #[test]
    fn a_broken_file_changes_nothing_until_it_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let (access, mut tokens, token) = followed(folder.path());
        fs::write(&access.tokens, "[[token]]\nrole = \"king\"").unwrap();
        access.look();
        assert_eq!(access.verdict(token.as_bytes()), Verdict::Known(Role::Device));
        tokens.save(&access.tokens).unwrap();
        access.look();
        assert_eq!(access.verdict(token.as_bytes()), Verdict::Known(Role::Device));
        tokens.revoke(Role::Device);
        tokens.save(&access.tokens).unwrap();
        access.look();
        assert_eq!(access.verdict(token.as_bytes()), Verdict::Unknown);
    }
}
