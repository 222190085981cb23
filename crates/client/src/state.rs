//! What a device remembers: in memory, and in a file that a crash leaves whole.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use incrowd_device::Participation;
use incrowd_envelope::{Signed, seal};
use incrowd_protocol::{Mechanism, Report, ReportId, SealingKey, TaskId};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::{ClientError, Group, clock::Correction};

const FORMAT: u32 = 4;

/// Everything that must outlive the process.
///
/// # Privacy
/// No context and no reward: a decision that is not due yet dies with the process. The reports of
/// unfinished uploads are randomized.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    format: u32,
    task: TaskId,
    /// What this device does about a comparison. It never changes.
    pub(crate) group: Group,
    /// How often this device has answered.
    pub(crate) participation: Participation,
    /// The newest round that was seen, where batches close by count.
    pub(crate) newest_round: u32,
    /// From this device's clock to the shuffler's, where batches close by time.
    pub(crate) clock: Correction,
    /// The last notice, for a start without network.
    pub(crate) notice: Option<Signed>,
    /// The newest model that was accepted.
    pub(crate) model: Option<Signed>,
    /// Reports that were made and are not decided, oldest first; at most k.
    pub(crate) uploads: Vec<Upload>,
}

/// A report on its way: a retry sends the same bytes, also after a restart.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upload {
    id: ReportId,
    round: u32,
    /// The randomized report. A sealed one is kept too, to be sealed again if the shuffler has lost
    /// the key.
    report: Hex,
    seal: Seal,
}

/// What is around a report when it is sent.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Seal {
    /// Nothing: the task takes plain reports.
    Plain,
    /// There was no key to seal to when it was made.
    Missing,
    /// The sealed report.
    Sealed(Hex),
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Hex(#[serde(with = "hex::serde")] Vec<u8>);

impl Upload {
    pub(crate) fn plain(id: ReportId, round: u32, report: Vec<u8>) -> Self {
        Self { id, round, report: Hex(report), seal: Seal::Plain }
    }

    pub(crate) fn unsealed(id: ReportId, round: u32, report: Vec<u8>) -> Self {
        Self { id, round, report: Hex(report), seal: Seal::Missing }
    }

    /// The same report, sealed to this key.
    pub(crate) fn sealed_to(&self, task: TaskId, key: &SealingKey) -> Result<Self, ClientError> {
        let body = seal(&task, key, self.round, self.id, &self.report.0)?;
        Ok(Self { seal: Seal::Sealed(Hex(body)), ..self.clone() })
    }

    /// Whether it is a report of this mechanism.
    pub(crate) fn check(&self, mechanism: &Mechanism) -> Result<(), ClientError> {
        let report = Report::decode(&self.report.0, mechanism)?;
        if (report.id(), report.round()) == (self.id, self.round) {
            Ok(())
        } else {
            Err(ClientError::StateFormat)
        }
    }

    pub(crate) fn id(&self) -> ReportId {
        self.id
    }

    /// Whether it cannot be sent yet.
    pub(crate) fn needs_seal(&self) -> bool {
        self.seal == Seal::Missing
    }

    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self.seal, Seal::Sealed(_))
    }

    /// What is sent.
    pub(crate) fn body(&self) -> &[u8] {
        match &self.seal {
            Seal::Sealed(body) => &body.0,
            Seal::Plain | Seal::Missing => &self.report.0,
        }
    }
}

impl State {
    fn new(task: TaskId, group: Group) -> Self {
        Self {
            format: FORMAT,
            task,
            group,
            participation: Participation::default(),
            newest_round: 0,
            clock: Correction::default(),
            notice: None,
            model: None,
            uploads: Vec::new(),
        }
    }
}

/// The state, and the file that holds a copy of it.
pub(crate) struct Store {
    file: Option<Arc<StateFile>>,
    state: Arc<Mutex<State>>,
}

impl Store {
    /// The state in the file, or a new one with this group where there is no file.
    pub(crate) fn open(
        path: Option<&Path>,
        task: TaskId,
        group: impl FnOnce() -> Result<Group, ClientError>,
    ) -> Result<Self, ClientError> {
        let file = path.map(StateFile::lock).transpose()?;
        let kept = file.as_ref().map(StateFile::read).transpose()?.flatten();
        let state = match kept {
            Some(state) if state.task != task => return Err(ClientError::StateTask),
            Some(state) => state,
            None => State::new(task, group()?),
        };
        Ok(Self { file: file.map(Arc::new), state: Arc::new(Mutex::new(state)) })
    }

    /// Writes the state down, if it is new.
    pub(crate) async fn keep(&self) -> Result<(), ClientError> {
        let state = self.state.lock().await;
        let new = self.file.as_ref().filter(|file| !file.path.exists());
        new.map_or(Ok(()), |file| file.write(&state))
    }

    /// Removes the file, for a task that nothing can be reported to.
    pub(crate) async fn discard(&self) -> Result<(), ClientError> {
        let _state = self.state.lock().await;
        let removed = self.file.as_ref().map_or(Ok(()), |file| fs::remove_file(&file.path));
        removed.map_err(failed("removed"))
    }

    pub(crate) async fn read(&self) -> State {
        self.state.lock().await.clone()
    }

    /// Changes the state. It is in the file when this returns; if it cannot be written, or `change`
    /// fails, nothing has changed.
    pub(crate) async fn update<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.update_then(change, |_| ()).await
    }

    /// Changes the state, and calls `believe` once the change is durable and before any other
    /// change.
    ///
    /// Once the write has begun, dropping the future stops nothing: memory and file change
    /// together, or not at all.
    pub(crate) async fn update_then<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, ClientError>,
        believe: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, ClientError> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        let mut next = state.clone();
        let result = change(&mut next)?;
        let file = self.file.clone().filter(|_| *state != next);
        let Some(file) = file else {
            *state = next;
            believe(&result);
            return Ok(result);
        };
        let commit = move || {
            file.write(&next)?;
            // The file is set free before the state is: see `settle`.
            drop(file);
            *state = next;
            believe(&result);
            Ok(result)
        };
        tokio::task::spawn_blocking(commit)
            .await
            .map_err(|_| failed("written")(io::ErrorKind::Interrupted.into()))?
    }

    /// Waits for a write that has begun.
    pub(crate) async fn settle(&self) {
        drop(self.state.lock().await);
    }
}

/// A file that belongs to one client at a time.
struct StateFile {
    path: PathBuf,
    /// Held as long as the client lives. Beside the file, which is replaced at every change.
    _lock: File,
}

impl StateFile {
    fn lock(path: &Path) -> Result<Self, ClientError> {
        let lock =
            OpenOptions::new().create(true).append(true).open(incrowd_files::beside(path, ".lock"));
        let lock = lock.map_err(failed("locked"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(ClientError::StateInUse),
            Err(TryLockError::Error(error)) => Err(failed("locked")(error)),
        }
    }

    fn read(&self) -> Result<Option<State>, ClientError> {
        match fs::read(&self.path) {
            Ok(text) => read(&text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read")(error)),
        }
    }

    fn write(&self, state: &State) -> Result<(), ClientError> {
        let text = serde_json::to_vec(state).map_err(|_| ClientError::StateFormat)?;
        incrowd_files::replace(&self.path, &text).map_err(failed("written"))
    }
}

/// The state in a file of this format. Another format is told apart from a broken file.
fn read(text: &[u8]) -> Result<State, ClientError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = serde_json::from_slice(text).map_err(|_| ClientError::StateFormat)?;
    if format != FORMAT {
        return Err(ClientError::StateVersion { found: format, needed: FORMAT });
    }
    serde_json::from_slice(text).map_err(|_| ClientError::StateFormat)
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> ClientError {
    move |error| ClientError::StateFile { operation, kind: error.kind() }
}
