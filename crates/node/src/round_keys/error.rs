use std::{io, path::PathBuf};

use thiserror::Error;

/// Why the keys of rounds cannot be used. No message has a part of a key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RoundKeyError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// `memory-file` on a disk.
    #[error(
        "{path} is not on a file system in memory (tmpfs, ramfs), as shuffler.round_keys of the kind memory-file needs: choose another path, or kind = \"file\""
    )]
    NotInMemory {
        /// Which folder.
        path: PathBuf,
    },
    /// A folder that others could read or change.
    #[error("{path} must be a folder of this user with mode 700: it holds the keys of rounds")]
    Permissions {
        /// Which folder.
        path: PathBuf,
    },
    /// A file that is no key.
    #[error("{path} is not the key of a round: it must have 32 bytes")]
    Format {
        /// Which file.
        path: PathBuf,
    },
    /// No program.
    #[error("shuffler.round_keys.command is empty, must be a program and its arguments")]
    NoCommand,
    /// The program fails.
    #[error("{program} {operation}: {reason}")]
    Command {
        /// Which program.
        program: String,
        /// What it was asked for.
        operation: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// An earlier question to the medium is not answered yet.
    #[error("the medium of round keys (shuffler.round_keys) has not answered yet")]
    Silent,
    /// No randomness.
    #[error("the operating system gives no randomness: {0}")]
    Randomness(getrandom::Error),
}
