//! Rounds that close by time, over HTTP: R1, R2, R4, R5, R7, R26. Some tests run a node by the
//! machine's clock, with short windows, and look at contents only; the others set the clock.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use incrowd_envelope::{Document, Signed};
use incrowd_node::{
    Access, KeyRole, Keys, Metrics, Role, Roles, Shuffler, Tokens, app,
    role::{Role as _, Service},
    store::{MemoryShufflerStore, ReleaseHash, ShufflerStore},
};
use incrowd_protocol::{MediaType, Release, Report, RoundNotice, SIGNATURE_HEADER, Task, paths};
use incrowd_transport::Trust;
use reqwest::{RequestBuilder, Response};
use tokio::task::JoinHandle;

use crate::{
    common::{
        Place, eventually, four_hot, is_padded, joined, metric, plain, problem, sealed, timed,
    },
    shelf::FakeClock,
};

const OPENS: u64 = 1_800_000_000_000;
const WINDOW: u32 = 10_000;
const DELAY: u64 = 250;

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Everything of an answer but its date.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Whole {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

async fn whole(response: Response) -> Whole {
    let headers = response.headers().iter().filter(|(name, _)| *name != "date");
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    headers.sort();
    let status = response.status().as_u16();
    Whole { status, headers, body: response.bytes().await.unwrap().to_vec() }
}

/// A shuffler with a clock that the test sets.
struct Set {
    clock: FakeClock,
    task: Task,
    base: String,
    metrics: Arc<Metrics>,
    shuffler: Arc<Shuffler>,
    client: reqwest::Client,
    tokens: Vec<(Role, String)>,
    server: JoinHandle<()>,
}

impl Set {
    /// With a new store: what an earlier one released is forgotten.
    async fn start(place: &Place, clock: &FakeClock) -> Self {
        let _ = std::fs::remove_file(place.files().heads);
        let store = MemoryShufflerStore::with_clock(clock.clock());
        Self::on(place, clock, Arc::new(store)).await
    }

    async fn on(place: &Place, clock: &FakeClock, store: Arc<dyn ShufflerStore>) -> Self {
        let files = place.files();
        let keys = Keys::load(&files.shuffler_keys, KeyRole::Shuffler).unwrap();
        let tokens = Tokens::load(&files.tokens).unwrap();
        let access = Access::new(files.tokens.clone(), tokens, None).unwrap();
        let (tasks, metrics) = ([place.task.clone()], Arc::new(Metrics::default()));
        let service = Service {
            config: &place.config,
            tasks: &tasks,
            certificates: &[place.config.limits.admit(&place.task).unwrap()],
            access: &access,
            metrics: &metrics,
        };
        let shuffler = Shuffler::start(&service, store, keys, files.shuffler_keys).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let routes = app(shuffler.clone().routes(), place.config.http, &metrics);
        let server = tokio::spawn(async { axum::serve(listener, routes).await.unwrap() });
        Self {
            clock: clock.clone(),
            task: place.task.clone(),
            base,
            metrics,
            shuffler,
            client: incrowd_transport::client(&Trust::Nobody).unwrap(),
            tokens: place.tokens.clone(),
            server,
        }
    }

    async fn stop(self) {
        self.server.abort();
        self.shuffler.stop().await;
    }

    fn at(&self, offset: i64) {
        self.clock.set(OPENS.saturating_add_signed(offset));
    }

    async fn send(&self, request: RequestBuilder, role: Role) -> Response {
        let token = &self.tokens.iter().find(|(found, _)| *found == role).unwrap().1;
        request.bearer_auth(token).send().await.unwrap()
    }

    async fn put(&self, report: &Report) -> Response {
        let path = paths::report(&self.task.id(), report.id());
        let request = self
            .client
            .put(format!("{}{path}", self.base))
            .header("content-type", MediaType::Report.as_str())
            .body(report.encode(self.task.mechanism()).unwrap());
        self.send(request, Role::Device).await
    }

    async fn post(&self, reports: &[Report]) -> Response {
        let encoded = reports.iter().map(|report| report.encode(self.task.mechanism()).unwrap());
        let request = self
            .client
            .post(format!("{}{}", self.base, paths::reports(&self.task.id())))
            .header("content-type", MediaType::Reports.as_str())
            .body(joined(encoded));
        self.send(request, Role::Device).await
    }

    async fn release(&self, round: u32, wait: u64) -> Response {
        let path = paths::release(&self.task.id(), round, None, wait);
        self.send(self.client.get(format!("{}{path}", self.base)), Role::Bandit).await
    }

    /// A release that must be shown by now, or soon after the writer has looked at the clock.
    async fn released(&self, round: u32) -> Vec<u8> {
        let answer = self.release(round, 20).await;
        assert_eq!(answer.status(), 200);
        answer.bytes().await.unwrap().to_vec()
    }

    async fn notice(&self) -> (Option<u32>, Option<u64>) {
        let path = paths::round(&self.task.id());
        let answer = self.client.get(format!("{}{path}", self.base)).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let signature = answer.headers()[SIGNATURE_HEADER].to_str().unwrap().parse().unwrap();
        let signed = Signed { body: answer.bytes().await.unwrap().to_vec(), signature };
        signed.verify(&self.task.keys().shuffler, Document::Round, &self.task.id()).unwrap();
        let notice: RoundNotice = serde_json::from_slice(&signed.body).unwrap();
        let round = notice.check(self.task.id(), self.task.mechanism()).unwrap();
        (round.map(|round| round.number), notice.time)
    }

    fn hot(&self, round: u32, number: u32) -> Report {
        four_hot(self.task.mechanism(), round, number)
    }

    fn metric(&self, name: &str) -> f64 {
        metric(&self.metrics.text(), name)
    }
}

/// Rounds of ten seconds and three reports each, by a clock that is set.
fn place() -> (Place, FakeClock) {
    let place = Place::new(plain(timed(6, OPENS, WINDOW, 4, 3)));
    (place, FakeClock::at(OPENS))
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_r4_by_the_machines_clock_every_release_is_what_was_acknowledged_and_pads() {
    let mechanism = timed(6, now() + 400, 250, 4, 5);
    let place = Place::new(plain(mechanism.clone()));
    let node = place.start(Roles::Both);
    let mut acknowledged = vec![Vec::new(); 5];
    let (mut number, mut round) = (0, 0);
    // Before the first round opens there is none; what is late or early is told so.
    while round < 4 {
        let Some(open) = node.round().await else { continue };
        if open == round {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        round = open;
        for _ in 0..3 {
            let answer = node.put(&four_hot(&mechanism, round, number)).await;
            if answer.status() == 204 {
                acknowledged[round as usize].push(number);
            } else {
                let (status, kind) = problem(answer).await;
                assert!(status == 409 && kind == "late" || status == 410, "{status} {kind}");
            }
            number += 1;
        }
    }
    assert!(acknowledged.iter().flatten().count() > 0);
    let mut previous = None;
    for round in 1..=4u32 {
        let body = node.released(round).await;
        assert!(is_padded(&mechanism, &body, &acknowledged[round as usize]), "round {round}");
        let release: Release = serde_json::from_slice(&body).unwrap();
        assert_eq!(release.previous(), previous);
        previous = Some(ReleaseHash::of(&body));
        assert_eq!(node.released(round).await, body, "R2");
    }
    // The bandit learns from them, and the task is over.
    node.model_of(4).await;
    assert_eq!(node.round().await, None);
    let over = node.put(&four_hot(&mechanism, 4, 26)).await;
    assert_eq!(problem(over).await, (410, "finished".into()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_r5_downtime_over_several_closings_releases_every_round_once_and_in_order() {
    let mechanism = timed(6, now(), 600, 6, 5);
    let place = Place::new(plain(mechanism.clone()));
    let node = place.start(Roles::Shuffler);
    let mut acknowledged = Vec::new();
    for number in 0..3 {
        if node.put(&four_hot(&mechanism, 1, number)).await.status() == 204 {
            acknowledged.push(number);
        }
    }
    node.stop().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let node = place.start(Roles::Shuffler);
    let missed = metric(&node.metrics().await, "incrowd_missed_rounds_total");
    assert!(missed >= 3.0, "{missed} rounds are shown to the operator");
    let status = node.status().await;
    if let Some(round) = status.round {
        let window = mechanism.window(round).unwrap().unwrap();
        assert_eq!((status.opens, status.closes), (Some(window.opens), Some(window.closes)));
    }
    let (mut previous, mut bodies) = (None, Vec::new());
    for round in 1..=6 {
        let body = node.released(round).await;
        let numbers = if round == 1 { acknowledged.as_slice() } else { &[] };
        assert!(is_padded(&mechanism, &body, numbers), "round {round}");
        let release: Release = serde_json::from_slice(&body).unwrap();
        assert_eq!(release.previous(), previous);
        previous = Some(ReleaseHash::of(&body));
        bodies.push(body);
    }
    node.stop().await;
    let node = place.start(Roles::Shuffler);
    for (round, body) in (1..).zip(&bodies) {
        assert_eq!(&node.released(round).await, body, "R2: the same bytes");
    }
    assert!(metric(&node.metrics().await, "incrowd_missed_rounds_total") == 0.0);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_r26_a_surplus_or_repeated_report_is_answered_like_a_counted_one() {
    let (place, clock) = place();
    let set = Set::start(&place, &clock).await;
    let counted = whole(set.put(&set.hot(1, 0)).await).await;
    assert_eq!(counted.status, 204);
    assert_eq!(whole(set.put(&set.hot(1, 0)).await).await, counted, "repeated");
    for number in 1..3 {
        assert_eq!(whole(set.put(&set.hot(1, number)).await).await, counted, "up to the last");
    }
    for number in 3..6 {
        let surplus = whole(set.put(&set.hot(1, number)).await).await;
        assert_eq!(surplus, counted, "surplus");
    }
    let name = |outcome| {
        format!("incrowd_reports_total{{task=\"{}\",outcome=\"{outcome}\"}}", place.task.id())
    };
    let told = ["counted", "surplus", "duplicate"].map(|outcome| set.metric(&name(outcome)));
    assert_eq!(told.map(|number| number as u32), [3, 3, 1], "the operator sees the difference");
    // In bulk too: two that count of three, three that are surplus, three that are repeated.
    set.at(i64::from(WINDOW));
    let reports = |numbers: [u32; 3]| numbers.map(|number| set.hot(2, number));
    let counted = whole(set.post(&reports([10, 11, 12])).await).await;
    let surplus = whole(set.post(&reports([13, 14, 15])).await).await;
    let repeated = whole(set.post(&reports([10, 11, 12])).await).await;
    let mixed = whole(set.post(&reports([12, 16, 16])).await).await;
    assert_eq!(counted.body, br#"{"accepted":3,"refused":[]}"#);
    assert_eq!([&surplus, &repeated, &mixed], [&counted; 3]);
    set.at(i64::from(2 * WINDOW) + DELAY as i64);
    for (round, numbers) in [(1, [0, 1, 2]), (2, [10, 11, 12])] {
        assert!(is_padded(place.mechanism(), &set.released(round).await, &numbers));
    }
    set.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_a_report_that_is_early_may_come_again_and_one_that_is_late_may_not() {
    let (place, clock) = place();
    let set = Set::start(&place, &clock).await;
    set.at(-2_500);
    assert_eq!(set.notice().await, (None, Some(OPENS - 3_000)));
    let report = set.hot(1, 0);
    let early = set.put(&report).await;
    assert_eq!(early.headers()["retry-after"], "3", "when its round opens");
    assert_eq!(problem(early).await, (409, "early".into()));
    assert!(!incrowd_protocol::ProblemKind::Early.is_final());
    set.at(0);
    assert_eq!(set.notice().await, (Some(1), Some(OPENS)));
    assert_eq!(set.put(&report).await.status(), 204, "the same bytes");
    let next = set.put(&set.hot(2, 1)).await;
    assert_eq!(next.headers()["retry-after"], "10");
    assert_eq!(problem(next).await, (409, "early".into()));
    set.at(i64::from(WINDOW) - 1);
    assert_eq!(set.notice().await, (Some(1), Some(OPENS + u64::from(WINDOW) - 1000)));
    assert_eq!(set.put(&set.hot(1, 2)).await.status(), 204, "the last millisecond");
    set.at(i64::from(WINDOW));
    assert_eq!(set.notice().await, (Some(2), Some(OPENS + u64::from(WINDOW))));
    // Late, whether it counted or not.
    for number in [0, 3] {
        let late = set.put(&set.hot(1, number)).await;
        assert_eq!(problem(late).await, (409, "late".into()));
    }
    set.at(4 * i64::from(WINDOW));
    assert_eq!(set.notice().await.0, None);
    for round in [1, 4] {
        let over = set.put(&set.hot(round, 4)).await;
        assert_eq!(problem(over).await, (410, "finished".into()));
    }
    set.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r26_a_release_is_shown_at_the_closing_time_and_a_constant_later_however_full_it_was() {
    let (place, clock) = place();
    let mut answers = Vec::new();
    for number in [0, 1, 3, 5] {
        clock.set(OPENS);
        let set = Set::start(&place, &clock).await;
        for report in 0..number {
            assert_eq!(set.put(&set.hot(1, report)).await.status(), 204);
        }
        let mut told = vec![whole(set.release(1, 0).await).await];
        set.at(i64::from(WINDOW) - 1500);
        told.push(whole(set.release(1, 0).await).await);
        set.at(i64::from(WINDOW));
        // The writer has committed it, and still nothing is shown.
        eventually("the round is closed", async || set.shuffler.progress()[0].1.round == Some(2))
            .await;
        told.push(whole(set.release(1, 0).await).await);
        told.push(whole(set.release(1, 1).await).await);
        set.at(i64::from(WINDOW) + DELAY as i64 - 1);
        told.push(whole(set.release(1, 0).await).await);
        let retry = told.iter().map(|answer| {
            assert_eq!((answer.status, answer.body.len()), (202, 0));
            let after = answer.headers.iter().find(|(name, _)| name == "retry-after");
            after.unwrap().1.parse::<u32>().unwrap()
        });
        assert_eq!(retry.collect::<Vec<_>>(), [11, 2, 1, 1, 1]);
        answers.push(told);
        set.at(i64::from(WINDOW) + DELAY as i64);
        let numbers: Vec<u32> = (0..number.min(3)).collect();
        assert!(is_padded(place.mechanism(), &set.released(1).await, &numbers), "{number}");
        set.stop().await;
    }
    assert!(answers.iter().all(|told| *told == answers[0]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r32_a_clock_behind_the_last_closing_is_told() {
    let (place, clock) = place();
    let set = Set::start(&place, &clock).await;
    set.at(i64::from(WINDOW) + DELAY as i64);
    set.released(1).await;
    assert_eq!(set.shuffler.ready().await, Ok(()));
    set.at(-3600 * 1000);
    let reason = set.shuffler.ready().await.unwrap_err();
    assert!(reason.contains("the clock is 3610 s behind the last closing"), "{reason}");
    set.at(i64::from(WINDOW) + 1);
    assert_eq!(set.shuffler.ready().await, Ok(()));
    set.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_a_clock_that_jumps_neither_opens_a_round_again_nor_leaves_one_out() {
    let (place, clock) = place();
    let set = Set::start(&place, &clock).await;
    assert_eq!(set.put(&set.hot(1, 0)).await.status(), 204);
    set.at(2 * i64::from(WINDOW) + 500);
    assert_eq!(set.notice().await.0, Some(3), "by the clock, before anything is committed");
    assert_eq!(set.put(&set.hot(3, 1)).await.status(), 204);
    let jumped = async |times: f64| {
        let counted = async || set.metric("incrowd_clock_jumps_total") >= times;
        eventually("the jump is counted", counted).await;
    };
    jumped(1.0).await;
    let first = set.released(1).await;
    // Back into round 1, and before it: round 3 stays open.
    for (jumps, offset) in [(2.0, 500), (3.0, -5_000)] {
        set.at(offset);
        assert_eq!(set.notice().await.0, Some(3));
        let report = set.put(&set.hot(1, 2)).await;
        assert_eq!(problem(report).await, (409, "late".into()), "round 1 is over");
        assert_eq!(set.put(&set.hot(3, 3)).await.status(), 204);
        assert_eq!(set.release(3, 0).await.status(), 202);
        jumped(jumps).await;
    }
    set.at(3 * i64::from(WINDOW) + 1_000);
    let bodies = [set.released(1).await, set.released(2).await, set.released(3).await];
    assert_eq!(bodies[0], first, "R2");
    for (body, numbers) in bodies.iter().zip([&[0][..], &[], &[1, 3]]) {
        assert!(is_padded(place.mechanism(), body, numbers));
    }
    set.stop().await;
}

/// What everyone else sees of a run in which a device is or is not there: the answers to the other
/// devices, notices, and status and order of releases; and the releases themselves.
async fn run(place: &Place, device: Option<(u32, u32)>) -> (Vec<Whole>, Vec<Vec<u8>>) {
    let clock = FakeClock::at(OPENS);
    let set = Set::start(place, &clock).await;
    let (mut seen, mut releases) = (Vec::new(), Vec::new());
    for round in 1..=4u32 {
        set.at(i64::from(WINDOW) * i64::from(round - 1) + 100);
        let others = [20 + round, 10 + round];
        for number in others {
            if device == Some((round, number)) {
                assert_eq!(set.put(&set.hot(round, 0)).await.status(), 204, "the device itself");
            }
            seen.push(whole(set.put(&set.hot(round, number)).await).await);
            seen.push(whole(set.put(&set.hot(round, number)).await).await);
        }
        seen.push(whole(set.put(&set.hot([1, 3, 3, 3][round as usize - 1], 5)).await).await);
        let notice = format!("{}{}", set.base, paths::round(&set.task.id()));
        seen.push(whole(set.client.get(notice).send().await.unwrap()).await);
        let notice = format!("{}{}", set.base, paths::notice(&set.task.id()));
        seen.push(whole(set.client.get(notice).send().await.unwrap()).await);
        for asked in 1..=4 {
            if asked >= round {
                seen.push(whole(set.release(asked, 0).await).await);
            }
        }
    }
    set.at(4 * i64::from(WINDOW) + 1_000);
    for round in 1..=4 {
        let mut answer = whole(set.release(round, 20).await).await;
        releases.push(std::mem::take(&mut answer.body));
        // These follow from the sums.
        let of_sums = ["etag", "content-length", SIGNATURE_HEADER];
        answer.headers.retain(|(name, _)| !of_sums.contains(&name.as_str()));
        seen.push(answer);
    }
    set.stop().await;
    (seen, releases)
}

/// R26: the same run without one device, with it, and with it in another round. Two others and one
/// that comes in every second round leave room for it.
#[tokio::test(flavor = "multi_thread")]
async fn r26_one_device_more_less_or_elsewhere_changes_its_own_report_and_pads_and_nothing_else() {
    let place = Place::new(plain(timed(6, OPENS, WINDOW, 4, 5)));
    let without = run(&place, None).await;
    for there in [(1, 21), (2, 12), (4, 24)] {
        let with = run(&place, Some(there)).await;
        assert_eq!(with.0, without.0, "{there:?}");
        for (round, (one, other)) in (1u32..).zip(with.1.iter().zip(&without.1)) {
            let mut numbers = vec![20 + round, 10 + round];
            // Number 5 comes in round 1, and in 2 and 4 with a report for round 3.
            if round % 2 == 1 {
                numbers.push(5);
            }
            assert!(is_padded(place.mechanism(), other, &numbers), "round {round}");
            if round == there.0 {
                numbers.push(0);
            }
            assert!(is_padded(place.mechanism(), one, &numbers), "round {round} with it");
        }
    }
}

/// Nothing that is public tells how many reports there were: not the listener of devices and
/// bandits, nor the bandit's own operator.
#[tokio::test(flavor = "multi_thread")]
async fn r7_r26_counters_of_arrivals_are_on_the_shufflers_admin_listener_only() {
    let mechanism = timed(3, now(), 60_000, 2, 5);
    let place = Place::new(sealed(mechanism.clone()));
    let node = place.start(Roles::Shuffler);
    for number in 0..3 {
        assert_eq!(node.put_sealed(&four_hot(&mechanism, 1, number)).await.status(), 204);
    }
    let metrics = node.metrics().await;
    assert!(metrics.contains("incrowd_batch_reports"), "the operator sees it");
    let closes = format!(" {}", mechanism.window(1).unwrap().unwrap().closes / 1000);
    let told = |line: &str| line.starts_with("incrowd_round_closes_timestamp_seconds{");
    assert!(metrics.lines().any(|line| told(line) && line.ends_with(&closes)), "{metrics}");
    for path in ["/metrics", paths::TASKS, "/readyz"] {
        for role in Role::ALL {
            let asked = node.client.get(format!("{}{path}", node.base));
            let answer = asked.bearer_auth(node.token(role)).send().await.unwrap();
            assert_eq!(answer.status(), 404, "{path} on the public listener");
        }
    }
    let bandit = place.bandit_of(&node);
    let learner = bandit.start(Roles::Bandit);
    let metrics = learner.metrics().await;
    let telling = ["reports", "batch", "remembered", "commit"];
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let empty = line.ends_with(" 0") || line.ends_with(" 0.0");
        assert!(empty || !telling.iter().any(|word| name.contains(word)), "{line}");
    }
    let status = learner.status().await;
    assert_eq!((status.round, status.reports, status.closes), (None, None, None));
    learner.stop().await;
    node.stop().await;
}
