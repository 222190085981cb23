//! The product as an algorithm of the simulator, with everything between device and model over
//! HTTP: a real node with an embedded store.

use std::{
    error::Error,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use incrowd_device::Device;
use incrowd_envelope::seal;
use incrowd_node::{Limits, Node, NodeConfig, Role, Roles, TaskStatus};
use incrowd_protocol::{Model, SealingKey, Task, TaskConfig, paths, push_report};
use incrowd_sim::{Algorithm, Choice, Progress, SimulationError};
use incrowd_transport::{Address, BanditApi, Http, Request, Route, ShufflerApi, Trust};
use tokio::runtime::Runtime;

use crate::runtime;

/// Reports in one request.
const REQUEST: u32 = 1000;
/// How long the bandit may take for one release.
const PATIENCE: Duration = Duration::from_secs(60);

/// Simulated people whose devices talk to a real shuffler and a real bandit.
pub struct Served {
    runtime: Runtime,
    shuffler: ShufflerApi,
    bandit: BanditApi,
    admin: Http,
    admin_token: String,
    task: Task,
    sealing_key: SealingKey,
    /// Chooses for everyone; each report comes from a device of its own.
    chooser: Device,
    model: Option<Model>,
    config: Arc<TaskConfig>,
    /// Sealed reports that are not sent yet, each with its length in front.
    body: Vec<u8>,
    reports: u32,
    sent: u32,
    version: u64,
    progress: Progress,
    node: Option<Node>,
}

impl Served {
    /// Starts a node on free ports of this machine, with its store in `data`.
    pub fn start(task: &Arc<TaskConfig>, data: &Path) -> Result<Self, Box<dyn Error>> {
        let file = data.join("task.toml");
        std::fs::write(&file, toml::to_string(task.as_ref())?)?;
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        // The people are synthetic: whatever the options ask for is allowed.
        let limits = Limits::unlimited();
        let config = NodeConfig {
            listen: free,
            admin_listen: free,
            data: data.to_owned(),
            tasks: vec![file],
            limits,
            ..NodeConfig::default()
        };
        let runtime = runtime()?;
        let node = runtime.block_on(async { Node::start(&config, Roles::Both) })?;
        let token = |role: Role| {
            let new = node.new_tokens().iter().find(|(of, _)| *of == role);
            let (_, token) = new.expect("invariant: an empty data folder gets new tokens");
            token.to_string()
        };
        let (device_token, admin_token) = (token(Role::Device), token(Role::Admin));
        let id = node.tasks().next().ok_or("the node serves no task")?;
        let address = |of: SocketAddr| Address::new(&format!("http://{of}"), "node", false);
        let route = Route::Direct(address(node.address())?);
        let shuffler = ShufflerApi::new(route, Some(device_token), &Trust::Nobody)?;
        let bandit = BanditApi::new(address(node.address())?, &Trust::Nobody)?;
        let admin = Http::new(address(node.admin_address())?, &Trust::Nobody)?;
        let (_, notice) = runtime.block_on(shuffler.notice(&id))?;
        let sealing_key = notice.sealing_key().ok_or("the shuffler has no sealing key")?.clone();
        Ok(Self {
            runtime,
            shuffler,
            bandit,
            admin,
            admin_token,
            task: notice.task,
            sealing_key,
            chooser: Device::new(task.clone())?,
            model: None,
            config: task.clone(),
            body: Vec::new(),
            reports: 0,
            sent: 0,
            version: 0,
            progress: Progress::default(),
            node: Some(node),
        })
    }

    fn round(&self) -> u32 {
        self.progress.batches as u32 + 1
    }

    /// Sends what is waiting.
    fn upload(&mut self) -> Result<(), Box<dyn Error>> {
        let (body, number) = (std::mem::take(&mut self.body), std::mem::take(&mut self.reports));
        let id = self.task.id();
        let answer = self.runtime.block_on(self.shuffler.post_many(&id, true, body))?;
        if let Some(first) = answer.refused.first() {
            let refused = answer.refused.len();
            return Err(format!("the shuffler refused {refused} reports: {}", first.detail).into());
        }
        self.sent += number;
        Ok(())
    }

    /// Waits until the bandit has the batch, and fetches the model if there is a new one.
    fn next_model(&mut self) -> Result<(), Box<dyn Error>> {
        let round = self.round();
        let asked = Instant::now();
        loop {
            if asked.elapsed() > PATIENCE {
                return Err(format!("the bandit did not absorb round {round} in time").into());
            }
            let request = Request::get(paths::TASKS).token(&self.admin_token)?;
            let answer = self.runtime.block_on(self.admin.send(request))?.success()?;
            let status: Vec<TaskStatus> = serde_json::from_slice(&answer.body)?;
            if status
                .first()
                .and_then(|status| status.absorbed)
                .is_some_and(|absorbed| absorbed >= round)
            {
                break;
            }
            thread::sleep(Duration::from_micros(200));
        }
        let newer = self.bandit.model(&self.task, self.version, Duration::ZERO);
        if let Some((_, model)) = self.runtime.block_on(newer)? {
            self.version = model.version();
            self.progress.models = model.version();
            self.model = Some(model);
        }
        self.progress.batches += 1;
        self.sent = 0;
        Ok(())
    }

    fn answer(&mut self, context: &[f64], reward: f64) -> Result<(), Box<dyn Error>> {
        let number = self.round();
        let report = Device::new(self.config.clone())?.report(number, context, reward)?.report;
        let bytes = report.encode(self.task.mechanism())?;
        let sealed = seal(&self.task.id(), &self.sealing_key, number, report.id(), &bytes)?;
        push_report(&mut self.body, &sealed);
        self.reports += 1;
        let full = self.sent + self.reports == self.task.mechanism().round(number)?.size;
        if full || self.reports == REQUEST {
            self.upload()?;
        }
        if full {
            self.next_model()?;
        }
        Ok(())
    }
}

impl Algorithm for Served {
    fn dimension(&self) -> Option<usize> {
        Some(self.task.mechanism().dimension())
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        let arms = arms.chunks_exact(self.task.mechanism().dimension());
        Ok(Choice::Arm(self.chooser.choose(self.model.as_ref(), arms)?))
    }

    fn learn(&mut self, context: &[f64], reward: f64) -> Result<(), SimulationError> {
        self.answer(context, reward).map_err(|error| SimulationError::Service(error.to_string()))
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn noise_std(&self) -> Option<f64> {
        None
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            self.runtime.block_on(node.stop());
        }
    }
}
