//! Result files, which many processes on many machines may write into one folder.

use std::{
    collections::hash_map::RandomState,
    fs::{self, File},
    hash::{BuildHasher, Hasher},
    io::{self, BufWriter, Write},
    path::Path,
};

use super::ExperimentError;

/// Writes a file in one step: it is either whole or not there. Whoever writes last wins.
pub(super) fn replace(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), ExperimentError> {
    // Hosts and processes of containers can have equal names and numbers.
    let random = RandomState::new().build_hasher().finish();
    let temporary = path.with_extension(format!("{random:016x}.tmp"));
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create_new(&temporary)?);
        content(&mut file)?;
        file.flush()?;
        drop(file);
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // What is left of it, if it is there at all.
        let _ = fs::remove_file(&temporary);
        ExperimentError::Io { path: path.into(), error }
    })
}

#[cfg(test)]
mod tests {
    use std::{env, process};

    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_whole_stays_as_it_was() {
        let folder = env::temp_dir().join(format!("incrowd-file-{}", process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("cell.json");
        replace(&path, |file| file.write_all(b"old")).unwrap();
        let torn = replace(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("disk full"))
        });
        assert!(torn.unwrap_err().to_string().ends_with("disk full"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        fs::remove_dir_all(folder).unwrap();
    }
}
