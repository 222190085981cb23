//! Settings of a relay and the rules they keep.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{ConfigError, HttpLimits, LogFormat, TlsConfig, config::address, layers::Settings};

/// Settings of a relay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelayConfig {
    /// Base address of the shuffler.
    pub gateway: String,
    /// PEM file with the certificates to trust there, instead of the system's.
    pub gateway_ca: Option<PathBuf>,
    /// File with the token of the role `relay` that the shuffler's operator made.
    pub token_file: Option<PathBuf>,
    /// Where devices come.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Where the operator comes: health and metrics. A relay has no tokens of its own, so this is an
    /// address of this machine only, without TLS.
    #[serde(deserialize_with = "address")]
    pub admin_listen: SocketAddr,
    /// Whether devices may come over plain HTTP from others than this machine.
    pub allow_plain_http: bool,
    /// Whether the gateway may be asked over plain HTTP on another machine, with the token in clear,
    /// because a private network protects it.
    pub allow_plain_gateway: bool,
    /// TLS for devices.
    pub tls: Option<TlsConfig>,
    /// Sizes and times of requests. `reports_per_second_per_peer` counts requests here, each of
    /// which holds a report at most once; `reports_per_second_per_relay` must be 0.
    pub http: HttpLimits,
    /// How log lines are written.
    pub log: LogFormat,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            gateway: String::new(),
            gateway_ca: None,
            token_file: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 8790)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 8791)),
            allow_plain_http: false,
            allow_plain_gateway: false,
            tls: None,
            http: HttpLimits::default(),
            log: LogFormat::default(),
        }
    }
}

impl Settings for RelayConfig {
    fn check(self) -> Result<Self, ConfigError> {
        if self.gateway.is_empty() {
            let what = "the base address of the shuffler, whose operator gives it";
            return Err(ConfigError::Missing { key: "gateway", flag: "--gateway", what });
        }
        if self.token_file.is_none() {
            let what = "a file with the token that the shuffler's operator made with `incrowd keys token --role relay`";
            return Err(ConfigError::Missing { key: "token_file", flag: "--token-file", what });
        }
        let (key, address) = ("listen", self.listen);
        if !address.ip().is_loopback() && self.tls.is_none() && !self.allow_plain_http {
            return Err(ConfigError::PlainHttp { key, address });
        }
        let address = self.admin_listen;
        if !address.ip().is_loopback() {
            return Err(ConfigError::NotLoopback { key: "admin_listen", address });
        }
        self.http.check()?;
        if self.http.reports_per_second_per_relay != 0 {
            return Err(ConfigError::Range {
                key: "http.reports_per_second_per_relay",
                found: self.http.reports_per_second_per_relay.to_string(),
                allowed: "0 for a relay: no relay comes to it",
            });
        }
        Ok(self)
    }
}
