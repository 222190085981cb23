//! Where a database is and how it is reached.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use incrowd_files::{Readers, read_secret};
use incrowd_transport::client_config;
use rustls::ClientConfig;
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

use super::{super::StoreError, database::CONNECT};
use crate::{ConfigError, NodeConfig, StoreKind, files::trust};

/// The database of a service.
#[derive(Clone)]
pub(crate) struct PostgresSettings {
    config: Config,
    password_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    pub(super) connections: usize,
}

/// How long a connection over which nothing comes any more is taken for alive.
const DEAD: Duration = Duration::from_secs(10);

/// Why a URL cannot be used. It never shows the URL, which may have a password.
const FORM: &str = "sqlite, or postgres://USER@HOST[:PORT][,HOST[:PORT]...]/DATABASE with sslmode, if given, disable, prefer or require (which checks the certificate and its name)";
const NO_PASSWORD: &str = "a URL without a password: put it into a file that only this user reads, and name the file in postgres.password_file";
const NO_TLS: &str = "a URL without sslmode=disable, because the database is on another machine (or set postgres.allow_plain = true, if a private network protects it)";

impl PostgresSettings {
    /// The settings of a service that keeps its stores in PostgreSQL; none otherwise.
    pub fn of(config: &NodeConfig) -> Result<Option<Self>, ConfigError> {
        let StoreKind::Postgres(url) = &config.store else { return Ok(None) };
        let wrong = |allowed| ConfigError::Range { key: "store", found: "another".into(), allowed };
        let mut parsed: Config = url.parse().map_err(|_| wrong(FORM))?;
        if parsed.get_hosts().is_empty() && parsed.get_hostaddrs().is_empty() {
            return Err(wrong(FORM));
        }
        if parsed.get_password().is_some() {
            return Err(wrong(NO_PASSWORD));
        }
        // A standby takes no commits.
        parsed.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let here = is_here(&parsed);
        match parsed.get_ssl_mode() {
            SslMode::Prefer if here => parsed.ssl_mode(SslMode::Disable),
            SslMode::Prefer => parsed.ssl_mode(SslMode::Require),
            SslMode::Disable if !here && !config.postgres.allow_plain => return Err(wrong(NO_TLS)),
            _ => &mut parsed,
        };
        Ok(Some(Self {
            config: parsed,
            password_file: config.postgres.password_file.clone(),
            ca: config.postgres.ca.clone(),
            connections: config.postgres.connections as usize,
        }))
    }

    /// What to connect with, for each host by itself, so that one that does not answer keeps
    /// nobody from the others. The password is read anew each time.
    pub(super) fn hosts(&self) -> Result<Vec<Config>, StoreError> {
        let password = self.password_file.as_deref().map(password).transpose()?;
        let all = &self.config;
        let (names, addresses) = (all.get_hosts(), all.get_hostaddrs());
        let host = |index: usize| {
            let mut one = Config::new();
            match names.get(index) {
                Some(Host::Tcp(name)) => drop(one.host(name)),
                Some(Host::Unix(path)) => drop(one.host_path(path)),
                None => {}
            }
            if let Some(address) = addresses.get(index) {
                one.hostaddr(*address);
            }
            // One port is that of all hosts.
            if let Some(port) = all.get_ports().get(index).or(all.get_ports().first()) {
                one.port(*port);
            }
            all.get_user().map(|user| one.user(user));
            all.get_dbname().map(|name| one.dbname(name));
            all.get_options().map(|options| one.options(options));
            if let Some(password) = &password {
                one.password(password.as_slice());
            }
            one.ssl_mode(all.get_ssl_mode()).channel_binding(all.get_channel_binding());
            one.target_session_attrs(all.get_target_session_attrs());
            one.connect_timeout(CONNECT).tcp_user_timeout(DEAD).keepalives_idle(DEAD);
            one
        };
        Ok((0..names.len().max(addresses.len())).map(host).collect())
    }

    pub(super) fn tls(&self) -> Result<ClientConfig, StoreError> {
        let failed = |error: &dyn std::fmt::Display| StoreError::Tls(error.to_string());
        if self.config.get_ssl_mode() == SslMode::Disable {
            return client_config(&incrowd_transport::Trust::Nobody).map_err(|e| failed(&e));
        }
        let trust = trust(self.ca.as_deref()).map_err(|error| failed(&error))?;
        client_config(&trust).map_err(|error| failed(&error))
    }

    /// Hosts and database, for the operator.
    pub fn describe(&self) -> String {
        let port = |index: usize| {
            let ports = self.config.get_ports();
            ports.get(index).or(ports.first()).copied().unwrap_or(5432)
        };
        let host = |(index, host): (usize, &Host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(index)),
            Host::Unix(path) => format!("{}:{}", path.display(), port(index)),
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().enumerate().map(host).collect();
        let database = self.config.get_dbname().unwrap_or("of the user's name");
        format!("PostgreSQL at {}, database {database}", hosts.join(", "))
    }
}

/// Whether every host is this machine.
fn is_here(config: &Config) -> bool {
    let local = |address: &IpAddr| address.is_loopback();
    let hosts = config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|found| local(&found)),
    });
    hosts && config.get_hostaddrs().iter().all(local)
}

fn password(path: &Path) -> Result<zeroize::Zeroizing<Vec<u8>>, StoreError> {
    let bytes = read_secret(path, Readers::Owner)?;
    Ok(zeroize::Zeroizing::new(bytes.trim_ascii().to_vec()))
}
