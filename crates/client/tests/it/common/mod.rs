//! A small shuffler and bandit with the real keys and the real batch, and what a test needs to look
//! at or break.
#![allow(dead_code)]

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use incrowd_client::{Builder, Client};
use incrowd_envelope::{Document, OpeningKey, SealedHeader, SigningKey};
use incrowd_protocol::{
    Closes, ComparisonSlot, EntityTag, FlipProbability, KeyState, Law, Layout, Learner,
    MechanismConfig, MediaType, ModelParts, OpenRound, PolicyConfig, ProblemDocument, ProblemKind,
    RoundNotice, SIGNATURE_HEADER, SealingKey, Stage, Task, TaskConfig, TaskNotice,
    VerificationKeys, paths,
};
use incrowd_shuffler::{Batch, Outcome};
use tokio::time::Instant;

/// What the tasks of the tests differ in.
#[derive(Clone, Copy)]
pub struct Shape {
    pub rounds: u32,
    pub size: u32,
    pub grace: u32,
    pub participations: u32,
    pub plain: bool,
    /// Seconds that a round is open, where they close by time.
    pub window: Option<u32>,
    /// Seconds from the opening of round 1 to the start of the test.
    pub begin: i64,
    /// Reports with two bits that are hardly ever flipped.
    pub bare: bool,
    /// Actions a, b, c, ... with weights of their own; 0 for one set of weights.
    pub slots: u32,
    /// A comparison task.
    pub comparison: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            rounds: 50,
            size: 1,
            grace: 0,
            participations: 1,
            plain: false,
            window: None,
            begin: 0,
            bare: false,
            slots: 0,
            comparison: false,
        }
    }
}

/// When round 1 opens.
const OPENS: u64 = 1_800_000_000_000;

/// A report as it came in.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub path: String,
    pub token: Option<String>,
    pub kind: String,
    pub body: Vec<u8>,
    pub status: u16,
}

/// An answer that a test puts in place of the real one.
pub type Instead = (u16, String, Option<String>);

pub struct World {
    pub task: Task,
    pub shuffler: SigningKey,
    pub bandit: SigningKey,
    pub batch: Batch,
    pub keys: Vec<(SealingKey, OpeningKey)>,
    /// Body and signature.
    pub model: Option<(String, String)>,
    /// What answers about models have besides.
    pub model_headers: Vec<(&'static str, String)>,
    /// What each request for a model said it knows.
    pub known: Vec<Option<String>>,
    /// Where the notice says models are.
    pub model_url: Option<String>,
    pub gateway: Option<(ohttp::Server, Vec<u8>)>,
    /// All requests are refused with 503.
    pub down: bool,
    /// The next reports are refused with these statuses and `retry-after`.
    pub failures: VecDeque<(u16, Option<u64>)>,
    /// Then with these problems.
    pub problems: VecDeque<ProblemKind>,
    pub arrivals: Vec<Arrival>,
    pub opened: Vec<Vec<u8>>,
    /// Path and time of every other request.
    pub asked: Vec<(String, Instant)>,
    pub notice: Option<Instead>,
    pub round: Option<Instead>,
    /// Reports of this round never get through.
    pub stuck: Option<u32>,
    clock: TestClock,
}

/// The shuffler's clock, which goes as the runtime's does.
#[derive(Clone, Copy)]
struct TestClock {
    start: Instant,
    begin: i64,
}

impl TestClock {
    fn now(self) -> u64 {
        let elapsed = self.start.elapsed().as_millis() as u64;
        OPENS.saturating_add_signed(self.begin * 1000) + elapsed
    }
}

#[derive(Clone)]
pub struct Server {
    pub url: String,
    pub world: Arc<Mutex<World>>,
    /// Milliseconds that the clocks of devices are ahead.
    pub skew: Arc<AtomicI64>,
}

pub fn task(shape: Shape, shuffler: &SigningKey, bandit: &SigningKey) -> Task {
    let law = if shape.bare {
        Law::bits(2, FlipProbability::new(1, u32::MAX).unwrap())
    } else {
        Law::bits(1, FlipProbability::new(3, 4).unwrap())
    };
    let mechanism = MechanismConfig {
        dimension: if shape.comparison { 1 } else { 2 },
        context_bound: if shape.comparison { 0.5 } else { 1.0 },
        schedule: vec![Stage {
            rounds: shape.rounds,
            size: shape.size,
            window: shape.window.map(|seconds| seconds * 1000),
            law,
        }],
        layout: match shape.slots {
            _ if shape.comparison => Layout::PerAction { slots: 2 },
            0 => Layout::Shared,
            slots => Layout::PerAction { slots },
        },
        closes: match shape.window {
            None => Closes::Count { grace: shape.grace },
            Some(_) => Closes::Time { opens: OPENS },
        },
        central_delta: 1e-6,
        participations: shape.participations,
        honest_fraction: 1.0,
    };
    let policy = PolicyConfig { plain_reports: shape.plain, ..PolicyConfig::default() };
    let config =
        TaskConfig::new(mechanism.check().unwrap(), Learner::default(), policy.check().unwrap());
    let keys = VerificationKeys {
        shuffler: shuffler.verification_key(),
        bandit: bandit.verification_key(),
    };
    let names = ["a", "b", "c"].map(String::from);
    let names = if shape.comparison {
        ComparisonSlot::actions()
    } else {
        names.into_iter().take(shape.slots as usize).collect()
    };
    Task::new(config.unwrap().with_actions(names).unwrap(), keys)
}

pub fn key(id: u8) -> (SealingKey, OpeningKey) {
    let secret = OpeningKey::generate().unwrap();
    (SealingKey { id, key: secret.public(), state: KeyState::Active }, secret)
}

impl World {
    fn new(shape: Shape) -> Self {
        let (shuffler, bandit) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let task = task(shape, &shuffler, &bandit);
        Self {
            batch: Batch::new(Arc::new(task.mechanism().clone())),
            task,
            shuffler,
            bandit,
            keys: vec![key(1)],
            model: None,
            model_headers: Vec::new(),
            known: Vec::new(),
            model_url: None,
            gateway: None,
            down: false,
            failures: VecDeque::new(),
            problems: VecDeque::new(),
            arrivals: Vec::new(),
            opened: Vec::new(),
            asked: Vec::new(),
            notice: None,
            round: None,
            stuck: None,
            clock: TestClock { start: Instant::now(), begin: shape.begin },
        }
    }

    /// The round that is open by the shuffler's clock; none where they close by count.
    pub fn open_round(&self) -> Option<OpenRound> {
        self.task.mechanism().round_at(self.clock.now())
    }

    /// The notice of the round, with the clock ahead by so many seconds.
    pub fn round_notice(&self, ahead: i64) -> RoundNotice {
        let Some(open) = self.open_round() else {
            return RoundNotice::new(self.task.id(), self.batch.round(), None);
        };
        let round = match open {
            OpenRound::Open(number) => Some(self.task.mechanism().round(number).unwrap()),
            _ => None,
        };
        let time = (self.clock.now() / 1000 * 1000).saturating_add_signed(ahead * 1000);
        RoundNotice::new(self.task.id(), round, Some(time))
    }

    pub fn notice(&self) -> TaskNotice {
        TaskNotice {
            id: self.task.id(),
            task: self.task.clone(),
            sealing_keys: self.keys.iter().map(|(key, _)| key.clone()).collect(),
            model_url: self.model_url.clone(),
            gateway_keys: self.gateway.as_ref().map(|(_, keys)| hex::encode(keys)),
        }
    }

    pub fn sign(&self, document: Document, body: &str) -> String {
        let key = if document == Document::Model { &self.bandit } else { &self.shuffler };
        key.sign(document, &self.task.id(), body.as_bytes()).to_string()
    }

    /// Signs and publishes a model, whatever it is.
    pub fn publish(&mut self, body: String) {
        let signature = self.sign(Document::Model, &body);
        self.model = Some((body, signature));
    }

    /// A model that prefers actions along `theta`.
    pub fn parts(&self, version: u64, theta: [f64; 2]) -> ModelParts {
        ModelParts {
            mechanism: self.task.mechanism().hash(),
            version,
            round: 1,
            theta: theta.to_vec(),
            width_factor: vec![1.0, 0.0, 1.0],
            confidence_width: 0.0,
            slots: Vec::new(),
        }
    }

    pub fn publish_parts(&mut self, parts: &ModelParts) {
        self.publish(serde_json::to_string(parts).unwrap());
    }

    fn accept(&mut self, id: &str, kind: &str, body: &[u8]) -> Response {
        if let Some((status, after)) = self.failures.pop_front() {
            let page = "<html>a page of some proxy</html>";
            let mut response = (StatusCode::from_u16(status).unwrap(), page).into_response();
            if let Some(after) = after {
                response.headers_mut().insert("retry-after", after.into());
            }
            return response;
        }
        if let Some(kind) = self.problems.pop_front() {
            return problem(kind);
        }
        let report = if kind == MediaType::SealedReport.as_str() {
            let Ok(header) = SealedHeader::decode(body) else {
                return problem(ProblemKind::InvalidReport);
            };
            let Some((_, secret)) = self.keys.iter().find(|(key, _)| key.id == header.key) else {
                return problem(ProblemKind::UnknownKey);
            };
            let Ok(report) = secret.open(&self.task.id(), body) else {
                return problem(ProblemKind::CannotOpen);
            };
            report
        } else if self.task.config().policy().plain_reports() {
            body.to_vec()
        } else {
            return problem(ProblemKind::SealedOnly);
        };
        if hex::encode(&report[13..29]) != id {
            return problem(ProblemKind::OtherId);
        }
        match self.open_round() {
            None => self.count(report),
            Some(OpenRound::NotYet) => problem(ProblemKind::Early),
            Some(OpenRound::Over) => problem(ProblemKind::Finished),
            Some(OpenRound::Open(open)) => {
                let round = u32::from_be_bytes(report[9..13].try_into().unwrap());
                if self.stuck == Some(round) {
                    return StatusCode::BAD_GATEWAY.into_response();
                }
                match round.cmp(&open) {
                    std::cmp::Ordering::Less => problem(ProblemKind::Late),
                    std::cmp::Ordering::Greater => problem(ProblemKind::Early),
                    std::cmp::Ordering::Equal => {
                        self.opened.push(report);
                        StatusCode::NO_CONTENT.into_response()
                    }
                }
            }
        }
    }

    fn count(&mut self, report: Vec<u8>) -> Response {
        match self.batch.accept_bytes(&report) {
            Outcome::Counted | Outcome::Released(_) | Outcome::Duplicate | Outcome::Surplus => {
                self.opened.push(report);
                StatusCode::NO_CONTENT.into_response()
            }
            Outcome::Refused(_) => problem(ProblemKind::Late),
        }
    }
}

pub fn problem(kind: ProblemKind) -> Response {
    let body = serde_json::to_string(&ProblemDocument::new(kind, "a rule")).unwrap();
    let content = [("content-type", MediaType::Problem.as_str())];
    (StatusCode::from_u16(kind.status()).unwrap(), content, body).into_response()
}

fn signed(body: String, signature: Option<String>) -> Response {
    let mut response = body.into_response();
    if let Some(signature) = signature {
        response.headers_mut().insert(SIGNATURE_HEADER, signature.parse().unwrap());
    }
    response
}

type Shared = State<Arc<Mutex<World>>>;

fn enter<'a>(world: &'a Shared, path: &str) -> Result<MutexGuard<'a, World>, Box<Response>> {
    let mut world = world.0.lock().unwrap();
    world.asked.push((path.to_owned(), Instant::now()));
    if world.down { Err(StatusCode::SERVICE_UNAVAILABLE.into_response().into()) } else { Ok(world) }
}

fn document(instead: Option<Instead>, body: String, signature: String) -> Response {
    match instead {
        None => signed(body, Some(signature)),
        Some((status, body, signature)) => {
            let mut response = signed(body, signature);
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        }
    }
}

async fn config(state: Shared) -> Response {
    let world = match enter(&state, "config") {
        Ok(world) => world,
        Err(response) => return *response,
    };
    let body = serde_json::to_string(&world.notice()).unwrap();
    let signature = world.sign(Document::Notice, &body);
    document(world.notice.clone(), body, signature)
}

async fn round(state: Shared) -> Response {
    let world = match enter(&state, "round") {
        Ok(world) => world,
        Err(response) => return *response,
    };
    let body = serde_json::to_string(&world.round_notice(0)).unwrap();
    let signature = world.sign(Document::Round, &body);
    document(world.round.clone(), body, signature)
}

async fn model(state: Shared, headers: HeaderMap) -> Response {
    let mut world = match enter(&state, "model") {
        Ok(world) => world,
        Err(response) => return *response,
    };
    let known = headers.get("if-none-match").map(|tag| tag.to_str().unwrap().to_owned());
    world.known.push(known.clone());
    let mut response = match &world.model {
        None => problem(ProblemKind::NoModel),
        Some((body, _)) if known == Some(EntityTag::of(body.as_bytes()).to_string()) => {
            StatusCode::NOT_MODIFIED.into_response()
        }
        Some((body, signature)) => signed(body.clone(), Some(signature.clone())),
    };
    // A name that only this device is given.
    response.headers_mut().insert("etag", HeaderValue::from_static("\"device-7\""));
    for (name, value) in &world.model_headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

async fn upload(
    state: Shared,
    Path(parameters): Path<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let id = parameters["id"].clone();
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let kind = text("content-type").unwrap_or_default();
    let at = Instant::now();
    let mut world = state.0.lock().unwrap();
    let response = if world.down {
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    } else {
        world.accept(&id, &kind, &body)
    };
    world.arrivals.push(Arrival {
        at,
        path: id,
        token: text("authorization"),
        kind,
        body: body.to_vec(),
        status: response.status().as_u16(),
    });
    response
}

impl Server {
    pub async fn start(shape: Shape) -> Self {
        let world = Arc::new(Mutex::new(World::new(shape)));
        let url = serve(app(&world, "{task}")).await;
        Self { url, world, skew: Arc::default() }
    }

    /// One service with two tasks.
    pub async fn start_both(shapes: [Shape; 2]) -> [Self; 2] {
        let worlds = shapes.map(|shape| Arc::new(Mutex::new(World::new(shape))));
        let apps = worlds.iter().map(|world| {
            let id = world.lock().unwrap().task.id();
            app(world, &id.to_string())
        });
        let url = serve(apps.fold(Router::new(), Router::merge)).await;
        worlds.map(|world| Self { url: url.clone(), world, skew: Arc::default() })
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// A client that reports at once.
    pub fn client(&self) -> Builder {
        let (clock, skew) = (self.world().clock, Arc::clone(&self.skew));
        Client::builder(&self.url, self.world().task.id())
            .test_clock(move || clock.now().saturating_add_signed(skew.load(Ordering::Relaxed)))
            .token("device")
            .reward_window(Duration::ZERO)
            .jitter(Duration::ZERO)
            .poll_interval(Duration::from_millis(2))
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.world().arrivals.clone()
    }
}

/// The paths of a task, or of any.
fn app(world: &Arc<Mutex<World>>, task: &str) -> Router {
    let path = |template: &str| template.replace("{task}", task);
    Router::new()
        .route(&path(paths::NOTICE), get(config))
        .route(&path(paths::ROUND), get(round))
        .route(&path(paths::MODEL), get(model))
        .route(&path(paths::REPORT), put(upload))
        .with_state(Arc::clone(world))
}

pub async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Keeps a paused clock from running ahead while sockets are busy: time passes only when the test
/// says so.
pub struct Frozen(#[allow(dead_code)] std::sync::mpsc::Sender<()>);

impl Frozen {
    pub fn new() -> Self {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || receiver.recv());
        Self(sender)
    }
}

/// Lets sockets be for a few real milliseconds.
pub async fn settle(milliseconds: u64) {
    let pause = Duration::from_millis(milliseconds);
    tokio::task::spawn_blocking(move || std::thread::sleep(pause)).await.unwrap();
}

/// Waits in real time until something is so.
pub async fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if so() {
            return;
        }
        settle(2).await;
    }
    panic!("never: {what}");
}

pub const ACTIONS: [[f64; 2]; 2] = [[1.0, 0.0], [0.0, 1.0]];
