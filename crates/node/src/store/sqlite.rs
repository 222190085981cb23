//! What both SQLite stores share: opening, migrations, backups.

use std::{
    fs::{File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use incrowd_protocol::TaskId;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, backup::Backup};

use super::StoreError;

/// How long to wait for a lock of the file. Only an operator's own tools hold one for longer, and
/// whoever uploads is better answered 503.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whose file it is, and how its tables came to be.
pub(super) struct Schema {
    /// `PRAGMA application_id`.
    pub application: i32,
    /// The oldest version that can be read: the first migration makes it from nothing.
    pub oldest: i64,
    /// Statements; each of the others brings the file one version further.
    pub migrations: &'static [&'static str],
}

impl Schema {
    /// The version that the last migration makes.
    fn newest(&self) -> i64 {
        self.oldest + self.migrations.len() as i64 - 1
    }
}

/// The shuffler's and the bandit's.
pub(super) const SCHEMAS: [&Schema; 2] =
    [&super::sqlite_shuffler::SCHEMA, &super::sqlite_bandit::SCHEMA];

/// An open database that no other process has open.
pub(super) struct Database {
    pub writer: Connection,
    pub path: PathBuf,
    /// Held as long as this writes.
    _lock: Option<File>,
}

impl Database {
    /// Opens the file, makes it if there is none, and brings it to the newest version.
    pub fn open(path: &Path, schema: &Schema) -> Result<Self, StoreError> {
        let lock = lock(path)?;
        private(path)?;
        let mut writer = Connection::open(path)?;
        // Before anything is written: another's file is left as it is.
        check(&writer, path, schema)?;
        configure(&writer)?;
        migrate(&mut writer, schema)?;
        Ok(Self { writer, path: path.to_owned(), _lock: Some(lock) })
    }

    /// Opens the file to look at it, also while a service uses it.
    pub fn inspect(path: &Path, schema: &Schema) -> Result<Self, StoreError> {
        let writer = read_only(path)?;
        check(&writer, path, schema)?;
        Ok(Self { writer, path: path.to_owned(), _lock: None })
    }

    /// Writes what is there already, as durably as everything else. (An update of a row to its own
    /// values would not reach the file.)
    pub fn check_writable(&self, schema: &Schema) -> Result<(), StoreError> {
        Ok(self.writer.pragma_update(None, "user_version", schema.newest())?)
    }

    /// A second connection that sees only what is committed.
    pub fn reader(&self) -> Result<Connection, StoreError> {
        read_only(&self.path)
    }
}

/// Only the owner may read unfinished sums. SQLite gives its other files the mode of this one.
fn private(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::File { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

fn configure(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A commit returns only when the operating system has it on the disk.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is deleted is overwritten.
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    Ok(())
}

/// Reads the whole file once at the start, so that damage is noticed before anything is answered
/// from it.
fn check(connection: &Connection, path: &Path, schema: &Schema) -> Result<(), StoreError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let fresh = version == 0 && application == 0 && tables == 0;
    if application != schema.application && !fresh {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    let known = schema.newest();
    if !fresh && version < schema.oldest {
        return Err(StoreError::Older { found: version, oldest: schema.oldest });
    }
    if version > known {
        return Err(StoreError::Newer { found: version, known });
    }
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(StoreError::Damaged(verdict));
    }
    Ok(())
}

fn migrate(connection: &mut Connection, schema: &Schema) -> Result<(), StoreError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let transaction = connection.transaction()?;
    // A new file has version 0.
    let done = if version == 0 { 0 } else { version - schema.oldest + 1 };
    for statements in schema.migrations.iter().skip(done as usize) {
        transaction.execute_batch(statements)?;
    }
    transaction.pragma_update(None, "application_id", schema.application)?;
    transaction.pragma_update(None, "user_version", schema.newest())?;
    transaction.commit()?;
    Ok(())
}

/// Keeps a second process out: [`super::Turn`] locks against the threads of this one only.
fn lock(path: &Path) -> Result<File, StoreError> {
    let path = path.with_extension("lock");
    let failed = |error| StoreError::File { path: path.clone(), error };
    // Whoever can open the file can lock it, so that the service does not start.
    let options = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).clone();
    let file = options.open(&path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse(path)),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn read_only(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// Moves what is current into the file and cuts the write-ahead log to nothing. False if a reader
/// is in the way.
pub(super) fn truncate_wal(connection: &Connection) -> Result<bool, StoreError> {
    // Commits do not wait for a reader, a backup for example.
    connection.busy_timeout(Duration::ZERO)?;
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(PATIENCE)?;
    Ok(busy? == 0)
}

/// The tasks of a file, in order.
pub(super) fn task_ids(connection: &Connection) -> Result<Vec<TaskId>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT id FROM task ORDER BY id")?;
    let ids = statement.query_map([], |row| row.get::<_, [u8; 32]>(0))?;
    let damaged = |_| StoreError::Damaged("an unreadable task id".into());
    ids.map(|id| hex::encode(id?).parse().map_err(damaged)).collect()
}

/// Removes a task's row and its rows of these tables. Whether there was one.
pub(super) fn purge(
    database: &mut Database,
    task: &TaskId,
    tables: &[&str],
) -> Result<bool, StoreError> {
    let transaction = database.writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in tables {
        let sql =
            format!("DELETE FROM {table} WHERE task = (SELECT number FROM task WHERE id = ?1)");
        transaction.execute(&sql, [task.bytes()])?;
    }
    let removed = transaction.execute("DELETE FROM task WHERE id = ?1", [task.bytes()])?;
    transaction.commit()?;
    Ok(removed > 0)
}

/// Copies a store, also while a service uses it, to a new file: a consistent state of one moment.
pub fn backup(from: &Path, to: &Path) -> Result<(), StoreError> {
    let source = read_only(from)?;
    // Fails when the file exists: a backup never overwrites.
    let failed = |error| StoreError::File { path: to.to_owned(), error };
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(to).map_err(failed)?;
    let mut target = Connection::open(to)?;
    // All pages in one step: a copy in several begins again whenever a commit comes between two of
    // them.
    Backup::new(&source, &mut target)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    target.pragma_update(None, "journal_mode", "DELETE")?;
    drop(target);
    File::open(to).and_then(|file| file.sync_all()).map_err(failed)?;
    verify(to)
}

/// Whether a file is an undamaged store that this program can open.
pub fn verify(path: &Path) -> Result<(), StoreError> {
    let connection = read_only(path)?;
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let schema = SCHEMAS.into_iter().find(|schema| schema.application == application);
    check(&connection, path, schema.ok_or_else(|| StoreError::Foreign(path.to_owned()))?)
}
