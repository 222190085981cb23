//! `incrowd relay`: hides who sends from the shuffler.

use std::{error::Error, fs, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::Args;
use incrowd_node::{LogFormat, Relay, Signals, TlsConfig, init_log, parse_address, read_token};

use crate::runtime;

/// An Oblivious HTTP relay: carries sealed requests to the shuffler's gateway, so that the shuffler
/// sees this relay's address and no one else's.
///
/// It is only worth something when another party than the shuffler's operator runs it.
///
/// Example: incrowd relay --gateway http://127.0.0.1:8787 --token-file relay.token --listen
/// 127.0.0.1:8790
#[derive(Args)]
pub struct Arguments {
    /// Base address of the shuffler.
    #[arg(long, value_name = "URL")]
    gateway: String,
    /// File with the token that the shuffler's operator made with `incrowd keys token --role
    /// relay`.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Where devices come; port 0 takes a free one.
    #[arg(
        long, value_name = "ADDRESS", default_value = "127.0.0.1:8790", value_parser = parse_address
    )]
    listen: SocketAddr,
    /// PEM file with the certificates to trust for the gateway, instead of the system's.
    #[arg(long, value_name = "PEM")]
    gateway_ca: Option<PathBuf>,
    /// PEM file with this relay's certificate chain.
    #[arg(long, value_name = "PEM", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// PEM file with its private key.
    #[arg(long, value_name = "PEM", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Speak plain HTTP to others than this machine, because something in front has TLS.
    #[arg(long)]
    allow_plain_http: bool,
    /// How log lines are written: text or json.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log: LogFormat,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    init_log(arguments.log)?;
    let token = read_token(&arguments.token_file)?;
    let ca = arguments.gateway_ca.as_ref().map(fs::read).transpose()?;
    let tls = arguments.tls_certificate.clone().zip(arguments.tls_key.clone());
    let tls = tls.map(|(certificate, key)| TlsConfig { certificate, key });
    runtime()?.block_on(async {
        let signals = Signals::listen()?;
        let relay = Relay::new(&arguments.gateway, &token, ca.as_deref())?;
        let running = relay.listen(arguments.listen, tls.as_ref(), arguments.allow_plain_http)?;
        out!("listening on {}", running.address());
        running.run(signals).await;
        Ok(ExitCode::SUCCESS)
    })
}
