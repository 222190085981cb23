//! Listening: plain or TLS, with bounded connections and times, ending gracefully.

mod connections;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo, http::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

use crate::{HttpLimits, Metrics, ServiceError, bounds::Bounds, http::with_middleware, tls::Tls};
use connections::Connections;
pub(crate) use connections::network_of;

/// Pause after a failed accept, for example when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener that answers.
pub(crate) struct Listener {
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// A listener that has its address and does not answer yet: whoever comes waits.
pub(crate) struct BoundListener {
    pub address: SocketAddr,
    pub bounds: Bounds,
    name: &'static str,
    socket: TcpListener,
}

impl BoundListener {
    /// Takes an address; port 0 takes a free one. Metrics call it `name`.
    pub fn bind(
        name: &'static str,
        address: SocketAddr,
        limits: HttpLimits,
        metrics: &Metrics,
    ) -> Result<Self, ServiceError> {
        let failed = |error| ServiceError::Listen { address, error };
        let socket = std::net::TcpListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let socket = TcpListener::from_std(socket).map_err(failed)?;
        Ok(Self { address, bounds: Bounds::new(limits, metrics.listener(name)), name, socket })
    }

    /// Begins to answer.
    pub fn answer(self, router: Router, tls: Option<Arc<Tls>>) -> Listener {
        let Self { bounds, name, socket, .. } = self;
        let server = Server { name, router: with_middleware(router, bounds.clone()), tls, bounds };
        let (stop, stopped) = oneshot::channel();
        Listener { stop, running: tokio::spawn(server.accept(socket, stopped)) }
    }
}

impl Listener {
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
    name: &'static str,
    router: Router,
    tls: Option<Arc<Tls>>,
    bounds: Bounds,
}

impl Server {
    async fn accept(self, socket: TcpListener, mut stopped: oneshot::Receiver<()>) {
        let open = GracefulShutdown::new();
        let connections = Connections::new(self.name, self.bounds.clone());
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = &mut stopped => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    failing = false;
                    // One too many is closed here, so that it does not stay in the system's queue.
                    if let Some(place) = connections.enter(peer.ip()) {
                        let connection = self.clone().connection(stream, peer, open.watcher());
                        tokio::spawn(place.hold(connection));
                    }
                }
                Err(error) => {
                    self.bounds.metrics().accept_failures.inc();
                    if !failing {
                        let listener = self.name;
                        tracing::error!(%error, listener, "connections cannot be accepted");
                    }
                    failing = true;
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(socket);
        let patience = Duration::from_secs(self.bounds.limits().shutdown_seconds);
        if timeout(patience, open.shutdown()).await.is_err() {
            tracing::warn!("requests were still open after http.shutdown_seconds");
        }
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, open: Watcher) {
        // An answer is one small segment: waiting for more to send would only delay it.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        let limits = self.bounds.limits();
        stream.set_write_timeout(Some(Duration::from_secs(limits.write_seconds)));
        let stream = Box::pin(stream);
        match &self.tls {
            None => self.serve(stream, peer, open).await,
            Some(tls) => {
                let time = Duration::from_secs(limits.header_seconds);
                if let Ok(Ok(stream)) = timeout(time, tls.acceptor().accept(stream)).await {
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
        let limits = self.bounds.limits();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(limits.header_seconds))
            .max_buf_size(limits.header_bytes)
            .serve_connection(TokioIo::new(stream), service);
        // A connection that breaks off or sends no HTTP is neither counted nor logged.
        if let Err(error) = open.watch(connection).await
            && is_stalled(&error)
        {
            self.bounds.metrics().stalled.inc();
        }
    }
}

/// Whether a connection ended because nothing of an answer was taken.
fn is_stalled(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref());
    cause.is_some_and(|cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut)
}
