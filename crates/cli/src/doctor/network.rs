//! Addresses, TLS, and the other role.

use std::{
    error::Error,
    fs,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use incrowd_node::{
    Files, NodeConfig, Roles, check_tls, connections_for, load_task, read_token, shuffler_address,
    trust,
};
use incrowd_protocol::{ProblemKind, Task};
use incrowd_transport::{
    Address, Http, Method, Request, Route, ShufflerApi, TransportError, Trust,
};
use rustix::process::{Resource, getrlimit};

use super::Findings;
use crate::runtime;

pub fn examine(config: &NodeConfig, files: &Files, roles: Roles, findings: &mut Findings) {
    if let Some(tls) = &config.tls {
        match check_tls(tls) {
            Ok(()) => findings.good("TLS certificate and key"),
            Err(error) => findings.bad(error.to_string()),
        }
    }
    listeners(config, files, findings);
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let most = connections_for(usize::try_from(files).unwrap_or(usize::MAX));
    if most < config.http.connections {
        findings.note(format!(
            "{files} open files are allowed: at most {most} connections are taken, fewer than http.connections (ulimit -n, LimitNOFILE)"
        ));
    } else {
        findings.good("open files");
    }
    if roles == Roles::Bandit {
        collector(config, findings);
    }
}

fn listeners(config: &NodeConfig, files: &Files, findings: &mut Findings) {
    let (devices, operator) = (config.listen, config.admin_listen);
    if devices == operator && devices.port() != 0 {
        return findings.bad(format!("listen and admin_listen are both {devices}"));
    }
    let runs = [&files.shuffler_store, &files.bandit_store].iter().any(|store| {
        // Who serves the folder holds the lock of a store.
        let lock = fs::File::open(store.with_extension("lock"));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    });
    let runs = runs && (config.tls.is_some() || is_healthy(operator));
    for (name, address) in [("listen", devices), ("admin_listen", operator)] {
        match TcpListener::bind(address) {
            Ok(_) => findings.good(format!("{name} {address} is free")),
            Err(_) if runs => findings.good(format!("{name} {address}: the service is running")),
            Err(error) => findings.bad(format!("cannot listen on {name} {address}: {error}")),
        }
    }
}

/// Whether a service's operator would be answered there.
fn is_healthy(operator: SocketAddr) -> bool {
    let ask = || -> Result<bool, Box<dyn Error>> {
        let address = Address::new(&format!("http://{operator}"), "admin_listen", true)?;
        let http = Http::new(address, &Trust::Nobody)?;
        let answer = runtime()?.block_on(http.send(Request::new(Method::GET, "/healthz")))?;
        Ok(answer.success()?.body == b"ok\n")
    };
    ask().unwrap_or(false)
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
    let address = shuffler_address(&config.bandit)?;
    let (route, trust) = (Route::Direct(address), trust(config.bandit.shuffler_ca.as_deref())?);
    let shuffler = ShufflerApi::new(route, Some(token.to_owned()), &trust)?;
    runtime()?.block_on(shuffler.release(task, 1, None, Duration::ZERO))?;
    Ok(())
}
