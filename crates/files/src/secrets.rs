//! Secret files are read only if nobody else can read them.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use thiserror::Error;
use zeroize::Zeroizing;

/// Who beside its owner may read a secret file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Nobody.
    Owner,
    /// Its group: where a system hands secrets out that way, as with TLS keys (`ssl-cert`) and
    /// systemd's credentials.
    Group,
}

impl Readers {
    /// The permissions that a file must not have, and those it can be given.
    fn permissions(self) -> (u32, u32) {
        match self {
            Self::Owner => (0o077, 0o600),
            Self::Group => (0o027, 0o640),
        }
    }
}

/// Why a secret file is not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It cannot be read at all.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// Others can read it, or write to it.
    #[error(
        "{path} is readable by others (mode {mode:o}): `chmod {allowed:o} {path}`, and make the secret anew if others could have read it"
    )]
    Permissions {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// A mode that it may have.
        allowed: u32,
    },
}

/// Reads a secret file, unless others than `readers` can read it.
pub fn read_secret(path: &Path, readers: Readers) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let failed = |error| SecretError::File { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(failed)?;
    // Of what is open, which is what is read.
    let metadata = file.metadata().map_err(failed)?;
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
        let (forbidden, allowed) = readers.permissions();
        if mode & forbidden != 0 {
            return Err(SecretError::Permissions { path: path.to_owned(), mode, allowed });
        }
    }
    // One buffer that does not grow: a smaller one would stay behind in memory.
    let length = usize::try_from(metadata.len()).unwrap_or(0);
    let mut bytes = Zeroizing::new(Vec::with_capacity(length + 1));
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Makes a folder for secrets, with those above it; one that is there stays as it is.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn r35_what_others_can_read_is_refused_with_the_command_that_mends_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        crate::create(&path, b"secret").unwrap();
        for (mode, owner, group) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o640, false, true),
            (0o440, false, true),
            (0o660, false, false),
            (0o644, false, false),
            (0o604, false, false),
            (0o602, false, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            for (readers, good) in [(Readers::Owner, owner), (Readers::Group, group)] {
                match read_secret(&path, readers) {
                    Ok(bytes) => assert!(good && *bytes == b"secret", "{mode:o} {readers:?}"),
                    Err(error) => {
                        assert!(!good, "{mode:o} {readers:?}");
                        let text = error.to_string();
                        let needed = readers.permissions().1;
                        assert!(text.contains(&format!("mode {mode:o}")), "{text}");
                        let command = format!("`chmod {needed:o} {}`", path.display());
                        assert!(text.contains(&command), "{text}");
                    }
                }
            }
        }
        let absent = folder.path().join("absent");
        let error = read_secret(&absent, Readers::Owner).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
    }

    #[test]
    fn r35_a_folder_for_secrets_is_the_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        create_folder(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder.path().join("a"))), (0o700, 0o700));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        create_folder(&path).unwrap();
        assert_eq!(mode(&path), 0o755, "what an operator made is the operator's");
    }
}
