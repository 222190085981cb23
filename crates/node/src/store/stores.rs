//! Which stores a service has.

use std::{fmt, path::PathBuf, sync::Arc};

use super::{
    BanditStore, PostgresBanditStore, PostgresSettings, PostgresShufflerStore, ShufflerStore,
    SqliteBanditStore, SqliteShufflerStore, StoreError,
};
use crate::{ConfigError, Files, NodeConfig};

/// Where a service keeps its stores.
#[derive(Clone)]
pub struct Stores(Place);

#[derive(Clone)]
enum Place {
    /// Files in the data folder.
    Files { shuffler: PathBuf, bandit: PathBuf },
    /// A database for any number of nodes.
    Postgres(Box<PostgresSettings>),
}

impl Stores {
    /// Those of the settings.
    pub fn of(config: &NodeConfig) -> Result<Self, ConfigError> {
        let files = Files::of(&config.data);
        Ok(Self(match PostgresSettings::of(config)? {
            Some(settings) => Place::Postgres(Box::new(settings)),
            None => Place::Files { shuffler: files.shuffler_store, bandit: files.bandit_store },
        }))
    }

    /// Opens the shuffler's, or makes it.
    pub fn shuffler(&self) -> Result<Arc<dyn ShufflerStore>, StoreError> {
        Ok(match &self.0 {
            Place::Files { shuffler, .. } => Arc::new(SqliteShufflerStore::open(shuffler)?),
            Place::Postgres(settings) => Arc::new(PostgresShufflerStore::open(settings)?),
        })
    }

    /// Opens the bandit's, or makes it.
    pub fn bandit(&self) -> Result<Arc<dyn BanditStore>, StoreError> {
        Ok(match &self.0 {
            Place::Files { bandit, .. } => Arc::new(SqliteBanditStore::open(bandit)?),
            Place::Postgres(settings) => Arc::new(PostgresBanditStore::open(settings)?),
        })
    }

    /// The shuffler's, to be looked at, also while a service uses it; none if there is none.
    pub fn inspect_shuffler(&self) -> Result<Option<Arc<dyn ShufflerStore>>, StoreError> {
        Ok(match &self.0 {
            Place::Files { shuffler, .. } if !shuffler.exists() => None,
            Place::Files { shuffler, .. } => {
                Some(Arc::new(SqliteShufflerStore::inspect(shuffler)?))
            }
            Place::Postgres(settings) => PostgresShufflerStore::inspect(settings)?
                .map(|store| Arc::new(store) as Arc<dyn ShufflerStore>),
        })
    }

    /// The bandit's, to be looked at, also while a service uses it; none if there is none.
    pub fn inspect_bandit(&self) -> Result<Option<Arc<dyn BanditStore>>, StoreError> {
        Ok(match &self.0 {
            Place::Files { bandit, .. } if !bandit.exists() => None,
            Place::Files { bandit, .. } => Some(Arc::new(SqliteBanditStore::inspect(bandit)?)),
            Place::Postgres(settings) => PostgresBanditStore::inspect(settings)?
                .map(|store| Arc::new(store) as Arc<dyn BanditStore>),
        })
    }

    /// The database, if it is one that nodes share.
    pub fn database(&self) -> Option<String> {
        match &self.0 {
            Place::Files { .. } => None,
            Place::Postgres(settings) => Some(settings.describe()),
        }
    }
}

impl fmt::Display for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Files { shuffler, bandit } => {
                write!(f, "{} and {}", shuffler.display(), bandit.display())
            }
            Place::Postgres(settings) => write!(f, "{}", settings.describe()),
        }
    }
}
