//! The gateway behind a relay: whether it is one, and takes this relay's token.

use std::{
    path::PathBuf,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use axum::http::header;
use incrowd_protocol::{MediaType, paths};
use incrowd_transport::{Address, Answer, Http, Request, TransportError};
use thiserror::Error;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::RelayConfig;
use crate::{
    ServiceError,
    files::trust,
    role::{Change, Reload},
    tokens::read_token,
};

/// How long the gateway has to show that it is one.
const PATIENCE: Duration = Duration::from_secs(4);

/// Why a gateway cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// It may come back.
    #[error("the gateway does not answer (--gateway {url}): {reason}")]
    Away {
        /// Its address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Something else is there.
    #[error(
        "there is no Oblivious HTTP gateway at --gateway {url}: {found}. It must be the base address of a shuffler with shuffler.gateway = true"
    )]
    None {
        /// The address.
        url: String,
        /// What it answered.
        found: String,
    },
    /// The token is not a relay's.
    #[error(
        "the gateway at {url} refuses the token in {token_file} (--token-file) with status {status}: its operator makes one with `incrowd keys token --role relay --data <its folder> --out relay.token`"
    )]
    Token {
        /// The gateway's address.
        url: String,
        /// The token's file.
        token_file: PathBuf,
        /// Its answer.
        status: u16,
    },
}

/// The gateway, and how it knows this relay.
pub(super) struct Gateway {
    url: String,
    http: Http,
    token_file: PathBuf,
    token: RwLock<Zeroizing<String>>,
}

impl Gateway {
    pub fn new(config: &RelayConfig) -> Result<Self, ServiceError> {
        let address = Address::new(&config.gateway, "gateway", config.allow_plain_gateway)?;
        let http = Http::new(address, &trust(config.gateway_ca.as_deref())?)?;
        let token_file = config.token_file.clone().unwrap_or_default();
        let token = RwLock::new(read(&token_file)?);
        Ok(Self { url: config.gateway.clone(), http, token_file, token })
    }

    /// Sends a request with the token. `grow` is asked for the memory of the answer.
    pub async fn send<E: From<TransportError>>(
        &self,
        request: Request,
        grow: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Answer, E> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.http.send_within(request.token(&token)?, grow).await
    }

    /// Whether it hands out keys and takes the token. Changes nothing there.
    pub async fn check(&self) -> Result<(), GatewayError> {
        let timed_out = || Err(self.away("no answer in time".into()));
        timeout(PATIENCE, self.ask()).await.unwrap_or_else(|_| timed_out())
    }

    async fn ask(&self) -> Result<(), GatewayError> {
        let away = |error: TransportError| self.away(error.to_string());
        let keys = self.http.send(Request::get(paths::GATEWAY_KEYS)).await.map_err(away)?;
        self.is_final("a request for its keys", keys.status, 200)?;
        let kind = keys.header(header::CONTENT_TYPE.as_str());
        if kind != Some(MediaType::ObliviousKeys.as_str())
            || ohttp::ClientRequest::from_encoded_config_list(&keys.body).is_err()
        {
            return Err(self.none("its key configurations do not parse".into()));
        }
        let asked = self.send(Request::get(paths::GATEWAY), |_| Ok(())).await;
        let status = asked.map_err(away)?.status;
        if matches!(status, 401 | 403) {
            let (url, token_file) = (self.url.clone(), self.token_file.clone());
            return Err(GatewayError::Token { url, token_file, status });
        }
        self.is_final("a request with the token", status, 204)
    }

    fn is_final(&self, request: &str, found: u16, expected: u16) -> Result<(), GatewayError> {
        let told = format!("{request} was answered {found} instead of {expected}");
        match found {
            found if found == expected => Ok(()),
            408 | 429 | 500.. => Err(self.away(told)),
            _ => Err(self.none(told)),
        }
    }

    fn away(&self, reason: String) -> GatewayError {
        GatewayError::Away { url: self.url.clone(), reason }
    }

    fn none(&self, found: String) -> GatewayError {
        GatewayError::None { url: self.url.clone(), found }
    }
}

/// The token.
impl Reload for Gateway {
    fn reload(&self) -> Result<Change<'_>, ServiceError> {
        let token = read(&self.token_file)?;
        Ok(Box::new(|| *self.token.write().unwrap_or_else(PoisonError::into_inner) = token))
    }
}

fn read(path: &std::path::Path) -> Result<Zeroizing<String>, ServiceError> {
    let token = read_token(path)?;
    // What is no token at all is found here, not with every request.
    let unusable = |_| ServiceError::NotAToken { path: path.to_owned(), role: "relay" };
    Request::get("/").token(&token).map_err(unusable)?;
    if token.is_empty() {
        return Err(ServiceError::NotAToken { path: path.to_owned(), role: "relay" });
    }
    Ok(token)
}
