//! A running node: one role or both, its listeners, and how it ends.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use incrowd_privacy::Certificate;
use incrowd_protocol::{Task, TaskId, VerificationKeys};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zeroize::Zeroizing;

use crate::{
    HttpLimits, KeyRole, Keys, Metrics, NodeConfig, ServiceError, StoreError, admin,
    bandit::{BanditServer, Source},
    heads,
    listener::Listener,
    openapi,
    readiness::Readiness,
    role::{self, Process, Service},
    shuffler::Shuffler,
    signals::Signals,
    store::{SqliteBanditStore, SqliteShufflerStore},
    task_file::{check_distinct, load_task},
    tls,
    tokens::{Role, Tokens},
};

/// Connections that the operator's listener takes.
const OPERATORS: usize = 256;
/// Files that are no connection of a device or operator: stores, keys, connections to others.
const OTHER_FILES: usize = 64;

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
    /// The last release of every task, if `shuffler.heads` names no other file.
    pub heads: PathBuf,
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
            heads: data.join("heads.json"),
        }
    }

    /// The keys of a role.
    pub fn keys(&self, role: KeyRole) -> &Path {
        match role {
            KeyRole::Shuffler => &self.shuffler_keys,
            KeyRole::Bandit => &self.bandit_keys,
        }
    }

    /// The complete files of tasks that were served.
    pub(crate) fn tasks(&self) -> PathBuf {
        self.shuffler_keys.with_file_name("tasks")
    }
}

/// A running node.
pub struct Node {
    process: Process,
    address: SocketAddr,
    admin_address: SocketAddr,
    tasks: Vec<Task>,
    certificates: Vec<Certificate>,
    new_tokens: NewTokens,
}

impl Node {
    /// Starts everything, or says what is missing. Both roles together make their own keys and
    /// tokens when there are none.
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
        check_distinct(&tasks, &config.tasks)?;
        // Once: it takes seconds for many stages.
        let admitted: Result<Vec<Certificate>, _> =
            tasks.iter().map(|task| config.limits.admit(task)).collect();
        let certificates = admitted?;
        let (tokens, new_tokens) = tokens(&files, both)?;
        let (tokens, metrics) = (Arc::new(tokens), Arc::new(Metrics::default()));
        let service = Service {
            config,
            tasks: &tasks,
            certificates: &certificates,
            tokens: &tokens,
            metrics: &metrics,
        };
        let shuffler = shuffler_keys
            .map(|keys| {
                Ok::<_, StoreError>((SqliteShufflerStore::open(&files.shuffler_store)?, keys))
            })
            .transpose()?;
        let bandit = bandit_keys
            .map(|keys| Ok::<_, StoreError>((SqliteBanditStore::open(&files.bandit_store)?, keys)))
            .transpose()?;
        if let (Some((shuffler, _)), Some((bandit, _))) = (&shuffler, &bandit) {
            // Before anything is counted.
            heads::compare(shuffler, bandit, &tasks)?;
        }
        let shuffler = shuffler
            .map(|(store, keys)| {
                Shuffler::start(&service, Arc::new(store), keys, files.shuffler_keys.clone())
            })
            .transpose()?;
        let learning = match bandit {
            None => None,
            Some((store, keys)) => {
                let source = Source::new(config, shuffler.as_ref())?;
                Some((BanditServer::start(&service, Arc::new(store), keys)?, source))
            }
        };
        let bandit = learning.as_ref().map(|(bandit, _)| bandit.clone());
        if let Some(shuffler) = &shuffler {
            shuffler.answer_models(&service, bandit.as_ref())?;
        }
        let mut roles: Vec<Arc<dyn role::Role>> = Vec::new();
        roles.extend(shuffler.clone().map(|shuffler| shuffler as Arc<dyn role::Role>));
        roles.extend(bandit.clone().map(|bandit| bandit as Arc<dyn role::Role>));

        let tls = config.tls.as_ref().map(tls::server).transpose()?;
        let tags: Vec<&str> = roles.iter().flat_map(|role| role.tags()).collect();
        let routes = roles.iter().map(|role| role.clone().routes());
        let router = routes.fold(openapi::router(&tags, &tokens), axum::Router::merge);
        let http = limit_connections(config.http);
        let (devices, operator) = (config.listen, config.admin_listen);
        let listener = Listener::start("devices", devices, router, tls.clone(), http, &metrics)?;
        let bounds = listener.bounds.clone();
        bounds.metrics().memory_limit.set(http.memory_bytes as i64);
        let readiness = Readiness::new(roles.clone(), bounds, metrics.clone());
        let admin = admin::router(shuffler, bandit, readiness.clone(), &tokens, metrics.clone());
        let http = HttpLimits { connections: OPERATORS, ..http };
        let admin = Listener::start("admin", operator, admin, tls, http, &metrics)?;
        let (address, admin_address) = (listener.address, admin.address);
        let watch = Some(tokio::spawn(readiness.watch()));
        let process = Process { roles, listeners: vec![listener, admin], watch };
        if !new_tokens.is_empty() {
            // Last: a start that fails must not keep the hashes of tokens that nobody saw.
            tokens.save(&files.tokens)?;
        }
        if let Some((bandit, source)) = learning {
            bandit.collect(source);
        }
        Ok(Self { process, address, admin_address, tasks, certificates, new_tokens })
    }

    /// Where devices come.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the operator comes.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The tasks that are served.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.iter().map(Task::id)
    }

    /// What the tasks guarantee.
    pub fn guarantees(&self) -> impl Iterator<Item = (TaskId, &Certificate)> {
        self.tasks().zip(&self.certificates)
    }

    /// Tokens that were made at this start; only now can they be shown.
    pub fn new_tokens(&self) -> &[(Role, Zeroizing<String>)] {
        &self.new_tokens
    }

    /// Reads the shuffler's key file again.
    pub fn reload_keys(&self) -> Result<(), ServiceError> {
        self.process.reload()
    }

    /// Runs until SIGTERM or SIGINT; SIGHUP reads the keys again. Then ends gracefully.
    pub async fn run(self, signals: Signals) {
        self.process.run(signals).await;
    }

    /// Takes no new requests, lets the open ones end, commits what is waiting. An unfinished batch
    /// stays in the store, unreleased.
    pub async fn stop(self) {
        self.process.stop().await;
    }
}

/// Raises the limit of open files as far as this process may, and takes no more connections than
/// leave room for stores and the operator.
fn limit_connections(limits: HttpLimits) -> HttpLimits {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    // None is no limit.
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    let most = files.saturating_sub(OPERATORS + OTHER_FILES).max(files / 2).max(1);
    if limits.connections > most {
        tracing::warn!(
            files,
            connections = most,
            "fewer connections than http.connections: raise the limit of open files (LimitNOFILE)"
        );
    } else {
        tracing::info!(files, connections = limits.connections, "open files and connections");
    }
    HttpLimits { connections: limits.connections.min(most), ..limits }
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
    } else {
        tracing::warn!("there are no tokens: make some with `incrowd keys token`");
    }
    Ok((tokens, new))
}

/// The token in a file, without the line's end.
pub fn read_token(path: &Path) -> Result<Zeroizing<String>, ServiceError> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ServiceError::NoTokenFile(path.to_owned()),
        _ => ServiceError::File { path: path.to_owned(), error },
    })?;
    Ok(Zeroizing::new(Zeroizing::new(text).trim().to_owned()))
}
