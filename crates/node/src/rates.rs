//! How many reports a second one sender may bring.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::request::Parts,
};
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};

use crate::{HttpLimits, listener::network_of};

/// How often addresses that no longer matter are forgotten.
const SWEEP: Duration = Duration::from_secs(10);

/// The relay that carried a request through the gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CarriedBy(pub IpAddr);

/// Who a request counts for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sender {
    Peer(IpAddr),
    Relay(IpAddr),
    /// Not over a network.
    Nobody,
}

impl<S: Send + Sync> FromRequestParts<S> for Sender {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        if let Some(CarriedBy(relay)) = parts.extensions.get() {
            return Ok(Self::Relay(network_of(*relay)));
        }
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(peer.map_or(Self::Nobody, |ConnectInfo(peer)| Self::Peer(network_of(peer.ip()))))
    }
}

/// The limits of senders. Addresses are in memory only, and only as long as they matter.
pub(crate) struct Rates {
    peer: Option<Limiter>,
    relay: Option<Limiter>,
}

struct Limiter {
    by_network: DefaultKeyedRateLimiter<IpAddr>,
    swept: Mutex<Instant>,
}

impl Rates {
    pub fn new(limits: &HttpLimits) -> Self {
        let limiter = |per_second| {
            let quota = Quota::per_second(NonZeroU32::new(per_second)?);
            let by_network = RateLimiter::keyed(quota);
            Some(Limiter { by_network, swept: Mutex::new(Instant::now()) })
        };
        let peer = limits.reports_per_second_per_peer;
        let relay = limits.reports_per_second_per_relay;
        Self { peer: limiter(peer), relay: limiter(if relay == 0 { peer } else { relay }) }
    }

    /// Whether so many reports may come now; otherwise when to come again, in seconds.
    pub fn admit(&self, sender: Sender, reports: NonZeroU32) -> Result<(), u64> {
        let (limiter, network) = match sender {
            Sender::Peer(network) => (&self.peer, network),
            Sender::Relay(network) => (&self.relay, network),
            Sender::Nobody => return Ok(()),
        };
        limiter.as_ref().map_or(Ok(()), |limiter| limiter.admit(&network, reports))
    }
}

impl Limiter {
    fn admit(&self, network: &IpAddr, reports: NonZeroU32) -> Result<(), u64> {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.elapsed() > SWEEP {
                *swept = Instant::now();
                self.by_network.retain_recent();
            }
        }
        match self.by_network.check_key_n(network, reports) {
            // A bulk above the burst size can never pass; the answer makes the client split it.
            Err(_) => Err(1),
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => {
                Err(until.wait_time_from(DefaultClock::default().now()).as_secs() + 1)
            }
        }
    }
}
