//! `incrowd load`: how much a service takes, with real devices.

use std::{
    collections::BTreeMap,
    error::Error,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use hdrhistogram::Histogram;
use incrowd_device::Device;
use incrowd_envelope::seal;
use incrowd_node::{Files, read_token, trust};
use incrowd_protocol::{EntityTag, Model, ReportId, Task, TaskId, TaskNotice, push_report};
use incrowd_transport::{Address, BanditApi, ModelAnswer, Route, ShufflerApi, TransportError};
use serde::Serialize;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use crate::{Output, print::wrapped, progress::Progress, runtime};

/// Send a bounded number of reports to a service, and measure.
///
/// The exit code is 1 if any report is not accepted; stderr then says why, and what helps.
///
/// Each report takes the way of a real one: a new device with the operating system's randomness
/// ranks a few random actions with the published model, randomizes its answer for the published
/// round, seals it and uploads it. The reports are noise to the bandit: do this to a test task
/// only.
///
/// Example: incrowd load --url http://127.0.0.1:8787 --task ID --token-file device.token --reports
/// 100000 --connections 64
#[derive(Args)]
pub struct Arguments {
    /// Base address of the shuffler.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8787")]
    url: String,
    /// The task's id, or its file.
    #[arg(long, value_name = "ID")]
    task: PathBuf,
    /// Data folder whose keys complete a planner's file.
    #[arg(long, value_name = "FOLDER", default_value = "incrowd-data")]
    data: PathBuf,
    /// File with a device token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send the token over plain HTTP to another machine, because a private network protects it.
    #[arg(long)]
    allow_plain_http: bool,
    /// PEM file with the certificates to trust, instead of the system's.
    #[arg(long, value_name = "PEM")]
    ca: Option<PathBuf>,
    /// Fetch models also where the shuffler says that they are elsewhere (shuffler.model_url).
    #[arg(long)]
    follow_model_url: bool,
    /// Reports in all, 1 to 100 million.
    #[arg(long, default_value_t = 10_000)]
    reports: u64,
    /// Requests at the same time, 1 to 4096.
    #[arg(long, default_value_t = 64)]
    connections: u16,
    /// Reports in one request, 1 to 4096.
    #[arg(long, default_value_t = 1)]
    bulk: u16,
    /// Reports a second to aim at; as fast as it goes if not given. Latency then counts from when a
    /// report was due.
    #[arg(long)]
    rate: Option<f64>,
    /// Do not seal (the task must allow plain reports).
    #[arg(long)]
    plain: bool,
    /// Actions each device ranks, 1 to 1000.
    #[arg(long, default_value_t = 10)]
    actions: u16,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The outcome of a report that counts.
const ACCEPTED: &str = "accepted";

/// What all connections share.
struct Target {
    shuffler: ShufflerApi,
    notice: TaskNotice,
    plain: bool,
    bulk: u16,
    actions: u16,
    round: AtomicU32,
    model: watch::Receiver<Option<Model>>,
    /// Reports that are not begun yet.
    left: AtomicU64,
}

#[derive(Serialize)]
struct Measured {
    reports: u64,
    seconds: f64,
    reports_per_second: f64,
    requests: u64,
    milliseconds_p50: f64,
    milliseconds_p90: f64,
    milliseconds_p99: f64,
    milliseconds_max: f64,
    outcomes: BTreeMap<String, u64>,
}

struct Tally {
    latency: Histogram<u64>,
    outcomes: BTreeMap<String, u64>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let token = match &arguments.token_file {
        Some(path) => Some(read_token(path)?.to_string()),
        None => None,
    };
    check(arguments)?;
    let task = task_id(arguments)?;
    let measured = runtime()?.block_on(measure(arguments, &task, token))?;
    match arguments.output {
        Output::Json => out!("{}", serde_json::to_string_pretty(&measured)?),
        Output::Text => print(&measured),
    }
    let lost = losses(&measured, arguments.token_file.is_some());
    lost.iter().for_each(|line| eprintln!("{}", wrapped(line)));
    Ok(ExitCode::from(u8::from(!lost.is_empty())))
}

/// The id that an id, or a file, is of.
fn task_id(arguments: &Arguments) -> Result<TaskId, Box<dyn Error>> {
    match arguments.task.to_str().and_then(|id| id.parse().ok()) {
        Some(id) => Ok(id),
        None => Ok(Files::of(&arguments.data).task(&arguments.task)?.id()),
    }
}

fn check(arguments: &Arguments) -> Result<(), String> {
    let &Arguments { reports, connections, bulk, actions, rate, .. } = arguments;
    for (name, found, most) in [
        ("reports", reports, 100_000_000),
        ("connections", connections.into(), 4096),
        ("bulk", bulk.into(), 4096),
        ("actions", actions.into(), 1000),
    ] {
        if !(1..=most).contains(&found) {
            return Err(format!("{name} is {found}, must be from 1 to {most}"));
        }
    }
    match rate.filter(|rate| !(*rate > 0.0 && rate.is_finite())) {
        Some(rate) => Err(format!("rate is {rate}, must be above 0 and finite")),
        None => Ok(()),
    }
}

/// Why reports were not accepted, and what helps.
fn losses(measured: &Measured, token: bool) -> Vec<String> {
    let lost = measured.outcomes.iter().filter(|(outcome, _)| *outcome != ACCEPTED);
    let line = |(outcome, &reports): (&String, &u64)| {
        let share = 100.0 * reports as f64 / measured.reports as f64;
        format!("{share:.1} % {outcome}: {}", reason(outcome, token))
    };
    lost.map(line).collect()
}

/// What an outcome means to whoever tries a service.
fn reason(outcome: &str, token: bool) -> &'static str {
    match outcome {
        "unauthorized" if token => {
            "the shuffler does not know the token of --token-file: its operator makes one with `incrowd keys token --role device --data <its folder> --out device.token`"
        }
        "unauthorized" => {
            "the shuffler wants a device token: give --token-file with one that its operator made with `incrowd keys token --role device --data <its folder> --out device.token`"
        }
        "forbidden" => {
            "the token of --token-file is of another role: its operator makes one with `incrowd keys token --role device --data <its folder> --out device.token`"
        }
        "late" | "other-law" => {
            "their round closed before they arrived. A real device does not send them again. Use fewer --connections, a smaller --bulk, or a task with larger batches"
        }
        "early" => "their round is not open yet: `incrowd task show` says when round 1 opens",
        "rate-limited" => {
            "above http.reports_per_second_per_peer of the service: give a smaller --rate. A real device tries again later"
        }
        "unavailable" => {
            "the service could not store them or had too many requests: its /readyz and log say why. A real device tries again later"
        }
        "finished" => "the task is over: plan a new one",
        _ => "docs/problems.md explains it",
    }
}

async fn measure(
    arguments: &Arguments,
    task: &TaskId,
    token: Option<String>,
) -> Result<Measured, Box<dyn Error>> {
    let address = Address::new(&arguments.url, "url", arguments.allow_plain_http)?;
    let trust = trust(arguments.ca.as_deref())?;
    let shuffler = ShufflerApi::new(Route::Direct(address.clone()), token, &trust)?;
    let (_, notice) = shuffler.notice(task).await?;
    let models = models_at(&notice, address, arguments.follow_model_url)?;
    let bandit = models.map(|models| BanditApi::new(models, &trust)).transpose()?;
    let task = notice.task.clone();
    let (published, model) = watch::channel(None);
    let target = Arc::new(Target {
        shuffler,
        notice,
        plain: arguments.plain,
        bulk: arguments.bulk,
        actions: arguments.actions,
        round: AtomicU32::new(0),
        model,
        left: AtomicU64::new(arguments.reports),
    });
    target.refresh_round().await?;
    let mut background = JoinSet::new();
    if let Some(bandit) = bandit {
        background.spawn(follow_models(bandit, task, published));
    }
    background.spawn(stop_on(signal(SignalKind::interrupt())?, target.clone()));
    background.spawn(show_progress(target.clone(), arguments.reports));

    let started = Instant::now();
    let mut connections: JoinSet<Result<Tally, String>> = JoinSet::new();
    // With a rate, each connection sends one request every so often, evenly staggered.
    let pause = arguments
        .rate
        .map(|rate| f64::from(arguments.connections) * f64::from(arguments.bulk) / rate);
    for number in 0..arguments.connections {
        let offset =
            pause.map(|pause| pause * f64::from(number) / f64::from(arguments.connections));
        let pace = pause.zip(offset).map(|(pause, offset)| Pace {
            next: started + Duration::from_secs_f64(offset),
            pause: Duration::from_secs_f64(pause),
        });
        connections.spawn(connection(target.clone(), pace));
    }
    let mut tally = Tally::new();
    while let Some(finished) = connections.join_next().await {
        tally.add(&finished??);
    }
    background.shutdown().await;
    let seconds = started.elapsed().as_secs_f64();
    let reports: u64 = tally.outcomes.values().sum();
    let at = |quantile| tally.latency.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Measured {
        reports,
        seconds,
        reports_per_second: reports as f64 / seconds,
        requests: tally.latency.len(),
        milliseconds_p50: at(0.5),
        milliseconds_p90: at(0.9),
        milliseconds_p99: at(0.99),
        milliseconds_max: tally.latency.max() as f64 / 1e3,
        outcomes: tally.outcomes,
    })
}

/// Where models come from: the shuffler's own server, or another one if that is wanted.
fn models_at(
    notice: &TaskNotice,
    shuffler: Address,
    follow: bool,
) -> Result<Option<Address>, Box<dyn Error>> {
    let Some(url) = &notice.model_url else { return Ok(Some(shuffler)) };
    let models = Address::new(url, "model url", true)?;
    if follow || models.is_server_of(&shuffler) {
        return Ok(Some(models));
    }
    eprintln!(
        "models are at {url}, another server, and are not fetched: devices choose without one"
    );
    eprintln!("hint: --follow-model-url fetches them");
    Ok(None)
}

/// On Ctrl-C no more reports are begun, and what was measured is printed.
async fn stop_on(mut interrupt: Signal, target: Arc<Target>) {
    interrupt.recv().await;
    let left = target.left.swap(0, Ordering::Relaxed);
    eprintln!("stopped: {left} reports were not begun (--reports {left} sends them)");
}

/// Says how many reports are begun.
async fn show_progress(target: Arc<Target>, of: u64) {
    let mut progress = Progress::new(of, "reports");
    let began = Instant::now();
    loop {
        let begun = of - target.left.load(Ordering::Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        progress.show(begun, || format!("{:.0} a second", begun as f64 / seconds));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

struct Pace {
    next: Instant,
    pause: Duration,
}

async fn connection(target: Arc<Target>, mut pace: Option<Pace>) -> Result<Tally, String> {
    let mut tally = Tally::new();
    loop {
        let number = target.claim();
        if number == 0 {
            return Ok(tally);
        }
        let due = match &mut pace {
            None => None,
            Some(pace) => {
                tokio::time::sleep_until(pace.next.into()).await;
                let due = pace.next;
                pace.next += pace.pause;
                Some(due)
            }
        };
        let request = target.request(number).map_err(|error| error.to_string())?;
        let begun = due.unwrap_or_else(Instant::now);
        let outcomes = target.send(request, number).await;
        tally.latency.saturating_record(begun.elapsed().as_micros() as u64);
        let stale = outcomes.iter().any(|(outcome, _)| outcome == "late" || outcome == "other-law");
        for (outcome, reports) in outcomes {
            *tally.outcomes.entry(outcome).or_default() += reports;
        }
        if stale && target.refresh_round().await.is_err() {
            return Ok(tally);
        }
    }
}

impl Target {
    /// Takes the right to make up to a request's number of reports.
    fn claim(&self) -> u64 {
        let bulk = u64::from(self.bulk);
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(bulk))
        });
        before.unwrap_or(0).min(bulk)
    }

    async fn refresh_round(&self) -> Result<(), Box<dyn Error>> {
        let round = self.shuffler.round(&self.notice.task).await?;
        let round = round.ok_or("the task is over: it takes no more reports")?;
        self.round.store(round.number, Ordering::Relaxed);
        Ok(())
    }

    /// The reports of so many new devices.
    fn request(&self, number: u64) -> Result<Upload, Box<dyn Error>> {
        let round = self.round.load(Ordering::Relaxed);
        if self.bulk == 1 {
            let (id, body) = self.report(round)?;
            return Ok(Upload::One(id, body));
        }
        let mut body = Vec::new();
        for _ in 0..number {
            push_report(&mut body, &self.report(round)?.1);
        }
        Ok(Upload::Many(body))
    }

    /// What a new device sends: rank, randomize, seal.
    fn report(&self, round: u32) -> Result<(ReportId, Vec<u8>), Box<dyn Error>> {
        let task = &self.notice.task;
        let mechanism = task.mechanism();
        let mut device = Device::new(Arc::new(task.config().clone()))?;
        let arms = arms(mechanism.dimension(), self.actions, mechanism.context_bound())?;
        let model = self.model.borrow().clone();
        let chosen = device.choose(model.as_ref(), arms.iter().map(Vec::as_slice))?;
        let reward = f64::from(u8::from(arms[chosen][0] > 0.0));
        let report = device.report(round, &arms[chosen], reward)?.report;
        let bytes = report.encode(mechanism)?;
        if self.plain {
            return Ok((report.id(), bytes));
        }
        let key = self.notice.sealing_key().ok_or("the shuffler has no sealing key")?;
        Ok((report.id(), seal(&task.id(), key, round, report.id(), &bytes)?))
    }

    /// Outcomes of the reports of a request, by problem.
    async fn send(&self, upload: Upload, number: u64) -> Vec<(String, u64)> {
        let (task, sealed) = (&self.notice.id, !self.plain);
        let accepted = |number| (ACCEPTED.to_owned(), number);
        let sent = match upload {
            Upload::One(id, body) => {
                let put = self.shuffler.put(task, id, sealed, body).await;
                put.map(|()| vec![accepted(1)])
            }
            Upload::Many(body) => self.shuffler.post_many(task, sealed, body).await.map(|answer| {
                let refused = answer.refused.iter().map(|one| {
                    (one.kind().map_or("unknown problem", |kind| kind.name()).to_owned(), 1)
                });
                [accepted(answer.accepted as u64)].into_iter().chain(refused).collect()
            }),
        };
        sent.unwrap_or_else(|error| vec![(outcome(&error), number)])
    }
}

/// The reports of one request.
enum Upload {
    One(ReportId, Vec<u8>),
    Many(Vec<u8>),
}

/// The problem's name, or why there is none.
fn outcome(error: &TransportError) -> String {
    match (error.kind(), error) {
        (Some(kind), _) => kind.name().to_owned(),
        (None, TransportError::Network(failure)) => format!("no answer: {failure}"),
        (None, error) => error.to_string(),
    }
}

impl Tally {
    fn new() -> Self {
        // From a microsecond to ten minutes, three digits.
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3);
        let latency = latency.unwrap_or_else(|_| unreachable!("the bounds are valid"));
        Self { latency, outcomes: BTreeMap::new() }
    }

    fn add(&mut self, other: &Self) {
        let _ = self.latency.add(&other.latency);
        for (outcome, reports) in &other.outcomes {
            *self.outcomes.entry(outcome.clone()).or_default() += reports;
        }
    }
}

/// Random actions on the sphere of the context bound.
fn arms(dimension: usize, actions: u16, bound: f64) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let mut bytes = vec![0; 2 * dimension * usize::from(actions)];
    getrandom::fill(&mut bytes)?;
    let arm = |bytes: &[u8]| {
        let (words, _) = bytes.as_chunks::<2>();
        let arm: Vec<f64> =
            words.iter().map(|word| f64::from(i16::from_be_bytes(*word)) + 0.5).collect();
        let norm = arm.iter().map(|x| x * x).sum::<f64>().sqrt();
        arm.iter().map(|x| 0.999 * bound * x / norm).collect()
    };
    Ok(bytes.chunks_exact(2 * dimension).map(arm).collect())
}

/// Keeps the newest model. All synthetic devices share it, so it is asked for more often than one
/// device would.
async fn follow_models(bandit: BanditApi, task: Task, published: watch::Sender<Option<Model>>) {
    let mut known = None;
    loop {
        let answer = bandit.model(&task, known.as_ref()).await;
        if let Ok(ModelAnswer { model: Some((signed, model)), .. }) = answer {
            known = Some(EntityTag::of(&signed.body));
            published.send_replace(Some(model));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn print(measured: &Measured) {
    out!("reports            {:>12}", measured.reports);
    out!("requests           {:>12}", measured.requests);
    out!("seconds            {:>12.2}", measured.seconds);
    out!("reports a second   {:>12.0}", measured.reports_per_second);
    out!("milliseconds p50   {:>12.2}", measured.milliseconds_p50);
    out!("             p90   {:>12.2}", measured.milliseconds_p90);
    out!("             p99   {:>12.2}", measured.milliseconds_p99);
    out!("             max   {:>12.2}", measured.milliseconds_max);
    for (outcome, reports) in &measured.outcomes {
        out!("{outcome:<18} {reports:>12}");
    }
}
