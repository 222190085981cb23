//! Stores in a PostgreSQL database that any number of nodes share.
//!
//! The database brings transactions, replication and failover; nodes keep nothing that another one
//! needs. `docs/decisions/0011-postgresql.md` says why it is done like this.

mod bandit;
mod database;
mod schema;
mod settings;
mod shuffler;

pub use bandit::PostgresBanditStore;
pub(crate) use settings::PostgresSettings;
pub use shuffler::PostgresShufflerStore;
