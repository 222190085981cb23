use incrowd_bandit::Statistics;
use incrowd_protocol::{Task, TaskId};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    database::{Database, Durable, Lease, barrier},
    schema::Schema,
    settings::PostgresSettings,
};
use crate::store::{
    Absorbed, BanditStore, Learned, Position, ReleaseHash, Shared, Step, StoreError, StoredModel,
    models_before,
    rows::{checked, with_checksum},
};

pub(super) const SCHEMA: Schema = Schema {
    name: "incrowd_bandit",
    migrations: &[
        "CREATE TABLE incrowd_bandit.task (number int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, id bytea NOT NULL UNIQUE, round bigint NOT NULL DEFAULT 0, last bytea, models bigint NOT NULL DEFAULT 0, statistics bytea);
         CREATE TABLE incrowd_bandit.release (task int NOT NULL REFERENCES incrowd_bandit.task, round bigint NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (task, round));
         CREATE TABLE incrowd_bandit.model (task int NOT NULL REFERENCES incrowd_bandit.task, version bigint NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (task, version));",
    ],
};

const TASK: &str = "SELECT round, last, models, statistics FROM incrowd_bandit.task WHERE id = $1";
/// Moves a task on, if it is where the step says.
const STEP: &str =
    "UPDATE incrowd_bandit.task SET round = $2, last = $3, models = $4, statistics = $5
    WHERE id = $1 AND round = $6 AND last IS NOT DISTINCT FROM $7 AND models = $8 RETURNING number";
/// A task that was learned elsewhere.
const IMPORT: &str = "INSERT INTO incrowd_bandit.task (id, round, last, models, statistics) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id) DO UPDATE SET round = excluded.round, last = excluded.last, models = excluded.models, statistics = excluded.statistics RETURNING number";
const RELEASE: &str = "INSERT INTO incrowd_bandit.release (task, round, bytes) VALUES ($1, $2, $3)";
const MODEL: &str = "INSERT INTO incrowd_bandit.model (task, version, bytes) VALUES ($1, $2, $3)";

/// The bandit's memory in a PostgreSQL database, which any number of processes use.
pub struct PostgresBanditStore {
    database: Database,
    /// Models of which a client can be told.
    durable: Durable,
}

impl PostgresBanditStore {
    /// Connects, and makes the tables or brings them to the newest version.
    pub(crate) fn open(settings: &PostgresSettings) -> Result<Self, StoreError> {
        let store =
            Self { database: Database::new(settings, SCHEMA.name)?, durable: Durable::default() };
        SCHEMA.migrate(&mut store.database.session()?)?;
        Ok(store)
    }

    /// Connects to look at it; none if there are no tables.
    pub(crate) fn inspect(settings: &PostgresSettings) -> Result<Option<Self>, StoreError> {
        let store =
            Self { database: Database::new(settings, SCHEMA.name)?, durable: Durable::default() };
        let version = SCHEMA.version(&mut store.database.session()?)?;
        Ok(version.map(|_| store))
    }

    /// Moves a task on, with a release and a model if there are some, if it is where this says.
    fn step(
        &self,
        task: &TaskId,
        from: Position,
        release: Option<&[u8]>,
        statistics: &Statistics,
        model: Option<&StoredModel>,
    ) -> Result<(), StoreError> {
        let name = |release: Option<ReleaseHash>| release.map(|hash| hash.bytes().to_vec());
        let (last, new) = (name(from.last), name(release.map(ReleaseHash::of).or(from.last)));
        let (before, after) = (i64::from(from.round), i64::from(statistics.round()));
        let (known, models) = (from.models as i64, i64::from(statistics.models()));
        let (id, statistics): (&[u8], _) = (task.bytes(), written(statistics));
        let moved: [(&(dyn ToSql + Sync), Type); 8] = [
            (&id, Type::BYTEA),
            (&after, Type::INT8),
            (&new, Type::BYTEA),
            (&models, Type::INT8),
            (&statistics, Type::BYTEA),
            (&before, Type::INT8),
            (&last, Type::BYTEA),
            (&known, Type::INT8),
        ];
        let mut session = self.database.session()?;
        let stepped = session.transaction(|session| {
            let row = session.wait(async |client| client.query_typed_opt(STEP, &moved).await)?;
            let Some(row) = row else {
                // Another node was first, or this is another history.
                from.check(&Found::read(session, task)?.position)?;
                return Err(StoreError::Busy);
            };
            let number: i32 = row.get(0);
            if let Some(release) = release {
                write_release(session, number, after, release)?;
            }
            model.map_or(Ok(()), |model| write_model(session, number, model))
        });
        if matches!(stepped, Err(StoreError::Locked)) {
            self.database.end_stopped()?;
        }
        stepped?;
        if let Some(model) = model {
            self.durable.add(&session, *task, model.version);
        }
        Ok(())
    }

    fn models_of(
        &self,
        sql: &str,
        task: &TaskId,
    ) -> Result<(Lease<'_>, Vec<StoredModel>), StoreError> {
        let id: &[u8] = task.bytes();
        let mut session = self.database.session()?;
        let rows =
            session.wait(async |client| client.query_typed(sql, &[(&id, Type::BYTEA)]).await)?;
        let model = |row: &Row| {
            let (version, bytes) = (row.get::<_, i64>(0) as u64, row.get(1));
            Ok(StoredModel { version, bytes: checked(bytes, "a model")? })
        };
        let models = rows.iter().map(model).collect::<Result<_, StoreError>>()?;
        Ok((session, models))
    }
}

impl BanditStore for PostgresBanditStore {
    fn open(&self, task: &Task) -> Result<Option<Absorbed>, StoreError> {
        let sql = "INSERT INTO incrowd_bandit.task (id) VALUES ($1) ON CONFLICT DO NOTHING";
        let task = task.id();
        let id: &[u8] = task.bytes();
        let mut session = self.database.session()?;
        session.wait(async |client| client.execute_typed(sql, &[(&id, Type::BYTEA)]).await)?;
        let Found { position: Position { last, .. }, statistics } =
            Found::read(&mut session, &task)?;
        let Some(stored) = statistics else { return Ok(None) };
        let bytes = checked(stored, "the statistics")?;
        let damaged = |error: serde_json::Error| StoreError::Damaged(error.to_string());
        let statistics = serde_json::from_slice(&bytes).map_err(damaged)?;
        Ok(Some(Absorbed { statistics, last }))
    }

    fn publish(
        &self,
        task: &TaskId,
        statistics: &Statistics,
        model: &StoredModel,
    ) -> Result<(), StoreError> {
        let stored = Found::read(&mut self.database.session()?, task)?.position;
        let models = models_before(statistics, Some(model));
        let from = Position { round: statistics.round(), models, ..stored };
        from.check(&stored)?;
        self.step(task, from, None, statistics, Some(model))
    }

    fn absorb(&self, task: &TaskId, step: &Step<'_>) -> Result<(), StoreError> {
        let from = step.before();
        from.check(&Found::read(&mut self.database.session()?, task)?.position)?;
        self.step(task, from, Some(step.release), step.statistics, step.model)
    }

    fn model(&self, task: &TaskId) -> Result<Option<StoredModel>, StoreError> {
        let sql = "SELECT version, bytes FROM incrowd_bandit.model JOIN incrowd_bandit.task ON task = number WHERE id = $1 ORDER BY version DESC LIMIT 1";
        let (mut session, mut models) = self.models_of(sql, task)?;
        let Some(model) = models.pop() else { return Ok(None) };
        if !self.durable.has(&session, *task, model.version) {
            // Another node's commit can be visible before a standby has it.
            barrier(&mut session)?;
            self.durable.add(&session, *task, model.version);
        }
        Ok(Some(model))
    }

    fn models(&self, task: &TaskId) -> Result<Vec<StoredModel>, StoreError> {
        let sql = "SELECT version, bytes FROM incrowd_bandit.model JOIN incrowd_bandit.task ON task = number WHERE id = $1 ORDER BY version";
        Ok(self.models_of(sql, task)?.1)
    }

    fn releases(&self, task: &TaskId) -> Result<Vec<(u32, Vec<u8>)>, StoreError> {
        let sql = "SELECT release.round, bytes FROM incrowd_bandit.release JOIN incrowd_bandit.task ON task = number WHERE id = $1 ORDER BY release.round";
        let id: &[u8] = task.bytes();
        let mut session = self.database.session()?;
        let rows =
            session.wait(async |client| client.query_typed(sql, &[(&id, Type::BYTEA)]).await)?;
        let release =
            |row: &Row| Ok((row.get::<_, i64>(0) as u32, checked(row.get(1), "a release")?));
        rows.iter().map(release).collect()
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.database.check_writable()
    }

    fn tasks(&self) -> Result<Vec<(TaskId, u32)>, StoreError> {
        let sql = "SELECT id, round FROM incrowd_bandit.task ORDER BY id";
        let mut session = self.database.session()?;
        let rows = session.wait(async |client| client.query_typed(sql, &[]).await)?;
        let damaged = |_| StoreError::Damaged("an unreadable task id".into());
        let task = |row: &Row| {
            let id = hex::encode(row.get::<_, &[u8]>(0)).parse().map_err(damaged)?;
            Ok((id, row.get::<_, i64>(1) as u32))
        };
        rows.iter().map(task).collect()
    }

    fn import(&self, task: &TaskId, learned: &Learned) -> Result<(), StoreError> {
        if learned.is_known(task, &self.releases(task)?, self.models(task)?.len())? {
            return Ok(());
        }
        let id: &[u8] = task.bytes();
        let (round, last) = learned.absorbed.as_ref().map_or((0, None), |absorbed| {
            let last = absorbed.last.map(|last| last.bytes().to_vec());
            (i64::from(absorbed.statistics.round()), last)
        });
        let statistics = learned.absorbed.as_ref().map(|absorbed| written(&absorbed.statistics));
        let models = learned.models.last().map_or(0, |model| model.version as i64);
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&id, Type::BYTEA),
            (&round, Type::INT8),
            (&last, Type::BYTEA),
            (&models, Type::INT8),
            (&statistics, Type::BYTEA),
        ];
        self.database.session()?.transaction(|session| {
            let row = session.wait(async |client| client.query_typed_one(IMPORT, &values).await)?;
            let number: i32 = row.get(0);
            for (round, body) in &learned.releases {
                write_release(session, number, (*round).into(), body)?;
            }
            learned.models.iter().try_for_each(|model| write_model(session, number, model))
        })
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        SCHEMA.purge(&mut self.database.session()?, task, &["release", "model"])
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(&self.database)
    }
}

fn written(statistics: &Statistics) -> Vec<u8> {
    let bytes = serde_json::to_vec(statistics)
        .expect("invariant: statistics are numbers, which can always be written");
    with_checksum(bytes)
}

fn write_release(
    session: &mut Lease<'_>,
    number: i32,
    round: i64,
    body: &[u8],
) -> Result<(), StoreError> {
    let bytes = with_checksum(body.to_vec());
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&number, Type::INT4), (&round, Type::INT8), (&bytes, Type::BYTEA)];
    session.wait(async |client| client.execute_typed(RELEASE, &values).await)?;
    Ok(())
}

fn write_model(
    session: &mut Lease<'_>,
    number: i32,
    model: &StoredModel,
) -> Result<(), StoreError> {
    let (version, bytes) = (model.version as i64, with_checksum(model.bytes.clone()));
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&number, Type::INT4), (&version, Type::INT8), (&bytes, Type::BYTEA)];
    session.wait(async |client| client.execute_typed(MODEL, &values).await)?;
    Ok(())
}

/// A task in the database.
struct Found {
    position: Position,
    statistics: Option<Vec<u8>>,
}

impl Found {
    fn read(session: &mut Lease<'_>, task: &TaskId) -> Result<Self, StoreError> {
        let id: &[u8] = task.bytes();
        let row = session
            .wait(async |client| client.query_typed_opt(TASK, &[(&id, Type::BYTEA)]).await)?;
        let row = row.ok_or(StoreError::UnknownTask(*task))?;
        let last: Option<&[u8]> = row.get(1);
        let last = last.map(<[u8; 32]>::try_from).transpose();
        let damaged = |_| StoreError::Damaged("an unreadable row of a task".into());
        let (round, models) = (row.get::<_, i64>(0) as u32, row.get::<_, i64>(2) as u64);
        let last = last.map_err(damaged)?.map(ReleaseHash::from_bytes);
        Ok(Self { position: Position { round, last, models }, statistics: row.get(3) })
    }
}
