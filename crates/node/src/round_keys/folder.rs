//! Keys as files of 32 bytes in a folder of their own.

use std::{
    collections::{HashMap, hash_map},
    env,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use incrowd_protocol::TaskId;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{RoundKey, RoundKeyError, RoundKeys};
use crate::store::Seq;

/// Where Linux has shared memory.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

pub(super) struct KeyFolder {
    folder: PathBuf,
    in_memory: bool,
    /// Open files with the number of the last commit of a task.
    commits: Mutex<HashMap<TaskId, File>>,
}

impl KeyFolder {
    /// A folder that must be on a file system in memory.
    pub fn in_memory(folder: &Path) -> Result<Self, RoundKeyError> {
        let keys = Self::new(folder, true)?;
        if is_memory(folder)? {
            return Ok(keys);
        }
        Err(RoundKeyError::NotInMemory { path: folder.to_owned() })
    }

    pub fn on_disk(folder: &Path) -> Result<Self, RoundKeyError> {
        Self::new(folder, false)
    }

    fn new(folder: &Path, in_memory: bool) -> Result<Self, RoundKeyError> {
        Ok(Self { folder: private(folder)?, in_memory, commits: Mutex::default() })
    }

    fn path(&self, task: &TaskId, round: u32) -> PathBuf {
        self.folder.join(format!("{task}-{round}"))
    }

    fn commits(&self, task: &TaskId) -> PathBuf {
        self.folder.join(format!("{task}.commits"))
    }
}

impl RoundKeys for KeyFolder {
    fn get_or_create(&self, task: &TaskId, round: u32) -> Result<RoundKey, RoundKeyError> {
        if let Some(key) = self.get(task, round)? {
            return Ok(key);
        }
        let (key, path) = (RoundKey::generate()?, self.path(task, round));
        // Whole or not there: a crash must not leave half a key. And once: another node that has
        // the folder may make it too.
        if incrowd_files::create_whole(&path, key.bytes()).map_err(failed(&path))? {
            return Ok(key);
        }
        self.get(task, round)?.ok_or_else(|| failed(&path)(io::ErrorKind::NotFound.into()))
    }

    fn get(&self, task: &TaskId, round: u32) -> Result<Option<RoundKey>, RoundKeyError> {
        let path = self.path(task, round);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => Zeroizing::new(read.map_err(failed(&path))?),
        };
        // Another node is erasing it.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let key = <&[u8; 32]>::try_from(bytes.as_slice());
        Ok(Some(RoundKey::from_bytes(key.map_err(|_| RoundKeyError::Format { path })?)))
    }

    fn destroy_before(&self, task: &TaskId, round: u32) -> Result<(), RoundKeyError> {
        let prefix = format!("{task}-");
        for entry in fs::read_dir(&self.folder).map_err(failed(&self.folder))? {
            let entry = entry.map_err(failed(&self.folder))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            // A crash may have left a key that was not named yet.
            let number = number.map(|name| name.split_once(".new").map_or(name, |(name, _)| name));
            if number.and_then(|number| number.parse().ok()).is_some_and(|of: u32| of < round) {
                let path = entry.path();
                incrowd_files::erase(&path).map_err(failed(&path))?;
            }
        }
        Ok(())
    }

    fn forget(&self, task: &TaskId) -> Result<(), RoundKeyError> {
        self.destroy_before(task, u32::MAX)?;
        let path = self.commits(task);
        incrowd_files::erase(&path).map_err(failed(&path))
    }

    /// Eight bytes in the place of the last eight: a kill does not tear them. What fails is not
    /// noticed later than without it.
    fn note_commit(&self, task: &TaskId, seq: Seq) {
        let mut open = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match open.entry(*task) {
            hash_map::Entry::Occupied(file) => file.into_mut(),
            hash_map::Entry::Vacant(place) => {
                let mut options = OpenOptions::new();
                options.create(true).truncate(false).write(true).mode(0o600);
                let Ok(file) = options.open(self.commits(task)) else { return };
                place.insert(file)
            }
        };
        let _ = file.write_all_at(&seq.0.to_be_bytes(), 0);
    }

    fn noted_commit(&self, task: &TaskId) -> Option<Seq> {
        let bytes = fs::read(self.commits(task)).ok()?;
        Some(Seq(u64::from_be_bytes(bytes.try_into().ok()?)))
    }

    fn describe(&self) -> String {
        let folder = self.folder.display();
        if self.in_memory {
            format!(
                "memory-file in {folder}: a kill keeps them, a reboot discards the open round, a stolen disk does not have them (without swap)"
            )
        } else {
            format!(
                "file in {folder}: a kill and a reboot keep them, a stolen disk has those that are not destroyed yet, and what its medium keeps of overwritten blocks"
            )
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RoundKeyError {
    |error| RoundKeyError::File { path: path.to_owned(), error }
}

/// A folder that only this user can use, made if it is not there.
fn private(folder: &Path) -> Result<PathBuf, RoundKeyError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(failed(folder))?;
    let found = fs::symlink_metadata(folder).map_err(failed(folder))?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !own || found.mode() & 0o077 != 0 {
        return Err(RoundKeyError::Permissions { path: folder.to_owned() });
    }
    Ok(folder.to_owned())
}

/// A folder in memory for the shuffler of a data folder, if the system has one.
pub(super) fn default_in_memory(data: &Path) -> Result<Option<PathBuf>, RoundKeyError> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let shared = [Some(PathBuf::from(SHARED_MEMORY)), runtime];
    let usable = |path: &PathBuf| path.is_dir() && is_memory(path).unwrap_or(false);
    let Some(shared) = shared.into_iter().flatten().find(usable) else { return Ok(None) };
    let data = fs::canonicalize(data).map_err(failed(data))?;
    let name = Sha256::digest(data.as_os_str().as_encoded_bytes());
    let own = shared.join(format!("incrowd-{}", rustix::process::geteuid().as_raw()));
    // Everybody may make folders there: the one above must be ours too.
    Ok(Some(private(&own)?.join(hex::encode(&name[..16]))))
}

#[cfg(target_os = "linux")]
fn is_memory(path: &Path) -> Result<bool, RoundKeyError> {
    use rustix::fs::FsWord;
    const TMPFS: FsWord = 0x0102_1994;
    const RAMFS: FsWord = 0x8584_58f6_u32 as FsWord;
    let found = rustix::fs::statfs(path).map_err(|error| failed(path)(error.into()))?;
    Ok([TMPFS, RAMFS].contains(&found.f_type))
}

/// Nothing tells it here.
#[cfg(not(target_os = "linux"))]
fn is_memory(_: &Path) -> Result<bool, RoundKeyError> {
    Ok(false)
}
