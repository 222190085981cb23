//! Settings of a service and the rules they keep.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, de};
use thiserror::Error;

use crate::{AdmissionKind, Limits, RoundKeysConfig, store::PostgresSettings};

/// Why settings cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value of the wrong type, an unknown key, or text that is not TOML.
    #[error("{origin}: {message}")]
    Value {
        /// The file, the variables or the flags that it comes from.
        origin: String,
        /// What is wrong.
        message: String,
    },
    /// The file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
    /// The file does not exist.
    #[error("{0} does not exist")]
    NoFile(PathBuf),
    /// Plain HTTP for the world to read.
    #[error(
        "{key} is {address}, which others can reach, without TLS: set tls.certificate and tls.key, or allow_plain_http = true if something in front of it has TLS"
    )]
    PlainHttp {
        /// Which setting.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
    },
    /// A setting without a default.
    #[error("{key} is missing ({flag}): {what}")]
    Missing {
        /// Which setting.
        key: &'static str,
        /// The flag that gives it.
        flag: &'static str,
        /// What it is.
        what: &'static str,
    },
    /// A listener without tokens that others could reach.
    #[error(
        "{key} is {address}, must be an address of this machine only (127.0.0.1 or [::1]): this listener asks for no token"
    )]
    NotLoopback {
        /// Which setting.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
    },
    /// A number out of its range.
    #[error("{key} is {found}, must be {allowed}")]
    Range {
        /// Which setting.
        key: &'static str,
        /// Its value.
        found: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

/// Settings of a service, whichever its role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Where devices, bandits and relays come.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Where the operator comes: health, metrics, closing tasks.
    #[serde(deserialize_with = "address")]
    pub admin_listen: SocketAddr,
    /// Folder with keys, tokens and stores.
    pub data: PathBuf,
    /// Where stores are: `sqlite`, which is files in the data folder, or the URL of a PostgreSQL
    /// database that any number of nodes share.
    pub store: StoreKind,
    /// How the database is reached.
    pub postgres: PostgresConfig,
    /// Task files, from this operator.
    pub tasks: Vec<PathBuf>,
    /// Whether the listeners may speak plain HTTP to others than this machine.
    pub allow_plain_http: bool,
    /// TLS for both listeners.
    pub tls: Option<TlsConfig>,
    /// The most a task may tell about a person.
    pub limits: Limits,
    /// Sizes and times of requests.
    pub http: HttpLimits,
    /// The shuffler's own settings.
    pub shuffler: ShufflerConfig,
    /// The bandit's own settings.
    pub bandit: BanditConfig,
    /// How log lines are written.
    pub log: LogFormat,
}

/// What keeps stores.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum StoreKind {
    /// A file for each role in the data folder.
    #[default]
    Sqlite,
    /// A PostgreSQL database, by its URL, which is checked with the other settings.
    Postgres(String),
}

impl From<String> for StoreKind {
    fn from(text: String) -> Self {
        if text == "sqlite" { Self::Sqlite } else { Self::Postgres(text) }
    }
}

impl From<StoreKind> for String {
    fn from(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Sqlite => "sqlite".into(),
            StoreKind::Postgres(url) => url,
        }
    }
}

/// How a PostgreSQL database is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresConfig {
    /// File with the password, if the server asks for one. It is read at each connection.
    pub password_file: Option<PathBuf>,
    /// PEM file with the certificates to trust for the database, instead of the system's.
    pub ca: Option<PathBuf>,
    /// Connections of this process to the database for each role, 2 to 1000.
    pub connections: u32,
    /// Whether the connection to a database on another machine may do without TLS, because a
    /// private network protects it.
    pub allow_plain: bool,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self { password_file: None, ca: None, connections: 8, allow_plain: false }
    }
}

/// Files of a TLS listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file with the certificate chain.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

/// Sizes and times of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpLimits {
    /// Largest body in bytes, 1 KiB to 64 MiB.
    pub body_bytes: usize,
    /// Seconds for the headers of a request, 1 to 600.
    pub header_seconds: u64,
    /// Seconds for the body of a request, 1 to 600.
    pub body_seconds: u64,
    /// Seconds that a connection may take none of an answer, 1 to 600; then it is closed.
    pub write_seconds: u64,
    /// Bytes of the headers of a request, 8 KiB to 1 MiB.
    pub header_bytes: usize,
    /// Open connections of a listener, at least 1; more are closed at once. The operator's
    /// listener has its own.
    pub connections: usize,
    /// Open connections from one network address (IPv6: a network of 64 bits); 0 is no limit.
    /// Behind a proxy all come from one.
    pub connections_per_peer: usize,
    /// Uploads at the same time, and as many other requests, at least 1; more are answered 503.
    pub concurrent_requests: usize,
    /// Requests that wait for something to happen, at the same time; more are answered 503.
    pub concurrent_waits: usize,
    /// Bytes of memory for the contents of all requests together, beyond 64 KiB for each, 1 MiB to
    /// 1 TiB; more are answered 503.
    pub memory_bytes: usize,
    /// Reports a second that the shuffler takes from one network address (IPv6: a network of 64
    /// bits); 0 is no limit. Behind a proxy all come from one. There is no limit over all senders:
    /// it would make the answer to one person depend on others.
    pub reports_per_second_per_peer: u32,
    /// Reports a second that the shuffler takes through one relay; 0: as from a network address.
    pub reports_per_second_per_relay: u32,
    /// Seconds that open requests have to end when the service is told to stop.
    pub shutdown_seconds: u64,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            header_seconds: 10,
            body_seconds: 30,
            write_seconds: 30,
            header_bytes: 32 << 10,
            connections: 10_000,
            connections_per_peer: 1024,
            concurrent_requests: 4096,
            concurrent_waits: 256,
            memory_bytes: 256 << 20,
            reports_per_second_per_peer: 0,
            reports_per_second_per_relay: 0,
            shutdown_seconds: 10,
        }
    }
}

impl HttpLimits {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let seconds = "from 1 to 600";
        range("http.header_seconds", self.header_seconds, 1, 600, seconds)?;
        range("http.body_seconds", self.body_seconds, 1, 600, seconds)?;
        range("http.write_seconds", self.write_seconds, 1, 600, seconds)?;
        let size = |key, found, low, high, allowed| range(key, found as u64, low, high, allowed);
        let many = "from 1 to 1048576";
        size("http.connections", self.connections, 1, 1 << 20, many)?;
        size("http.connections_per_peer", self.connections_per_peer, 0, 1 << 20, "0 to 1048576")?;
        size("http.concurrent_requests", self.concurrent_requests, 1, 1 << 20, many)?;
        size("http.concurrent_waits", self.concurrent_waits, 1, 1 << 20, many)?;
        let bytes = "from 1024 to 67108864";
        size("http.body_bytes", self.body_bytes, 1 << 10, 64 << 20, bytes)?;
        let bytes = "from 8192 to 1048576";
        size("http.header_bytes", self.header_bytes, 8 << 10, 1 << 20, bytes)?;
        let bytes = "from 1048576 to 1099511627776";
        size("http.memory_bytes", self.memory_bytes, 1 << 20, 1 << 40, bytes)
    }
}

/// The shuffler's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShufflerConfig {
    /// Base address of the bandit, told to devices; empty when it is the shuffler's. For devices
    /// behind a relay the shuffler fetches models there itself.
    pub model_url: Option<String>,
    /// PEM file with the certificates to trust there, instead of the system's.
    pub model_ca: Option<PathBuf>,
    /// Whose reports are taken.
    pub admission: AdmissionKind,
    /// With `device-tokens`, the reports that each device may bring to a round of a task, 1 to
    /// 1000.
    pub reports_per_round: u32,
    /// Whether there is an Oblivious HTTP gateway.
    pub gateway: bool,
    /// Where the keys of rounds are; in memory by default, where the system has a file system
    /// there.
    pub round_keys: Option<RoundKeysConfig>,
    /// Whether a task with a grace window goes on without the ids whose round key is gone, so that
    /// late reports may count twice.
    pub accept_lost_round_keys: bool,
    /// File with the last release of every task, to notice a store that went back; `heads.json` in
    /// the data folder by default.
    pub heads: Option<PathBuf>,
    /// Where batches close by time: milliseconds from the closing of a round until its release is
    /// shown, 10 to 60000. Longer than closing takes at its slowest.
    pub release_delay_milliseconds: u64,
}

impl Default for ShufflerConfig {
    fn default() -> Self {
        Self {
            model_url: None,
            model_ca: None,
            admission: AdmissionKind::default(),
            reports_per_round: 1,
            gateway: true,
            round_keys: None,
            accept_lost_round_keys: false,
            heads: None,
            release_delay_milliseconds: 250,
        }
    }
}

/// The bandit's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BanditConfig {
    /// Base address of the shuffler.
    pub shuffler_url: String,
    /// File with the token that the shuffler's operator gave.
    pub token_file: Option<PathBuf>,
    /// PEM file with the certificates to trust for the shuffler, instead of the system's.
    pub shuffler_ca: Option<PathBuf>,
    /// Longest pause in seconds between two tries when the shuffler does not answer, 1 to 600.
    pub longest_pause_seconds: u64,
    /// Whether the token may go to the shuffler over plain HTTP on another machine, because a
    /// private network protects it.
    pub allow_plain_http: bool,
}

impl Default for BanditConfig {
    fn default() -> Self {
        Self {
            shuffler_url: "http://127.0.0.1:8787".into(),
            token_file: None,
            shuffler_ca: None,
            longest_pause_seconds: 10,
            allow_plain_http: false,
        }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("must be text or json".into()),
        }
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8787)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 8788)),
            data: PathBuf::from("incrowd-data"),
            store: StoreKind::default(),
            postgres: PostgresConfig::default(),
            tasks: Vec::new(),
            allow_plain_http: false,
            tls: None,
            limits: Limits::default(),
            http: HttpLimits::default(),
            shuffler: ShufflerConfig::default(),
            bandit: BanditConfig::default(),
            log: LogFormat::default(),
        }
    }
}

impl NodeConfig {
    /// The settings that hold, or the first rule that is violated.
    pub fn check(self) -> Result<Self, ConfigError> {
        for (key, address) in [("listen", self.listen), ("admin_listen", self.admin_listen)] {
            if !address.ip().is_loopback() && self.tls.is_none() && !self.allow_plain_http {
                return Err(ConfigError::PlainHttp { key, address });
            }
        }
        self.http.check()?;
        let Limits { epsilon_local, epsilon_central, delta, .. } = self.limits;
        for (key, limit) in [
            ("limits.epsilon_local", epsilon_local),
            ("limits.epsilon_central", epsilon_central),
            ("limits.delta", delta),
        ] {
            if limit.is_nan() || limit < 0.0 {
                let found = limit.to_string();
                return Err(ConfigError::Range { key, found, allowed: "at least 0" });
            }
        }
        let pause = self.bandit.longest_pause_seconds;
        let delay = self.shuffler.release_delay_milliseconds;
        range("shuffler.release_delay_milliseconds", delay, 10, 60_000, "from 10 to 60000")?;
        let quota = self.shuffler.reports_per_round.into();
        range("shuffler.reports_per_round", quota, 1, 1000, "from 1 to 1000")?;
        range("bandit.longest_pause_seconds", pause, 1, 600, "from 1 to 600")?;
        let connections = self.postgres.connections.into();
        range("postgres.connections", connections, 2, 1000, "from 2 to 1000")?;
        PostgresSettings::of(&self)?;
        Ok(self)
    }
}

/// The socket address of `host:port`. A name is looked up; its first address counts.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let rule = "must be an address and a port, like 127.0.0.1:8787 or localhost:8787";
    let (host, port) = text.rsplit_once(':').ok_or(format!("{text:?} {rule}"))?;
    if host.is_empty() || host.contains(['/', ':']) || port.parse::<u16>().is_err() {
        return Err(format!("{text:?} {rule}"));
    }
    let found = text.to_socket_addrs().map_err(|error| format!("{text:?}: {error}"))?.next();
    found.ok_or(format!("{text:?}: the host has no address"))
}

/// An address in settings.
pub(crate) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse_address(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn range(
    key: &'static str,
    found: u64,
    low: u64,
    high: u64,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if (low..=high).contains(&found) {
        return Ok(());
    }
    Err(ConfigError::Range { key, found: found.to_string(), allowed })
}
