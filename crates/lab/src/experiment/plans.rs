//! Plans and certificates that a repeated experiment finds in its directory.
//!
//! A plan file is named by the SHA-256 of everything that the plan and its certificate depend on,
//! the running program included: after any change of the code everything is planned and certified
//! again. Whatever does not match exactly, is torn, or has a certificate of another mechanism than
//! its own is not used. This guards against stale and broken files, not against a person who forges
//! one, and who could as well write a table.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ExperimentError, Prepared, cell::Cell, file};

/// The plans of one directory, for the program that runs.
pub(super) struct Plans {
    directory: PathBuf,
    /// See [`program`].
    program: Option<&'static str>,
}

/// Everything a plan and its certificate depend on.
#[derive(Serialize)]
struct Identity<'a> {
    program: &'a str,
    version: &'static str,
    /// Algorithm, setting, delta; without seed, exploration and environment.
    cell: &'a Cell<'a>,
}

#[derive(Serialize, Deserialize)]
struct File {
    identity: Value,
    /// A [`Prepared`].
    plan: Value,
    /// SHA-256 of the two above, as JSON.
    checksum: String,
}

impl Plans {
    pub fn new(directory: &Path) -> Result<Self, ExperimentError> {
        let directory = directory.join("plans");
        fs::create_dir_all(&directory)
            .map_err(|error| ExperimentError::Io { path: directory.clone(), error })?;
        Ok(Self { directory, program: program() })
    }

    /// The plan of a preparation, if this program made and kept it.
    pub fn load(&self, preparation: &Cell<'_>) -> Option<Prepared> {
        let identity = self.identity(preparation)?;
        let file: File = serde_json::from_slice(&fs::read(self.path(&identity)).ok()?).ok()?;
        let is_whole = file.checksum == checksum(&file.identity, &file.plan);
        if !is_whole || file.identity != identity {
            return None;
        }
        let prepared: Prepared = serde_json::from_value(file.plan).ok()?;
        prepared.is_about_itself().then_some(prepared)
    }

    /// Keeps a plan.
    pub fn save(&self, preparation: &Cell<'_>, prepared: &Prepared) -> Result<(), ExperimentError> {
        let Some(identity) = self.identity(preparation) else {
            return Ok(());
        };
        file::replace(&self.path(&identity), |file| {
            let plan = serde_json::to_value(prepared)?;
            let checksum = checksum(&identity, &plan);
            Ok(serde_json::to_writer(file, &File { identity, plan, checksum })?)
        })
    }

    fn identity(&self, preparation: &Cell<'_>) -> Option<Value> {
        let (program, version) = (self.program?, env!("CARGO_PKG_VERSION"));
        serde_json::to_value(Identity { program, version, cell: preparation }).ok()
    }

    fn path(&self, identity: &Value) -> PathBuf {
        self.directory.join(format!("{}.json", digest(&identity.to_string())))
    }
}

/// SHA-256 of the program that runs, even if its file was replaced since it started; without it
/// nothing is kept.
pub(super) fn program() -> Option<&'static str> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    let read = || fs::read("/proc/self/exe").or_else(|_| fs::read(env::current_exe()?));
    let hash = || read().ok().map(|bytes| hex::encode(Sha256::digest(bytes)));
    PROGRAM.get_or_init(hash).as_deref()
}

fn checksum(identity: &Value, plan: &Value) -> String {
    digest(&format!("{identity}\n{plan}"))
}

fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
