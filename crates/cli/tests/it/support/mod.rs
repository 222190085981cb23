//! Services as other processes, and what a test says to them over HTTP.

#![allow(dead_code)]

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use incrowd_envelope::{Document, Signed, seal};
use incrowd_protocol::{
    BulkAnswer, MediaType, Model, Report, ReportId, SIGNATURE_HEADER, Task, TaskNotice,
    VerificationKey, paths, push_report,
};
use incrowd_transport::{Address, Http, Method, Request, TransportError, Trust, documents};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// The program, without the settings of whoever runs the tests.
pub fn incrowd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incrowd"));
    clean(&mut command);
    command
}

/// Removes settings of the environment from a command that will run the program.
pub fn clean(command: &mut Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("INCROWD_")) {
        command.env_remove(name);
    }
}

/// What a command with these words says.
/// Writes a file that only its owner can read.
pub fn private(path: impl AsRef<std::path::Path>, text: &str) {
    incrowd_files::replace(path.as_ref(), text.as_bytes()).unwrap();
}

pub fn output(arguments: &str) -> Output {
    incrowd().args(arguments.split_whitespace()).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Stdout of a command that must succeed.
pub fn good(arguments: &str) -> String {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Stderr of a command that must be refused.
pub fn refused(arguments: &str) -> String {
    let output = output(arguments);
    let (told, talk) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{arguments}: {told}{talk}");
    assert!(talk.starts_with("error: "), "{arguments}: {talk}");
    talk
}

/// A service in its own process, killed when the test ends.
pub struct Service {
    child: Child,
    /// Read no further, but kept: a service that nobody listens to would end.
    _stdout: BufReader<ChildStdout>,
    /// Base address for devices.
    pub url: String,
    /// Base address for the operator.
    pub admin: String,
    /// What it wrote to stdout when it was ready.
    pub said: Vec<String>,
}

impl Service {
    /// Starts it and waits until it listens. Its stderr goes to the end of a file.
    pub fn start(command: &mut Command, stderr: &Path) -> Result<Self, ExitStatus> {
        let log = OpenOptions::new().create(true).append(true).open(stderr).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said: Vec<String> = Vec::new();
        while !said.last().is_some_and(|line| line.starts_with("task ")) {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap() == 0 {
                return Err(child.wait().unwrap());
            }
            said.push(line.trim_end().to_owned());
        }
        let address = |prefix: &str| {
            let address = said.iter().find_map(|line| line.strip_prefix(prefix));
            format!("http://{}", address.unwrap_or_else(|| panic!("{prefix} in {said:?}")))
        };
        let (url, admin) = (address("listening on "), address("admin on "));
        Ok(Self { child, _stdout: stdout, url, admin, said })
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9), "it had ended before");
    }

    pub fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }

    /// SIGTERM, and how it ends.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        let patience = Instant::now() + Duration::from_secs(30);
        while Instant::now() < patience {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("SIGTERM does not end it");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer over HTTP, whatever its status.
pub struct Answer(incrowd_transport::Answer);

impl std::ops::Deref for Answer {
    type Target = incrowd_transport::Answer;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Answer {
    /// The outcome of each of many reports.
    pub fn bulk(&self) -> BulkAnswer {
        assert_eq!(self.status, 200, "{self}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The kind of a problem.
    pub fn problem(&self) -> &'static str {
        self.0.problem().unwrap_or_else(|| panic!("{self}")).kind.name()
    }

    /// The document, whose signature is not checked yet.
    fn document(&self) -> Signed {
        let signature = self.header(SIGNATURE_HEADER).unwrap_or_else(|| panic!("{self}"));
        Signed { body: self.body.clone(), signature: signature.parse().unwrap() }
    }

    /// The body, if it is a document that was signed with this key.
    pub fn signed(&self, key: &VerificationKey, document: Document, task: &Task) -> &[u8] {
        self.document().verify(key, document, &task.id()).unwrap();
        &self.body
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// Whoever talks to services.
pub struct Caller {
    runtime: Runtime,
    /// By base address.
    servers: RefCell<HashMap<String, Http>>,
}

impl Caller {
    pub fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, servers: RefCell::default() }
    }

    /// An answer, or the connection broke.
    pub fn ask(
        &self,
        method: Method,
        url: &str,
        token: Option<&str>,
        body: Option<(MediaType, &[u8])>,
    ) -> Result<Answer, TransportError> {
        let end_of_base = url.match_indices('/').nth(2).unwrap().0;
        let (base, path) = url.split_at(end_of_base);
        let new = || {
            let address = Address::new(base, "service", false).unwrap();
            Http::new(address, &Trust::Nobody).unwrap()
        };
        let http = self.servers.borrow_mut().entry(base.to_owned()).or_insert_with(new).clone();
        let mut request = Request::new(method, path).limit(16 << 20);
        if let Some(token) = token {
            request = request.token(token)?;
        }
        if let Some((kind, body)) = body {
            request = request.body(kind, body.to_vec());
        }
        self.runtime.block_on(http.send(request)).map(Answer)
    }

    pub fn get(&self, url: &str, token: Option<&str>) -> Result<Answer, TransportError> {
        self.ask(Method::GET, url, token, None)
    }
}

/// A shuffler's and a bandit's data folder with keys and tokens, and a task that names them.
pub struct Site {
    folder: TempDir,
    /// Where the keys of rounds are: in memory, if there is such a file system.
    round_keys: TempDir,
    pub task: Task,
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Roles with a token.
const TOKENS: [&str; 4] = ["device", "bandit", "relay", "admin"];

impl Site {
    /// A task of `rounds` batches of `size` reports, plain or sealed, of one bit each. Its
    /// guarantee is worth nothing: the services need [`LIFTED`].
    pub fn new(dimension: u32, rounds: u32, size: u32) -> Self {
        let law = r#"encoding = "bits", bits = 1, flip = "1/2""#;
        let stage = format!("{{ rounds = {rounds}, size = {size}, {law} }}");
        Self::of(&plan(dimension, "closes = \"count\"\ngrace = 2", &stage))
    }

    /// A task whose rounds close by time, the first of which opens now. Its stages are rounds,
    /// capacity and window. The coins of a report of zero are half ones and nearly never flip:
    /// a pad is a 2 everywhere.
    pub fn timed(dimension: u32, stages: &[(u32, u32, u32)]) -> Self {
        let opens = now();
        let law = format!(r#"encoding = "bits", bits = 4, flip = "1/{}""#, u32::MAX);
        let stage = |(rounds, size, window): &(u32, u32, u32)| {
            format!("{{ rounds = {rounds}, size = {size}, window = {window}, {law} }}")
        };
        let stages: Vec<String> = stages.iter().map(stage).collect();
        let closes = format!("closes = \"time\"\nopens = \"{opens}\"\ngrace = 0");
        Self::of(&plan(dimension, &closes, &stages.join(", ")))
    }

    /// The task that a planner wrote.
    pub fn of(plan: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let key = |role: &str| {
            good(&format!("keys new --role {role} --data {}", path(role))).trim().to_owned()
        };
        let (shuffler, bandit) = (key("shuffler"), key("bandit"));
        for role in TOKENS {
            let (data, out) = (path("shuffler"), path(&format!("{role}.token")));
            assert_eq!(good(&format!("keys token --role {role} --data {data} --out {out}")), "");
        }
        let (data, out) = (path("bandit"), path("bandit-admin.token"));
        good(&format!("keys token --role admin --data {data} --out {out}"));
        fs::write(path("plan.toml"), plan).unwrap();
        let file = good(&format!(
            "task new --plan {} --plain-reports --shuffler-key {shuffler} --bandit-key {bandit}",
            path("plan.toml")
        ));
        fs::write(path("task.toml"), &file).unwrap();
        let (round_keys, kind) = match TempDir::new_in("/dev/shm") {
            Ok(folder) => (folder, "memory-file"),
            Err(_) => (tempfile::tempdir().unwrap(), "file"),
        };
        let keys = round_keys.path().join("keys").display().to_string();
        let settings = format!("[shuffler.round_keys]\nkind = \"{kind}\"\npath = \"{keys}\"\n");
        fs::write(path("settings.toml"), settings).unwrap();
        Self { task: toml::from_str(&file).unwrap(), folder, round_keys }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The token of a role; `bandit-admin` is the operator of the bandit.
    pub fn token(&self, role: &str) -> String {
        fs::read_to_string(self.path(&format!("{role}.token"))).unwrap().trim().to_owned()
    }

    /// The arguments of a role that listens on a port, 0 for a free one.
    pub fn arguments(&self, role: &str, port: u16) -> Vec<String> {
        self.arguments_in(role, role, "settings.toml", port)
    }

    fn arguments_in(&self, role: &str, data: &str, settings: &str, port: u16) -> Vec<String> {
        let mut arguments: Vec<String> =
            [role, "--admin-listen", "127.0.0.1:0"].map(Into::into).into();
        arguments.extend(["--listen".into(), format!("127.0.0.1:{port}")]);
        let files = [("--task", "task.toml"), ("--data", data), ("--config", settings)];
        for (flag, name) in files {
            arguments.extend([flag.into(), self.path(name).display().to_string()]);
        }
        arguments.extend(LIFTED.split(' ').map(Into::into));
        arguments
    }

    pub fn shuffler(&self, port: u16) -> Command {
        let mut command = incrowd();
        command.args(self.arguments("shuffler", port));
        command
    }

    pub fn bandit(&self, port: u16, shuffler: &str) -> Command {
        self.collecting(self.arguments("bandit", port), shuffler)
    }

    fn collecting(&self, arguments: Vec<String>, shuffler: &str) -> Command {
        let mut command = incrowd();
        command.args(arguments).args(["--shuffler-url", shuffler]);
        command.arg("--token-file").arg(self.path("bandit.token"));
        command
    }

    /// Makes the data folder of one of several nodes of a role, which use this database.
    pub fn add_node(&self, role: &str, data: &str, database: &str) {
        fs::create_dir(self.path(data)).unwrap();
        for name in [&format!("{role}.keys"), "tokens.toml"] {
            let from = self.path(role).join(name);
            fs::copy(from, self.path(data).join(name)).unwrap();
        }
        let settings = fs::read_to_string(self.path("settings.toml")).unwrap();
        fs::write(self.path("nodes.toml"), format!("store = \"{database}\"\n{settings}")).unwrap();
    }

    /// A shuffler in one of these folders.
    pub fn shuffler_node(&self, data: &str, port: u16) -> Command {
        let mut command = incrowd();
        command.args(self.arguments_in("shuffler", data, "nodes.toml", port));
        command
    }

    /// A bandit in one of these folders.
    pub fn bandit_node(&self, data: &str, port: u16, shuffler: &str) -> Command {
        self.collecting(self.arguments_in("bandit", data, "nodes.toml", port), shuffler)
    }

    pub fn start(&self, command: &mut Command) -> Service {
        let log = self.path("services.log");
        Service::start(command, &log)
            .unwrap_or_else(|status| panic!("{status}: {}", fs::read_to_string(log).unwrap()))
    }

    /// An address below the task's path.
    pub fn at(&self, base: &str, path: &str) -> String {
        format!("{base}{}/{}/{path}", paths::TASKS, self.task.id())
    }

    /// The newest model, once its version is above `after`.
    pub fn model(&self, caller: &Caller, base: &str, after: u32) -> Vec<u8> {
        let url = self.at(base, "model");
        for _ in 0..1000 {
            let answer = caller.get(&url, None).unwrap();
            if answer.status == 200 {
                let model: Model = serde_json::from_slice(&answer.body).unwrap();
                if model.version() > u64::from(after) {
                    return answer.body.clone();
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("there is no model above version {after}");
    }

    /// A report that has all bits of one coordinate set and no other, with an id that follows from
    /// its number. So does the coordinate, and it is the number where that is small enough.
    pub fn one_hot(&self, round: u32, number: usize) -> Parcel {
        let mechanism = self.task.mechanism();
        let mut counts = vec![0; mechanism.coordinates()];
        let coordinate = number % counts.len();
        counts[coordinate] = mechanism.round(round).unwrap().law.as_bits().unwrap().bits as u16;
        let mut id = [0xc0; 16];
        id[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let id = ReportId(id);
        let report = Report::new(mechanism, round, id, counts).unwrap();
        Parcel { number, round, id, bytes: report.encode(mechanism).unwrap(), sealed: false }
    }

    /// The same, sealed.
    pub fn seal(&self, parcel: &Parcel, notice: &TaskNotice) -> Parcel {
        let key = notice.sealing_key().unwrap();
        let Parcel { number, round, id, ref bytes, .. } = *parcel;
        let bytes = seal(&self.task.id(), key, round, id, bytes).unwrap();
        Parcel { number, round, id, bytes, sealed: true }
    }

    /// The number of the round being filled; nothing when the task is over.
    pub fn round(&self, answer: &Answer) -> Option<u32> {
        documents::round(&answer.document(), &self.task).unwrap().round.map(|round| round.number)
    }

    pub fn notice(&self, answer: &Answer) -> TaskNotice {
        documents::notice(&answer.document(), &self.task.id()).unwrap()
    }
}

/// Flags with which a service takes a task without privacy.
pub const LIFTED: &str =
    "--limit-epsilon-local 1e9 --limit-epsilon-central 1e9 --limit-smallest-batch 1";

fn plan(dimension: u32, closes: &str, schedule: &str) -> String {
    format!(
        r#"[mechanism]
dimension = {dimension}
context_bound = 1.0
layout = "shared"
{closes}
central_delta = 1e-6
participations = 1
honest_fraction = 1.0
schedule = [{schedule}]
[learner]
parameter_bound = 1.0
reward_noise = 0.5
failure_probability = 0.05
confidence = {{ mode = "calibrated", exploration = 0.2 }}
update = {{ rule = "every-batch" }}
"#
    )
}

/// A report as it is sent.
#[derive(Clone)]
pub struct Parcel {
    pub number: usize,
    pub round: u32,
    pub id: ReportId,
    pub bytes: Vec<u8>,
    pub sealed: bool,
}

impl Parcel {
    pub fn put(&self, caller: &Caller, site: &Site, base: &str) -> Result<Answer, TransportError> {
        let url = format!("{base}{}", paths::report(&site.task.id(), self.id));
        let body = (MediaType::report(self.sealed), self.bytes.as_slice());
        caller.ask(Method::PUT, &url, Some(&site.token("device")), Some(body))
    }
}

/// Sends several at once; all sealed or none.
pub fn post(
    parcels: &[Parcel],
    caller: &Caller,
    site: &Site,
    base: &str,
) -> Result<Answer, TransportError> {
    let sealed = parcels.iter().all(|parcel| parcel.sealed);
    assert!(sealed || parcels.iter().all(|parcel| !parcel.sealed));
    let mut body = Vec::new();
    parcels.iter().for_each(|parcel| push_report(&mut body, &parcel.bytes));
    let url = format!("{base}{}", paths::reports(&site.task.id()));
    let body = (MediaType::reports(sealed), body.as_slice());
    caller.ask(Method::POST, &url, Some(&site.token("device")), Some(body))
}
