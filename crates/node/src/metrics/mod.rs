//! What an operator sees. No label or value is about a person.

mod listener;
mod process;

use std::{sync::atomic::AtomicU64, time::SystemTime};

use incrowd_privacy::Certificate;
use incrowd_protocol::{Task, TaskId};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use crate::{Kind, shuffler::Progress};
pub(crate) use listener::ListenerMetrics;
use listener::Listeners;
use process::Process;

/// What becomes of a report, apart from problems.
const OUTCOMES: [&str; 3] = ["counted", "surplus", "duplicate"];
/// The problems that a report can have.
const PROBLEMS: [Kind; 11] = [
    Kind::InvalidReport,
    Kind::OtherId,
    Kind::UnknownKey,
    Kind::CannotOpen,
    Kind::Late,
    Kind::Early,
    Kind::OtherLaw,
    Kind::Finished,
    Kind::RateLimited,
    Kind::OverQuota,
    Kind::Unavailable,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    task: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RelayLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EpsilonLabel {
    task: String,
    adversary: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabel {
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabel {}

type Float = Gauge<f64, AtomicU64>;

/// Every metric of a node; `docs/operations.md` says what each means.
pub struct Metrics {
    registry: Registry,
    reports: Family<OutcomeLabel, Counter>,
    round: Family<TaskLabel, Gauge>,
    batch_reports: Family<TaskLabel, Gauge>,
    batch_size: Family<TaskLabel, Gauge>,
    remembered: Family<TaskLabel, Gauge>,
    model_version: Family<TaskLabel, Gauge>,
    model_round: Family<TaskLabel, Gauge>,
    collector_failures: Family<TaskLabel, Counter>,
    model_fetch_failures: Family<TaskLabel, Counter>,
    collector_up: Family<TaskLabel, Gauge>,
    last_release: Family<TaskLabel, Gauge>,
    round_closes: Family<TaskLabel, Gauge>,
    epsilon: Family<EpsilonLabel, Float>,
    listeners: Listeners,
    certificate_expiry: Family<NoLabel, Gauge>,
    ready: Gauge,
    commit_queue: Gauge,
    commit_seconds: Histogram,
    commit_reports: Histogram,
    store_failures: Counter,
    store_retries: Counter,
    clock_jumps: Counter,
    missed_rounds: Family<TaskLabel, Counter>,
    late_releases: Family<TaskLabel, Counter>,
    lost_commits: Family<TaskLabel, Counter>,
    relayed: Family<RelayLabel, Counter>,
}

impl Metrics {
    fn unregistered() -> Self {
        let seconds = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0];
        let sizes = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0];
        Self {
            registry: Registry::default(),
            reports: Family::default(),
            round: Family::default(),
            batch_reports: Family::default(),
            batch_size: Family::default(),
            remembered: Family::default(),
            model_version: Family::default(),
            model_round: Family::default(),
            collector_failures: Family::default(),
            model_fetch_failures: Family::default(),
            collector_up: Family::default(),
            last_release: Family::default(),
            round_closes: Family::default(),
            epsilon: Family::default(),
            listeners: Listeners::default(),
            certificate_expiry: Family::default(),
            ready: Gauge::default(),
            commit_queue: Gauge::default(),
            commit_seconds: Histogram::new(seconds),
            commit_reports: Histogram::new(sizes),
            store_failures: Counter::default(),
            store_retries: Counter::default(),
            clock_jumps: Counter::default(),
            missed_rounds: Family::default(),
            late_releases: Family::default(),
            lost_commits: Family::default(),
            relayed: Family::default(),
        }
    }

    /// What every process has.
    fn register_process(&mut self) -> &mut Registry {
        self.registry.register_collector(Box::new(Process));
        let r = self.registry.sub_registry_with_prefix("incrowd");
        let build = Info::new(BuildLabel { version: env!("CARGO_PKG_VERSION") });
        r.register("build", "The program", build);
        self.listeners.register(r);
        let help = "When the TLS certificate expires, since 1970; absent without TLS";
        let expiry = self.certificate_expiry.clone();
        r.register_with_unit("tls_certificate_expiry_timestamp", help, Unit::Seconds, expiry);
        r.register("ready", "Whether the service is ready", self.ready.clone());
        r
    }

    /// Those of a relay.
    pub(crate) fn relay() -> Self {
        let mut metrics = Self::unregistered();
        let relayed = metrics.relayed.clone();
        for outcome in ["carried", "gateway-failed", "rate-limited"] {
            let _ = relayed.get_or_create(&RelayLabel { outcome });
        }
        let help = "Requests to a relay by what became of them";
        metrics.register_process().register("relay_requests", help, relayed);
        metrics
    }

    pub(crate) fn relayed(&self, outcome: &'static str) {
        self.relayed.get_or_create(&RelayLabel { outcome }).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self::unregistered();
        metrics.register_process();
        let r = metrics.registry.sub_registry_with_prefix("incrowd");
        r.register("reports", "Reports by what became of them", metrics.reports.clone());
        r.register("round", "Round being filled, 0 when the task is over", metrics.round.clone());
        r.register(
            "batch_reports",
            "Reports in the unfinished batch",
            metrics.batch_reports.clone(),
        );
        r.register("batch_size", "Reports of a full batch", metrics.batch_size.clone());
        r.register("remembered_ids", "Ids in the grace window", metrics.remembered.clone());
        r.register("model_version", "Newest published model", metrics.model_version.clone());
        r.register(
            "model_round",
            "Last round that the bandit absorbed",
            metrics.model_round.clone(),
        );
        let failures = metrics.collector_failures.clone();
        r.register("collector_failures", "Times the bandit could not collect a release", failures);
        let help = "Times the shuffler could not fetch a model for its gateway";
        r.register("model_fetch_failures", help, metrics.model_fetch_failures.clone());
        let help = "Certified epsilon, computed at the start";
        r.register("certificate_epsilon", help, metrics.epsilon.clone());
        let help = "Whether the last try to collect a release worked, or the task is over";
        r.register("collector_up", help, metrics.collector_up.clone());
        let help = "When the last release was made, since 1970, in whole minutes";
        let last = metrics.last_release.clone();
        r.register_with_unit("last_release_timestamp", help, Unit::Seconds, last);
        let help = "When the round being filled closes, since 1970; absent where rounds close when they are full";
        let closes = metrics.round_closes.clone();
        r.register_with_unit("round_closes_timestamp", help, Unit::Seconds, closes);
        let help = "Requests that wait for a commit";
        r.register("commit_queue", help, metrics.commit_queue.clone());
        let commit = metrics.commit_seconds.clone();
        r.register_with_unit("commit", "Time of a durable commit", Unit::Seconds, commit);
        r.register("commit_reports", "Reports in a commit", metrics.commit_reports.clone());
        r.register("store_failures", "Commits that failed", metrics.store_failures.clone());
        r.register(
            "store_retries",
            "Transactions tried again because of another one",
            metrics.store_retries.clone(),
        );
        let help = "Times the clock moved by more than a second beside the time that passed";
        r.register("clock_jumps", help, metrics.clock_jumps.clone());
        let help = "Rounds that closed while the shuffler was down";
        r.register("missed_rounds", help, metrics.missed_rounds.clone());
        let help = "Releases that were not durable yet when they were to be shown";
        r.register("late_releases", help, metrics.late_releases.clone());
        let help = "Acknowledged commits that the store did not have at the start";
        r.register("lost_commits", help, metrics.lost_commits.clone());
        metrics
    }
}

fn label(task: &TaskId) -> TaskLabel {
    TaskLabel { task: task.to_string() }
}

impl Metrics {
    /// Counts reports that had one outcome: `counted`, `surplus`, `duplicate`, or a problem's name.
    pub(crate) fn outcomes(&self, task: &TaskId, outcome: &'static str) -> Counter {
        self.reports.get_or_create_owned(&OutcomeLabel { task: task.to_string(), outcome })
    }

    /// Every counter of a shuffler's task, present from now on.
    pub(crate) fn shuffles(&self, task: &TaskId) {
        for outcome in OUTCOMES.into_iter().chain(PROBLEMS.map(Kind::name)) {
            let _ = self.outcomes(task, outcome);
        }
        let label = label(task);
        for counter in [&self.missed_rounds, &self.late_releases] {
            let _ = counter.get_or_create(&label);
        }
    }

    /// The metrics of a listener: `devices`, `admin` or `relay`.
    pub(crate) fn listener(&self, name: &'static str) -> ListenerMetrics {
        self.listeners.of(name)
    }

    /// When the certificate of the listeners expires; absent without TLS.
    pub(crate) fn certificate_expiry(&self) -> Gauge {
        self.certificate_expiry.get_or_create_owned(&NoLabel {})
    }

    pub(crate) fn is_ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }

    /// Requests that wait for a commit.
    pub(crate) fn commit_queue(&self) -> &Gauge {
        &self.commit_queue
    }

    pub(crate) fn released(&self, task: &TaskId, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let minutes = since.as_secs() / 60;
        self.last_release.get_or_create(&label(task)).set(60 * minutes as i64);
    }

    pub(crate) fn certified(&self, task: &TaskId, certificate: &Certificate) {
        for (adversary, epsilon) in
            [("local", certificate.epsilon_local()), ("central", certificate.epsilon_central())]
        {
            let label = EpsilonLabel { task: task.to_string(), adversary };
            self.epsilon.get_or_create(&label).set(epsilon);
        }
    }

    pub(crate) fn progress(&self, task: &Task, progress: &Progress) {
        let label = label(&task.id());
        let round = progress.round.unwrap_or(0);
        self.round.get_or_create(&label).set(i64::from(round));
        self.batch_reports.get_or_create(&label).set(i64::from(progress.count));
        let size = task.mechanism().round(round).map_or(0, |round| round.size);
        self.batch_size.get_or_create(&label).set(i64::from(size));
        self.remembered.get_or_create(&label).set(progress.remembered as i64);
        match progress.window {
            Some(window) => {
                self.round_closes.get_or_create(&label).set((window.closes / 1000) as i64);
            }
            None => {
                self.round_closes.remove(&label);
            }
        }
    }

    pub(crate) fn absorbed(&self, task: &TaskId, round: u32, version: u64) {
        self.model_round.get_or_create(&label(task)).set(i64::from(round));
        self.model_version.get_or_create(&label(task)).set(version as i64);
    }

    /// Times that a model could not be fetched for the gateway.
    pub(crate) fn model_fetch_failures(&self, task: &TaskId) -> Counter {
        self.model_fetch_failures.get_or_create_owned(&label(task))
    }

    pub(crate) fn collector_failed(&self, task: &TaskId) {
        self.collector_failures.get_or_create(&label(task)).inc();
        self.collects(task, false);
    }

    /// Whether the collector of a task works; its counters are present from now on.
    pub(crate) fn collects(&self, task: &TaskId, works: bool) {
        let label = label(task);
        let _ = self.collector_failures.get_or_create(&label);
        self.collector_up.get_or_create(&label).set(i64::from(works));
    }

    pub(crate) fn committed(&self, seconds: f64, reports: usize) {
        self.commit_seconds.observe(seconds);
        self.commit_reports.observe(reports as f64);
    }

    pub(crate) fn store_failed(&self) {
        self.store_failures.inc();
    }

    pub(crate) fn store_retried(&self) {
        self.store_retries.inc();
    }

    pub(crate) fn clock_jumped(&self) {
        self.clock_jumps.inc();
    }

    pub(crate) fn missed(&self, task: &TaskId, rounds: u32) {
        self.missed_rounds.get_or_create(&label(task)).inc_by(u64::from(rounds));
    }

    pub(crate) fn lost_commits(&self, task: &TaskId, commits: u64) {
        self.lost_commits.get_or_create(&label(task)).inc_by(commits);
    }

    pub(crate) fn released_late(&self, task: &TaskId, rounds: u32) {
        self.late_releases.get_or_create(&label(task)).inc_by(u64::from(rounds));
    }

    /// The text that Prometheus reads.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}
