//! The product as an algorithm of the simulator, with everything between device and model over
//! HTTP: a real node with an embedded store.

use std::{error::Error, net::SocketAddr, path::Path, sync::Arc, thread, time::Duration};

use incrowd_device::{Arm, Device};
use incrowd_envelope::seal;
use incrowd_node::{
    Files, Limits, Node, NodeConfig, Role, Roles, RoundKeysConfig, ShufflerConfig, read_token,
};
use incrowd_protocol::{
    Blocks, EntityTag, Model, OpenRound, ProblemKind, SealingKey, Task, TaskConfig, Window,
    push_report,
};
use incrowd_sim::{Algorithm, Choice, Progress, SimulationError};
use incrowd_transport::{Address, BanditApi, Route, ShufflerApi, Trust};
use tokio::runtime::Runtime;

use crate::{moment, runtime};

/// Reports in one request.
const REQUEST: u32 = 200;
/// From the closing of a round to its release.
const RELEASE_DELAY: u64 = 20;

/// Simulated people whose devices talk to a real shuffler and a real bandit.
pub struct Served {
    runtime: Runtime,
    shuffler: ShufflerApi,
    bandit: BanditApi,
    task: Task,
    sealing_key: SealingKey,
    /// Chooses for everyone; each report comes from a device of its own.
    chooser: Device,
    model: Option<Model>,
    config: Arc<TaskConfig>,
    /// Sealed reports that are not sent yet, each with its length in front.
    body: Vec<u8>,
    reports: u32,
    /// The round that people come in, when it is open, and how many have come.
    round: u32,
    window: Window,
    people: u32,
    /// How many come in one round at most.
    most: u32,
    /// The newest model that was fetched.
    known: Option<EntityTag>,
    progress: Progress,
    node: Option<Node>,
}

impl Served {
    /// Starts a node on free ports of this machine, with its store in `data`. At most `people`
    /// people report in one round.
    pub fn start(task: &Arc<TaskConfig>, people: u32, data: &Path) -> Result<Self, Box<dyn Error>> {
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
            shuffler: ShufflerConfig {
                release_delay_milliseconds: RELEASE_DELAY,
                // In the data folder, so that nothing is left behind.
                round_keys: Some(RoundKeysConfig::File { path: None }),
                ..ShufflerConfig::default()
            },
            ..NodeConfig::default()
        };
        let runtime = runtime()?;
        let node = runtime.block_on(async { Node::start(&config, Roles::Both) })?;
        let device_token = read_token(&Files::of(data).token(Role::Device))?.to_string();
        let id = node.tasks().next().ok_or("the node serves no task")?;
        let address = |of: SocketAddr| Address::new(&format!("http://{of}"), "node", false);
        let route = Route::Direct(address(node.address())?);
        let shuffler = ShufflerApi::new(route, Some(device_token), &Trust::Nobody)?;
        let bandit = BanditApi::new(address(node.address())?, &Trust::Nobody)?;
        let (_, notice) = runtime.block_on(shuffler.notice(&id))?;
        let sealing_key = notice.sealing_key().ok_or("the shuffler has no sealing key")?.clone();
        Ok(Self {
            runtime,
            shuffler,
            bandit,
            task: notice.task,
            sealing_key,
            chooser: Device::new(task.clone())?,
            model: None,
            config: task.clone(),
            body: Vec::new(),
            reports: 0,
            round: 0,
            window: Window { opens: 0, closes: 0 },
            people: 0,
            most: people,
            known: None,
            progress: Progress::default(),
            node: Some(node),
        })
    }

    /// Sends what is waiting. What comes too late for its round is dropped, like a real late report.
    fn upload(&mut self) -> Result<(), Box<dyn Error>> {
        let body = std::mem::take(&mut self.body);
        self.reports = 0;
        if body.is_empty() {
            return Ok(());
        }
        let id = self.task.id();
        let answer = self.runtime.block_on(self.shuffler.post_many(&id, true, body))?;
        let late = ProblemKind::Late.uri();
        match answer.refused.iter().find(|refused| refused.r#type != late) {
            None => Ok(()),
            Some(first) => {
                let refused = answer.refused.len();
                Err(format!("the shuffler refused {refused} reports: {}", first.detail).into())
            }
        }
    }

    /// Waits until a round is open in which people can still come, and takes the newest model.
    fn next_round(&mut self) -> Result<(), Box<dyn Error>> {
        let mechanism = self.task.mechanism();
        let (round, window) = loop {
            let now = moment::now();
            let round = match mechanism.round_at(now).ok_or("the demo's rounds close by time")? {
                OpenRound::Open(round) => round,
                OpenRound::NotYet => 1,
                OpenRound::Over => return Err("the rounds of the demo are over".into()),
            };
            let window = mechanism.window(round)?.ok_or("the demo's rounds close by time")?;
            if round > self.round && now >= window.opens {
                break (round, window);
            }
            let until = if round > self.round { window.opens } else { window.closes };
            thread::sleep(Duration::from_millis(until - now));
        };
        (self.round, self.window, self.people) = (round, window, 0);
        self.progress.batches = u64::from(round - 1);
        // Once in a round, whatever the answer's max-age: there is no cache on the way.
        let newest = self.bandit.model(&self.task, self.known.as_ref());
        if let Some((signed, model)) = self.runtime.block_on(newest)?.model {
            self.known = Some(EntityTag::of(&signed.body));
            self.progress.models = model.version();
            self.model = Some(model);
        }
        Ok(())
    }

    /// Whether somebody who came now could be too late for the round.
    fn ends(&self) -> bool {
        let length = self.window.closes - self.window.opens;
        moment::now() + length / 4 >= self.window.closes
    }

    fn answer(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), Box<dyn Error>> {
        if self.people == self.most || self.ends() {
            self.upload()?;
            self.next_round()?;
        }
        let number = self.round;
        let report = Device::new(self.config.clone())?.report(number, arm, reward)?.report;
        let bytes = report.encode(self.task.mechanism())?;
        let sealed = seal(&self.task.id(), &self.sealing_key, number, report.id(), &bytes)?;
        push_report(&mut self.body, &sealed);
        self.reports += 1;
        self.people += 1;
        if self.reports == REQUEST || self.people == self.most {
            self.upload()?;
        }
        Ok(())
    }
}

impl Algorithm for Served {
    fn blocks(&self) -> Option<Blocks> {
        Some(self.task.mechanism().blocks())
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        let arms = arms.chunks_exact(self.task.mechanism().dimension());
        Ok(Choice::Arm(self.chooser.choose(self.model.as_ref(), arms)?))
    }

    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError> {
        self.answer(arm, reward).map_err(|error| SimulationError::Service(error.to_string()))
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
