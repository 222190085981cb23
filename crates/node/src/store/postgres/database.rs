//! Sessions with a PostgreSQL server, used from threads that block.

use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant, SystemTime},
};

use incrowd_protocol::TaskId;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{
    AsyncMessage, Client, Config,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::PostgresSettings;
use crate::store::{Shared, StoreError};

/// How long a host has until a session with it can be used. Then the next one is tried: a server
/// that is frozen still takes connections.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long a statement may take before its session is given up.
const STATEMENT: Duration = Duration::from_secs(30);
/// How long nobody connects again after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// How long to wait for one of the sessions.
const PATIENCE: Duration = Duration::from_secs(10);

/// What every session says first. A node that is stopped inside a transaction loses it after five
/// seconds, one whose machine is gone after eleven, and nobody waits longer than six for a row.
const SESSION: &str = "SET application_name = 'incrowd';
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SET idle_in_transaction_session_timeout = '5s';
    SET lock_timeout = '6s';
    SET statement_timeout = 0;
    SET tcp_user_timeout = '10s';
    SET tcp_keepalives_idle = 5;
    SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3;
    SET client_min_messages = warning;
    SET TimeZone = 'UTC'";

/// What is asked of every server: how durable a commit is, who it is, and what time it is.
const SERVER: &str = "SELECT current_setting('server_version_num')::int,
    current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), pg_is_in_recovery(),
    (SELECT system_identifier FROM pg_control_system()) || ' ' || pg_postmaster_start_time(),
    clock_timestamp()";

/// A commit that waits for the disk and for standbys, and changes nothing.
const BARRIER: &str = "SELECT pg_logical_emit_message(true, 'incrowd', '')";

/// Ends sessions of nodes that hold a row of these tables and have neither sent nor taken anything
/// for longer than a lock is waited for: those that stopped inside a message, which the server's
/// own limit does not see. One whose commit waits for a standby is left alone.
const END_STOPPED: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'incrowd' AND pid <> pg_backend_pid()
    AND wait_event = ANY('{ClientRead,ClientWrite}') AND xact_start IS NOT NULL AND state_change < clock_timestamp() - interval '6 s'
    AND pid IN (SELECT pid FROM pg_locks WHERE relation = $1::text::regclass)";

/// Which database it is, by whatever name it is reached.
const IDENTITY: &str = "SELECT (SELECT system_identifier FROM pg_control_system()) || ' ' ||
    (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The oldest server that the tests run on.
const OLDEST: i32 = 150_000;

/// A database, and the sessions that this process has with it.
pub(super) struct Database {
    /// Drives connections and timers. None only while it is dropped.
    runtime: Option<Runtime>,
    settings: PostgresSettings,
    /// Where the tables of the role are.
    schema: &'static str,
    sessions: Mutex<Sessions>,
    /// A session was given back.
    returned: Condvar,
    /// Counts the servers that were met: a restart, a failover and a restored backup are others.
    incarnation: AtomicU64,
    /// The host that answered last, which is asked first.
    host: AtomicUsize,
    clock: Mutex<Option<(Instant, SystemTime)>>,
    /// Whoever asks if the server takes commits.
    checking: Mutex<()>,
}

#[derive(Default)]
struct Sessions {
    idle: VecDeque<Session>,
    /// Idle ones and those in use.
    open: usize,
    /// The server that was met last.
    server: Option<String>,
    /// The last failure to connect.
    failed: Option<Instant>,
}

/// One connection.
struct Session {
    client: Arc<Client>,
    incarnation: u64,
    /// Whether the server warned of something since this was cleared.
    warned: Arc<AtomicBool>,
    driver: JoinHandle<()>,
}

impl Drop for Session {
    /// The server learns at once that nobody waits any more.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Database {
    pub fn new(settings: &PostgresSettings, schema: &'static str) -> Result<Self, StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(StoreError::Thread)?;
        Ok(Self {
            runtime: Some(runtime),
            settings: settings.clone(),
            schema,
            sessions: Mutex::default(),
            returned: Condvar::new(),
            incarnation: AtomicU64::new(0),
            host: AtomicUsize::new(0),
            clock: Mutex::default(),
            checking: Mutex::default(),
        })
    }

    /// Changes whenever another server answers than before.
    pub fn incarnation(&self) -> u64 {
        self.incarnation.load(SeqCst)
    }

    /// The server's clock, as of the last answer that told it.
    pub fn now(&self) -> SystemTime {
        let told = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        told.map_or_else(SystemTime::now, |(at, time)| time + at.elapsed())
    }

    /// What the server's clock said just now. It is not read ahead of its time: no round closes too
    /// early, and no release is shown too early.
    pub fn set_clock(&self, time: SystemTime) {
        let told = Some((Instant::now(), time));
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    /// A session, for as long as the answer lives.
    pub fn session(&self) -> Result<Lease<'_>, StoreError> {
        let end = Instant::now() + PATIENCE;
        let mut sessions = self.lock();
        loop {
            let current = self.incarnation();
            while let Some(session) = sessions.idle.pop_front() {
                if session.incarnation == current && !session.client.is_closed() {
                    return Ok(Lease { database: self, session: Some(session), broken: false });
                }
                sessions.open -= 1;
            }
            if sessions.open < self.settings.connections {
                break;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::Busy);
            }
            let waited = self.returned.wait_timeout(sessions, left);
            (sessions, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if sessions.failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
            return Err(StoreError::Unreachable);
        }
        sessions.open += 1;
        drop(sessions);
        match self.connect() {
            Ok(session) => Ok(Lease { database: self, session: Some(session), broken: false }),
            Err(error) => {
                let mut sessions = self.lock();
                sessions.open -= 1;
                sessions.failed = Some(Instant::now());
                self.returned.notify_one();
                Err(error)
            }
        }
    }

    /// A session with the first host that takes commits.
    fn connect(&self) -> Result<Session, StoreError> {
        // Password and certificates may have been renewed.
        let hosts = self.settings.hosts()?;
        let first = self.host.load(SeqCst);
        let mut failed = None;
        for index in (0..hosts.len()).map(|index| (first + index) % hosts.len()) {
            match self.wait_for(CONNECT, self.connect_to(&hosts[index])) {
                Ok(session) => {
                    self.host.store(index, SeqCst);
                    return Ok(session);
                }
                Err(error) => {
                    // What keeps a server from being used says more than that another is away.
                    let tells = !matches!(error, StoreError::Database(_) | StoreError::Timeout(_));
                    if tells || failed.is_none() {
                        failed = Some(error);
                    }
                }
            }
        }
        Err(failed.unwrap_or(StoreError::Unreachable))
    }

    async fn connect_to(&self, host: &Config) -> Result<Session, StoreError> {
        let tls = MakeRustlsConnect::new(self.settings.tls()?);
        let (client, mut connection) = host.connect(tls).await?;
        let warned = Arc::new(AtomicBool::new(false));
        let told = warned.clone();
        let driver = self.runtime().spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notice(notice) = message {
                    told.store(true, SeqCst);
                    tracing::warn!(message = notice.message(), "the database warns");
                }
            }
        });
        let client = Arc::new(client);
        let mut session = Session { client, incarnation: 0, warned, driver };
        session.client.batch_execute(SESSION).await?;
        let row = session.client.query_typed_one(SERVER, &[]).await?;
        self.set_clock(row.get(6));
        let version: i32 = row.get(0);
        if version < OLDEST {
            return Err(StoreError::ServerVersion {
                found: version / 10_000,
                oldest: OLDEST / 10_000,
            });
        }
        for (index, setting) in [(1, "fsync"), (2, "full_page_writes"), (3, "synchronous_commit")] {
            if row.get::<_, &str>(index) == "off" {
                return Err(StoreError::NotDurable { setting });
            }
        }
        if row.get(4) {
            return Err(StoreError::Standby);
        }
        let server: String = row.get(5);
        let mut sessions = self.lock();
        if sessions.server.as_ref() != Some(&server) {
            if sessions.server.is_some() {
                tracing::warn!("another database server answers: logs are read again");
            }
            sessions.server = Some(server);
            self.incarnation.fetch_add(1, SeqCst);
        }
        session.incarnation = self.incarnation();
        sessions.failed = None;
        drop(sessions);
        Ok(session)
    }

    /// Whether a commit would work now. While somebody waits for the answer nobody else asks: a
    /// server that does not answer must not get more and more questions.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        let _one = self.checking.try_lock().map_err(|_| StoreError::Busy)?;
        barrier(&mut self.session()?)
    }

    /// Ends sessions of nodes that stopped while they held a task of a role.
    pub fn end_stopped(&self) -> Result<(), StoreError> {
        let table = format!("{}.task", self.schema);
        let ended = self.session()?.wait(async |client| {
            client.query_typed(END_STOPPED, &[(&table, Type::TEXT)]).await.map(|rows| rows.len())
        })?;
        tracing::warn!(ended, "a task is locked for too long by another node");
        Ok(())
    }

    /// Waits for what a session does, also where the thread belongs to another runtime.
    fn wait_for<T, E>(
        &self,
        limit: Duration,
        doing: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StoreError>
    where
        StoreError: From<E>,
    {
        let _context = self.runtime().enter();
        let limited = pin!(timeout(limit, doing));
        match pollster::block_on(limited) {
            Ok(result) => result.map_err(StoreError::from),
            Err(_) => Err(StoreError::Timeout(limit)),
        }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("invariant: it is there until this is dropped")
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared for Database {
    fn confirm(&self) -> Result<(), StoreError> {
        barrier(&mut self.session()?)
    }

    fn identity(&self) -> Result<String, StoreError> {
        let row =
            self.session()?.wait(async |client| client.query_typed_one(IDENTITY, &[]).await)?;
        Ok(row.get(0))
    }

    fn agree(&self, name: &str, value: &[u8], replace: bool) -> Result<Vec<u8>, StoreError> {
        let schema = self.schema;
        let conflict = if replace { "UPDATE SET value = excluded.value" } else { "NOTHING" };
        let insert =
            format!("INSERT INTO {schema}.service VALUES ($1, $2) ON CONFLICT (key) DO {conflict}");
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&name, Type::TEXT), (&value, Type::BYTEA)];
        self.session()?.wait(async |client| client.execute_typed(&insert, &values).await)?;
        let agreed = self.agreed(name)?;
        agreed.ok_or_else(|| StoreError::Damaged(format!("{schema}.service has no {name}")))
    }

    fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let select = format!("SELECT value FROM {}.service WHERE key = $1", self.schema);
        let values: [(&(dyn ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
        let row =
            self.session()?.wait(async |client| client.query_typed_opt(&select, &values).await)?;
        Ok(row.map(|row| row.get(0)))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A runtime that waits for its threads must not be dropped by a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A session that one thread uses.
pub(super) struct Lease<'a> {
    database: &'a Database,
    session: Option<Session>,
    broken: bool,
}

impl Lease<'_> {
    pub fn client(&self) -> &Client {
        &self.session().client
    }

    pub fn incarnation(&self) -> u64 {
        self.session().incarnation
    }

    /// Waits for what this session does. After an error other than the server's own the session
    /// is not used again.
    pub fn wait<T>(
        &mut self,
        doing: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        let database = self.database;
        let result = database.wait_for(STATEMENT, doing(self.client()));
        self.broken |= match &result {
            Ok(_) => false,
            Err(StoreError::Database(error)) => error.as_db_error().is_none(),
            Err(_) => true,
        };
        result
    }

    /// The session is not used again: nobody knows in which state it is.
    pub fn discard(&mut self) {
        self.broken = true;
    }

    /// Whether the session is of no use any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Has the server give up what this session waits for.
    fn cancel(&self) {
        let Ok(tls) = self.database.settings.tls() else { return };
        let token = self.client().cancel_token();
        self.database.runtime().spawn(async move {
            let cancelled = token.cancel_query(MakeRustlsConnect::new(tls));
            // If it cannot be asked, the waiting ends with the server or its standby.
            let _ = timeout(CONNECT, cancelled).await;
        });
    }

    /// Whether the server warned of something since this was asked last.
    pub fn take_warning(&self) -> bool {
        self.session().warned.swap(false, SeqCst)
    }

    /// Does something in one transaction. What fails before its end did not happen.
    pub fn transaction<T>(
        &mut self,
        doing: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.wait(async |client| client.batch_execute("BEGIN").await)?;
        let done = doing(self);
        if self.broken {
            return done;
        }
        self.take_warning();
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.wait(async |client| client.batch_execute(end).await);
        self.broken |= ended.is_err();
        let done = done?;
        ended?;
        // It waited for a standby and was told not to.
        if self.take_warning() { Err(StoreError::NotReplicated) } else { Ok(done) }
    }

    /// Tells the server now and then that this process lives, while it computes inside a
    /// transaction.
    pub fn keep_alive(&self, every: Duration, most: u32) -> JoinHandle<()> {
        let client = self.session().client.clone();
        self.database.runtime().spawn(async move {
            for _ in 0..most {
                sleep(every).await;
                if client.batch_execute("").await.is_err() {
                    break;
                }
            }
        })
    }

    fn session(&self) -> &Session {
        self.session.as_ref().expect("invariant: it is there until this is dropped")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let mut sessions = self.database.lock();
        if self.broken || session.client.is_closed() {
            // The others are with the same server: nobody else waits for one that does not answer.
            sessions.open -= 1 + sessions.idle.len();
            sessions.idle.clear();
        } else {
            sessions.idle.push_back(session);
        }
        drop(sessions);
        self.database.returned.notify_all();
    }
}

/// What of each task is known to be as durable as a commit of one's own: everything up to a number.
#[derive(Default)]
pub(super) struct Durable(Mutex<(u64, HashMap<TaskId, u64>)>);

impl Durable {
    pub fn has(&self, session: &Lease<'_>, task: TaskId, number: u64) -> bool {
        self.of(session).1.get(&task).is_some_and(|known| *known >= number)
    }

    pub fn add(&self, session: &Lease<'_>, task: TaskId, number: u64) {
        let mut known = self.of(session);
        let known = known.1.entry(task).or_default();
        *known = number.max(*known);
    }

    /// What is known of the server that the session is with.
    fn of(&self, session: &Lease<'_>) -> MutexGuard<'_, (u64, HashMap<TaskId, u64>)> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != session.incarnation() {
            *known = (session.incarnation(), HashMap::new());
        }
        known
    }
}

/// Waits until everything that is visible now is as durable as a commit of one's own.
pub(super) fn barrier(session: &mut Lease<'_>) -> Result<(), StoreError> {
    session.take_warning();
    let confirmed = session.wait(async |client| client.query_typed(BARRIER, &[]).await);
    if let Err(StoreError::Timeout(_)) = confirmed {
        // It waits for a standby, and its end changes nothing.
        session.cancel();
    }
    confirmed?;
    if session.take_warning() { Err(StoreError::NotReplicated) } else { Ok(()) }
}
