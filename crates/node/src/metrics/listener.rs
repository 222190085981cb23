//! What an operator sees of a listener.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

/// Statuses that are counted from the start.
const STATUSES: [u16; 16] =
    [200, 202, 204, 304, 400, 401, 403, 404, 405, 408, 410, 413, 415, 422, 429, 503];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabel {
    listener: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    listener: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    listener: &'static str,
    route: String,
}

fn histogram() -> Histogram {
    Histogram::new([1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0])
}

/// The metrics of all listeners.
#[derive(Clone)]
pub(super) struct Listeners {
    requests: Family<StatusLabel, Counter>,
    seconds: Family<RouteLabel, Histogram>,
    connections: Family<ListenerLabel, Gauge>,
    connections_refused: Family<ReasonLabel, Counter>,
    connections_stalled: Family<ListenerLabel, Counter>,
    accept_failures: Family<ListenerLabel, Counter>,
    requests_open: Family<ListenerLabel, Gauge>,
    waiting: Family<ListenerLabel, Gauge>,
    requests_refused: Family<ReasonLabel, Counter>,
    memory: Gauge,
    memory_limit: Gauge,
}

impl Default for Listeners {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            connections: Family::default(),
            connections_refused: Family::default(),
            connections_stalled: Family::default(),
            accept_failures: Family::default(),
            requests_open: Family::default(),
            waiting: Family::default(),
            requests_refused: Family::default(),
            memory: Gauge::default(),
            memory_limit: Gauge::default(),
        }
    }
}

impl Listeners {
    pub fn register(&self, r: &mut Registry) {
        r.register("http_requests", "Answers by status", self.requests.clone());
        let help = "Time to an answer, without requests that asked to wait";
        r.register_with_unit("http_request", help, Unit::Seconds, self.seconds.clone());
        r.register("http_connections", "Open connections", self.connections.clone());
        let help = "Connections that were closed at once because there were too many";
        r.register("http_connections_refused", help, self.connections_refused.clone());
        let help = "Connections that were closed because they took nothing of an answer";
        r.register("http_connections_stalled", help, self.connections_stalled.clone());
        let help = "Connections that the system did not hand over";
        r.register("http_accept_failures", help, self.accept_failures.clone());
        let help = "Requests being answered, without those that wait";
        r.register("http_requests_open", help, self.requests_open.clone());
        let help = "Requests that wait for something to happen";
        r.register("http_waiting", help, self.waiting.clone());
        let help = "Requests that were refused for want of a place or of memory";
        r.register("http_requests_refused", help, self.requests_refused.clone());
        let help = "Memory for the contents of requests";
        r.register_with_unit("http_memory", help, Unit::Bytes, self.memory.clone());
        let help = "Most memory for the contents of requests";
        r.register_with_unit("http_memory_limit", help, Unit::Bytes, self.memory_limit.clone());
        for status in STATUSES {
            let _ = self.requests.get_or_create(&StatusLabel { status });
        }
    }

    /// The metrics of one listener, all of them present from now on.
    pub fn of(&self, listener: &'static str) -> ListenerMetrics {
        let label = ListenerLabel { listener };
        let connections = |reason| {
            self.connections_refused.get_or_create_owned(&ReasonLabel { listener, reason })
        };
        let requests =
            |reason| self.requests_refused.get_or_create_owned(&ReasonLabel { listener, reason });
        ListenerMetrics {
            listener,
            requests: self.requests.clone(),
            seconds: self.seconds.clone(),
            connections: self.connections.get_or_create_owned(&label),
            listener_full: connections("listener-limit"),
            peer_full: connections("peer-limit"),
            stalled: self.connections_stalled.get_or_create_owned(&label),
            accept_failures: self.accept_failures.get_or_create_owned(&label),
            requests_open: self.requests_open.get_or_create_owned(&label),
            waiting: self.waiting.get_or_create_owned(&label),
            requests_refused: requests("requests"),
            waits_refused: requests("waits"),
            memory_refused: requests("memory"),
            memory: self.memory.clone(),
            memory_limit: self.memory_limit.clone(),
        }
    }
}

/// The metrics of one listener.
#[derive(Clone)]
pub(crate) struct ListenerMetrics {
    listener: &'static str,
    requests: Family<StatusLabel, Counter>,
    seconds: Family<RouteLabel, Histogram>,
    pub connections: Gauge,
    pub listener_full: Counter,
    pub peer_full: Counter,
    pub stalled: Counter,
    pub accept_failures: Counter,
    pub requests_open: Gauge,
    pub waiting: Gauge,
    pub requests_refused: Counter,
    pub waits_refused: Counter,
    pub memory_refused: Counter,
    /// Of all listeners together.
    pub memory: Gauge,
    /// Of the listener for devices.
    pub memory_limit: Gauge,
}

impl ListenerMetrics {
    /// Counts an answer, and the time it took unless it waited.
    pub fn answered(&self, status: u16, route: &str, seconds: Option<f64>) {
        self.requests.get_or_create(&StatusLabel { status }).inc();
        if let Some(seconds) = seconds {
            let label = RouteLabel { listener: self.listener, route: route.to_owned() };
            self.seconds.get_or_create(&label).observe(seconds);
        }
    }
}
