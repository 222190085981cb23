//! Small private files that a crash leaves whole: keys, tokens, a device's state.
//!
//! Only the owner can read them. A write is durable when it returns: the bytes first, then the name
//! in the folder.

mod secrets;

use std::{
    collections::hash_map::RandomState,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    hash::{BuildHasher, Hasher},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

pub use secrets::{Readers, SecretError, create_folder, read_secret};

/// Writes a file that must not exist yet.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_new(path, bytes)?;
    sync_folder(path)
}

/// Writes a file if there is none: whoever of several comes first, on any machine that has the
/// folder, and whole. False if there is one.
///
/// It is first written under another name, which begins with that of the file and `.new`.
pub fn create_whole(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    // Hosts and processes of containers can have equal names and numbers.
    let random = RandomState::new().build_hasher().finish();
    let new = beside(path, &format!(".new-{random:016x}"));
    write_new(&new, bytes)?;
    match fs::hard_link(&new, path) {
        Ok(()) => fs::remove_file(&new)?,
        Err(error) => {
            erase(&new)?;
            return if error.kind() == io::ErrorKind::AlreadyExists {
                Ok(false)
            } else {
                Err(error)
            };
        }
    }
    sync_folder(path)?;
    Ok(true)
}

/// Replaces a file, or creates it: after a crash it is the old one or the new one.
///
/// The new one is first written beside it, with `.new` at the end of the name; what an earlier
/// crash left there is removed. One writer at a time: the caller holds a lock if there can be two.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path, ".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write_new(&new, bytes)?;
    fs::rename(&new, path)?;
    sync_folder(path)
}

/// Replaces a file and then overwrites the old one, whose name is gone: for secrets that must not
/// stay in free blocks of the disk. What the medium keeps of overwritten blocks is beyond this.
pub fn replace_erasing(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A crash left a new file, with secrets.
    erase(&beside(path, ".new"))?;
    let old = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        opened => Some(opened?),
    };
    replace(path, bytes)?;
    old.map_or(Ok(()), |old| overwrite(&old))
}

/// Overwrites a file and removes it; one that is not there is no error.
pub fn erase(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => overwrite(&opened?)?,
    }
    match fs::remove_file(path) {
        // Somebody else who has the folder was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    sync_folder(path)
}

/// Zeros in the place of everything.
fn overwrite(mut file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    io::copy(&mut io::repeat(0).take(length), &mut file)?;
    file.sync_all()
}

/// The path with this ending after its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a new name durable; only Unix has a call for that.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_created_once_and_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        create(&path, b"first").unwrap();
        assert_eq!(create(&path, b"other").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        // A crash left a half of another one, that others could read.
        fs::write(beside(&path, ".new"), b"ha").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert!(!beside(&path, ".new").exists());
        #[cfg(unix)]
        assert_eq!(mode(&path), 0o600);
        let absent = folder.path().join("absent");
        replace(&absent, b"new").unwrap();
        assert_eq!(fs::read(&absent).unwrap(), b"new");
    }

    #[test]
    fn of_several_who_make_a_file_one_comes_first_and_nobody_overwrites_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (path_of_all, start) = (&path, &std::sync::Barrier::new(8));
        let make = |number: u8| {
            move || {
                start.wait();
                create_whole(path_of_all, &[number; 32]).unwrap().then_some(number)
            }
        };
        let first: Vec<u8> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|number| scope.spawn(make(number))).collect();
            makers.into_iter().filter_map(|maker| maker.join().unwrap()).collect()
        });
        assert_eq!(first.len(), 1);
        assert_eq!(fs::read(&path).unwrap(), [first[0]; 32]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_is_erased_is_overwritten_first() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("secret"), folder.path().join("link"));
        create(&path, b"first secret").unwrap();
        // A second name shows what becomes of the blocks.
        fs::hard_link(&path, &link).unwrap();
        replace_erasing(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read(&link).unwrap(), [0; 12]);
        fs::remove_file(&link).unwrap();
        fs::hard_link(&path, &link).unwrap();
        erase(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read(&link).unwrap(), [0; 6]);
        erase(&path).unwrap();
        replace_erasing(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        create(&path, b"first").unwrap();
        // A folder in the way of the new file.
        fs::create_dir(beside(&path, ".new")).unwrap();
        assert!(replace(&path, b"second").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
    }
}
