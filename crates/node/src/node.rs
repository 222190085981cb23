//! A running node: one role or both, its listeners, and how it ends.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use incrowd_privacy::Certificate;
use incrowd_protocol::{Task, TaskId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    Files, Heads, HttpLimits, Metrics, NodeConfig, ServiceError,
    access::Access,
    admin,
    bandit::{BanditServer, Source},
    heads,
    listener::BoundListener,
    nodes, openapi,
    readiness::Readiness,
    role::{self, Process, Reload, Role as _, Service},
    shuffler::{Shuffler, models_elsewhere},
    signals::Signals,
    startup::{Startup, check_stored_tasks},
    store::Stores,
    tokens::Role,
};

/// Connections that the operator's listener takes.
pub(crate) const OPERATORS: usize = 256;
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
    pub(crate) fn shuffler(self) -> bool {
        self != Self::Bandit
    }

    pub(crate) fn bandit(self) -> bool {
        self != Self::Shuffler
    }
}

/// A running node.
pub struct Node {
    process: Process,
    address: SocketAddr,
    admin_address: SocketAddr,
    tasks: Vec<Task>,
    certificates: Vec<Certificate>,
    new_tokens: Vec<(Role, PathBuf)>,
}

impl Node {
    /// Starts everything, or says what is missing. Both roles together make their own keys and
    /// tokens in a folder that has no tasks yet.
    ///
    /// Everything that can be checked is checked before a file is written; then come keys and
    /// tokens, so that a step that fails later loses none.
    pub fn start(config: &NodeConfig, roles: Roles) -> Result<Self, ServiceError> {
        let config = &config.clone().check()?;
        let files = Files::of(&config.data);
        let mut startup = Startup::check(config, roles, &files)?;
        let tasks = std::mem::take(&mut startup.tasks);
        let certificates = std::mem::take(&mut startup.certificates);
        let issuer = startup.issuer.clone();
        let access = Access::new(files.tokens.clone(), startup.tokens.clone(), issuer)?;
        let metrics = Arc::new(Metrics::default());
        let service = Service {
            config,
            tasks: &tasks,
            certificates: &certificates,
            access: &access,
            metrics: &metrics,
        };
        let elsewhere = models_elsewhere(&service)?;
        let http = limit_connections(config.http);
        let operator = HttpLimits { connections: OPERATORS, ..http };
        let listener = BoundListener::bind("devices", config.listen, http, &metrics)?;
        let admin = BoundListener::bind("admin", config.admin_listen, operator, &metrics)?;
        let addresses = (listener.address, admin.address);

        startup.write(&files)?;
        let (shuffler, bandit) = start_roles(&service, &files, &mut startup)?;
        if let Some(shuffler) = &shuffler {
            let routes = bandit.as_ref().map(|(bandit, _)| bandit.clone().routes());
            shuffler.answer_models(routes.unwrap_or(elsewhere));
        }
        let learner = bandit.as_ref().map(|(bandit, _)| bandit.clone());
        let mut roles: Vec<Arc<dyn role::Role>> = Vec::new();
        roles.extend(shuffler.clone().map(|shuffler| shuffler as Arc<dyn role::Role>));
        roles.extend(learner.clone().map(|bandit| bandit as Arc<dyn role::Role>));
        let tags: Vec<&str> = roles.iter().flat_map(|role| role.tags()).collect();
        let routes = roles.iter().map(|role| role.clone().routes());
        let router = routes.fold(openapi::router(&tags, &access), axum::Router::merge);
        let bounds = listener.bounds.clone();
        bounds.metrics().memory_limit.set(http.memory_bytes as i64);
        let readiness = Readiness::new(roles.clone(), bounds, metrics.clone());
        let asked =
            admin::router(shuffler.clone(), learner, readiness.clone(), &access, metrics.clone());
        let tls = startup.tls;
        tls.iter().for_each(|tls| tls.measure(&metrics));
        let mut read_again: Vec<Arc<dyn Reload>> = vec![access.clone()];
        read_again.extend(tls.clone().map(|tls| tls as Arc<dyn Reload>));
        read_again.extend(shuffler.map(|shuffler| shuffler as Arc<dyn Reload>));
        read_again.extend(bandit.iter().map(|(_, source)| source.clone() as Arc<dyn Reload>));
        let watches = vec![tokio::spawn(readiness.watch()), tokio::spawn(access.follow())];
        let listeners = vec![listener.answer(router, tls.clone()), admin.answer(asked, tls)];
        let process = Process { roles, listeners, files: read_again, watches };
        if let Some((bandit, source)) = bandit {
            bandit.collect(&source);
        }
        let new_tokens = [Role::Device, Role::Admin].map(|role| (role, files.token(role)));
        let new_tokens = new_tokens.into_iter().filter(|(_, path)| path.exists()).collect();
        let (address, admin_address) = addresses;
        Ok(Self { process, address, admin_address, tasks, certificates, new_tokens })
    }

    /// Whether a start would go as far as its listeners, as far as that can be told without
    /// changing anything.
    pub fn check(config: &NodeConfig, roles: Roles) -> Result<(), ServiceError> {
        let config = config.clone().check()?;
        let files = Files::of(&config.data);
        let startup = Startup::check(&config, roles, &files)?;
        let stores = Stores::of(&config)?;
        let shuffler = roles.shuffler().then(|| stores.inspect_shuffler()).transpose()?.flatten();
        let bandit = roles.bandit().then(|| stores.inspect_bandit()).transpose()?.flatten();
        check_stored_tasks(&files, &startup.tasks, shuffler.as_deref(), bandit.as_deref())?;
        if let (Some(shuffler), Some(bandit)) = (&shuffler, &bandit) {
            heads::compare(&**shuffler, &**bandit, &startup.tasks)?;
        }
        if let Some(shuffler) = &shuffler {
            let heads = Heads::load(config.shuffler.heads.as_ref().unwrap_or(&files.heads))?;
            for task in &startup.tasks {
                heads.check(&**shuffler, &task.id())?;
            }
        }
        Ok(())
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

    /// Files with tokens that this start or an earlier one made, for the operator to hand over and
    /// delete.
    pub fn new_tokens(&self) -> &[(Role, PathBuf)] {
        &self.new_tokens
    }

    /// Reads keys, tokens and certificates again; none is taken into use if one is broken.
    pub fn reload(&self) -> Result<(), ServiceError> {
        self.process.reload()
    }

    /// Runs until SIGTERM or SIGINT; SIGHUP reads keys, tokens and certificates again. Then ends
    /// gracefully.
    pub async fn run(self, signals: Signals) {
        self.process.run(signals).await;
    }

    /// Takes no new requests, lets the open ones end, commits what is waiting. An unfinished batch
    /// stays in the store, unreleased.
    pub async fn stop(self) {
        self.process.stop().await;
    }
}

/// What a bandit collects from, beside it.
type Learning = (Arc<BanditServer>, Arc<Source>);

/// Opens the stores, makes sure that they are this service's and starts the roles on them.
fn start_roles(
    service: &Service<'_>,
    files: &Files,
    startup: &mut Startup,
) -> Result<(Option<Arc<Shuffler>>, Option<Learning>), ServiceError> {
    let &Service { config, tasks, .. } = service;
    let (shuffler_keys, bandit_keys) = (startup.shuffler_keys.take(), startup.bandit_keys.take());
    let stores = Stores::of(config)?;
    let shuffler = shuffler_keys.as_ref().map(|_| stores.shuffler()).transpose()?;
    let bandit = bandit_keys.as_ref().map(|_| stores.bandit()).transpose()?;
    // Before anything is counted.
    check_stored_tasks(files, tasks, shuffler.as_deref(), bandit.as_deref())?;
    if let (Some(shuffler), Some(bandit)) = (&shuffler, &bandit) {
        heads::compare(&**shuffler, &**bandit, tasks)?;
    }
    files.keep_tasks(tasks)?;
    let shared = [
        shuffler.as_ref().and_then(|store| store.shared()),
        bandit.as_ref().and_then(|store| store.shared()),
    ];
    for shared in shared.into_iter().flatten() {
        tasks.iter().try_for_each(|task| nodes::keep_last_round(shared, task))?;
    }
    let start = |(store, keys)| Shuffler::start(service, store, keys, files.shuffler_keys.clone());
    let shuffler = shuffler.zip(shuffler_keys).map(start).transpose()?;
    let Some((store, keys)) = bandit.zip(bandit_keys) else { return Ok((shuffler, None)) };
    let bandit = BanditServer::start(service, store, keys)?;
    let own = shuffler.clone().map(|shuffler| Source::process(config, shuffler));
    let source = startup.source.take().or(own);
    let source = source.expect("invariant: a bandit alone has a configured shuffler");
    Ok((shuffler, Some((bandit, Arc::new(source)))))
}

/// The most connections of devices that leave room for stores and the operator among so many open
/// files.
pub fn connections_for(files: usize) -> usize {
    files.saturating_sub(OPERATORS + OTHER_FILES).max(files / 2).max(1)
}

/// Raises the limit of open files as far as this process may, and takes no more connections than
/// leave room for stores and the operator.
pub(crate) fn limit_connections(limits: HttpLimits) -> HttpLimits {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    // None is no limit.
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    let most = connections_for(files);
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
