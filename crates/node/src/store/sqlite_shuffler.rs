use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use incrowd_protocol::{BatchSums, Mechanism, ReportId, Task, TaskId};
use incrowd_shuffler::{Batch, Refusal, Snapshot};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{
    Progress, Receipt, ShufflerStore, StoreError, Upload, receipt,
    sqlite::{Database, PATIENCE, Schema, checked, with_checksum},
};

pub(super) const SCHEMA: Schema = Schema {
    application: 0x1c_72_6f_77,
    migrations: &[
        // Sums and count of the unfinished batch; the ids of each commit, in one blob for each round they were made for; the releases.
        "CREATE TABLE task (number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, batch BLOB NOT NULL);
         CREATE TABLE ids (task INTEGER NOT NULL REFERENCES task, round INTEGER NOT NULL, ids BLOB NOT NULL);
         CREATE INDEX ids_by_round ON ids (task, round);
         CREATE TABLE release (task INTEGER NOT NULL REFERENCES task, round INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, round)) WITHOUT ROWID;",
        "ALTER TABLE task ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;",
    ],
};

/// The shuffler's memory in one SQLite file.
///
/// Ids are looked up in memory and only appended to the file, a blob for each commit: a row for each id costs more than everything else together.
pub struct SqliteShufflerStore {
    writer: Mutex<Writer>,
    reader: Mutex<Connection>,
}

struct Writer {
    database: Database,
    tasks: HashMap<TaskId, OpenTask>,
    /// Whether the write-ahead log holds earlier states.
    dirty: bool,
}

struct OpenTask {
    number: i64,
    mechanism: Arc<Mechanism>,
    state: State,
}

enum State {
    Running(Batch),
    Closed,
    /// A commit failed: what is in memory may be more than what is in the file, so it is read anew.
    Unknown,
}

impl SqliteShufflerStore {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let database = Database::open(path, &SCHEMA)?;
        let reader = database.reader()?;
        let writer = Writer { database, tasks: HashMap::new(), dirty: true };
        Ok(Self { writer: Mutex::new(writer), reader: Mutex::new(reader) })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShufflerStore for SqliteShufflerStore {
    fn open(&self, task: &Task) -> Result<Progress, StoreError> {
        let mut writer = self.writer();
        let mechanism = Arc::new(task.mechanism().clone());
        let empty = with_checksum(Batch::new(mechanism.clone()).snapshot().encode());
        let Writer { database, tasks, .. } = &mut *writer;
        let (id, sql) = (task.id(), "INSERT OR IGNORE INTO task (id, batch) VALUES (?1, ?2)");
        database.writer.execute(sql, params![id.bytes(), empty])?;
        let sql = "SELECT number FROM task WHERE id = ?1";
        let number = database.writer.query_row(sql, [id.bytes()], |row| row.get(0))?;
        let state = load(&database.writer, number, &mechanism)?;
        let task = OpenTask { number, mechanism, state };
        let progress = task.progress();
        tasks.insert(id, task);
        Ok(progress)
    }

    fn accept(&self, uploads: &[Upload]) -> Result<Vec<Vec<Receipt>>, StoreError> {
        let mut writer = self.writer();
        let result = writer.accept(uploads);
        if result.is_err() {
            for upload in uploads {
                if let Some(task) = writer.tasks.get_mut(&upload.task) {
                    task.state = State::Unknown;
                }
            }
        }
        result
    }

    fn progress(&self, task: &TaskId) -> Result<Progress, StoreError> {
        let mut writer = self.writer();
        Ok(writer.task(task)?.progress())
    }

    fn release(&self, task: &TaskId, round: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let sql =
            "SELECT bytes FROM release JOIN task ON task = number WHERE id = ?1 AND round = ?2";
        let mut statement = reader.prepare_cached(sql)?;
        let found =
            statement.query_row(params![task.bytes(), round], |row| row.get(0)).optional()?;
        found.map(|bytes| checked(bytes, "a release")).transpose()
    }

    fn close(&self, task: &TaskId) -> Result<Progress, StoreError> {
        let mut writer = self.writer();
        writer.task(task)?;
        let Writer { database, tasks, dirty } = &mut *writer;
        let open = tasks.get_mut(task).ok_or(StoreError::UnknownTask(*task))?;
        let transaction = database.writer.transaction()?;
        let sql = "UPDATE task SET closed = 1, batch = x'' WHERE number = ?1";
        transaction.execute(sql, [open.number])?;
        transaction.execute("DELETE FROM ids WHERE task = ?1", [open.number])?;
        transaction.commit()?;
        *dirty = true;
        open.state = State::Closed;
        let progress = open.progress();
        drop(writer);
        self.tidy()?;
        Ok(progress)
    }

    fn tidy(&self) -> Result<bool, StoreError> {
        let mut writer = self.writer();
        if writer.dirty {
            // Moves what is current into the file and cuts the log to nothing. Reports do not wait for someone who reads, a backup for example.
            let connection = &writer.database.writer;
            connection.busy_timeout(Duration::ZERO)?;
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            let busy = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            connection.busy_timeout(PATIENCE)?;
            writer.dirty = busy? != 0;
        }
        Ok(!writer.dirty)
    }

    fn probe(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        writer.database.probe(&SCHEMA)?;
        writer.dirty = true;
        Ok(())
    }
}

impl Writer {
    /// The task, read anew if its state is not certain.
    fn task(&mut self, id: &TaskId) -> Result<&mut OpenTask, StoreError> {
        let task = self.tasks.get_mut(id).ok_or(StoreError::UnknownTask(*id))?;
        if matches!(task.state, State::Unknown) {
            task.state = load(&self.database.writer, task.number, &task.mechanism)?;
        }
        Ok(task)
    }

    fn accept(&mut self, uploads: &[Upload]) -> Result<Vec<Vec<Receipt>>, StoreError> {
        let mut receipts = Vec::with_capacity(uploads.len());
        let mut changes: BTreeMap<TaskId, Change> = BTreeMap::new();
        for upload in uploads {
            let task = self.task(&upload.task)?;
            let change = changes.entry(upload.task).or_default();
            receipts.push(task.count(upload, change));
        }
        changes.retain(|_, change| !change.ids.is_empty());
        if changes.is_empty() {
            return Ok(receipts);
        }
        let transaction = self.database.writer.transaction()?;
        for (id, change) in &changes {
            if let Some(task) = self.tasks.get(id) {
                task.write(&transaction, change)?;
            }
        }
        transaction.commit()?;
        self.dirty = true;
        Ok(receipts)
    }
}

/// What a commit adds to a task.
#[derive(Default)]
struct Change {
    /// Counted ids by the round they were made for.
    ids: BTreeMap<u32, Vec<u8>>,
    releases: Vec<BatchSums>,
}

impl OpenTask {
    fn progress(&self) -> Progress {
        match &self.state {
            State::Running(batch) => Progress {
                round: batch.round().map(|round| round.number),
                count: batch.count(),
                remembered: batch.remembered(),
                closed: false,
            },
            State::Closed | State::Unknown => {
                Progress { round: None, count: 0, remembered: 0, closed: true }
            }
        }
    }

    fn count(&mut self, upload: &Upload, change: &mut Change) -> Vec<Receipt> {
        let State::Running(batch) = &mut self.state else {
            return vec![Receipt::Refused(Refusal::Finished); upload.reports.len()];
        };
        let count = |report: &incrowd_protocol::Report| {
            let (receipt, released) = receipt(batch.accept(report));
            if receipt == Receipt::Counted {
                change.ids.entry(report.round()).or_default().extend_from_slice(&report.id().0);
            }
            change.releases.extend(released);
            receipt
        };
        upload.reports.iter().map(count).collect()
    }

    fn write(&self, transaction: &Transaction<'_>, change: &Change) -> Result<(), StoreError> {
        let State::Running(batch) = &self.state else { return Ok(()) };
        let oldest = batch.oldest_remembered();
        for (&round, ids) in change.ids.range(oldest..) {
            let mut insert = transaction
                .prepare_cached("INSERT INTO ids (task, round, ids) VALUES (?1, ?2, ?3)")?;
            insert.execute(params![self.number, round, with_checksum(ids.clone())])?;
        }
        for sums in &change.releases {
            // Sums are plain numbers: they can always be written.
            let bytes =
                serde_json::to_vec(sums).map_err(|error| StoreError::Damaged(error.to_string()))?;
            transaction.execute(
                "INSERT INTO release (task, round, bytes) VALUES (?1, ?2, ?3)",
                params![self.number, sums.round(), with_checksum(bytes)],
            )?;
        }
        if !change.releases.is_empty() {
            let sql = "DELETE FROM ids WHERE task = ?1 AND round < ?2";
            transaction.execute(sql, params![self.number, oldest])?;
        }
        transaction
            .prepare_cached("UPDATE task SET batch = ?2 WHERE number = ?1")?
            .execute(params![self.number, with_checksum(batch.snapshot().encode())])?;
        Ok(())
    }
}

fn load(
    connection: &Connection,
    number: i64,
    mechanism: &Arc<Mechanism>,
) -> Result<State, StoreError> {
    let sql = "SELECT batch, closed FROM task WHERE number = ?1";
    let (batch, closed): (Vec<u8>, bool) =
        connection.query_row(sql, [number], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if closed {
        return Ok(State::Closed);
    }
    let damaged = |error: incrowd_shuffler::ResumeError| StoreError::Damaged(error.to_string());
    let snapshot = Snapshot::decode(&checked(batch, "a batch")?).map_err(damaged)?;
    let mut ids: Vec<(ReportId, u32)> = Vec::new();
    let mut statement = connection.prepare("SELECT round, ids FROM ids WHERE task = ?1")?;
    let mut rows = statement.query([number])?;
    while let Some(row) = rows.next()? {
        let round = row.get(0)?;
        let blob = checked(row.get(1)?, "ids")?;
        let (blob, odd) = blob.as_chunks::<16>();
        if !odd.is_empty() {
            return Err(StoreError::Damaged("half an id".into()));
        }
        ids.extend(blob.iter().map(|id| (ReportId(*id), round)));
    }
    Ok(State::Running(Batch::resume(mechanism.clone(), snapshot, ids).map_err(damaged)?))
}
