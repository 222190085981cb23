//! Listening: plain or TLS, with bounded times, ending gracefully.

use std::{
    net::{SocketAddr, TcpListener as BoundListener},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo, http::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::{HttpLimits, ServiceError};

/// Pause after a failed accept, for example when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener that answers.
pub(crate) struct Listener {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
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
        let socket = BoundListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        let socket = TcpListener::from_std(socket).map_err(failed)?;
        let server = Server {
            router,
            tls: tls.map(TlsAcceptor::from),
            header_time: Duration::from_secs(limits.header_seconds),
        };
        let (stop, stopped) = oneshot::channel();
        let patience = Duration::from_secs(limits.shutdown_seconds);
        let running = tokio::spawn(server.accept(socket, stopped, patience));
        Ok(Self { address: bound, stop, running })
    }

    /// Takes no new requests, lets the open ones end, and returns.
    pub async fn stop(self) {
        drop(self.stop);
        if self.running.await.is_err() {
            tracing::error!("the listener had panicked");
        }
    }
}

#[derive(Clone)]
struct Server {
    router: Router,
    tls: Option<TlsAcceptor>,
    header_time: Duration,
}

impl Server {
    async fn accept(
        self,
        socket: TcpListener,
        mut stopped: oneshot::Receiver<()>,
        patience: Duration,
    ) {
        let open = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = &mut stopped => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    tokio::spawn(self.clone().connection(stream, peer, open.watcher()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(socket);
        if timeout(patience, open.shutdown()).await.is_err() {
            tracing::warn!("requests were still open after http.shutdown_seconds");
        }
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, open: Watcher) {
        // An answer is one small segment: waiting for more to send would only delay it.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve(stream, peer, open).await,
            Some(tls) => {
                let handshake = timeout(self.header_time, tls.accept(stream)).await;
                if let Ok(Ok(stream)) = handshake {
                    self.serve(stream, peer, open).await;
                }
            }
        }
    }

    /// HTTP/1.1 only: to find out the version, the first bytes would be waited for without a limit.
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        peer: SocketAddr,
        open: Watcher,
    ) {
        let router = self.router;
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_time)
            .serve_connection(TokioIo::new(stream), service);
        // A connection that breaks off or sends no HTTP is the sender's affair.
        let _ = open.watch(connection).await;
    }
}
