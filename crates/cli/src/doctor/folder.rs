//! The data folder: keys, tokens, tasks, stores.

use std::path::Path;

use incrowd_node::{
    AdmissionKind, Files, Issuer, KeyRole, Keys, NodeConfig, Role, Roles, RoundKeysConfig,
    StoreError, TaskFile, Tokens,
    store::{Stores, verify},
};
use incrowd_privacy::format_epsilon;
use incrowd_protocol::{Task, VerificationKey, VerificationKeys};

use super::Findings;

/// Free bytes below which a service is about to stop.
const LITTLE: u64 = 64 << 20;

pub fn examine(config: &NodeConfig, files: &Files, roles: Roles, findings: &mut Findings) {
    writable(&config.data, findings);
    let key = |role, findings: &mut Findings| key(files, role, roles, findings);
    let shuffler =
        if roles == Roles::Bandit { Key::None } else { key(KeyRole::Shuffler, findings) };
    let bandit = if roles == Roles::Shuffler { Key::None } else { key(KeyRole::Bandit, findings) };
    tokens(config, files, roles, findings);
    tasks(config, roles, shuffler, bandit, findings);
    let stores = match Stores::of(config) {
        Ok(stores) => stores,
        Err(error) => return findings.bad(error.to_string()),
    };
    if stores.database().is_some() {
        return database(config, &stores, roles, findings);
    }
    for (path, other) in
        [(&files.shuffler_store, Roles::Bandit), (&files.bandit_store, Roles::Shuffler)]
    {
        if roles != other {
            store(path, findings);
        }
    }
}

/// Whether the database answers, keeps what it acknowledges, and has tables that this program
/// knows.
fn database(config: &NodeConfig, stores: &Stores, roles: Roles, findings: &mut Findings) {
    let mut told = |role: &str, tasks: Result<Option<usize>, StoreError>| match tasks {
        Ok(Some(tasks)) => {
            findings.good(format!("{stores} has the {role}'s tables, with {tasks} tasks"));
        }
        Ok(None) => findings
            .good(format!("{stores} answers; the {role}'s tables are made at the first start")),
        Err(error) => findings.bad(format!("{stores}: {error}")),
    };
    if roles != Roles::Bandit {
        let found = stores.inspect_shuffler();
        told("shuffler", found.and_then(|store| store.map(|s| Ok(s.tasks()?.len())).transpose()));
    }
    if roles != Roles::Shuffler {
        let found = stores.inspect_bandit();
        told("bandit", found.and_then(|store| store.map(|s| Ok(s.tasks()?.len())).transpose()));
    }
    let own = matches!(
        config.shuffler.round_keys,
        None | Some(
            RoundKeysConfig::MemoryFile { path: None } | RoundKeysConfig::File { path: None }
        )
    );
    if own && roles != Roles::Bandit {
        findings.note("shuffler.round_keys is not set: the keys of rounds are on this machine, and other nodes of the database need the same (a folder that all have, or a command)");
    }
}

/// Whether the folder, or the first one above it that exists, can be written to, and has space.
fn writable(data: &Path, findings: &mut Findings) {
    let above = |path: &&Path| path.as_os_str().is_empty() || path.exists();
    let nearest = data.ancestors().find(above).unwrap_or(data);
    let nearest = if nearest.as_os_str().is_empty() { Path::new(".") } else { nearest };
    let name = data.display();
    if let Err(error) = tempfile::tempfile_in(nearest) {
        let nearest = nearest.display();
        return findings.bad(format!("data folder {name}: cannot write to {nearest}: {error}"));
    }
    let free = rustix::fs::statvfs(nearest).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    match free {
        Ok(free) if free < LITTLE => {
            findings
                .note(format!("data folder {name}: only {} MB of the disk are free", free >> 20));
        }
        _ if data.exists() => findings.good(format!("data folder {name}")),
        _ => findings.good(format!("data folder {name} is made at the first start")),
    }
}

/// The key of a role.
#[derive(Clone, Copy)]
enum Key {
    /// Not this process's, or it cannot be read.
    None,
    /// Made at the first start.
    New,
    /// In the folder.
    There(VerificationKey),
}

fn key(files: &Files, role: KeyRole, roles: Roles, findings: &mut Findings) -> Key {
    let (path, name) = (
        files.keys(role),
        match role {
            KeyRole::Shuffler => "shuffler",
            KeyRole::Bandit => "bandit",
        },
    );
    if !path.exists() {
        if roles == Roles::Both {
            findings.good(format!("keys of the {name} are made at the first start"));
            return Key::New;
        }
        let data = path.parent().unwrap_or(path).display();
        findings.bad(format!(
            "there are no keys of the {name} in {data}: `incrowd keys new --role {name} --data {data}` makes them"
        ));
        return Key::None;
    }
    match Keys::load(path, role) {
        Ok(keys) => {
            findings.good(format!("keys of the {name}"));
            Key::There(keys.verification_key())
        }
        Err(error) => {
            findings.bad(error.to_string());
            Key::None
        }
    }
}

fn tokens(config: &NodeConfig, files: &Files, roles: Roles, findings: &mut Findings) {
    if !files.tokens.exists() && roles == Roles::Both {
        return findings.good("tokens are made at the first start");
    }
    let tokens = match files.tokens.exists().then(|| Tokens::load(&files.tokens)).transpose() {
        Err(error) => return findings.bad(error.to_string()),
        Ok(tokens) => tokens.unwrap_or_default(),
    };
    let data = config.data.display();
    let made = |role| format!("`incrowd keys token --role {role} --data {data}` makes one");
    let before = findings.0.len();
    match config.shuffler.admission {
        _ if roles == Roles::Bandit => {}
        AdmissionKind::Open => {}
        AdmissionKind::SharedToken if tokens.has(Role::Device) => {}
        AdmissionKind::SharedToken => {
            let made = made("device");
            findings.bad(format!("no device can upload: there is no device token; {made}"));
        }
        AdmissionKind::DeviceTokens => match Issuer::load(&files.issuer) {
            Ok(_) => findings.good("issuing secret"),
            Err(error) => {
                let made = format!("`incrowd keys issuer --data {data}` makes it");
                findings.bad(format!("{error}; {made}"));
            }
        },
    }
    if roles == Roles::Shuffler && !tokens.has(Role::Bandit) {
        findings.note(format!("no bandit token: no bandit can collect; {}", made("bandit")));
    }
    if !tokens.has(Role::Monitor) && !tokens.has(Role::Admin) {
        let made = made("monitor");
        findings.note(format!("no monitor or admin token: nobody can read /metrics; {made}"));
    }
    if findings.0.len() == before {
        findings.good("tokens");
    }
}

fn tasks(config: &NodeConfig, roles: Roles, shuffler: Key, bandit: Key, findings: &mut Findings) {
    if config.tasks.is_empty() {
        findings.bad("there is no task to serve (--task)");
    }
    let own = match (shuffler, bandit) {
        (Key::There(shuffler), Key::There(bandit)) => Some(VerificationKeys { shuffler, bandit }),
        _ => None,
    };
    let mut seen: Vec<(&Path, Task)> = Vec::new();
    for path in &config.tasks {
        let name = path.display();
        let (mechanism, title) = match TaskFile::read(path).map(|file| file.with_keys(own)) {
            Err(error) => {
                findings.bad(error.to_string());
                continue;
            }
            Ok(TaskFile::Plan(_)) if roles != Roles::Both => {
                findings.bad(format!("{name} has no [keys]: complete it with `incrowd task new`"));
                continue;
            }
            Ok(TaskFile::Plan(plan)) => {
                let title = format!("task {name}, whose id is known after the first start");
                (plan.mechanism().clone(), title)
            }
            Ok(TaskFile::Task(task)) => {
                named_keys(path, &task, shuffler, bandit, findings);
                if let Some((first, _)) = seen.iter().find(|(_, other)| other.id() == task.id()) {
                    findings.bad(format!("{name} is the same task as {}", first.display()));
                }
                let described = (task.mechanism().clone(), format!("task {}", task.id()));
                seen.push((path, task));
                described
            }
        };
        match config.limits.admit_mechanism(&mechanism) {
            Ok(certificate) => findings.good(format!(
                "{title}: local epsilon {}, central ({}, {:e})",
                format_epsilon(certificate.epsilon_local()),
                format_epsilon(certificate.epsilon_central()),
                certificate.delta()
            )),
            Err(error) => findings.bad(format!("{name}: {error}")),
        }
    }
}

/// Whether a task names the keys of this service.
fn named_keys(path: &Path, task: &Task, shuffler: Key, bandit: Key, findings: &mut Findings) {
    let named = task.keys();
    for (role, own, named) in
        [("shuffler", shuffler, named.shuffler), ("bandit", bandit, named.bandit)]
    {
        let same = match own {
            Key::None => true,
            Key::New => false,
            Key::There(key) => key == named,
        };
        if !same {
            findings.bad(format!(
                "{} names another key of the {role} than the one here: it is another operator's task",
                path.display()
            ));
        }
    }
}

fn store(path: &Path, findings: &mut Findings) {
    if !path.exists() {
        return findings.good(format!("{} is made at the first start", path.display()));
    }
    match verify(path) {
        Ok(()) => findings.good(path.display().to_string()),
        Err(error) => findings.bad(format!("{}: {error}", path.display())),
    }
}
