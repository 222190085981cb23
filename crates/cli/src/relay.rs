//! `incrowd relay`: hides who sends from the shuffler.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Args;
use incrowd_node::{LayersOf, LogFormat, Relay, RelayConfig, Signals, init_log};
use serde::Serialize;

use crate::{runtime, service::environment};

/// An Oblivious HTTP relay: carries sealed requests to the shuffler's gateway, so that the shuffler
/// sees this relay's address and no one else's.
///
/// It is only worth something when another party than the shuffler's operator runs it. Flags win
/// over variables (INCROWD_GATEWAY, INCROWD_HTTP__CONNECTIONS), which win over the file. SIGHUP
/// reads the token and the files of TLS again.
///
/// Example: incrowd relay --gateway http://127.0.0.1:8787 --token-file relay.token --listen
/// 127.0.0.1:8790
#[derive(Args)]
pub struct Arguments {
    /// TOML file with settings.
    #[arg(long, value_name = "TOML", env = "INCROWD_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Args, Serialize)]
#[command(id = "relay-flags")]
struct Flags {
    /// Base address of the shuffler.
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<String>,
    /// File with the token that the shuffler's operator made with `incrowd keys token --role
    /// relay`.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    /// Where devices come; port 0 takes a free one [default: 127.0.0.1:8790].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    /// Where the operator comes, from this machine only: /healthz, /readyz, /metrics [default:
    /// 127.0.0.1:8791].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_listen: Option<String>,
    /// PEM file with the certificates to trust for the gateway, instead of the system's.
    #[arg(long, value_name = "PEM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_ca: Option<PathBuf>,
    #[command(flatten)]
    #[serde(skip_serializing_if = "Tls::is_none")]
    tls: Tls,
    /// Speak plain HTTP to others than this machine, because something in front has TLS.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_plain_http: bool,
    /// Ask the gateway over plain HTTP on another machine, with the token in clear, because a
    /// private network protects it.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_plain_gateway: bool,
    /// How log lines are written: text or json.
    #[arg(long, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogFormat>,
}

#[derive(Args, Serialize)]
struct Tls {
    /// PEM file with this relay's certificate chain.
    #[arg(long = "tls-certificate", value_name = "PEM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<PathBuf>,
    /// PEM file with its private key.
    #[arg(long = "tls-key", value_name = "PEM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
}

impl Tls {
    fn is_none(&self) -> bool {
        self.certificate.is_none() && self.key.is_none()
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { config, flags } = arguments;
    let layers = LayersOf::<RelayConfig>::new(config.as_deref(), environment(), flags)?;
    let config = layers.config()?;
    init_log(config.log)?;
    runtime()?.block_on(async {
        let signals = Signals::listen()?;
        let relay = Relay::start(&config).await?;
        out!("listening on {}", relay.address());
        out!("admin on {}", relay.admin_address());
        relay.run(signals).await;
        Ok(ExitCode::SUCCESS)
    })
}
