//! Databases on a PostgreSQL server of this process.

use std::{
    path::PathBuf,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use incrowd_node::{
    NodeConfig, StoreKind,
    store::{BanditStore, ShufflerStore, Stores},
};
use incrowd_testdb::Server;

/// It ends with the process.
static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(&["max_connections = 500"]));
/// Databases that were used, and are empty again.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Where the server's files are.
pub fn data_of_server() -> PathBuf {
    SERVER.data()
}

/// A database with the tables of both roles and nothing in them.
pub struct Database {
    /// The setting of a node that uses it.
    pub url: String,
    name: String,
    /// Another server than that of this process.
    server: Option<Arc<Server>>,
}

impl Database {
    pub fn take() -> Self {
        let free = FREE.lock().unwrap().pop();
        let name = free.unwrap_or_else(|| {
            let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
            SERVER.create(&name);
            name
        });
        let database = Self { url: SERVER.url(&name), name, server: None };
        // Makes the tables.
        drop((database.shuffler(), database.bandit()));
        database
    }

    /// A new one on another server.
    pub fn on(server: Arc<Server>, name: &str) -> Self {
        Self { url: server.create(name), name: name.into(), server: Some(server) }
    }

    /// Connects as a new process would.
    pub fn shuffler(&self) -> Arc<dyn ShufflerStore> {
        self.stores().shuffler().unwrap()
    }

    pub fn bandit(&self) -> Arc<dyn BanditStore> {
        self.stores().bandit().unwrap()
    }

    fn stores(&self) -> Stores {
        let store = StoreKind::Postgres(self.url.clone());
        Stores::of(&NodeConfig { store, ..NodeConfig::default() }).unwrap()
    }

    /// What a statement answers.
    pub fn sql(&self, statement: &str) -> String {
        self.server.as_deref().unwrap_or(&SERVER).sql(&self.name, statement)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.server.is_some() || std::thread::panicking() {
            return;
        }
        self.sql(
            "DELETE FROM incrowd_shuffler.entry; DELETE FROM incrowd_shuffler.release;
             DELETE FROM incrowd_shuffler.task; DELETE FROM incrowd_bandit.release;
             DELETE FROM incrowd_bandit.model; DELETE FROM incrowd_bandit.task;
             DELETE FROM incrowd_shuffler.service WHERE key <> 'version';
             DELETE FROM incrowd_bandit.service WHERE key <> 'version'",
        );
        FREE.lock().unwrap().push(std::mem::take(&mut self.name));
    }
}
