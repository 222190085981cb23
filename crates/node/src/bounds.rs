//! What one listener grants to all of its requests together: places, waits and memory.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::Request,
    http::{Extensions, Method},
};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    HttpLimits,
    metrics::ListenerMetrics,
    problem::{Kind, Problem},
    readiness::RecentFailure,
};

/// Memory that every request has without asking: large bodies cannot keep single reports out.
const OWN_MEMORY: usize = 64 << 10;
/// The unit in which memory is granted.
const UNIT: usize = 1 << 10;

/// The bounds of a listener. Every request carries them among its extensions.
#[derive(Clone)]
pub(crate) struct Bounds(Arc<Shared>);

struct Shared {
    limits: HttpLimits,
    metrics: ListenerMetrics,
    uploads: Semaphore,
    reads: Semaphore,
    waits: Semaphore,
    memory: Semaphore,
    /// When a request was last refused for want of a place or of memory.
    refused: RecentFailure,
}

/// What a request takes a place of. Requests that wait, and those that only read, cannot keep
/// uploads out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Brings something.
    Upload,
    /// Is answered at once.
    Read,
    /// Asks to wait for something to happen.
    Wait,
}

impl Purpose {
    pub fn of(request: &Request) -> Self {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Self::Upload;
        }
        let mut query = request.uri().query().unwrap_or_default().split('&');
        let waits = query.any(|part| part.strip_prefix("wait=").is_some_and(|time| time != "0"));
        if waits { Self::Wait } else { Self::Read }
    }
}

/// A place that is given back when it is dropped.
pub(crate) struct Place<'a> {
    _permit: SemaphorePermit<'a>,
    bounds: &'a Shared,
    purpose: Purpose,
}

impl Bounds {
    pub fn new(limits: HttpLimits, metrics: ListenerMetrics) -> Self {
        let places = || Semaphore::new(limits.concurrent_requests);
        Self(Arc::new(Shared {
            uploads: places(),
            reads: places(),
            waits: Semaphore::new(limits.concurrent_waits),
            memory: Semaphore::new(limits.memory_bytes / UNIT),
            refused: RecentFailure::default(),
            limits,
            metrics,
        }))
    }

    /// The bounds of the listener that a request came to.
    pub fn of(extensions: &Extensions) -> Self {
        let bounds = extensions.get::<Self>();
        bounds.expect("invariant: the middleware of a listener adds its bounds").clone()
    }

    pub fn limits(&self) -> &HttpLimits {
        &self.0.limits
    }

    pub fn metrics(&self) -> &ListenerMetrics {
        &self.0.metrics
    }

    /// A place for a request.
    pub fn enter(&self, purpose: Purpose) -> Result<Place<'_>, Problem> {
        let (pool, rule) = match purpose {
            Purpose::Upload => (&self.0.uploads, "http.concurrent_requests"),
            Purpose::Read => (&self.0.reads, "http.concurrent_requests"),
            Purpose::Wait => (&self.0.waits, "http.concurrent_waits"),
        };
        let Ok(permit) = pool.try_acquire() else {
            let waits = purpose == Purpose::Wait;
            let metrics = self.metrics();
            if waits { &metrics.waits_refused } else { &metrics.requests_refused }.inc();
            if !waits {
                self.0.refused.record();
            }
            let detail = format!("too many requests at once ({rule})");
            return Err(Problem::new(Kind::Unavailable, detail));
        };
        self.0.open(purpose).inc();
        Ok(Place { _permit: permit, bounds: &self.0, purpose })
    }

    /// Memory for the content of a request, nothing yet.
    pub fn memory(&self) -> Memory {
        Memory { bounds: self.clone(), used: 0, units: 0 }
    }

    /// Why requests are refused now, or were a moment ago.
    pub fn exhausted(&self) -> Option<&'static str> {
        let full = self.0.uploads.available_permits() == 0 || self.0.reads.available_permits() == 0;
        (full || self.0.refused.is_recent()).then_some(
            "requests are refused: there are more at once than http.concurrent_requests or \
             http.memory_bytes allow",
        )
    }
}

impl Shared {
    fn open(&self, purpose: Purpose) -> &prometheus_client::metrics::gauge::Gauge {
        match purpose {
            Purpose::Wait => &self.metrics.waiting,
            Purpose::Upload | Purpose::Read => &self.metrics.requests_open,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.bounds.open(self.purpose).dec();
    }
}

/// The memory of one request, given back when it is dropped.
pub(crate) struct Memory {
    bounds: Bounds,
    used: usize,
    /// Granted beyond the request's own share.
    units: usize,
}

impl Memory {
    /// Asks for more.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let Shared { limits, memory, metrics, .. } = &*self.bounds.0;
        let used = self.used.saturating_add(bytes);
        let units = used.saturating_sub(OWN_MEMORY).div_ceil(UNIT);
        if units > limits.memory_bytes / UNIT {
            let rule = format!(
                "the request needs {used} bytes of memory, http.memory_bytes is {}: send fewer \
                 reports at once",
                limits.memory_bytes
            );
            return Err(Problem::new(Kind::TooLarge, rule));
        }
        let more = u32::try_from(units - self.units).unwrap_or(u32::MAX);
        let Ok(granted) = memory.try_acquire_many(more) else {
            metrics.memory_refused.inc();
            self.bounds.0.refused.record();
            let detail = "too many large requests at once (http.memory_bytes)";
            return Err(Problem::new(Kind::Unavailable, detail));
        };
        granted.forget();
        metrics.memory.inc_by(i64::from(more) * UNIT as i64);
        (self.used, self.units) = (used, units);
        Ok(())
    }

    /// An answer whose memory this is: given back when the last of it is sent.
    pub fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held { bytes, _memory: self })
    }
}

struct Held {
    bytes: Vec<u8>,
    _memory: Memory,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.bounds.0.memory.add_permits(self.units);
        self.bounds.metrics().memory.dec_by((self.units * UNIT) as i64);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::Metrics;

    fn bounds(limits: HttpLimits) -> Bounds {
        Bounds::new(limits, Metrics::default().listener("devices"))
    }

    #[test]
    fn only_a_request_that_asks_to_wait_takes_a_waiting_place() {
        for (method, path, purpose) in [
            ("GET", "/x", Purpose::Read),
            ("GET", "/x?wait=0", Purpose::Read),
            ("GET", "/x?after=1&wait=20", Purpose::Wait),
            ("HEAD", "/x?wait=1", Purpose::Wait),
            ("GET", "/x?awaits=1", Purpose::Read),
            ("PUT", "/x?wait=20", Purpose::Upload),
            ("POST", "/x", Purpose::Upload),
        ] {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            assert_eq!(Purpose::of(&request), purpose, "{method} {path}");
        }
    }

    #[test]
    fn pools_are_apart_and_come_back() {
        let limits =
            HttpLimits { concurrent_requests: 1, concurrent_waits: 1, ..Default::default() };
        let bounds = bounds(limits);
        let waiting = bounds.enter(Purpose::Wait).unwrap();
        assert!(bounds.enter(Purpose::Wait).is_err());
        assert_eq!(bounds.exhausted(), None, "waits that are refused stop nobody else");
        let reading = bounds.enter(Purpose::Read).unwrap();
        let upload = bounds.enter(Purpose::Upload).unwrap();
        assert!(bounds.enter(Purpose::Read).is_err() && bounds.enter(Purpose::Upload).is_err());
        assert!(bounds.exhausted().is_some());
        drop((waiting, reading, upload));
        for purpose in [Purpose::Wait, Purpose::Read, Purpose::Upload] {
            assert!(bounds.enter(purpose).is_ok());
        }
        assert_eq!(bounds.metrics().requests_open.get(), 0);
        assert_eq!(bounds.metrics().waiting.get(), 0);
    }

    #[test]
    fn memory_beyond_a_requests_own_is_shared_and_comes_back() {
        let bounds = bounds(HttpLimits { memory_bytes: 1 << 20, ..Default::default() });
        let mut large = bounds.memory();
        large.grow(OWN_MEMORY).unwrap();
        assert_eq!(bounds.metrics().memory.get(), 0, "its own");
        large.grow((1 << 20) - 5).unwrap();
        assert_eq!(bounds.metrics().memory.get(), 1 << 20);
        let mut small = bounds.memory();
        small.grow(OWN_MEMORY).unwrap();
        assert_eq!(small.grow(1).unwrap_err().kind, Kind::Unavailable);
        assert!(bounds.exhausted().is_some());
        assert_eq!(large.grow(10).unwrap_err().kind, Kind::TooLarge, "could never pass");
        drop(large);
        small.grow(1).unwrap();
        drop(small);
        assert_eq!(bounds.metrics().memory.get(), 0);
        let mut answer = bounds.memory();
        answer.grow(OWN_MEMORY + UNIT).unwrap();
        let answer = answer.hold(vec![1; 7]);
        let rest = answer.slice(5..);
        drop(answer);
        assert_eq!((&*rest, bounds.metrics().memory.get()), (&[1, 1][..], UNIT as i64));
        drop(rest);
        assert_eq!(bounds.metrics().memory.get(), 0);
    }
}
