//! Who may ask what, as the files of the data folder say now.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

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
    /// The files as they were when they were last looked at.
    seen: Mutex<Option<Files>>,
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

    /// Takes changed files into use. One that cannot be read leaves everything as it is, and is
    /// logged once.
    fn look(&self) {
        let now = [Stamp::of(&self.tokens), self.issuer.as_deref().and_then(Stamp::of)];
        let before = self.seen.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        if before == Some(now) {
            return;
        }
        match self.read() {
            Ok(known) => {
                self.take(known);
                // At first they are those that the service started with.
                if before.is_some() {
                    tracing::info!("changed tokens are in use");
                }
            }
            Err(error) => tracing::error!(%error, "the tokens stay as they were"),
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
        Ok(Box::new(|| self.take(known)))
    }
}
