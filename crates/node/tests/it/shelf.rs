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
        Change, Clock, CommitError, Head, Log, MemoryShufflerStore, Seq, Shared, ShufflerStore,
        SignedRelease, SqliteShufflerStore, Turn,
    },
};
use incrowd_protocol::{Report, Task, TaskId};
use incrowd_shuffler::{Entry, Outcome};
use tempfile::TempDir;

use crate::{common::memory_folder, database::Database};

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

    fn incarnation(&self) -> u64 {
        self.store.incarnation()
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

    fn tasks(&self) -> Result<Vec<(TaskId, Head)>, StoreError> {
        self.store.tasks()
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        self.store.purge(task)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        self.store.shared()
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

    fn incarnation(&self) -> u64 {
        self.turn.incarnation()
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

/// Opens a file again that was closed a moment ago. Where these tests start another process, that
/// has the file's lock too until it runs its own program.
pub fn again<T>(open: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 0..100 {
        match open() {
            Err(StoreError::InUse(_)) => std::thread::sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
    open()
}

/// Opens the store as a new process would.
type Reopen = Arc<dyn Fn() -> Arc<dyn ShufflerStore>>;

/// A store and the open tasks of a process that uses it.
pub struct Shelf {
    pub folder: Option<TempDir>,
    pub store: Arc<FaultyStore>,
    pub tasks: OpenTasks,
    /// Round keys, and the folder they and the heads are in.
    pub keys: Option<(Arc<dyn RoundKeys>, TempDir)>,
    /// Another process that uses the same store and round keys.
    other: Option<Box<Shelf>>,
    opened: bool,
    reopen: Reopen,
    secret: [u8; 32],
    /// Kept until both processes are gone.
    database: Option<Arc<Database>>,
}

impl Shelf {
    pub fn memory() -> Self {
        Self::with_memory(MemoryShufflerStore::default())
    }

    /// A store in memory with this clock.
    pub fn memory_at(clock: &FakeClock) -> Self {
        Self::with_memory(MemoryShufflerStore::with_clock(clock.clock()))
    }

    /// A store in memory stays when the process is gone, as one on another machine would.
    fn with_memory(store: MemoryShufflerStore) -> Self {
        let store: Arc<dyn ShufflerStore> = Arc::new(store);
        Self::with(None, Arc::new(move || store.clone()))
    }

    /// A store in a file with this clock.
    pub fn sqlite_at(clock: &FakeClock) -> Self {
        let clock = clock.clock();
        Self::with_sqlite(move |store| store.with_clock(clock.clone()))
    }

    pub fn sqlite() -> Self {
        Self::with_sqlite(|store| store)
    }

    fn with_sqlite(then: impl Fn(SqliteShufflerStore) -> SqliteShufflerStore + 'static) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("shuffler.db");
        let reopen = move || -> Arc<dyn ShufflerStore> {
            Arc::new(then(again(|| SqliteShufflerStore::open(&path)).unwrap()))
        };
        Self::with(Some(folder), Arc::new(reopen))
    }

    /// A database that another process uses too: the entries are under the keys of rounds.
    pub fn postgres() -> Self {
        Self::on(Arc::new(Database::take()))
    }

    /// The same on this database.
    pub fn on(database: Arc<Database>) -> Self {
        let (folder, setting) = memory_folder();
        let keys = round_keys::open(Some(&setting), folder.path()).unwrap();
        let reopen: Reopen = {
            let database = database.clone();
            Arc::new(move || database.shuffler())
        };
        let mut shelf = Self::with(None, reopen.clone());
        let mut other = Self { secret: shelf.secret, ..Self::with(None, reopen) };
        other.keys = Some((keys.clone(), TempDir::new().unwrap()));
        shelf.keys = Some((keys, folder));
        Self { other: Some(Box::new(other)), database: Some(database), ..shelf }
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

    fn with(folder: Option<TempDir>, reopen: Reopen) -> Self {
        let secret = *SigningKey::generate().unwrap().to_bytes();
        let store = FaultyStore::new(reopen());
        let tasks = OpenTasks::new(store.clone(), SigningKey::from_bytes(&secret));
        Self {
            folder,
            store,
            tasks,
            keys: None,
            other: None,
            opened: false,
            reopen,
            secret,
            database: None,
        }
    }

    /// Entries are stored as they are from now on.
    pub fn unguard(&mut self) {
        self.keys = None;
        self.other.iter_mut().for_each(|other| other.unguard());
    }

    /// What a statement on the database answers.
    pub fn sql(&self, statement: &str) -> String {
        self.database.as_ref().expect("there is one").sql(statement)
    }

    /// From now on the other process is asked, if there is one.
    pub fn switch(&mut self) {
        if let Some(mut other) = self.other.take() {
            std::mem::swap(self, &mut *other);
            // Whoever is asked has the database to the end.
            self.database = other.database.take();
            self.other = Some(other);
        }
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

    /// The process is gone: what it had in memory is lost.
    pub fn crash(&mut self) {
        // The old one lets go of the store before a new one opens it.
        self.use_store(FaultyStore::new(Arc::<MemoryShufflerStore>::default()));
        self.use_store(FaultyStore::new((self.reopen)()));
        self.opened = false;
    }

    fn use_store(&mut self, store: Arc<FaultyStore>) {
        self.tasks = OpenTasks::new(store.clone(), SigningKey::from_bytes(&self.secret));
        self.store = store;
    }

    pub fn open(&mut self, task: &Task) -> Progress {
        if let Some(other) = self.other.as_mut().filter(|other| !other.opened) {
            other.open(task);
        }
        if let Some(guard) = self.guard() {
            let mechanism = Arc::new(task.mechanism().clone());
            assert_eq!(guard.prepare(&task.id(), &mechanism, false).unwrap(), None);
            // One process can have several tasks.
            if !self.opened {
                self.tasks = OpenTasks::new(guard, SigningKey::from_bytes(&self.secret));
            }
        }
        self.opened = true;
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
