use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use incrowd_bandit::Statistics;
use incrowd_protocol::{Task, TaskId};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    Absorbed, BanditStore, Learned, Position, ReleaseHash, Step, StoreError, StoredModel,
    models_before,
    rows::{checked, with_checksum},
    sqlite::{Database, Schema, purge, task_ids, truncate_wal},
};

pub(super) const SCHEMA: Schema = Schema {
    application: 0x1c_72_6f_62,
    oldest: 2,
    migrations: &[
        "CREATE TABLE task (number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, round INTEGER NOT NULL DEFAULT 0, statistics BLOB);
         CREATE TABLE release (task INTEGER NOT NULL REFERENCES task, round INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, round)) WITHOUT ROWID;
         CREATE TABLE model (task INTEGER NOT NULL REFERENCES task, version INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, version)) WITHOUT ROWID;",
    ],
};

/// The bandit's memory in one SQLite file.
pub struct SqliteBanditStore(Mutex<Database>);

impl SqliteBanditStore {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self(Mutex::new(Database::open(path, &SCHEMA)?)))
    }

    /// Opens the file to look at it, also while a service uses it.
    pub fn inspect(path: &Path) -> Result<Self, StoreError> {
        Ok(Self(Mutex::new(Database::inspect(path, &SCHEMA)?)))
    }

    fn database(&self) -> MutexGuard<'_, Database> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BanditStore for SqliteBanditStore {
    fn open(&self, task: &Task) -> Result<Option<Absorbed>, StoreError> {
        let database = self.database();
        let id = task.id();
        database.writer.execute("INSERT OR IGNORE INTO task (id) VALUES (?1)", [id.bytes()])?;
        let sql = "SELECT statistics FROM task WHERE id = ?1";
        let stored: Option<Vec<u8>> =
            database.writer.query_row(sql, [id.bytes()], |row| row.get(0))?;
        let Some(stored) = stored else { return Ok(None) };
        let bytes = checked(stored, "the statistics")?;
        let damaged = |error: serde_json::Error| StoreError::Damaged(error.to_string());
        let statistics = serde_json::from_slice(&bytes).map_err(damaged)?;
        let (_, Position { round, last, .. }) = position(&database.writer, &id)?;
        if round > 0 && last.is_none() {
            return Err(StoreError::Damaged("statistics without a release".into()));
        }
        Ok(Some(Absorbed { statistics, last }))
    }

    fn publish(
        &self,
        task: &TaskId,
        statistics: &Statistics,
        model: &StoredModel,
    ) -> Result<(), StoreError> {
        let mut database = self.database();
        let transaction = database.writer.transaction()?;
        let (number, stored) = position(&transaction, task)?;
        let models = models_before(statistics, Some(model));
        Position { round: statistics.round(), models, ..stored }.check(&stored)?;
        write(&transaction, number, statistics, Some(model))?;
        transaction.commit()?;
        Ok(())
    }

    fn absorb(&self, task: &TaskId, step: &Step<'_>) -> Result<(), StoreError> {
        let mut database = self.database();
        let transaction = database.writer.transaction()?;
        let (number, stored) = position(&transaction, task)?;
        step.before().check(&stored)?;
        write_release(&transaction, number, step.round, step.release)?;
        write(&transaction, number, step.statistics, step.model)?;
        transaction.commit()?;
        Ok(())
    }

    fn model(&self, task: &TaskId) -> Result<Option<StoredModel>, StoreError> {
        let database = self.database();
        let sql = "SELECT version, bytes FROM model JOIN task ON task = number WHERE id = ?1 ORDER BY version DESC LIMIT 1";
        Ok(models(&database.writer, sql, task)?.pop())
    }

    fn models(&self, task: &TaskId) -> Result<Vec<StoredModel>, StoreError> {
        let database = self.database();
        let sql = "SELECT version, bytes FROM model JOIN task ON task = number WHERE id = ?1 ORDER BY version";
        models(&database.writer, sql, task)
    }

    fn releases(&self, task: &TaskId) -> Result<Vec<(u32, Vec<u8>)>, StoreError> {
        let database = self.database();
        let sql = "SELECT release.round, bytes FROM release JOIN task ON task = number WHERE id = ?1 ORDER BY release.round";
        let mut statement = database.writer.prepare(sql)?;
        let rows = statement.query_map([task.bytes()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.map(|row| {
            let (round, bytes) = row?;
            Ok((round, checked(bytes, "a release")?))
        })
        .collect()
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.database().check_writable(&SCHEMA)
    }

    fn tasks(&self) -> Result<Vec<(TaskId, u32)>, StoreError> {
        let database = self.database();
        let tasks = task_ids(&database.writer)?;
        let round = |task| Ok((task, position(&database.writer, &task)?.1.round));
        tasks.into_iter().map(round).collect()
    }

    fn import(&self, task: &TaskId, learned: &Learned) -> Result<(), StoreError> {
        if learned.is_known(task, &self.releases(task)?, self.models(task)?.len())? {
            return Ok(());
        }
        let mut database = self.database();
        let transaction = database.writer.transaction()?;
        transaction.execute("INSERT OR IGNORE INTO task (id) VALUES (?1)", [task.bytes()])?;
        let (number, _) = position(&transaction, task)?;
        for (round, body) in &learned.releases {
            write_release(&transaction, number, *round, body)?;
        }
        for model in &learned.models {
            write_model(&transaction, number, model)?;
        }
        if let Some(Absorbed { statistics, .. }) = &learned.absorbed {
            write(&transaction, number, statistics, None)?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        let mut database = self.database();
        let removed = purge(&mut database, task, &["release", "model"])?;
        truncate_wal(&database.writer)?;
        Ok(removed)
    }
}

fn write_release(
    connection: &Connection,
    number: i64,
    round: u32,
    body: &[u8],
) -> Result<(), StoreError> {
    let row = params![number, round, with_checksum(body.to_vec())];
    connection.execute("INSERT INTO release (task, round, bytes) VALUES (?1, ?2, ?3)", row)?;
    Ok(())
}

fn write_model(
    connection: &Connection,
    number: i64,
    StoredModel { version, bytes }: &StoredModel,
) -> Result<(), StoreError> {
    let row = params![number, *version as i64, with_checksum(bytes.clone())];
    connection.execute("INSERT INTO model (task, version, bytes) VALUES (?1, ?2, ?3)", row)?;
    Ok(())
}

/// The statistics of a task's row and, if there is one, a new model.
fn write(
    connection: &Connection,
    number: i64,
    statistics: &Statistics,
    model: Option<&StoredModel>,
) -> Result<(), StoreError> {
    let round = statistics.round();
    let statistics = serde_json::to_vec(statistics)
        .expect("invariant: statistics are numbers, which can always be written");
    if let Some(model) = model {
        write_model(connection, number, model)?;
    }
    connection.execute(
        "UPDATE task SET round = ?2, statistics = ?3 WHERE number = ?1",
        params![number, round, with_checksum(statistics)],
    )?;
    Ok(())
}

/// The row of a task, and where it is.
fn position(connection: &Connection, task: &TaskId) -> Result<(i64, Position), StoreError> {
    let sql = "SELECT number, task.round, bytes, coalesce((SELECT max(version) FROM model WHERE task = number), 0)
        FROM task LEFT JOIN release ON task = number AND release.round = task.round WHERE id = ?1";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let found = connection.query_row(sql, [task.bytes()], row).optional()?;
    let (number, round, bytes, models): (i64, u32, Option<Vec<u8>>, i64) =
        found.ok_or(StoreError::UnknownTask(*task))?;
    let body = bytes.map(|bytes| checked(bytes, "a release")).transpose()?;
    let last = body.map(|body| ReleaseHash::of(&body));
    Ok((number, Position { round, last, models: models as u64 }))
}

fn models(
    connection: &Connection,
    sql: &str,
    task: &TaskId,
) -> Result<Vec<StoredModel>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows =
        statement.query_map([task.bytes()], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
    rows.map(|row| {
        let (version, bytes) = row?;
        Ok(StoredModel { version: version as u64, bytes: checked(bytes, "a model")? })
    })
    .collect()
}
