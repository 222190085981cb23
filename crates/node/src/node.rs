//! A running node: one role or both, its listeners, and how it ends.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use incrowd_protocol::{Task, TaskConfig, TaskId, VerificationKeys};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use crate::{
    KeyRole, Keys, Metrics, NodeConfig, ServiceError, admin,
    bandit::BanditServer,
    http::finished,
    listener::Listener,
    openapi,
    shuffler::Shuffler,
    signals::{Signals, Told},
    store::{SqliteBanditStore, SqliteShufflerStore},
    tls,
    tokens::{Role, Tokens},
};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// Takes reports, releases sums.
    Shuffler,
    /// Collects sums, publishes models.
    Bandit,
    /// Both in one process: simpler to run, but who reads this machine's memory sees both sides.
    Both,
}

impl Roles {
    fn shuffler(self) -> bool {
        self != Self::Bandit
    }

    fn bandit(self) -> bool {
        self != Self::Shuffler
    }
}

/// Where a node keeps what it needs.
pub struct Files {
    /// The shuffler's keys.
    pub shuffler_keys: PathBuf,
    /// The bandit's keys.
    pub bandit_keys: PathBuf,
    /// Hashes of the tokens.
    pub tokens: PathBuf,
    /// The shuffler's store.
    pub shuffler_store: PathBuf,
    /// The bandit's store.
    pub bandit_store: PathBuf,
}

impl Files {
    /// The files of a data folder.
    pub fn of(data: &Path) -> Self {
        Self {
            shuffler_keys: data.join("shuffler.keys"),
            bandit_keys: data.join("bandit.keys"),
            tokens: data.join("tokens.toml"),
            shuffler_store: data.join("shuffler.db"),
            bandit_store: data.join("bandit.db"),
        }
    }

    /// The keys of a role.
    pub fn keys(&self, role: KeyRole) -> &Path {
        match role {
            KeyRole::Shuffler => &self.shuffler_keys,
            KeyRole::Bandit => &self.bandit_keys,
        }
    }
}

/// A running node.
pub struct Node {
    listener: Listener,
    admin: Listener,
    shuffler: Option<Arc<Shuffler>>,
    bandit: Option<Arc<BanditServer>>,
    collectors: JoinSet<()>,
    tasks: Vec<Task>,
    files: Files,
    new_tokens: Vec<(Role, Zeroizing<String>)>,
}

impl Node {
    /// Starts everything, or says what is missing. Both roles together make their own keys and tokens when there are none.
    pub fn start(config: &NodeConfig, roles: Roles) -> Result<Self, ServiceError> {
        let config = &config.clone().check()?;
        let failed = |error| ServiceError::File { path: config.data.clone(), error };
        fs::create_dir_all(&config.data).map_err(failed)?;
        let files = Files::of(&config.data);
        let both = roles == Roles::Both;
        let keys = |role| {
            let path = files.keys(role);
            if both { Keys::load_or_create(path, role) } else { Keys::load(path, role) }
        };
        let shuffler_keys = roles.shuffler().then(|| keys(KeyRole::Shuffler)).transpose()?;
        let bandit_keys = roles.bandit().then(|| keys(KeyRole::Bandit)).transpose()?;
        let own = match (&shuffler_keys, &bandit_keys) {
            (Some(shuffler), Some(bandit)) => Some(VerificationKeys {
                shuffler: shuffler.verification_key(),
                bandit: bandit.verification_key(),
            }),
            _ => None,
        };
        let tasks: Vec<Task> =
            config.tasks.iter().map(|path| load_task(path, own)).collect::<Result<_, _>>()?;
        if tasks.is_empty() {
            return Err(ServiceError::NoTask);
        }
        let (mut tokens, new_tokens) = tokens(&files, both)?;
        let collector_token = match (&config.bandit.token_file, both) {
            // Within one process nobody else needs to know it.
            (_, true) => Some(tokens.add(Role::Bandit)?),
            (Some(path), false) => Some(read_token(path)?),
            (None, false) => None,
        };
        let tokens = Arc::new(tokens);
        let metrics = Arc::new(Metrics::default());
        let shuffler = match shuffler_keys {
            None => None,
            Some(keys) => {
                let store = Arc::new(SqliteShufflerStore::open(&files.shuffler_store)?);
                Some(Shuffler::start(
                    config,
                    tasks.clone(),
                    store,
                    keys,
                    tokens.clone(),
                    metrics.clone(),
                )?)
            }
        };
        let bandit = match bandit_keys {
            None => None,
            Some(keys) => {
                let store = Arc::new(SqliteBanditStore::open(&files.bandit_store)?);
                Some(BanditServer::start(
                    config,
                    tasks.clone(),
                    store,
                    keys,
                    tokens.clone(),
                    metrics.clone(),
                )?)
            }
        };

        let tls = config.tls.as_ref().map(tls::server).transpose()?;
        let (mut router, mut tags) = (axum::Router::new(), Vec::new());
        if let Some(shuffler) = &shuffler {
            router = router.merge(shuffler.router());
            tags.push("shuffler");
            tags.extend(config.shuffler.gateway.then_some("gateway"));
        }
        if let Some(bandit) = &bandit {
            router = router.merge(bandit.router());
            tags.push("bandit");
        }
        let router = router.merge(openapi::router(&tags, &tokens));
        let router = finished(router, config.http, metrics.clone());
        let listener = Listener::start(config.listen, router, tls.clone(), config.http)?;
        let admin = admin::router(shuffler.clone(), bandit.clone(), &tokens, config.http, metrics);
        let admin = Listener::start(config.admin_listen, admin, tls, config.http)?;

        let collectors = match &bandit {
            None => JoinSet::new(),
            Some(bandit) => {
                let token = collector_token.ok_or(ServiceError::NoToken)?;
                let mut config = config.clone();
                if both {
                    let scheme = if config.tls.is_some() { "https" } else { "http" };
                    config.bandit.shuffler_url = format!("{scheme}://{}", listener.address);
                    // The node trusts its own certificate.
                    config.bandit.shuffler_ca =
                        config.tls.as_ref().map(|tls| tls.certificate.clone());
                }
                bandit.collect(&config, &token)?
            }
        };
        Ok(Self { listener, admin, shuffler, bandit, collectors, tasks, files, new_tokens })
    }

    /// Where devices come.
    pub fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// Where the operator comes.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address
    }

    /// The tasks that are served.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.iter().map(Task::id)
    }

    /// Tokens that were made at this start; only now can they be shown.
    pub fn new_tokens(&self) -> &[(Role, Zeroizing<String>)] {
        &self.new_tokens
    }

    /// Reads the shuffler's key file again.
    pub fn reload_keys(&self) -> Result<(), ServiceError> {
        if let Some(shuffler) = &self.shuffler {
            shuffler.reload_keys(Keys::load(&self.files.shuffler_keys, KeyRole::Shuffler)?)?;
        }
        Ok(())
    }

    /// Runs until SIGTERM or SIGINT; SIGHUP reads the keys again. Then ends gracefully.
    pub async fn run(self, mut signals: Signals) {
        while let Told::Reload = signals.next().await {
            match self.reload_keys() {
                Ok(()) => tracing::info!("keys are read again"),
                Err(error) => tracing::error!(%error, "the keys stay as they were"),
            }
        }
        tracing::info!("stopping: no new requests, open ones end");
        self.stop().await;
    }

    /// Takes no new requests, lets the open ones end, commits what is waiting. An unfinished batch stays in the store, unreleased.
    pub async fn stop(mut self) {
        self.collectors.shutdown().await;
        self.shuffler.iter().for_each(|shuffler| shuffler.stopping.now());
        self.bandit.iter().for_each(|bandit| bandit.stopping.now());
        self.listener.stop().await;
        self.admin.stop().await;
        if let Some(shuffler) = self.shuffler {
            // Waits for the last commit.
            let _ = tokio::task::spawn_blocking(move || shuffler.stop()).await;
        }
        drop(self.bandit);
    }
}

/// Reads a task file. One without keys is completed with the node's own, when it has both.
pub fn load_task(path: &Path, own: Option<VerificationKeys>) -> Result<Task, ServiceError> {
    let text = fs::read_to_string(path)
        .map_err(|error| ServiceError::File { path: path.to_owned(), error })?;
    let wrong = |message: String| ServiceError::TaskFile { path: path.to_owned(), message };
    let table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match own {
        Some(keys) if !table.contains_key("keys") => {
            let config: TaskConfig =
                toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            Ok(Task::new(config, keys))
        }
        None if !table.contains_key("keys") => {
            Err(wrong("it has no [keys]: complete it with `incrowd task new`".into()))
        }
        _ => toml::from_str(&text).map_err(|error| wrong(error.to_string())),
    }
}

type NewTokens = Vec<(Role, Zeroizing<String>)>;

fn tokens(files: &Files, create: bool) -> Result<(Tokens, NewTokens), ServiceError> {
    if files.tokens.exists() {
        return Ok((Tokens::load(&files.tokens)?, Vec::new()));
    }
    let (mut tokens, mut new) = (Tokens::default(), Vec::new());
    if create {
        for role in [Role::Device, Role::Admin] {
            new.push((role, tokens.add(role)?));
        }
        tokens.save(&files.tokens)?;
    } else {
        tracing::warn!("there are no tokens: make some with `incrowd keys token`");
    }
    Ok((tokens, new))
}

/// The token in a file, without the line's end.
pub fn read_token(path: &Path) -> Result<Zeroizing<String>, ServiceError> {
    let text = fs::read_to_string(path)
        .map_err(|error| ServiceError::File { path: path.to_owned(), error })?;
    Ok(Zeroizing::new(Zeroizing::new(text).trim().to_owned()))
}
