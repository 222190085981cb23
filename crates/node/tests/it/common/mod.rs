//! What the tests of the services share: small tasks, reports that are easy to recognise, nodes in
//! temporary folders.

// Every test file uses a part of this.
#![allow(dead_code)]

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use incrowd_envelope::{Document, Signed, SigningKey, seal};
use incrowd_node::{
    Files, KeyRole, Keys, Limits, Node, NodeConfig, Role, Roles, RoundKeysConfig, ServiceError,
    StoreError, TaskStatus, TlsConfig, Tokens, write_token,
};
use incrowd_protocol::{
    BulkAnswer, Closes, FlipProbability, Law, Layout, Learner, LearnerConfig, Mechanism,
    MechanismConfig, MediaType, Policy, PolicyConfig, ProblemDocument, Release, Report, ReportId,
    SIGNATURE_HEADER, Stage, Task, TaskConfig, TaskNotice, UpdateRule, VerificationKeys, paths,
    push_report,
};
use incrowd_transport::{Address, BanditApi, Route, ShufflerApi, Trust};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use tempfile::TempDir;

/// A mechanism with stages of (rounds, size, bits).
pub fn mechanism(dimension: u32, grace: u32, stages: &[(u32, u32, u32)]) -> Mechanism {
    let flip = FlipProbability::new(1, 2).unwrap();
    let stage =
        |&(rounds, size, bits)| Stage { rounds, size, window: None, law: Law::bits(bits, flip) };
    let config = MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect(),
        layout: Layout::Shared,
        closes: Closes::Count { grace },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    config.check().unwrap()
}

/// Rounds of so many milliseconds each from `opens` on, with a law that makes pads recognisable:
/// half of a pad's m = 4 coins are 1 but for a chance of 2^-32 each, so a pad is 2 in every
/// coordinate, and a report of [`four_hot`] is 4 or 0.
pub fn timed(dimension: u32, opens: u64, window: u32, rounds: u32, size: u32) -> Mechanism {
    let flip = FlipProbability::new(1, u32::MAX).unwrap();
    let law = Law::bits(4, flip);
    let config = MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: vec![Stage { rounds, size, window: Some(window), law }],
        layout: Layout::Shared,
        closes: Closes::Time { opens },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    config.check().unwrap()
}

/// Report number n has a 4 at coordinate n and 0 elsewhere.
pub fn four_hot(mechanism: &Mechanism, round: u32, number: u32) -> Report {
    let mut counts = vec![0; mechanism.coordinates()];
    counts[number as usize % mechanism.coordinates()] = 4;
    Report::new(mechanism, round, id(number), counts).unwrap()
}

/// Whether a release of a [`timed`] round is the sum of exactly these reports and pads. A report
/// more or less, or a pad, moves coordinates by 2 at least; coins that are not as expected, by 1
/// with a chance of 2^-32 for each coin.
pub fn is_padded(mechanism: &Mechanism, body: &[u8], numbers: &[u32]) -> bool {
    let release: Release = serde_json::from_slice(body).unwrap();
    let size = mechanism.round(release.sums().round()).unwrap().size;
    let Some(pads) = size.checked_sub(numbers.len() as u32) else { return false };
    let reports = hot(mechanism, numbers.iter().copied());
    let expected = reports.iter().map(|report| 4 * report + 2 * i64::from(pads));
    expected.zip(release.sums().sums()).all(|(expected, sum)| expected.abs_diff(*sum) <= 1)
}

/// A task that takes plain reports and gives a model after every batch.
pub fn plain(mechanism: Mechanism) -> TaskConfig {
    task_config(mechanism, true)
}

/// A task that takes sealed reports only.
pub fn sealed(mechanism: Mechanism) -> TaskConfig {
    task_config(mechanism, false)
}

fn task_config(mechanism: Mechanism, plain_reports: bool) -> TaskConfig {
    let learner =
        LearnerConfig { update: UpdateRule::EveryBatch {}, ..*Learner::default().config() };
    let policy: Policy = PolicyConfig { plain_reports, ..PolicyConfig::default() }.check().unwrap();
    TaskConfig::new(mechanism, learner.check().unwrap(), policy).unwrap()
}

/// The task of two operators that nobody knows.
pub fn orphan(config: TaskConfig) -> Task {
    let key = || SigningKey::generate().unwrap().verification_key();
    Task::new(config, VerificationKeys { shuffler: key(), bandit: key() })
}

/// The id of report number n.
pub fn id(number: u32) -> ReportId {
    let mut id = [0xa5; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    ReportId(id)
}

/// Report number n has a 1 at coordinate n and 0 elsewhere: counted twice, it would be a 2; and the
/// sums of a release add up to its size.
pub fn one_hot(mechanism: &Mechanism, round: u32, number: u32) -> Report {
    let mut counts = vec![0; mechanism.coordinates()];
    counts[number as usize % mechanism.coordinates()] = 1;
    Report::new(mechanism, round, id(number), counts).unwrap()
}

/// What a release says.
pub fn sums(bytes: &[u8]) -> Vec<i64> {
    serde_json::from_slice::<Release>(bytes).unwrap().sums().sums().to_vec()
}

/// The sums of one-hot reports.
pub fn hot(mechanism: &Mechanism, numbers: impl IntoIterator<Item = u32>) -> Vec<i64> {
    let mut sums = vec![0; mechanism.coordinates()];
    numbers.into_iter().for_each(|number| sums[number as usize % mechanism.coordinates()] += 1);
    sums
}

/// Several reports in one body.
pub fn joined<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        push_report(&mut body, part.as_ref());
    }
    body
}

/// A folder in memory, where there is one, and the setting that has round keys there.
pub fn memory_folder() -> (TempDir, RoundKeysConfig) {
    match TempDir::new_in("/dev/shm") {
        Ok(folder) => {
            let path = Some(folder.path().join("keys"));
            (folder, RoundKeysConfig::MemoryFile { path })
        }
        Err(_) => {
            let folder = TempDir::new().unwrap();
            let path = Some(folder.path().join("keys"));
            (folder, RoundKeysConfig::File { path })
        }
    }
}

/// A certificate for a name and its key, in the place of those that are there.
pub fn certificate(folder: &Path, name: &str) -> TlsConfig {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let tls = TlsConfig { certificate: folder.join("tls.pem"), key: folder.join("tls.key") };
    fs::write(&tls.certificate, made.cert.pem()).unwrap();
    private(&tls.key, &made.signing_key.serialize_pem());
    tls
}

/// Writes a file that only its owner can read.
pub fn private(path: &Path, text: &str) {
    incrowd_files::replace(path, text.as_bytes()).unwrap();
}

/// The folder of an operator, with keys, a token for every role and a task.
pub struct Place {
    pub folder: TempDir,
    /// Where the keys of rounds are.
    pub round_keys: TempDir,
    pub config: NodeConfig,
    pub task: Task,
    pub tokens: Vec<(Role, String)>,
}

impl Place {
    pub fn new(config: TaskConfig) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let files = Files::of(&data);
        let shuffler = Keys::create(&files.shuffler_keys, KeyRole::Shuffler).unwrap();
        let bandit = Keys::create(&files.bandit_keys, KeyRole::Bandit).unwrap();
        let keys = VerificationKeys {
            shuffler: shuffler.verification_key(),
            bandit: bandit.verification_key(),
        };
        let task = Task::new(config, keys);
        let mut tokens = Tokens::default();
        let texts = Role::ALL.map(|role| (role, tokens.add(role).unwrap().to_string())).to_vec();
        tokens.save(&files.tokens).unwrap();
        let path = folder.path().join("task.toml");
        fs::write(&path, toml::to_string(&task).unwrap()).unwrap();
        let mut config = settings(data);
        config.tasks = vec![path];
        let (round_keys, setting) = memory_folder();
        config.shuffler.round_keys = Some(setting);
        Self { folder, round_keys, config, task, tokens: texts }
    }

    pub fn files(&self) -> Files {
        Files::of(&self.config.data)
    }

    pub fn mechanism(&self) -> &Mechanism {
        self.task.mechanism()
    }

    pub fn token(&self, role: Role) -> &str {
        &self.tokens.iter().find(|(found, _)| *found == role).unwrap().1
    }

    pub fn start(&self, roles: Roles) -> Running {
        let node = self.node(roles);
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        let url = |address: SocketAddr| format!("{scheme}://{address}");
        let ca = self.config.tls.as_ref().map(|tls| fs::read(&tls.certificate).unwrap());
        let trust = Trust::new(ca.as_deref());
        let base = url(node.address());
        let address = Address::new(&base, "node", false).unwrap();
        let shuffler = |role| {
            let token = self.token(role).to_owned();
            ShufflerApi::new(Route::Direct(address.clone()), Some(token), &trust).unwrap()
        };
        Running {
            device: shuffler(Role::Device),
            collector: shuffler(Role::Bandit),
            models: BanditApi::new(address, &trust).unwrap(),
            base,
            admin: url(node.admin_address()),
            client: incrowd_transport::client(&trust).unwrap(),
            node,
            task: self.task.clone(),
            tokens: self.tokens.clone(),
        }
    }

    /// A last connection of the node before may still hold the store for a moment.
    pub fn node(&self, roles: Roles) -> Node {
        for _ in 0..100 {
            match Node::start(&self.config, roles) {
                Err(ServiceError::Store(StoreError::InUse(_))) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => return other.unwrap(),
            }
        }
        panic!("the store stays in use");
    }

    /// The folder of another node of the same operator, with the same round keys.
    pub fn beside(&self) -> Place {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let (here, there) = (self.files(), Files::of(&data));
        fs::copy(&here.shuffler_keys, &there.shuffler_keys).unwrap();
        fs::copy(&here.bandit_keys, &there.bandit_keys).unwrap();
        fs::copy(&here.tokens, &there.tokens).unwrap();
        let config = NodeConfig { data, ..self.config.clone() };
        let (task, tokens) = (self.task.clone(), self.tokens.clone());
        Place { folder, round_keys: TempDir::new().unwrap(), config, task, tokens }
    }

    /// The folder of the same task's bandit at another operator, who collects from a shuffler.
    pub fn bandit_of(&self, shuffler: &Running) -> Place {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let files = Files::of(&data);
        fs::copy(&self.files().bandit_keys, &files.bandit_keys).unwrap();
        fs::copy(&self.files().tokens, &files.tokens).unwrap();
        let token = folder.path().join("token");
        write_token(&token, self.token(Role::Bandit)).unwrap();
        let mut config = settings(data);
        config.tasks.clone_from(&self.config.tasks);
        config.bandit.shuffler_url.clone_from(&shuffler.base);
        config.bandit.token_file = Some(token);
        config.bandit.longest_pause_seconds = 1;
        let (round_keys, _) = memory_folder();
        let (task, tokens) = (self.task.clone(), self.tokens.clone());
        Place { folder, round_keys, config, task, tokens }
    }
}

/// Free ports, limits that let every task pass, short times.
pub fn settings(data: PathBuf) -> NodeConfig {
    let mut config = NodeConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin_listen: "127.0.0.1:0".parse().unwrap(),
        data,
        limits: Limits::unlimited(),
        ..NodeConfig::default()
    };
    config.http.shutdown_seconds = 1;
    config
}

/// A node and how to ask it.
pub struct Running {
    pub node: Node,
    pub base: String,
    pub admin: String,
    /// As a device asks.
    pub device: ShufflerApi,
    /// As the bandit's collector asks.
    pub collector: ShufflerApi,
    pub models: BanditApi,
    /// For requests that none of them would send, and answers that they would refuse.
    pub client: reqwest::Client,
    pub task: Task,
    pub tokens: Vec<(Role, String)>,
}

impl Running {
    pub fn token(&self, role: Role) -> &str {
        &self.tokens.iter().find(|(found, _)| *found == role).unwrap().1
    }

    pub fn mechanism(&self) -> &Mechanism {
        self.task.mechanism()
    }

    /// A request to a path of the task.
    pub fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{}/{}{path}", self.base, paths::TASKS, self.task.id());
        self.client.request(method, url)
    }

    pub fn upload(&self, id: ReportId, kind: MediaType, body: Vec<u8>) -> RequestBuilder {
        let url = format!("{}{}", self.base, paths::report(&self.task.id(), id));
        self.client
            .put(url)
            .bearer_auth(self.token(Role::Device))
            .header("content-type", kind.as_str())
            .body(body)
    }

    pub async fn put(&self, report: &Report) -> Response {
        let bytes = report.encode(self.mechanism()).unwrap();
        self.upload(report.id(), MediaType::Report, bytes).send().await.unwrap()
    }

    pub async fn put_sealed(&self, report: &Report) -> Response {
        let body = self.seal(report).await;
        self.upload(report.id(), MediaType::SealedReport, body).send().await.unwrap()
    }

    /// Sealed to the key that the notice says.
    pub async fn seal(&self, report: &Report) -> Vec<u8> {
        let notice = self.notice().await;
        let bytes = report.encode(self.mechanism()).unwrap();
        let key = notice.sealing_key().unwrap();
        seal(&self.task.id(), key, report.round(), report.id(), &bytes).unwrap()
    }

    pub async fn post(&self, kind: MediaType, body: Vec<u8>) -> Response {
        self.ask(Method::POST, "/reports")
            .bearer_auth(self.token(Role::Device))
            .header("content-type", kind.as_str())
            .body(body)
            .send()
            .await
            .unwrap()
    }

    /// Uploads plain reports; the accepted number, and index and type's name of each refused one.
    pub async fn bulk(&self, reports: &[Report]) -> (u64, Vec<(u64, String)>) {
        let encoded = reports.iter().map(|report| report.encode(self.mechanism()).unwrap());
        let answer = self.device.post_many(&self.task.id(), false, joined(encoded)).await;
        told(&answer.unwrap())
    }

    pub async fn release(&self, round: u32) -> Response {
        self.release_after(round, 0).await
    }

    pub async fn release_after(&self, round: u32, wait: u64) -> Response {
        self.client
            .get(format!("{}{}", self.base, paths::release(&self.task.id(), round, None, wait)))
            .bearer_auth(self.token(Role::Bandit))
            .send()
            .await
            .unwrap()
    }

    /// The bytes of a release, whose signature is right.
    pub async fn released(&self, round: u32) -> Vec<u8> {
        let wait = Duration::from_secs(20);
        let fetched = self.collector.release(&self.task, round, None, wait).await.unwrap();
        fetched.release().unwrap().body
    }

    /// The bytes of an answer with a right signature.
    pub async fn signed(&self, response: Response, document: Document) -> Vec<u8> {
        assert_eq!(response.status(), StatusCode::OK);
        let signature = response.headers()[SIGNATURE_HEADER].to_str().unwrap().parse().unwrap();
        let signed = Signed { body: response.bytes().await.unwrap().to_vec(), signature };
        let VerificationKeys { shuffler, bandit } = self.task.keys();
        let key = if document == Document::Model { bandit } else { shuffler };
        signed.verify(key, document, &self.task.id()).unwrap();
        signed.body
    }

    pub async fn notice(&self) -> TaskNotice {
        self.device.notice(&self.task.id()).await.unwrap().1
    }

    /// The number of the current round.
    pub async fn round(&self) -> Option<u32> {
        self.device.round(&self.task).await.unwrap().map(|round| round.number)
    }

    pub async fn model(&self) -> Response {
        self.ask(Method::GET, "/model").send().await.unwrap()
    }

    /// The newest model, once it is of a round.
    pub async fn model_of(&self, round: u32) -> Vec<u8> {
        for _ in 0..2000 {
            match self.models.model(&self.task, None).await.unwrap().model {
                Some((signed, model)) if model.round() == round => return signed.body,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        panic!("there is no model of round {round}");
    }

    pub fn operate(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.admin))
            .bearer_auth(self.token(Role::Admin))
    }

    pub async fn status(&self) -> TaskStatus {
        let answer = self.operate(Method::GET, paths::TASKS).send().await.unwrap();
        let all: Vec<TaskStatus> = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        all.into_iter().find(|status| status.task == self.task.id()).unwrap()
    }

    /// Round and number of reports in the unfinished batch.
    pub async fn filled(&self) -> (Option<u32>, Option<u32>) {
        let status = self.status().await;
        (status.round, status.reports)
    }

    pub async fn metrics(&self) -> String {
        let answer = self.operate(Method::GET, "/metrics").send().await.unwrap();
        answer.text().await.unwrap()
    }

    pub async fn close(&self) -> StatusCode {
        let path = paths::close(&self.task.id());
        // A store that fails takes its time.
        let patience = Duration::from_secs(90);
        let request = self.operate(Method::POST, &path).timeout(patience);
        request.send().await.unwrap().status()
    }

    pub async fn stop(self) {
        self.node.stop().await;
    }
}

/// Number of accepted reports, and index and type's name of the others.
pub async fn outcomes(response: Response) -> (u64, Vec<(u64, String)>) {
    assert_eq!(response.status(), StatusCode::OK);
    told(&serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

fn told(answer: &BulkAnswer) -> (u64, Vec<(u64, String)>) {
    let refused = answer.refused.iter().map(|refused| {
        assert!(!refused.detail.is_empty());
        (refused.index as u64, refused.kind().unwrap().name().to_owned())
    });
    (answer.accepted as u64, refused.collect())
}

/// Status and type's name of an answer that must be a problem.
pub async fn problem(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type").cloned();
    assert_eq!(kind.as_ref().unwrap(), MediaType::Problem.as_str(), "status {status}");
    let bytes = response.bytes().await.unwrap();
    let body: ProblemDocument = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(body.status, status);
    assert!(!body.detail.is_empty() && !body.title.is_empty());
    (status, body.kind().unwrap().name().to_owned())
}

/// The value of a metric, 0 when it is not there.
pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Waits until something holds, at most ten seconds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never happened: {what}");
}

/// Whether `part` occurs in `whole`.
pub fn contains(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}
