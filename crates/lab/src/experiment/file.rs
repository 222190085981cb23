//! Result files, which many processes on many machines may write into one folder.

use std::{
    collections::hash_map::RandomState,
    env,
    fs::{self, File},
    hash::{BuildHasher, Hasher},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

use super::ExperimentError;

/// Writes a file in one step: it is either whole or not there. Whoever writes last wins.
pub(super) fn replace(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), ExperimentError> {
    let temporary = temporary(path, host(), process::id());
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&temporary)?);
        content(&mut file)?;
        file.flush()?;
        drop(file);
        fs::rename(&temporary, path)
    };
    write().map_err(|error| ExperimentError::Io { path: path.into(), error })
}

/// A name beside the file that no other process has, also on other machines.
fn temporary(path: &Path, host: &str, process: u32) -> PathBuf {
    path.with_extension(format!("{host}.{process}.tmp"))
}

/// Name of this machine, as far as it fits into the name of a file; a random number if it has none.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").or(env::var("HOSTNAME"));
        let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let name: String = name.unwrap_or_default().chars().filter(plain).take(64).collect();
        let random = || format!("{:016x}", RandomState::new().build_hasher().finish());
        if name.is_empty() { random() } else { name }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_differ_by_machine_and_process() {
        let name = |host, process| temporary(Path::new("cells/ab.json"), host, process);
        assert_eq!(name("node-1", 7), Path::new("cells/ab.node-1.7.tmp"));
        assert!(name("node-1", 7) != name("node-2", 7) && name("node-1", 7) != name("node-1", 8));
        assert!(!host().is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_written_whole_stays_as_it_was() {
        let path = env::temp_dir().join(format!("incrowd-file-{}.json", process::id()));
        replace(&path, |file| file.write_all(b"old")).unwrap();
        let torn = replace(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("disk full"))
        });
        assert!(torn.unwrap_err().to_string().ends_with("disk full"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let _ = fs::remove_file(temporary(&path, host(), process::id()));
        fs::remove_file(path).unwrap();
    }
}
