//! `incrowd doctor`: what would go wrong, before it does.

use std::{
    error::Error,
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use incrowd_node::{
    AdmissionKind, Files, Issuer, KeyRole, Keys, NodeConfig, Role, Tokens, load_task, read_token,
    store::verify,
};
use incrowd_privacy::format_epsilon;
use incrowd_protocol::{ProblemKind, Task, VerificationKeys};
use incrowd_transport::{Route, ShufflerApi, TransportError, Trust};

use crate::{runtime, service};

/// Prints findings and counts them.
#[derive(Default)]
struct Findings {
    good: usize,
    notes: usize,
    bad: usize,
}

impl Findings {
    fn good(&mut self, text: impl AsRef<str>) {
        self.good += 1;
        out!("ok    {}", text.as_ref());
    }

    fn note(&mut self, text: impl AsRef<str>) {
        self.notes += 1;
        out!("note  {}", text.as_ref());
    }

    fn bad(&mut self, text: impl AsRef<str>) {
        self.bad += 1;
        out!("BAD   {}", text.as_ref());
    }
}

pub fn run(arguments: &service::Arguments) -> ExitCode {
    let mut findings = Findings::default();
    match arguments.layers().and_then(|layers| Ok(layers.config()?)) {
        Err(error) => findings.bad(format!("settings: {error}")),
        Ok(config) => {
            findings.good("settings");
            examine(&config, &mut findings);
        }
    }
    let Findings { good, notes, bad } = findings;
    eprintln!("{good} ok, {notes} to note, {bad} bad");
    ExitCode::from(u8::from(bad > 0))
}

fn examine(config: &NodeConfig, findings: &mut Findings) {
    let files = Files::of(&config.data);
    let keys = |role, name: &str, findings: &mut Findings| {
        let path = files.keys(role);
        if !path.exists() {
            findings.note(format!("no keys of a {name} in {}", config.data.display()));
            return None;
        }
        match Keys::load(path, role) {
            Ok(keys) => {
                findings.good(format!("keys of the {name}"));
                Some(keys)
            }
            Err(error) => {
                findings.bad(error.to_string());
                None
            }
        }
    };
    let shuffler = keys(KeyRole::Shuffler, "shuffler", findings);
    let bandit = keys(KeyRole::Bandit, "bandit", findings);
    let own = shuffler.as_ref().zip(bandit.as_ref()).map(|(shuffler, bandit)| VerificationKeys {
        shuffler: shuffler.verification_key(),
        bandit: bandit.verification_key(),
    });
    tokens(config, &files, shuffler.is_some(), findings);
    tasks(config, own, shuffler.as_ref(), bandit.as_ref(), findings);
    for path in [&files.shuffler_store, &files.bandit_store] {
        store(path, findings);
    }
    for (name, address) in [("listen", config.listen), ("admin_listen", config.admin_listen)] {
        listener(name, address, findings);
    }
    if bandit.is_some() && shuffler.is_none() {
        collector(config, findings);
    }
}

fn tokens(config: &NodeConfig, files: &Files, shuffler: bool, findings: &mut Findings) {
    if !files.tokens.exists() {
        return findings.note("no tokens yet (incrowd keys token)");
    }
    match Tokens::load(&files.tokens) {
        Err(error) => findings.bad(error.to_string()),
        Ok(tokens) => {
            findings.good("tokens");
            if shuffler {
                admission(config.shuffler.admission, files, &tokens, findings);
            }
            if ![Role::Monitor, Role::Admin].iter().any(|role| tokens.has(*role)) {
                findings.note("no token of the roles monitor and admin: nobody can read /metrics");
            }
        }
    }
}

/// Whether any device can upload.
fn admission(kind: AdmissionKind, files: &Files, tokens: &Tokens, findings: &mut Findings) {
    match kind {
        AdmissionKind::SharedToken if !tokens.has(Role::Device) => findings.bad(
            "no device can upload: there is no device token (incrowd keys token --role device)",
        ),
        AdmissionKind::DeviceTokens => match Issuer::load(&files.issuer) {
            Ok(_) => findings.good("issuing secret"),
            Err(error) => findings.bad(format!("{error} (incrowd keys issuer)")),
        },
        AdmissionKind::SharedToken | AdmissionKind::Open => {}
    }
}

fn tasks(
    config: &NodeConfig,
    own: Option<VerificationKeys>,
    shuffler: Option<&Keys>,
    bandit: Option<&Keys>,
    findings: &mut Findings,
) {
    if config.tasks.is_empty() {
        findings.bad("there is no task to serve (--task)");
    }
    for path in &config.tasks {
        let task = match load_task(path, own) {
            Ok(task) => task,
            Err(error) => {
                findings.bad(error.to_string());
                continue;
            }
        };
        let named = task.keys();
        let strange = shuffler.is_some_and(|keys| keys.verification_key() != named.shuffler)
            || bandit.is_some_and(|keys| keys.verification_key() != named.bandit);
        if strange {
            findings.bad(format!("{} names another key than the one here", path.display()));
        }
        match config.limits.admit(&task) {
            Ok(certificate) => findings.good(format!(
                "task {}: local epsilon {}, central ({}, {:e})",
                task.id(),
                format_epsilon(certificate.epsilon_local()),
                format_epsilon(certificate.epsilon_central()),
                certificate.delta()
            )),
            Err(error) => findings.bad(format!("{}: {error}", path.display())),
        }
    }
}

fn store(path: &Path, findings: &mut Findings) {
    if !path.exists() {
        return findings.note(format!("{} does not exist yet", path.display()));
    }
    match verify(path) {
        Ok(()) => findings.good(path.display().to_string()),
        Err(error) => findings.bad(format!("{}: {error}", path.display())),
    }
}

fn listener(name: &str, address: SocketAddr, findings: &mut Findings) {
    match TcpListener::bind(address) {
        Ok(_) => findings.good(format!("{name} {address} is free")),
        Err(error) => findings.note(format!("{name} {address}: {error} (is the service running?)")),
    }
}

fn collector(config: &NodeConfig, findings: &mut Findings) {
    let token = match &config.bandit.token_file {
        None => return findings.bad("bandit.token_file is missing"),
        Some(path) => match read_token(path) {
            Ok(token) => token,
            Err(error) => return findings.bad(error.to_string()),
        },
    };
    for task in config.tasks.iter().filter_map(|path| load_task(path, None).ok()) {
        match ask(config, &token, &task) {
            Ok(()) => findings.good(format!("the shuffler has releases of {}", task.id())),
            Err(error) => match error.downcast_ref().and_then(TransportError::kind) {
                Some(ProblemKind::Finished) => {
                    findings.good(format!("the shuffler has releases of {}", task.id()));
                }
                Some(ProblemKind::Unauthorized | ProblemKind::Forbidden) => {
                    findings.bad("the shuffler refuses the token in bandit.token_file");
                }
                Some(ProblemKind::NotFound) => {
                    findings.bad(format!("the shuffler does not have task {}", task.id()));
                }
                _ => findings.bad(format!("the shuffler gives no releases: {error}")),
            },
        }
    }
}

/// Asks for the first thing that a bandit asks for.
fn ask(config: &NodeConfig, token: &str, task: &Task) -> Result<(), Box<dyn Error>> {
    let address = incrowd_node::shuffler_address(&config.bandit)?;
    let ca = config.bandit.shuffler_ca.as_ref().map(fs::read).transpose()?;
    let (route, trust) = (Route::Direct(address), Trust::new(ca.as_deref()));
    let shuffler = ShufflerApi::new(route, Some(token.to_owned()), &trust)?;
    runtime()?.block_on(shuffler.release(task, 1, None, Duration::ZERO))?;
    Ok(())
}
