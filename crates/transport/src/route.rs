use std::sync::{Mutex, PoisonError};

use incrowd_protocol::TaskNotice;

use crate::{Address, Answer, Http, Request, TransportError, Trust, relay::Relay};

/// The way of all requests to a service.
#[derive(Debug, Clone)]
pub enum Route {
    /// To its own address.
    Direct(Address),
    /// Through a relay.
    Oblivious {
        /// Where requests go.
        relay: Address,
        /// The shuffler, as requests inside name it.
        target: Address,
    },
}

/// A route with its connections.
#[derive(Debug)]
pub(crate) enum Way {
    Direct(Http),
    /// Through a relay, with the key configurations of the last notice.
    Oblivious(Relay, Mutex<Vec<u8>>),
}

impl Way {
    pub(crate) fn new(route: Route, trust: &Trust) -> Result<Self, TransportError> {
        Ok(match route {
            Route::Direct(address) => Self::Direct(Http::new(address, trust)?),
            Route::Oblivious { relay, target } => {
                Self::Oblivious(Relay::new(relay, target, trust)?, Mutex::default())
            }
        })
    }

    pub(crate) async fn send(&self, request: Request) -> Result<Answer, TransportError> {
        match self {
            Self::Direct(http) => http.send(request).await,
            Self::Oblivious(relay, keys) => {
                let keys = keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
                relay.send(&keys, &request).await
            }
        }
    }

    /// Sends a request with the key configurations that a relay hands out, which it also gives.
    /// They are not believed yet.
    pub(crate) async fn send_first(
        &self,
        request: Request,
    ) -> Result<(Answer, Option<Vec<u8>>), TransportError> {
        match self {
            Self::Direct(http) => Ok((http.send(request).await?, None)),
            Self::Oblivious(relay, _) => {
                let keys = relay.keys().await?;
                Ok((relay.send(&keys, &request).await?, Some(keys)))
            }
        }
    }

    /// Uses the key configurations of a notice that was checked.
    pub(crate) fn adopt(&self, notice: &TaskNotice) -> Result<(), TransportError> {
        if let Self::Oblivious(_, keys) = self {
            let text = notice.gateway_keys.as_ref().ok_or(TransportError::GatewayKeys)?;
            let bytes = hex::decode(text).map_err(|_| TransportError::GatewayKeys)?;
            *keys.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        }
        Ok(())
    }
}
