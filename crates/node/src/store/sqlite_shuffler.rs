use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use incrowd_protocol::TaskId;
use incrowd_shuffler::{Entry, Kind};
use rusqlite::{
    Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params, types::FromSql,
};

use super::{
    Change, Clock, CommitError, Head, Log, ReleaseHash, Seq, ShufflerStore, SignedRelease,
    StoreError, TaskState, Turn,
    rows::{checked_at, code, kind, place, signed, state, state_code, stored, with_checksum_at},
    sqlite::{Database, Schema, purge, task_ids, truncate_wal},
};

pub(super) const SCHEMA: Schema = Schema {
    application: 0x1c_72_6f_77,
    oldest: 4,
    migrations: &[
        // A log (table sums has snapshots and deltas, table ids the rest) and the releases.
        "CREATE TABLE task (number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, closed INTEGER NOT NULL DEFAULT 0, seq INTEGER NOT NULL DEFAULT 0, round INTEGER NOT NULL DEFAULT 1, last BLOB);
         CREATE TABLE ids (task INTEGER NOT NULL REFERENCES task, seq INTEGER NOT NULL, round INTEGER NOT NULL, bytes BLOB NOT NULL);
         CREATE UNIQUE INDEX ids_by_seq ON ids (task, seq, round);
         CREATE TABLE sums (task INTEGER NOT NULL REFERENCES task, seq INTEGER NOT NULL, kind INTEGER NOT NULL, round INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, seq)) WITHOUT ROWID;
         CREATE TABLE release (task INTEGER NOT NULL REFERENCES task, round INTEGER NOT NULL, bytes BLOB NOT NULL, signature BLOB NOT NULL, PRIMARY KEY (task, round)) WITHOUT ROWID;",
    ],
};

/// The shuffler's memory in one SQLite file, which one process has open.
///
/// Sums and ids are apart, because they live for different times: deltas for at most two seconds,
/// ids for the grace window. Sums are so few that [`ShufflerStore::forget`] can write the whole
/// table again.
pub struct SqliteShufflerStore {
    writer: Mutex<Writer>,
    reader: Mutex<Connection>,
    /// None is the system's.
    clock: Option<Clock>,
}

struct Writer {
    database: Database,
    /// Whether the write-ahead log may have what was dropped.
    dirty: bool,
    /// Whether table sums may, besides its rows.
    remnants: bool,
}

impl SqliteShufflerStore {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let database = Database::open(path, &SCHEMA)?;
        let reader = database.reader()?;
        let writer = Writer { database, dirty: true, remnants: true };
        Ok(Self { writer: Mutex::new(writer), reader: Mutex::new(reader), clock: None })
    }

    /// The same with another clock than the system's.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the file to look at it, also while a service uses it. Nothing can be committed.
    pub fn inspect(path: &Path) -> Result<Self, StoreError> {
        let database = Database::inspect(path, &SCHEMA)?;
        let reader = database.reader()?;
        let writer = Writer { database, dirty: false, remnants: false };
        Ok(Self { writer: Mutex::new(writer), reader: Mutex::new(reader), clock: None })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShufflerStore for SqliteShufflerStore {
    fn open(&self, task: &TaskId) -> Result<Head, StoreError> {
        let writer = self.writer();
        let sql = "INSERT OR IGNORE INTO task (id) VALUES (?1)";
        writer.database.writer.execute(sql, [task.bytes()])?;
        Ok(head(&writer.database.writer, task)?.1)
    }

    fn lock<'a>(&'a self, tasks: &[TaskId]) -> Result<Box<dyn Turn + 'a>, StoreError> {
        let turn = SqliteTurn { writer: self.writer(), store: self };
        tasks.iter().try_for_each(|task| turn.head(task).map(drop))?;
        Ok(Box::new(turn))
    }

    fn release(&self, task: &TaskId, round: u32) -> Result<Option<SignedRelease>, StoreError> {
        let reader = self.reader();
        let sql = "SELECT bytes, signature FROM release JOIN task ON task = number WHERE id = ?1 AND release.round = ?2";
        let mut statement = reader.prepare_cached(sql)?;
        let found = statement.query_row(params![task.bytes(), round], pair).optional()?;
        found.map(|(body, signature)| signed(body, signature)).transpose()
    }

    fn forget(&self) -> Result<bool, StoreError> {
        let mut writer = self.writer();
        let Writer { database, dirty, remnants } = &mut *writer;
        if *remnants {
            // Once for what is committed by now: a reader that stays must not make the write-ahead
            // log grow.
            rewrite_sums(&mut database.writer)?;
            *remnants = false;
        }
        if *dirty {
            *dirty = !truncate_wal(&database.writer)?;
        }
        Ok(!*dirty)
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        writer.database.check_writable(&SCHEMA)?;
        writer.dirty = true;
        Ok(())
    }

    fn tasks(&self) -> Result<Vec<(TaskId, Head)>, StoreError> {
        let reader = self.reader();
        let tasks = task_ids(&reader)?;
        tasks.into_iter().map(|task| Ok((task, head(&reader, &task)?.1))).collect()
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        let mut writer = self.writer();
        (writer.dirty, writer.remnants) = (true, true);
        let removed = purge(&mut writer.database, task, &["sums", "ids", "release"])?;
        drop(writer);
        self.forget()?;
        Ok(removed)
    }
}

/// Writes table sums anew.
///
/// `secure_delete` overwrites a deleted row, but not the copies of it that SQLite leaves behind in
/// a page when rows move to another. A table that is deleted as a whole is overwritten page by
/// page.
fn rewrite_sums(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut statement = transaction.prepare("SELECT task, seq, kind, round, bytes FROM sums")?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let rows: Vec<(i64, i64, i64, u32, Vec<u8>)> =
        statement.query_map([], row)?.collect::<Result<_, _>>()?;
    drop(statement);
    transaction.execute("DELETE FROM sums", [])?;
    let mut insert = transaction.prepare(INSERT_SUMS)?;
    for row in rows {
        insert.execute(row)?;
    }
    drop(insert);
    transaction.commit()?;
    Ok(())
}

impl Log for SqliteShufflerStore {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        Ok(head(&self.reader(), task)?.1)
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        tail(&self.reader(), task, after, max_bytes)
    }

    fn now(&self) -> SystemTime {
        self.clock.as_ref().map_or_else(SystemTime::now, |clock| clock())
    }
}

struct SqliteTurn<'a> {
    writer: MutexGuard<'a, Writer>,
    store: &'a SqliteShufflerStore,
}

impl Log for SqliteTurn<'_> {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        Ok(head(&self.writer.database.writer, task)?.1)
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        tail(&self.writer.database.writer, task, after, max_bytes)
    }

    fn now(&self) -> SystemTime {
        self.store.now()
    }
}

impl Turn for SqliteTurn<'_> {
    fn commit(mut self: Box<Self>, changes: Vec<(TaskId, Change)>) -> Result<(), CommitError> {
        let Writer { database, dirty, remnants } = &mut *self.writer;
        (*dirty, *remnants) = (true, true);
        let behavior = TransactionBehavior::Immediate;
        let transaction =
            database.writer.transaction_with_behavior(behavior).map_err(StoreError::from)?;
        for (task, change) in changes {
            write(&transaction, &task, change)?;
        }
        // The log may have the whole transaction although its sync failed: a restart would then
        // find it.
        transaction.commit().map_err(|error| CommitError::Unknown(error.into()))
    }
}

/// A task in the file.
pub(super) struct TaskRow {
    pub number: i64,
    pub id: Vec<u8>,
}

const INSERT_SUMS: &str =
    "INSERT INTO sums (task, seq, kind, round, bytes) VALUES (?1, ?2, ?3, ?4, ?5)";

fn write(transaction: &Transaction<'_>, task: &TaskId, change: Change) -> Result<(), StoreError> {
    let (row, current) = head(transaction, task)?;
    let Change { append: entries, releases, drop_sums_before, drop_ids_before, head } = change;
    if head.seq != current.seq.next() {
        return Err(StoreError::Stale { found: head.seq.0, last: current.seq.0 });
    }
    let sums = entries.iter().any(|entry| entry.kind != Kind::Ids);
    // The sums tell the last commit as well: most commits need not touch the task's row.
    if !sums || (Head { seq: head.seq, ..current }) != head {
        let last = head.last.map(|last| last.bytes().to_vec());
        let state = state_code(head.state);
        transaction
            .prepare_cached(
                "UPDATE task SET seq = ?2, round = ?3, last = ?4, closed = ?5 WHERE number = ?1",
            )?
            .execute(params![row.number, head.seq.0 as i64, head.round, last, state])?;
    }
    for entry in entries {
        append(transaction, &row, head.seq, entry)?;
    }
    for (round, release) in releases {
        write_release(transaction, row.number, round, release)?;
    }
    if drop_sums_before > Seq(0) {
        // A task that is over has no sums that would tell its last commit.
        let before = i64::try_from(drop_sums_before.0).unwrap_or(i64::MAX);
        let sql = "DELETE FROM sums WHERE task = ?1 AND seq < ?2";
        transaction.prepare_cached(sql)?.execute(params![row.number, before])?;
    }
    if drop_ids_before > 0 {
        let sql =
            "DELETE FROM ids WHERE rowid IN (SELECT rowid FROM ids WHERE task = ?1 AND round < ?2)";
        transaction.prepare_cached(sql)?.execute(params![row.number, drop_ids_before])?;
    }
    Ok(())
}

/// Writes an entry of a commit.
pub(super) fn append(
    transaction: &Transaction<'_>,
    task: &TaskRow,
    seq: Seq,
    Entry { round, kind, bytes }: Entry,
) -> Result<(), StoreError> {
    let bytes = with_checksum_at(&place(&task.id, seq, kind, round), bytes);
    let seq = seq.0 as i64;
    if kind == Kind::Ids {
        let sql = "INSERT INTO ids (task, seq, round, bytes) VALUES (?1, ?2, ?3, ?4)";
        transaction.prepare_cached(sql)?.execute(params![task.number, seq, round, bytes])?;
    } else {
        let row = params![task.number, seq, code(kind), round, bytes];
        transaction.prepare_cached(INSERT_SUMS)?.execute(row)?;
    }
    Ok(())
}

fn write_release(
    transaction: &Transaction<'_>,
    task: i64,
    round: u32,
    release: SignedRelease,
) -> Result<(), StoreError> {
    let sql =
        "INSERT OR IGNORE INTO release (task, round, bytes, signature) VALUES (?1, ?2, ?3, ?4)";
    let (body, signature) = stored(release);
    let row = params![task, round, body, signature];
    if transaction.execute(sql, row)? == 0 {
        return Err(StoreError::Released(round));
    }
    Ok(())
}

fn head(connection: &Connection, task: &TaskId) -> Result<(TaskRow, Head), StoreError> {
    let sql = "SELECT number, max(seq, coalesce((SELECT max(seq) FROM sums WHERE task = number), 0)), round, last, closed FROM task WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = |row: &Row<'_>| {
        let last: Option<[u8; 32]> = row.get(3)?;
        let head = Head {
            seq: Seq(row.get::<_, i64>(1)? as u64),
            round: row.get(2)?,
            last: last.map(ReleaseHash::from_bytes),
            state: TaskState::Open,
        };
        Ok((TaskRow { number: row.get(0)?, id: task.bytes().to_vec() }, head, row.get(4)?))
    };
    let found: Option<(TaskRow, Head, i64)> =
        statement.query_row([task.bytes()], row).optional()?;
    let (row, head, code) = found.ok_or(StoreError::UnknownTask(*task))?;
    Ok((row, Head { state: state(code)?, ..head }))
}

fn tail(
    connection: &Connection,
    task: &TaskId,
    after: Seq,
    max_bytes: usize,
) -> Result<Vec<(Seq, Entry)>, StoreError> {
    // One moment of both tables.
    let transaction = connection.unchecked_transaction()?;
    let (row, _) = head(&transaction, task)?;
    let entry = |row: &Row<'_>| {
        let stored: (i64, i64, u32, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(stored)
    };
    let after = i64::try_from(after.0).unwrap_or(i64::MAX);
    let sql = "SELECT seq, kind, round, bytes FROM sums WHERE task = ?1 AND seq > ?2 ORDER BY seq";
    let mut sums = transaction.prepare_cached(sql)?;
    let mut sums = sums.query_map(params![row.number, after], entry)?.peekable();
    let sql =
        "SELECT seq, 0, round, bytes FROM ids WHERE task = ?1 AND seq > ?2 ORDER BY seq, round";
    let mut ids = transaction.prepare_cached(sql)?;
    let mut ids = ids.query_map(params![row.number, after], entry)?.peekable();
    let (mut found, mut bytes): (Vec<(Seq, Entry)>, usize) = (Vec::new(), 0);
    loop {
        let first_is_sums = match (sums.peek(), ids.peek()) {
            (None, None) => break,
            (Some(Ok(sums)), Some(Ok(ids))) => sums.0 <= ids.0,
            (sums, _) => sums.is_some(),
        };
        let next = if first_is_sums { sums.next() } else { ids.next() };
        let Some(next) = next else { break };
        let (seq, code, round, stored) = next?;
        let seq = Seq(seq as u64);
        if bytes >= max_bytes && found.last().is_some_and(|(last, _)| *last != seq) {
            break;
        }
        bytes += stored.len();
        let kind = kind(code)?;
        let stored = checked_at(&place(&row.id, seq, kind, round), stored, "an entry")?;
        found.push((seq, Entry { round, kind, bytes: stored }));
    }
    Ok(found)
}

fn pair<A: FromSql, B: FromSql>(row: &Row<'_>) -> rusqlite::Result<(A, B)> {
    Ok((row.get(0)?, row.get(1)?))
}
