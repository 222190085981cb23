//! Servers as processes of their own, and what they say about themselves.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::any};
use incrowd_node::{
    HttpLimits, Limits, Node, NodeConfig, Roles, RoundKeysConfig, Signals, StoreKind, read_token,
};
use incrowd_protocol::{MediaType, Task, TaskId, TaskNotice, paths};
use incrowd_transport::{Address, BanditApi, Http, Request, Route, ShufflerApi, Trust};

use crate::{load::id_of, runtime};

/// The peer: an axum handler that reads the body and answers 202.
pub fn bare() {
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("listening on {}", listener.local_addr().unwrap());
        let handler = any(async |_: axum::body::Bytes| StatusCode::ACCEPTED);
        axum::serve(listener, Router::new().fallback_service(handler)).await.unwrap();
    });
}

/// Shuffler and bandit as they are run, with a task of d = 10 that takes plain reports too: its
/// grace and size, and for a node on a database its URL and the folder of round keys.
pub fn node(data: &Path, arguments: &[String]) {
    let [grace, size, database @ ..] = arguments else { panic!("grace and size") };
    let task = format!(
        r#"
        [mechanism]
        dimension = 10
        context_bound = 1.0
        layout = "shared"
        closes = "count"
        grace = {grace}
        central_delta = 1e-6
        participations = 1
        honest_fraction = 1.0
        [[mechanism.schedule]]
        rounds = 1000000
        size = {size}
        encoding = "bits"
        bits = 1
        flip = "1/2"
        [policy]
        plain_reports = true
        "#
    );
    fs::create_dir_all(data).unwrap();
    let file = data.join("task.toml");
    fs::write(&file, task).unwrap();
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = Limits { epsilon_local: 100.0, ..Limits::default() };
    let mut config = NodeConfig {
        listen: free,
        admin_listen: free,
        data: data.to_owned(),
        tasks: vec![file],
        limits,
        // All connections come from this machine.
        http: HttpLimits { connections_per_peer: 0, ..HttpLimits::default() },
        ..NodeConfig::default()
    };
    if let [url, keys, ..] = database {
        config.store = StoreKind::Postgres(url.clone());
        config.shuffler.round_keys = Some(RoundKeysConfig::File { path: Some(keys.into()) });
    }
    runtime().block_on(async {
        let node = Node::start(&config, Roles::Both).unwrap();
        println!("listening on {}", node.address());
        println!("task {}", node.tasks().next().unwrap());
        // A copy of another node's folder has its tokens.
        for role in ["device", "admin"] {
            let token = read_token(&config.data.join(format!("{role}.token"))).unwrap();
            println!("token of {role} {}", token.as_str());
        }
        println!("admin on {}", node.admin_address());
        node.run(Signals::listen().unwrap()).await;
    });
}

/// A server process and what it said about itself.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// None of the bare handler.
    task: Option<TaskId>,
    pub token: String,
    admin_token: String,
    admin_address: Option<SocketAddr>,
}

impl Server {
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = if arguments[0] == "node" { 5 } else { 1 };
        let said: Vec<String> = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .take(lines)
            .map(|line| line.unwrap().rsplit(' ').next().unwrap().to_owned())
            .collect();
        let text = |index: usize| said.get(index).cloned().unwrap_or_default();
        let task = text(1).parse().ok();
        Self {
            child,
            address: said[0].parse().unwrap(),
            task,
            token: text(2),
            admin_token: text(3),
            admin_address: text(4).parse().ok(),
        }
    }

    pub fn node(data: &Path, grace: u32, size: u32) -> Self {
        let data = data.to_str().unwrap();
        Self::start(&["node", data, &grace.to_string(), &size.to_string()])
    }

    /// One that shares a database and round keys with others.
    pub fn node_on(data: &Path, url: &str, keys: &Path) -> Self {
        let (data, keys) = (data.to_str().unwrap(), keys.to_str().unwrap());
        Self::start(&["node", data, "1000", "100000", url, keys])
    }

    /// Seconds of processor time so far.
    pub fn processor(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }

    /// Resident and largest resident memory in MB.
    pub fn memory(&self) -> (f64, f64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    pub fn task(&self) -> TaskId {
        self.task.expect("invariant: only nodes are asked for a task")
    }

    pub fn base(&self) -> Address {
        Address::new(&format!("http://{}", self.address), "node", false).unwrap()
    }

    pub fn notice(&self) -> TaskNotice {
        let shuffler = ShufflerApi::new(Route::Direct(self.base()), None, &Trust::Nobody).unwrap();
        runtime().block_on(shuffler.notice(&self.task())).unwrap().1
    }

    /// The value of a metric, summed over the lines whose labels have a text.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let admin = self.admin_address.expect("invariant: only nodes are asked for metrics");
        let address = Address::new(&format!("http://{admin}"), "node", false).unwrap();
        let request = Request::get("/metrics").token(&self.admin_token).unwrap().limit(1 << 20);
        let http = Http::new(address, &Trust::Nobody).unwrap();
        let answer = runtime().block_on(http.send(request)).unwrap().success().unwrap();
        let text = String::from_utf8(answer.body).unwrap();
        let of_name =
            |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let lines = text.lines().filter(of_name).filter(|line| line.contains(label));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Waits for the first model.
    pub fn wait_for_model(&self, task: &Task) {
        let bandit = BanditApi::new(self.base(), &Trust::Nobody).unwrap();
        while runtime().block_on(bandit.model(task, None)).unwrap().model.is_none() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The bytes of a request for a plain report.
    pub fn put(&self, report: &[u8]) -> Vec<u8> {
        let path = paths::report(&self.task(), id_of(report));
        self.request(&format!("PUT {path}"), MediaType::Report, report)
    }

    pub fn post(&self, reports: &[u8], kind: MediaType) -> Vec<u8> {
        self.request(&format!("POST {}", paths::reports(&self.task())), kind, reports)
    }

    pub fn model_request(&self) -> Vec<u8> {
        let path = paths::model(&self.task());
        format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes()
    }

    fn request(&self, line: &str, kind: MediaType, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
