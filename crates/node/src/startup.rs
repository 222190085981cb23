//! What a start reads and checks before it writes anything, and what it writes then.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use incrowd_privacy::Certificate;
use incrowd_protocol::{Task, TaskId, VerificationKeys};

use crate::{
    AdmissionKind, Files, Issuer, KeyRole, Keys, NodeConfig, Roles, ServiceError,
    bandit::Source,
    files::failed,
    nodes, shuffler,
    store::{BanditStore, Shared, ShufflerStore, StoreError, Stores, TaskState},
    task_file::{check_distinct, load_task},
    tls::Tls,
    tokens::{NewTokens, Role, Tokens, read_token, write_token},
};

/// Everything that a start needs and that is not in a store.
pub(crate) struct Startup {
    pub shuffler_keys: Option<Keys>,
    pub bandit_keys: Option<Keys>,
    pub tasks: Vec<Task>,
    pub certificates: Vec<Certificate>,
    pub tokens: Tokens,
    /// What tokens of single devices are made with, where they are taken.
    pub issuer: Option<PathBuf>,
    pub tls: Option<Arc<Tls>>,
    /// Where a bandit collects, if its shuffler is another process.
    pub source: Option<Source>,
    /// Keys that are not written yet.
    new_keys: Vec<KeyRole>,
    /// Tokens that are not written yet.
    new_tokens: NewTokens,
    /// Whether there are hashes to be written.
    new_hashes: bool,
}

impl Startup {
    /// Reads and checks what there is. Both roles together get the keys and tokens that a new
    /// folder does not have; nothing is written.
    pub fn check(config: &NodeConfig, roles: Roles, files: &Files) -> Result<Self, ServiceError> {
        let both = roles == Roles::Both;
        let stores = Stores::of(config)?;
        let mut new_keys = Vec::new();
        let mut keys = |role: KeyRole| {
            let path = files.keys(role);
            if path.exists() {
                return Ok::<_, ServiceError>(Keys::load(path, role)?);
            }
            let has_tasks = has_tasks(&stores)?;
            if !both || has_tasks {
                return Err(ServiceError::no_keys(files, role, has_tasks));
            }
            new_keys.push(role);
            Ok(Keys::generate(path, role)?)
        };
        let shuffler_keys = roles.shuffler().then(|| keys(KeyRole::Shuffler)).transpose()?;
        let bandit_keys = roles.bandit().then(|| keys(KeyRole::Bandit)).transpose()?;
        let shuffler_key = shuffler_keys.as_ref().map(Keys::verification_key);
        let bandit_key = bandit_keys.as_ref().map(Keys::verification_key);
        let own = shuffler_key.zip(bandit_key);
        let own = own.map(|(shuffler, bandit)| VerificationKeys { shuffler, bandit });
        if config.tasks.is_empty() {
            return Err(ServiceError::NoTask);
        }
        let load = |path: &Path| {
            let task = load_task(path, own)?;
            let VerificationKeys { shuffler, bandit } = *task.keys();
            let other = |role| Err(ServiceError::OtherKey { task: task.id(), role });
            if shuffler_key.is_some_and(|key| key != shuffler) {
                return other("shuffler");
            }
            if bandit_key.is_some_and(|key| key != bandit) {
                return other("bandit");
            }
            Ok(task)
        };
        let tasks = config.tasks.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
        check_distinct(&tasks, &config.tasks)?;
        // Once: it takes seconds for many stages.
        let certificates =
            tasks.iter().map(|task| config.limits.admit(task)).collect::<Result<_, _>>()?;
        let by_device = config.shuffler.admission == AdmissionKind::DeviceTokens;
        let (tokens, new_tokens) = tokens(files, &stores, both, by_device)?;
        let issuer = (roles.shuffler() && by_device).then(|| files.issuer.clone());
        if let Some(path) = issuer.clone().filter(|path| !path.exists()) {
            return Err(ServiceError::NoIssuer { path, data: files.data.clone() });
        }
        issuer.as_deref().map(Issuer::load).transpose()?;
        if let Some(url) = config.shuffler.model_url.as_ref().filter(|_| roles.shuffler()) {
            shuffler::bandit(url, config)?;
        }
        let new_hashes = both && !files.tokens.exists();
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let source = match roles {
            Roles::Bandit => Some(Source::network(config)?),
            Roles::Shuffler | Roles::Both => None,
        };
        Ok(Self {
            shuffler_keys,
            bandit_keys,
            tasks,
            certificates,
            tokens,
            issuer,
            tls,
            source,
            new_keys,
            new_tokens,
            new_hashes,
        })
    }

    /// Makes the folder and writes what is new into it. A crash in between leaves files that the
    /// next start takes.
    pub fn write(&self, files: &Files) -> Result<(), ServiceError> {
        incrowd_files::create_folder(&files.data).map_err(failed(&files.data))?;
        let written =
            [(KeyRole::Shuffler, &self.shuffler_keys), (KeyRole::Bandit, &self.bandit_keys)];
        for (role, keys) in written {
            if let Some(keys) = keys.as_ref().filter(|_| self.new_keys.contains(&role)) {
                keys.write()?;
            }
        }
        // The tokens before their hashes: a hash alone would be of a token that nobody has.
        for (role, token) in &self.new_tokens {
            write_token(&files.token(*role), token)?;
        }
        if self.new_hashes {
            self.tokens.save(&files.tokens)?;
        }
        Ok(())
    }
}

/// Whether a store of the folder has a task.
fn has_tasks(stores: &Stores) -> Result<bool, StoreError> {
    let shuffler = stores.inspect_shuffler()?.map(|store| store.tasks()).transpose()?;
    let bandit = stores.inspect_bandit()?.map(|store| store.tasks()).transpose()?;
    Ok(shuffler.is_some_and(|tasks| !tasks.is_empty())
        || bandit.is_some_and(|tasks| !tasks.is_empty()))
}

/// The tokens of a folder. Both roles together get some where there is nothing yet.
fn tokens(
    files: &Files,
    stores: &Stores,
    both: bool,
    by_device: bool,
) -> Result<(Tokens, NewTokens), ServiceError> {
    if files.tokens.exists() {
        return Ok((Tokens::load(&files.tokens)?, Vec::new()));
    }
    let (mut tokens, mut new) = (Tokens::default(), Vec::new());
    if !both {
        let data = files.data.display();
        tracing::warn!(
            "there are no tokens: nobody is let in before `incrowd keys token --role <role> --data {data} --out <file>`"
        );
        return Ok((tokens, new));
    }
    if has_tasks(stores)? {
        let (path, data) = (files.tokens.clone(), files.data.clone());
        return Err(ServiceError::LostTokens { path, data });
    }
    // Where each device has a token of its own, one for all of them would be refused.
    let shared = (!by_device).then_some(Role::Device);
    for role in shared.into_iter().chain([Role::Admin]) {
        let path = files.token(role);
        if path.exists() {
            // A start ended between the token and its hash.
            let known = tokens.insert(role, &read_token(&path)?);
            known.ok_or(ServiceError::NotAToken { path, role: role.name() })?;
        } else {
            new.push((role, tokens.add(role)?));
        }
    }
    Ok((tokens, new))
}

/// Refuses stores with a task that is not over and that no task file names, because a task file
/// that was planned anew would silently be another service; and with one that was moved away.
pub(crate) fn check_stored_tasks(
    files: &Files,
    served: &[Task],
    shuffler: Option<&dyn ShufflerStore>,
    bandit: Option<&dyn BanditStore>,
) -> Result<(), ServiceError> {
    let served = |id: &TaskId| served.iter().any(|task| task.id() == *id);
    let mut over = BTreeMap::new();
    for (task, head) in shuffler.map_or(Ok(Vec::new()), ShufflerStore::tasks)? {
        if served(&task) {
            head.state.is_here(&task)?;
        } else {
            let closed = matches!(head.state, TaskState::Closed | TaskState::Moved);
            let last = last_round(files, shuffler.and_then(ShufflerStore::shared), &task)?;
            over.insert(task, closed || last.is_some_and(|last| head.round > last));
        }
    }
    for (task, round) in bandit.map_or(Ok(Vec::new()), BanditStore::tasks)? {
        if !served(&task) && !over.contains_key(&task) {
            let last = last_round(files, bandit.and_then(BanditStore::shared), &task)?;
            over.insert(task, last.is_some_and(|last| round >= last));
        }
    }
    if let Some((&task, _)) = over.iter().find(|(_, over)| !**over) {
        return Err(ServiceError::Leftover { task, data: files.data.clone() });
    }
    for task in over.keys() {
        let data = files.data.display();
        tracing::info!(%task, "a task that is over is still in the store: `incrowd task purge {task} --data {data}` removes it");
    }
    Ok(())
}

/// The last round of a task whose complete file was kept, or which another node has served.
fn last_round(
    files: &Files,
    shared: Option<&dyn Shared>,
    task: &TaskId,
) -> Result<Option<u32>, StoreError> {
    let kept = load_task(&files.kept_task(task), None).ok().filter(|kept| kept.id() == *task);
    match (kept, shared) {
        (Some(kept), _) => Ok(Some(kept.mechanism().schedule().last_round())),
        (None, Some(shared)) => nodes::last_round(shared, task),
        (None, None) => Ok(None),
    }
}
