//! Listening: plain or TLS, with bounded times, ending gracefully.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use tokio::task::JoinHandle;

use crate::{HttpLimits, ServiceError};

/// A listener that answers.
pub(crate) struct Listener {
    pub address: SocketAddr,
    handle: Handle<SocketAddr>,
    running: JoinHandle<io::Result<()>>,
    patience: Duration,
}

impl Listener {
    /// Begins to answer on an address; port 0 takes a free one.
    pub fn start(
        address: SocketAddr,
        router: Router,
        tls: Option<Arc<ServerConfig>>,
        limits: HttpLimits,
    ) -> Result<Self, ServiceError> {
        let failed = |error| ServiceError::Listen { address, error };
        let socket = TcpListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let handle = Handle::new();
        let server = axum_server::from_tcp(socket).map_err(failed)?.handle(handle.clone());
        let headers = Duration::from_secs(limits.header_seconds);
        // HTTP/1.1 only: to find out which version it is, the first bytes would be waited for without a limit.
        let running = if let Some(tls) = tls {
            let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(tls))
                .handshake_timeout(headers)
                .acceptor(NoDelayAcceptor::new());
            let mut server = server.acceptor(acceptor).http1_only();
            server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(headers);
            tokio::spawn(server.serve(service))
        } else {
            let mut server = server.acceptor(NoDelayAcceptor::new()).http1_only();
            server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(headers);
            tokio::spawn(server.serve(service))
        };
        let patience = Duration::from_secs(limits.shutdown_seconds);
        Ok(Self { address: bound, handle, running, patience })
    }

    /// Takes no new requests, lets the open ones end, and returns.
    pub async fn stop(self) {
        self.handle.graceful_shutdown(Some(self.patience));
        match self.running.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the listener failed"),
            Err(_) => tracing::error!("the listener had panicked"),
        }
    }
}
