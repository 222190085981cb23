//! How many connections a listener has, in all and from one network.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::bounds::Bounds;

/// The network that an address is counted with: an IPv4 address by itself, an IPv6 address with the
/// 2^64 that one customer usually has.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

/// The open connections of a listener.
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    listener: &'static str,
    bounds: Bounds,
    open: Mutex<Open>,
    /// Whether the last connection was refused: told once.
    refusing: AtomicBool,
}

#[derive(Default)]
struct Open {
    all: usize,
    /// Addresses are kept as long as they are connected.
    by_network: HashMap<IpAddr, usize>,
}

/// One connection, counted until it is dropped.
pub(super) struct Connection {
    shared: Arc<Shared>,
    network: IpAddr,
}

impl Connections {
    pub fn new(listener: &'static str, bounds: Bounds) -> Self {
        let (open, refusing) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(Shared { listener, bounds, open, refusing }))
    }

    /// A place for a connection from an address, if there is one.
    pub fn enter(&self, peer: IpAddr) -> Option<Connection> {
        let (limits, metrics) = (self.0.bounds.limits(), self.0.bounds.metrics());
        let network = network_of(peer);
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_network = open.by_network.get(&network).copied().unwrap_or(0);
        let refused = if open.all >= limits.connections {
            Some((&metrics.listener_full, "http.connections"))
        } else if limits.connections_per_peer > 0 && of_network >= limits.connections_per_peer {
            Some((&metrics.peer_full, "http.connections_per_peer"))
        } else {
            None
        };
        if let Some((counter, setting)) = refused {
            counter.inc();
            if !self.0.refusing.swap(true, Relaxed) {
                let listener = self.0.listener;
                tracing::warn!(listener, setting, "connections are refused: there are too many");
            }
            return None;
        }
        self.0.refusing.store(false, Relaxed);
        open.all += 1;
        *open.by_network.entry(network).or_default() += 1;
        metrics.connections.inc();
        Some(Connection { shared: self.0.clone(), network })
    }
}

impl Connection {
    /// Holds the place until the connection ends.
    pub async fn hold(self, connection: impl Future<Output = ()>) {
        connection.await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        if let Some(number) = open.by_network.get_mut(&self.network) {
            *number -= 1;
            if *number == 0 {
                open.by_network.remove(&self.network);
            }
        }
        self.shared.bounds.metrics().connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HttpLimits, Metrics};

    #[test]
    fn networks_are_addresses_or_64_bits() {
        for (address, network) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            let [address, network]: [IpAddr; 2] = [address, network].map(|a| a.parse().unwrap());
            assert_eq!(network_of(address), network);
        }
    }

    #[test]
    fn places_are_limited_in_all_and_by_network_and_come_back() {
        let limits =
            HttpLimits { connections: 3, connections_per_peer: 2, ..HttpLimits::default() };
        let metrics = Metrics::default().listener("devices");
        let connections = Connections::new("devices", Bounds::new(limits, metrics.clone()));
        let peer = |last| IpAddr::from([192, 0, 2, last]);
        let mut open: Vec<_> = [1, 1, 2].map(|last| connections.enter(peer(last)).unwrap()).into();
        assert!(connections.enter(peer(3)).is_none(), "the listener is full");
        assert_eq!((metrics.listener_full.get(), metrics.peer_full.get()), (1, 0));
        open.pop();
        assert!(connections.enter(peer(1)).is_none(), "two from one address");
        assert_eq!((metrics.listener_full.get(), metrics.peer_full.get()), (1, 1));
        assert!(connections.enter(peer(2)).is_some());
        open.clear();
        assert_eq!(metrics.connections.get(), 0);
        let shared = connections.0.open.lock().unwrap();
        assert!(shared.all == 0 && shared.by_network.is_empty(), "no address is kept");
    }
}
