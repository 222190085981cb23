//! A shuffler's store with the open tasks on top, which can crash and come back; and a store that
//! fails on demand.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use incrowd_envelope::{Document, SigningKey, verify};
use incrowd_node::{
    Heads, OpenTasks, Progress, StoreError, Upload,
    round_keys::{self, GuardedStore, RoundKeys},
    store::{
        Change, Clock, CommitError, Head, Log, MemoryShufflerStore, Seq, ShufflerStore,
        SignedRelease, SqliteShufflerStore, Turn,
    },
};
use incrowd_protocol::{Report, Task, TaskId};
use incrowd_shuffler::{Entry, Outcome};
use tempfile::TempDir;

use crate::common::memory_folder;

/// How the next commit goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The lock cannot be had.
    Lock,
    /// The log cannot be read.
    Read,
    /// The same, until it is disarmed.
    Unreadable,
    /// Nothing is committed.
    NotCommitted,
    /// Nothing is committed, but nobody knows.
    UnknownWithoutEffect,
    /// It is committed, but nobody knows.
    UnknownWithEffect,
}

impl Fault {
    fn error(self) -> StoreError {
        StoreError::Damaged(format!("injected: {self:?}"))
    }
}

/// Passes everything on to another store, but for the armed fault.
pub struct FaultyStore {
    store: Arc<dyn ShufflerStore>,
    fault: Mutex<Option<Fault>>,
}

impl FaultyStore {
    pub fn new(store: Arc<dyn ShufflerStore>) -> Arc<Self> {
        Arc::new(Self { store, fault: Mutex::default() })
    }

    /// The fault happens once, at the next occasion.
    pub fn arm(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
    }

    pub fn is_armed(&self) -> bool {
        self.fault.lock().unwrap().is_some()
    }

    fn take(&self, which: impl Fn(Fault) -> bool) -> Option<Fault> {
        self.fault.lock().unwrap().take_if(|fault| which(*fault))
    }

    fn fail(&self, fault: Fault) -> Result<(), StoreError> {
        let armed = *self.fault.lock().unwrap();
        if fault == Fault::Read && armed == Some(Fault::Unreadable) {
            return Err(Fault::Unreadable.error());
        }
        self.take(|armed| armed == fault).map_or(Ok(()), |fault| Err(fault.error()))
    }
}

impl Log for FaultyStore {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        self.store.head(task)
    }

    fn tail(&self, task: &TaskId, seq: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, StoreError> {
        self.fail(Fault::Read)?;
        self.store.tail(task, seq, max)
    }

    fn now(&self) -> SystemTime {
        self.store.now()
    }
}

impl ShufflerStore for FaultyStore {
    fn open(&self, task: &TaskId) -> Result<Head, StoreError> {
        self.store.open(task)
    }

    fn lock<'a>(&'a self, tasks: &[TaskId]) -> Result<Box<dyn Turn + 'a>, StoreError> {
        self.fail(Fault::Lock)?;
        Ok(Box::new(FaultyTurn { turn: self.store.lock(tasks)?, store: self }))
    }

    fn release(&self, task: &TaskId, round: u32) -> Result<Option<SignedRelease>, StoreError> {
        self.store.release(task, round)
    }

    fn forget(&self) -> Result<bool, StoreError> {
        self.store.forget()
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.store.check_writable()
    }
}

struct FaultyTurn<'a> {
    turn: Box<dyn Turn + 'a>,
    store: &'a FaultyStore,
}

impl Log for FaultyTurn<'_> {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        self.turn.head(task)
    }

    fn tail(&self, task: &TaskId, seq: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, StoreError> {
        self.store.fail(Fault::Read)?;
        self.turn.tail(task, seq, max)
    }

    fn now(&self) -> SystemTime {
        self.turn.now()
    }
}

impl Turn for FaultyTurn<'_> {
    fn commit(self: Box<Self>, changes: Vec<(TaskId, Change)>) -> Result<(), CommitError> {
        let fault = self
            .store
            .take(|fault| !matches!(fault, Fault::Lock | Fault::Read | Fault::Unreadable));
        match fault {
            None => self.turn.commit(changes),
            Some(Fault::UnknownWithEffect) => {
                self.turn.commit(changes)?;
                Err(CommitError::Unknown(Fault::UnknownWithEffect.error()))
            }
            Some(fault @ Fault::UnknownWithoutEffect) => Err(CommitError::Unknown(fault.error())),
            Some(fault) => Err(fault.error().into()),
        }
    }
}

/// A clock that stands until it is set, in milliseconds since 1970.
#[derive(Clone, Default)]
pub struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    pub fn at(milliseconds: u64) -> Self {
        Self(Arc::new(AtomicU64::new(milliseconds)))
    }

    pub fn set(&self, milliseconds: u64) {
        self.0.store(milliseconds, Ordering::SeqCst);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub fn clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || SystemTime::UNIX_EPOCH + Duration::from_millis(clock.get()))
    }
}

/// A store and the open tasks of a process that uses it.
pub struct Shelf {
    pub folder: Option<TempDir>,
    pub store: Arc<FaultyStore>,
    pub tasks: OpenTasks,
    /// Round keys, and the folder they and the heads are in.
    pub keys: Option<(Arc<dyn RoundKeys>, TempDir)>,
    clock: Option<Clock>,
    secret: [u8; 32],
}

impl Shelf {
    pub fn memory() -> Self {
        Self::with(None, Arc::<MemoryShufflerStore>::default(), None)
    }

    /// A store in memory with this clock.
    pub fn memory_at(clock: &FakeClock) -> Self {
        let clock = clock.clock();
        let store = MemoryShufflerStore::with_clock(clock.clone());
        Self::with(None, Arc::new(store), Some(clock))
    }

    /// A store in a file with this clock.
    pub fn sqlite_at(clock: &FakeClock) -> Self {
        let (folder, clock) = (TempDir::new().unwrap(), clock.clock());
        let store = SqliteShufflerStore::open(&folder.path().join("shuffler.db")).unwrap();
        let store = store.with_clock(clock.clone());
        Self::with(Some(folder), Arc::new(store), Some(clock))
    }

    pub fn sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        let store = SqliteShufflerStore::open(&folder.path().join("shuffler.db")).unwrap();
        Self::with(Some(folder), Arc::new(store), None)
    }

    /// SQLite with entries under the keys of rounds.
    pub fn guarded() -> Self {
        let (folder, setting) = memory_folder();
        let keys = round_keys::open(Some(&setting), folder.path()).unwrap();
        Self { keys: Some((keys, folder)), ..Self::sqlite() }
    }

    /// The same with this clock.
    pub fn guarded_at(clock: &FakeClock) -> Self {
        Self { keys: Self::guarded().keys, ..Self::sqlite_at(clock) }
    }

    fn with(folder: Option<TempDir>, store: Arc<dyn ShufflerStore>, clock: Option<Clock>) -> Self {
        let secret = *SigningKey::generate().unwrap().to_bytes();
        let store = FaultyStore::new(store);
        let tasks = OpenTasks::new(store.clone(), SigningKey::from_bytes(&secret));
        Self { folder, store, tasks, keys: None, clock, secret }
    }

    /// The guarded store of a new process.
    pub fn guard(&self) -> Option<Arc<GuardedStore>> {
        let (keys, folder) = self.keys.as_ref()?;
        let heads = Heads::load(&folder.path().join("heads.json")).unwrap();
        Some(Arc::new(GuardedStore::new(self.store.clone(), keys.clone(), heads)))
    }

    pub fn path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("shuffler.db")
    }

    /// The process is gone: what it had in memory is lost. A store in memory stays, as one on
    /// another machine would.
    pub fn crash(&mut self) {
        let store: Arc<dyn ShufflerStore> = match &self.folder {
            None => self.store.store.clone(),
            Some(_) => {
                let nothing = FaultyStore::new(Arc::<MemoryShufflerStore>::default());
                self.tasks = OpenTasks::new(nothing.clone(), SigningKey::from_bytes(&self.secret));
                self.store = nothing;
                let store = SqliteShufflerStore::open(&self.path()).unwrap();
                Arc::new(match &self.clock {
                    None => store,
                    Some(clock) => store.with_clock(clock.clone()),
                })
            }
        };
        self.store = FaultyStore::new(store);
        self.tasks = OpenTasks::new(self.store.clone(), SigningKey::from_bytes(&self.secret));
    }

    pub fn open(&mut self, task: &Task) -> Progress {
        if let Some(guard) = self.guard() {
            let mechanism = Arc::new(task.mechanism().clone());
            assert_eq!(guard.prepare(&task.id(), &mechanism, false).unwrap(), None);
            self.tasks = OpenTasks::new(guard, SigningKey::from_bytes(&self.secret));
        }
        self.tasks.open(task.id(), Arc::new(task.mechanism().clone())).unwrap();
        self.tasks.progress(&task.id()).unwrap()
    }

    /// Counts reports one request after the other in one group.
    pub fn accept(&mut self, task: &Task, reports: Vec<Report>) -> Vec<Outcome> {
        let mut outcomes = self.tasks.accept(&[Upload { task: task.id(), reports }]).unwrap();
        outcomes.pop().unwrap()
    }

    pub fn progress(&self, task: &Task) -> Progress {
        self.tasks.progress(&task.id()).unwrap()
    }

    /// The body of a release, whose signature is right.
    pub fn release(&self, task: &TaskId, round: u32) -> Option<Vec<u8>> {
        let SignedRelease { body, signature } = self.store.release(task, round).unwrap()?;
        let key = SigningKey::from_bytes(&self.secret).verification_key();
        verify(&key, Document::Release, task, &body, &signature).unwrap();
        Some(body)
    }
}
