//! `incrowd serve`, `shuffler`, `bandit` and `config`: the services and their settings.

use std::{env, error::Error, path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, Subcommand};
use incrowd_node::{
    AdmissionKind, Files, Layers, LogFormat, Node, NodeConfig, Roles, Signals, init_log,
    store::{BanditStore, Stores},
};
use serde::Serialize;

use crate::{Output, guarantee, runtime};

/// Settings of a service. Flags win over variables (INCROWD_LISTEN, INCROWD_LIMITS__EPSILON_LOCAL),
/// which win over the file.
#[derive(Args)]
pub struct Arguments {
    /// TOML file with settings; `incrowd config show` prints all of them.
    #[arg(long, value_name = "TOML", env = "INCROWD_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Args, Serialize)]
struct Flags {
    /// Where devices, bandits and relays come, like 127.0.0.1:8787 or localhost:8787; port 0 takes
    /// a free one.
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    /// Where the operator comes: /healthz, /readyz, /metrics.
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_listen: Option<String>,
    /// Folder with keys, tokens and stores.
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,
    /// What keeps the stores: sqlite, or postgres://USER@HOST[,HOST...]/DATABASE, which any number
    /// of nodes share.
    #[arg(long, value_name = "STORE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    /// Task file from this operator, or the id of a task that was served from the data folder; may
    /// be given several times.
    #[arg(long = "task", value_name = "TOML")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<PathBuf>,
    /// Speak plain HTTP to others than this machine, because something in front has TLS.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_plain_http: bool,
    /// How log lines are written: text or json.
    #[arg(long, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogFormat>,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    shuffler: ShufflerFlags,
    #[command(flatten)]
    bandit: BanditFlags,
}

#[derive(Args, Serialize)]
struct LimitFlags {
    /// Refuse tasks whose reports tell more than this, each.
    #[arg(long = "limit-epsilon-local", value_name = "EPSILON")]
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_local: Option<f64>,
    /// Refuse tasks whose releases tell more than this, together.
    #[arg(long = "limit-epsilon-central", value_name = "EPSILON")]
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_central: Option<f64>,
    /// Refuse tasks with smaller batches.
    #[arg(long = "limit-smallest-batch", value_name = "REPORTS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest_batch: Option<u32>,
}

#[derive(Args, Serialize)]
struct ShufflerFlags {
    /// Base address of the bandit, told to devices.
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    model_url: Option<String>,
    /// Whose reports are taken: open (everyone's), shared-token (one token for all devices) or
    /// device-tokens (a token and a quota for each device).
    #[arg(long, value_name = "KIND")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<AdmissionKind>,
}

#[derive(Args, Serialize)]
struct BanditFlags {
    /// Base address of the shuffler.
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    shuffler_url: Option<String>,
    /// File with the token that the shuffler's operator gave.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
}

impl Arguments {
    /// The settings from all places.
    pub fn layers(&self) -> Result<Layers, Box<dyn Error>> {
        self.flags.check()?;
        Ok(Layers::new(self.config.as_deref(), environment(), &self.flags)?)
    }

    /// The settings, with files in the place of ids of tasks.
    pub fn settings(&self) -> Result<NodeConfig, Box<dyn Error>> {
        let mut config = self.layers()?.config()?;
        let files = Files::of(&config.data);
        for task in &mut config.tasks {
            *task = files.task_file(task)?;
        }
        Ok(config)
    }
}

impl Flags {
    /// Settings are text, so paths among them must be.
    fn check(&self) -> Result<(), String> {
        let paths = [("--data", &self.data), ("--token-file", &self.bandit.token_file)];
        let paths = paths.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        let tasks = self.tasks.iter().map(|path| ("--task", path));
        match paths.chain(tasks).find(|(_, path)| path.to_str().is_none()) {
            Some((flag, path)) => Err(format!("{flag} is {}, must be UTF-8 text", path.display())),
            None => Ok(()),
        }
    }
}

/// Where a bandit's store is.
#[derive(Args, Serialize)]
pub struct BanditStoreArguments {
    /// TOML file with the settings of the bandit.
    #[arg(long, value_name = "TOML", env = "INCROWD_CONFIG")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Data folder of the bandit [default: incrowd-data].
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,
}

impl BanditStoreArguments {
    /// The store, also of a running bandit, and the files beside it.
    pub fn open(&self) -> Result<(Files, Arc<dyn BanditStore>), Box<dyn Error>> {
        let config = Layers::new(self.config.as_deref(), environment(), self)?.config()?;
        let stores = Stores::of(&config)?;
        let none = || format!("there is no bandit's store yet: {stores}");
        Ok((Files::of(&config.data), stores.inspect_bandit()?.ok_or_else(none)?))
    }
}

/// The variables of the environment. One that is not Unicode is none of ours.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Runs a role until SIGTERM or SIGINT. SIGHUP reads keys, tokens and the files of TLS again.
pub fn run(arguments: &Arguments, roles: Roles) -> Result<ExitCode, Box<dyn Error>> {
    let config = arguments.settings()?;
    init_log(config.log)?;
    runtime()?.block_on(async {
        let signals = Signals::listen()?;
        let node = Node::start(&config, roles)?;
        // Data, for scripts: where new tokens are, where it listens and what it serves.
        for (role, path) in node.new_tokens() {
            let (role, path) = (role.name(), path.display());
            out!(
                "token of the {role} in {path}: hand it over (--token-file), then delete the file"
            );
        }
        promise(&node, config.log, roles);
        out!("listening on {}", node.address());
        out!("admin on {}", node.admin_address());
        for task in node.tasks() {
            out!("task {task}");
        }
        node.run(signals).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Says what the tasks guarantee, and against whom.
fn promise(node: &Node, log: LogFormat, roles: Roles) {
    for (task, certificate) in node.guarantees() {
        match log {
            LogFormat::Text => {
                eprintln!("task {task}\n{}", guarantee::in_words(certificate, roles));
            }
            LogFormat::Json => eprintln!("{}", guarantee::as_json(&task, certificate)),
        }
    }
}

/// Settings of the services.
#[derive(Args)]
pub struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Every setting with its value, as a service with the same file, environment and flags would
    /// have it: a file that --config reads. What is not set is a comment.
    ///
    /// Example: INCROWD_HTTP__BODY_BYTES=65536 incrowd config show --origin --config incrowd.toml
    Show {
        #[command(flatten)]
        service: Box<Arguments>,
        /// Also where each value comes from.
        #[arg(long)]
        origin: bool,
        /// How the result is printed.
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

pub fn config(arguments: &ConfigArguments) -> Result<ExitCode, Box<dyn Error>> {
    let ConfigCommand::Show { service, origin, output } = &arguments.command;
    let layers = service.layers()?;
    let settings = layers.settings()?;
    match output {
        Output::Json => out!("{}", serde_json::to_string_pretty(&settings)?),
        Output::Text => {
            for setting in settings {
                if *origin {
                    out!("{:<50} # {}", setting.to_string(), setting.origin);
                } else {
                    out!("{setting}");
                }
            }
            for key in layers.unset() {
                out!("# {key} is not set");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
