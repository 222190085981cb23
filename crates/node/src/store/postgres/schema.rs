//! Tables of a role, and how they came to be.

use incrowd_protocol::TaskId;

use super::database::Lease;
use crate::store::StoreError;

/// Whose tables they are: each role has a schema of its own, so one database can have both.
pub(super) struct Schema {
    pub name: &'static str,
    /// Each brings the tables one version further; the first makes version 1.
    pub migrations: &'static [&'static str],
}

/// The lock that nodes take in turn when they start: `incrowd` as a number.
const STARTING: &str = "SELECT pg_advisory_xact_lock(29682288418615140)";

/// Rows that are removed at once.
const ROWS: u64 = 10_000;

impl Schema {
    /// Brings the tables to the newest version. Nodes that start together do it one after the
    /// other.
    pub fn migrate(&self, session: &mut Lease<'_>) -> Result<(), StoreError> {
        session.wait(async |client| client.batch_execute(&format!("BEGIN; {STARTING}")).await)?;
        let result = self.migrate_locked(session);
        let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = session.wait(async |client| client.batch_execute(end).await);
        result.and(ended)
    }

    fn migrate_locked(&self, session: &mut Lease<'_>) -> Result<(), StoreError> {
        let version = self.version(session)?.unwrap_or(0);
        let name = self.name;
        if version == 0 {
            let sql = format!(
                "CREATE SCHEMA IF NOT EXISTS {name};
                 CREATE TABLE {name}.service (key text PRIMARY KEY, value bytea NOT NULL)"
            );
            session.wait(async |client| client.batch_execute(&sql).await)?;
        }
        for statements in self.migrations.iter().skip(version as usize) {
            session.wait(async |client| client.batch_execute(statements).await)?;
        }
        let sql = format!(
            "INSERT INTO {name}.service VALUES ('version', '{}') ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            self.migrations.len()
        );
        session.wait(async |client| client.batch_execute(&sql).await)
    }

    /// The version of the tables, if there are any and this program knows them.
    pub fn version(&self, session: &mut Lease<'_>) -> Result<Option<i64>, StoreError> {
        let table = format!("{}.service", self.name);
        let sql = format!("SELECT to_regclass('{table}') IS NOT NULL");
        let there: bool =
            session.wait(async |client| client.query_typed_one(&sql, &[]).await)?.get(0);
        if !there {
            return Ok(None);
        }
        let sql = format!("SELECT convert_from(value, 'UTF8') FROM {table} WHERE key = 'version'");
        let row = session.wait(async |client| client.query_typed_opt(&sql, &[]).await)?;
        let version = row.and_then(|row| row.get::<_, &str>(0).parse().ok());
        let version: i64 =
            version.ok_or_else(|| StoreError::Damaged(format!("{table} has no version")))?;
        let known = self.migrations.len() as i64;
        if version > known {
            return Err(StoreError::Newer { found: version, known });
        }
        Ok(Some(version))
    }

    /// Removes a task and its rows of these tables, so many at a time that each statement ends
    /// soon. Whether there was one.
    pub fn purge(
        &self,
        session: &mut Lease<'_>,
        task: &TaskId,
        tables: &[&str],
    ) -> Result<bool, StoreError> {
        let schema = self.name;
        let number = format!("(SELECT number FROM {schema}.task WHERE id = '\\x{task}')");
        for table in tables {
            let sql = format!(
                "DELETE FROM {schema}.{table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {schema}.{table} WHERE task = {number} LIMIT {ROWS}))"
            );
            while session.wait(async |client| client.execute_typed(&sql, &[]).await)? == ROWS {}
        }
        // What nodes told each other of the task has its id in its name.
        let sql = format!("DELETE FROM {schema}.service WHERE key LIKE '%/{task}'");
        session.wait(async |client| client.execute_typed(&sql, &[]).await)?;
        let sql = format!("DELETE FROM {schema}.task WHERE id = '\\x{task}'");
        let removed = session.wait(async |client| client.execute_typed(&sql, &[]).await)?;
        Ok(removed > 0)
    }
}
