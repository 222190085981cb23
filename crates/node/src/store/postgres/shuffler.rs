use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use incrowd_protocol::TaskId;
use incrowd_shuffler::{Entry, Kind};
use tokio::{join, task::JoinHandle};
use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};

use super::{
    database::{Database, Durable, Lease, barrier},
    schema::Schema,
    settings::PostgresSettings,
};
use crate::store::{
    Change, CommitError, Head, Log, ReleaseHash, Seq, Shared, ShufflerStore, SignedRelease,
    StoreError, TaskState, Turn,
    rows::{checked_at, code, kind, place, signed, state, state_code, stored, with_checksum_at},
};

pub(super) const SCHEMA: Schema = Schema {
    name: "incrowd_shuffler",
    migrations: &[
        // A row that changes with every commit has room for its next versions on its page. What is
        // encrypted is not compressed. Ids of rounds before `ids_from` are dropped: their rows are
        // removed later, because a long round has millions of them.
        "CREATE TABLE incrowd_shuffler.task (number int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, id bytea NOT NULL UNIQUE, state smallint NOT NULL DEFAULT 0, seq bigint NOT NULL DEFAULT 0, round bigint NOT NULL DEFAULT 1, last bytea, ids_from bigint NOT NULL DEFAULT 0) WITH (fillfactor = 10);
         CREATE TABLE incrowd_shuffler.entry (task int NOT NULL REFERENCES incrowd_shuffler.task, kind smallint NOT NULL, seq bigint NOT NULL, round bigint NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (task, kind, seq, round));
         ALTER TABLE incrowd_shuffler.entry ALTER bytes SET STORAGE EXTERNAL;
         CREATE TABLE incrowd_shuffler.release (task int NOT NULL REFERENCES incrowd_shuffler.task, round bigint NOT NULL, bytes bytea NOT NULL, signature bytea NOT NULL, PRIMARY KEY (task, round));",
    ],
};

const HEAD: &str =
    "SELECT number, id, seq, round, last, state, clock_timestamp() FROM incrowd_shuffler.task";
/// In the order of the ids, so that two callers never wait for each other.
const LOCK: &str = "SELECT number, id, seq, round, last, state FROM incrowd_shuffler.task WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";
/// Only what is asked under the lock is later than the commits before it.
const CLOCK: &str = "SELECT clock_timestamp()";
/// Entries of a commit as long as those of earlier commits have fewer bytes than allowed, among so
/// many commits that no more need to be looked at.
const TAIL: &str = "SELECT seq, kind, round, bytes FROM (
        SELECT entry.*, sum(octet_length(bytes)) OVER (ORDER BY entry.seq RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM incrowd_shuffler.task JOIN incrowd_shuffler.entry ON task = number
        WHERE id = $1 AND kind = ANY('{0,1,2}') AND entry.seq > $2 AND entry.seq <= $2 + 4096 AND (kind <> 0 OR entry.round >= ids_from)
    ) found WHERE coalesce(before, 0) < greatest($3, 1) ORDER BY seq, kind = 0, round";
/// The first commit after one that has an entry.
const NEXT: &str = "SELECT least(
        (SELECT min(seq) FROM incrowd_shuffler.entry WHERE task = number AND kind = 1 AND seq > $2),
        (SELECT min(seq) FROM incrowd_shuffler.entry WHERE task = number AND kind = 2 AND seq > $2),
        (SELECT seq FROM incrowd_shuffler.entry WHERE task = number AND kind = 0 AND seq > $2 AND round >= ids_from ORDER BY seq LIMIT 1))
    FROM incrowd_shuffler.task WHERE id = $1";
const MOVE: &str = "UPDATE incrowd_shuffler.task SET seq = c.seq, round = c.round, last = c.last, state = c.state,
        ids_from = CASE WHEN c.ids_from > 0 THEN c.ids_from ELSE task.ids_from END
    FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[], $5::smallint[], $6::bigint[]) AS c (number, seq, round, last, state, ids_from)
    WHERE task.number = c.number AND task.seq = c.seq - 1";
const APPEND: &str = "INSERT INTO incrowd_shuffler.entry (task, kind, seq, round, bytes)
    SELECT * FROM unnest($1::int[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bytea[])";
const RELEASE: &str = "INSERT INTO incrowd_shuffler.release (task, round, bytes, signature)
    SELECT * FROM unnest($1::int[], $2::bigint[], $3::bytea[], $4::bytea[]) ON CONFLICT DO NOTHING";
const DROP: &str =
    "DELETE FROM incrowd_shuffler.entry USING unnest($1::int[], $2::bigint[]) AS d (task, seq)
    WHERE entry.task = d.task AND entry.kind = ANY('{1,2}') AND entry.seq < d.seq";
/// Ids up to this commit, maybe also those of the round that goes on.
const DROP_IDS: &str = "DELETE FROM incrowd_shuffler.entry USING unnest($1::int[], $2::bigint[], $3::bigint[]) AS d (task, seq, round)
    WHERE entry.task = d.task AND entry.kind = 0 AND entry.seq <= d.seq AND entry.round < d.round";
/// Rows of dropped ids, unless another node removes them just now.
const REMOVE: &str = "DELETE FROM incrowd_shuffler.entry WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM incrowd_shuffler.entry WHERE task = $1 AND kind = 0 AND round < $2 ORDER BY seq LIMIT $3 FOR UPDATE SKIP LOCKED))";
/// Rows that are removed at once.
const ROWS: i64 = 10_000;
/// How often a node that computes under a lock tells the server that it lives, and how often at
/// most: a round has to be closed within that time.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
const SIGNS_OF_LIFE: u32 = 30;

/// The shuffler's memory in a PostgreSQL database, which any number of processes use.
///
/// # Privacy
/// A database forgets nothing: its write-ahead log, dead rows, replicas and archives keep what was
/// dropped. Entries must reach it only under the keys of their rounds, as
/// [`crate::round_keys::GuardedStore`] makes them.
pub struct PostgresShufflerStore {
    database: Database,
    /// Rounds whose releases can be given out.
    durable: Durable,
    /// Of each task, by its number: the round before which no ids are left.
    removed: Mutex<HashMap<i32, i64>>,
}

impl PostgresShufflerStore {
    /// Connects, and makes the tables or brings them to the newest version.
    pub(crate) fn open(settings: &PostgresSettings) -> Result<Self, StoreError> {
        let store = Self::new(settings)?;
        SCHEMA.migrate(&mut store.database.session()?)?;
        Ok(store)
    }

    /// Connects to look at it; none if there are no tables.
    pub(crate) fn inspect(settings: &PostgresSettings) -> Result<Option<Self>, StoreError> {
        let store = Self::new(settings)?;
        let version = SCHEMA.version(&mut store.database.session()?)?;
        Ok(version.map(|_| store))
    }

    fn new(settings: &PostgresSettings) -> Result<Self, StoreError> {
        let (database, durable) = (Database::new(settings, SCHEMA.name)?, Durable::default());
        Ok(Self { database, durable, removed: Mutex::default() })
    }
}

impl ShufflerStore for PostgresShufflerStore {
    fn open(&self, task: &TaskId) -> Result<Head, StoreError> {
        let sql = "INSERT INTO incrowd_shuffler.task (id) VALUES ($1) ON CONFLICT DO NOTHING";
        let id: &[u8] = task.bytes();
        let mut session = self.database.session()?;
        session.wait(async |client| client.execute_typed(sql, &[(&id, Type::BYTEA)]).await)?;
        Ok(head(&mut session, task)?.0.head)
    }

    fn lock<'a>(&'a self, tasks: &[TaskId]) -> Result<Box<dyn Turn + 'a>, StoreError> {
        let mut session = self.database.session()?;
        let ids: Vec<&[u8]> = tasks.iter().map(|task| task.bytes().as_slice()).collect();
        let asked = session.wait(async |client| {
            let ids: [(&(dyn ToSql + Sync), Type); 1] = [(&ids, Type::BYTEA_ARRAY)];
            let (begin, rows) = (client.batch_execute("BEGIN"), client.query_typed(LOCK, &ids));
            let (begin, rows, clock) = join!(begin, rows, client.query_typed_one(CLOCK, &[]));
            // The first error is why the others failed.
            begin?;
            Ok((rows?, clock?))
        });
        let (rows, clock) = match asked {
            Ok(answers) => answers,
            Err(error) => {
                session.discard();
                drop(session);
                if matches!(error, StoreError::Locked) {
                    self.database.end_stopped()?;
                }
                return Err(error);
            }
        };
        let time = clock.get(0);
        self.database.set_clock(time);
        let found = rows.iter().map(TaskRow::read).collect::<Result<Vec<_>, _>>();
        // The rows are locked.
        let found = found.inspect_err(|_| session.discard())?;
        let keeping = session.keep_alive(SIGN_OF_LIFE, SIGNS_OF_LIFE);
        let turn = PostgresTurn {
            tasks: tasks.iter().copied().zip(found).collect(),
            session: Mutex::new(session),
            store: self,
            clock: (Instant::now(), time),
            keeping,
            over: false,
        };
        // In the same order; one that is missing is not known.
        match tasks.iter().find(|task| turn.head(task).is_err()) {
            Some(unknown) => Err(StoreError::UnknownTask(*unknown)),
            None => Ok(Box::new(turn)),
        }
    }

    fn release(&self, task: &TaskId, round: u32) -> Result<Option<SignedRelease>, StoreError> {
        let sql = "SELECT bytes, signature FROM incrowd_shuffler.release JOIN incrowd_shuffler.task ON task = number WHERE id = $1 AND release.round = $2";
        let (id, number): (&[u8], i64) = (task.bytes(), round.into());
        let mut session = self.database.session()?;
        let row = session.wait(async |client| {
            client.query_typed_opt(sql, &[(&id, Type::BYTEA), (&number, Type::INT8)]).await
        })?;
        let Some(row) = row else { return Ok(None) };
        if !self.durable.has(&session, *task, round.into()) {
            // Another node's commit can be visible before a standby has it.
            barrier(&mut session)?;
            self.durable.add(&session, *task, round.into());
        }
        signed(row.get(0), row.get(1)).map(Some)
    }

    /// The database keeps what was dropped: it is the keys of rounds that are destroyed. This only
    /// makes room.
    fn forget(&self) -> Result<bool, StoreError> {
        let sql = "SELECT number, ids_from FROM incrowd_shuffler.task WHERE ids_from > 0";
        let mut session = self.database.session()?;
        let rows = session.wait(async |client| client.query_typed(sql, &[]).await)?;
        let mut all = true;
        for row in rows {
            let (task, from): (i32, i64) = (row.get(0), row.get(1));
            if lock(&self.removed).get(&task) == Some(&from) {
                continue;
            }
            let values: [(&(dyn ToSql + Sync), Type); 3] =
                [(&task, Type::INT4), (&from, Type::INT8), (&ROWS, Type::INT8)];
            let removed =
                session.wait(async |client| client.execute_typed(REMOVE, &values).await)?;
            // Another node may be removing the last ones.
            if removed < ROWS as u64 && !has_dropped(&mut session, task, from)? {
                lock(&self.removed).insert(task, from);
            } else {
                all = false;
            }
        }
        Ok(all)
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.database.check_writable()
    }

    fn tasks(&self) -> Result<Vec<(TaskId, Head)>, StoreError> {
        let sql = format!("{HEAD} ORDER BY id");
        let mut session = self.database.session()?;
        let rows = session.wait(async |client| client.query_typed(&sql, &[]).await)?;
        rows.iter().map(|row| TaskRow::read(row).map(|row| (row.id, row.head))).collect()
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        SCHEMA.purge(&mut self.database.session()?, task, &["entry", "release"])
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(&self.database)
    }
}

impl Log for PostgresShufflerStore {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        let (row, time) = head(&mut self.database.session()?, task)?;
        self.database.set_clock(time);
        Ok(row.head)
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        tail(&mut self.database.session()?, task, after, max_bytes)
    }

    fn now(&self) -> SystemTime {
        self.database.now()
    }

    fn incarnation(&self) -> u64 {
        self.database.incarnation()
    }
}

struct PostgresTurn<'a> {
    session: Mutex<Lease<'a>>,
    store: &'a PostgresShufflerStore,
    /// The rows as they were locked.
    tasks: HashMap<TaskId, TaskRow>,
    /// The server's time as it was asked under the lock, and when.
    clock: (Instant, SystemTime),
    keeping: JoinHandle<()>,
    /// Whether the transaction has ended.
    over: bool,
}

impl Log for PostgresTurn<'_> {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        let row = self.tasks.get(task).ok_or(StoreError::UnknownTask(*task))?;
        Ok(row.head)
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        tail(&mut lock(&self.session), task, after, max_bytes)
    }

    fn now(&self) -> SystemTime {
        let (asked, time) = self.clock;
        time + asked.elapsed()
    }

    fn incarnation(&self) -> u64 {
        lock(&self.session).incarnation()
    }
}

impl Turn for PostgresTurn<'_> {
    fn commit(mut self: Box<Self>, changes: Vec<(TaskId, Change)>) -> Result<(), CommitError> {
        let columns = Columns::of(&self.tasks, changes)?;
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner);
        session.wait(async |client| columns.write(client).await).and_then(|moved| {
            let stale = columns.stale(&self.tasks);
            if moved.0 != columns.numbers.len() as u64 {
                return Err(stale);
            }
            match columns.releases.round.first() {
                Some(round) if moved.1 != columns.releases.round.len() as u64 => {
                    Err(StoreError::Released(*round as u32))
                }
                _ => Ok(()),
            }
        })?;
        self.keeping.abort();
        session.take_warning();
        self.over = true;
        match session.wait(async |client| client.batch_execute("COMMIT").await) {
            Ok(()) => {}
            Err(error @ StoreError::Conflict(_)) => return Err(CommitError::NotCommitted(error)),
            Err(error) => {
                session.discard();
                return Err(CommitError::Unknown(error));
            }
        }
        if session.take_warning() {
            // It waited for a standby and was told not to.
            return Err(CommitError::Unknown(StoreError::NotReplicated));
        }
        for (task, round) in columns.durable {
            self.store.durable.add(session, task, round.into());
        }
        Ok(())
    }
}

impl Drop for PostgresTurn<'_> {
    fn drop(&mut self) {
        self.keeping.abort();
        if self.over {
            return;
        }
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner);
        if session.is_broken() {
            return;
        }
        if session.wait(async |client| client.batch_execute("ROLLBACK").await).is_err() {
            session.discard();
        }
    }
}

/// The changes of a commit, column by column.
#[derive(Default)]
struct Columns {
    numbers: Vec<i32>,
    seqs: Vec<i64>,
    rounds: Vec<i64>,
    last: Vec<Option<Vec<u8>>>,
    states: Vec<i16>,
    entries: Entries,
    releases: Releases,
    /// The first round whose ids are not dropped; 0 if none are by this commit.
    ids_from: Vec<i64>,
    drops: (Vec<i32>, Vec<i64>),
    /// Ids that are removed at once: of tasks that discard them and go on.
    removed: (Vec<i32>, Vec<i64>, Vec<i64>),
    /// Rounds whose releases are durable afterwards.
    durable: Vec<(TaskId, u32)>,
    ids: Vec<TaskId>,
}

#[derive(Default)]
struct Entries {
    task: Vec<i32>,
    kind: Vec<i16>,
    seq: Vec<i64>,
    round: Vec<i64>,
    bytes: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Releases {
    task: Vec<i32>,
    round: Vec<i64>,
    bytes: Vec<Vec<u8>>,
    signature: Vec<Vec<u8>>,
}

impl Columns {
    fn of(
        tasks: &HashMap<TaskId, TaskRow>,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for (id, Change { append, releases, drop_sums_before, drop_ids_before, head }) in changes {
            let row = tasks.get(&id).ok_or(StoreError::UnknownTask(id))?;
            let current = row.head.seq;
            if head.seq != current.next() {
                return Err(StoreError::Stale { found: head.seq.0, last: current.0 });
            }
            let (task, seq) = (row.number, head.seq.0 as i64);
            columns.ids.push(id);
            columns.numbers.push(task);
            columns.seqs.push(seq);
            columns.rounds.push(head.round.into());
            columns.last.push(head.last.map(|last| last.bytes().to_vec()));
            columns.states.push(state_code(head.state) as i16);
            for Entry { round, kind, bytes } in append {
                let at = place(id.bytes(), head.seq, kind, round);
                columns.entries.task.push(task);
                columns.entries.kind.push(code(kind) as i16);
                columns.entries.seq.push(seq);
                columns.entries.round.push(round.into());
                columns.entries.bytes.push(with_checksum_at(&at, bytes));
            }
            let released = !releases.is_empty();
            columns.durable.extend(releases.iter().map(|(round, _)| (id, *round)));
            for (round, release) in releases {
                let (bytes, signature) = stored(release);
                columns.releases.task.push(task);
                columns.releases.round.push(round.into());
                columns.releases.bytes.push(bytes);
                columns.releases.signature.push(signature);
            }
            let comes_later = match head.state {
                TaskState::Open => !released,
                TaskState::Moving => true,
                TaskState::Closed | TaskState::Moved => false,
            };
            if comes_later && drop_ids_before > 0 {
                // Ids of these rounds that come later must be read.
                columns.removed.0.push(task);
                columns.removed.1.push(seq);
                columns.removed.2.push(drop_ids_before.into());
                columns.ids_from.push(1);
            } else {
                columns.ids_from.push(drop_ids_before.into());
            }
            if drop_sums_before > Seq(0) {
                columns.drops.0.push(task);
                columns.drops.1.push(i64::try_from(drop_sums_before.0).unwrap_or(i64::MAX));
            }
        }
        Ok(columns)
    }

    /// Sends everything at once. How many heads were moved and releases written.
    async fn write(&self, client: &Client) -> Result<(u64, u64), tokio_postgres::Error> {
        let heads = [
            (&self.numbers as &(dyn ToSql + Sync), Type::INT4_ARRAY),
            (&self.seqs, Type::INT8_ARRAY),
            (&self.rounds, Type::INT8_ARRAY),
            (&self.last, Type::BYTEA_ARRAY),
            (&self.states, Type::INT2_ARRAY),
            (&self.ids_from, Type::INT8_ARRAY),
        ];
        let Entries { task, kind, seq, round, bytes } = &self.entries;
        let entries = [
            (task as &(dyn ToSql + Sync), Type::INT4_ARRAY),
            (kind, Type::INT2_ARRAY),
            (seq, Type::INT8_ARRAY),
            (round, Type::INT8_ARRAY),
            (bytes, Type::BYTEA_ARRAY),
        ];
        let Releases { task, round, bytes, signature } = &self.releases;
        let releases = [
            (task as &(dyn ToSql + Sync), Type::INT4_ARRAY),
            (round, Type::INT8_ARRAY),
            (bytes, Type::BYTEA_ARRAY),
            (signature, Type::BYTEA_ARRAY),
        ];
        let (task, seq) = &self.drops;
        let drops = [(task as &(dyn ToSql + Sync), Type::INT4_ARRAY), (seq, Type::INT8_ARRAY)];
        let some = async |sql, there: bool, values: &[(&(dyn ToSql + Sync), Type)]| {
            if there { client.execute_typed(sql, values).await } else { Ok(0) }
        };
        let (task, seq, round) = &self.removed;
        let removed = [
            (task as &(dyn ToSql + Sync), Type::INT4_ARRAY),
            (seq, Type::INT8_ARRAY),
            (round, Type::INT8_ARRAY),
        ];
        let (moved, appended, released, dropped, removed) = join!(
            some(MOVE, true, &heads),
            some(APPEND, !self.entries.task.is_empty(), &entries),
            some(RELEASE, !self.releases.task.is_empty(), &releases),
            some(DROP, !self.drops.0.is_empty(), &drops),
            some(DROP_IDS, !self.removed.0.is_empty(), &removed),
        );
        // The first error is why the others failed.
        let moved = moved?;
        appended?;
        let released = released?;
        dropped?;
        removed?;
        Ok((moved, released))
    }

    /// Why a head did not move.
    fn stale(&self, tasks: &HashMap<TaskId, TaskRow>) -> StoreError {
        let last = self.ids.first().and_then(|id| tasks.get(id)).map_or(0, |row| row.head.seq.0);
        StoreError::Stale { found: self.seqs.first().map_or(0, |seq| *seq as u64), last }
    }
}

/// A task in the database.
struct TaskRow {
    number: i32,
    id: TaskId,
    head: Head,
}

impl TaskRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let id: &[u8] = row.get(1);
        let id = hex::encode(id).parse();
        let last: Option<&[u8]> = row.get(4);
        let last = last.map(<[u8; 32]>::try_from).transpose();
        let (Ok(id), Ok(last)) = (id, last) else {
            return Err(StoreError::Damaged("an unreadable row of a task".into()));
        };
        let head = Head {
            seq: Seq(row.get::<_, i64>(2) as u64),
            round: row.get::<_, i64>(3) as u32,
            last: last.map(ReleaseHash::from_bytes),
            state: state(row.get::<_, i16>(5).into())?,
        };
        Ok(Self { number: row.get(0), id, head })
    }
}

/// A task, and the server's time.
fn head(session: &mut Lease<'_>, task: &TaskId) -> Result<(TaskRow, SystemTime), StoreError> {
    let (sql, id): (_, &[u8]) = (format!("{HEAD} WHERE id = $1"), task.bytes());
    let row =
        session.wait(async |client| client.query_typed_opt(&sql, &[(&id, Type::BYTEA)]).await)?;
    let row = row.ok_or(StoreError::UnknownTask(*task))?;
    Ok((TaskRow::read(&row)?, row.get(6)))
}

/// Whether there are rows of dropped ids.
fn has_dropped(session: &mut Lease<'_>, task: i32, from: i64) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT FROM incrowd_shuffler.entry WHERE task = $1 AND kind = 0 AND round < $2)";
    let values: [(&(dyn ToSql + Sync), Type); 2] = [(&task, Type::INT4), (&from, Type::INT8)];
    let row = session.wait(async |client| client.query_typed_one(sql, &values).await)?;
    Ok(row.get(0))
}

fn tail(
    session: &mut Lease<'_>,
    task: &TaskId,
    after: Seq,
    max_bytes: usize,
) -> Result<Vec<(Seq, Entry)>, StoreError> {
    let after = i64::try_from(after.0).unwrap_or(i64::MAX);
    let most = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let id: &[u8] = task.bytes();
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&id, Type::BYTEA), (&after, Type::INT8), (&most, Type::INT8)];
    let mut rows = session.wait(async |client| client.query_typed(TAIL, &values).await)?;
    if rows.is_empty() {
        let next = session.wait(async |client| client.query_typed_opt(NEXT, &values[..2]).await)?;
        let Some(next) = next.and_then(|row| row.get::<_, Option<i64>>(0)) else {
            return Ok(Vec::new());
        };
        let after = next - 1;
        let values = [(values[0].0, Type::BYTEA), (&after as _, Type::INT8), values[2].clone()];
        rows = session.wait(async |client| client.query_typed(TAIL, &values).await)?;
    }
    let entry = |row: &Row| {
        let seq = Seq(row.get::<_, i64>(0) as u64);
        let kind: Kind = kind(row.get::<_, i16>(1).into())?;
        let round = row.get::<_, i64>(2) as u32;
        let bytes = checked_at(&place(task.bytes(), seq, kind, round), row.get(3), "an entry")?;
        Ok((seq, Entry { round, kind, bytes }))
    };
    rows.iter().map(entry).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
