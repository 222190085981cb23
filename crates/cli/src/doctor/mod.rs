//! `incrowd doctor`: what would go wrong, before it does.

mod folder;
mod network;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use incrowd_node::{Files, Node, NodeConfig, Roles, round_keys::RoundKeysConfig};
use serde::Serialize;
use serde_json::json;

use crate::{Output, moment, print::wrapped, service};

/// Check settings, keys, tokens, tasks, stores and addresses of a service, without changing
/// anything.
///
/// What is BAD would keep the service from starting, or from working once it runs; then the exit
/// code is 1. A note is for the operator to decide on. What the first start will make is ok.
///
/// Example: incrowd doctor --config incrowd.toml
#[derive(Args)]
#[group(skip)]
pub struct Arguments {
    #[command(flatten)]
    service: service::Arguments,
    /// Which service it is; by the keys in the data folder if not given, and `serve` where there
    /// are none.
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Both roles in one process.
    Serve,
    Shuffler,
    Bandit,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Ok,
    Note,
    Bad,
}

#[derive(Serialize)]
struct Finding {
    level: Level,
    text: String,
}

/// What was found, in order.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, text: impl Into<String>) {
        self.0.push(Finding { level, text: text.into() });
    }

    fn good(&mut self, text: impl Into<String>) {
        self.add(Level::Ok, text);
    }

    fn note(&mut self, text: impl Into<String>) {
        self.add(Level::Note, text);
    }

    fn bad(&mut self, text: impl Into<String>) {
        self.add(Level::Bad, text);
    }

    fn number(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let mut findings = Findings::default();
    match arguments.service.settings() {
        Err(error) => findings.bad(format!("settings: {error}")),
        Ok(config) => {
            findings.good("settings");
            examine(&config, arguments.role, &mut findings);
        }
    }
    let [good, notes, bad] = [Level::Ok, Level::Note, Level::Bad].map(|l| findings.number(l));
    match arguments.output {
        Output::Json => out!(
            "{:#}",
            json!({
                "findings": findings.0, "ok": good, "notes": notes, "bad": bad,
            })
        ),
        Output::Text => {
            for Finding { level, text } in &findings.0 {
                let level = match level {
                    Level::Ok => "ok",
                    Level::Note => "note",
                    Level::Bad => "BAD",
                };
                let text = text.replace("\nhint: ", "; ");
                out!("{}", wrapped(&format!("{level:<4}  {text}")));
            }
            eprintln!("{good} ok, {notes} to note, {bad} bad");
        }
    }
    ExitCode::from(u8::from(bad > 0))
}

fn examine(config: &NodeConfig, role: Option<RoleName>, findings: &mut Findings) {
    let files = Files::of(&config.data);
    let roles = role.map_or_else(
        || inferred(&files),
        |role| match role {
            RoleName::Serve => Roles::Both,
            RoleName::Shuffler => Roles::Shuffler,
            RoleName::Bandit => Roles::Bandit,
        },
    );
    let name = match roles {
        Roles::Both => "serve",
        Roles::Shuffler => "shuffler",
        Roles::Bandit => "bandit",
    };
    findings.good(format!("checked as `incrowd {name}` (--role)"));
    findings.good(format!("the clock says {}", moment::words(moment::now())));
    folder::examine(config, &files, roles, findings);
    if roles != Roles::Bandit {
        round_keys(config, &files, findings);
        models(config, roles, findings);
    }
    network::examine(config, &files, roles, findings);
    if findings.number(Level::Bad) == 0 {
        // The same code as a start, for whatever is left.
        match Node::check(config, roles) {
            Ok(()) => findings.good("a start would find nothing wrong"),
            Err(error) => findings.bad(error.to_string()),
        }
    }
}

/// By the keys that are there.
fn inferred(files: &Files) -> Roles {
    match (files.shuffler_keys.exists(), files.bandit_keys.exists()) {
        (true, false) => Roles::Shuffler,
        (false, true) => Roles::Bandit,
        _ => Roles::Both,
    }
}

/// Where the keys of rounds are; a place that is not there yet is only made at the start.
fn round_keys(config: &NodeConfig, files: &Files, findings: &mut Findings) {
    let setting = config.shuffler.round_keys.as_ref();
    let there = match setting {
        Some(RoundKeysConfig::Command { .. }) => true,
        Some(
            RoundKeysConfig::MemoryFile { path: Some(path) }
            | RoundKeysConfig::File { path: Some(path) },
        ) => path.exists(),
        _ => files.shuffler_store.exists(),
    };
    if !there {
        return findings.good("keys of rounds: their folder is made at the start");
    }
    match incrowd_node::round_keys::open(setting, &config.data) {
        Ok(keys) => findings.good(format!("keys of rounds: {}", keys.describe())),
        Err(error) => findings.bad(format!("keys of rounds (shuffler.round_keys): {error}")),
    }
}

/// Whether devices will find models.
fn models(config: &NodeConfig, roles: Roles, findings: &mut Findings) {
    let own = format!("//{}", config.listen);
    match (&config.shuffler.model_url, roles) {
        (None, Roles::Shuffler) => findings.note(
            "shuffler.model_url is not set: devices look for models at this shuffler, which has none, unless a proxy in front sends these requests to the bandit",
        ),
        (Some(url), Roles::Shuffler) if url.ends_with(&own) => findings.note(format!(
            "shuffler.model_url is {url}, this shuffler itself, which has no models"
        )),
        (Some(url), Roles::Both) => findings.note(format!(
            "devices fetch models at {url} (shuffler.model_url), not from this process"
        )),
        _ => {}
    }
}
