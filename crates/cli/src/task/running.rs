//! Tasks of a running service, asked at the operator's listener.

use std::{error::Error, path::PathBuf};

use clap::Args;
use incrowd_node::{TaskStatus, read_token, trust};
use incrowd_protocol::{TaskId, paths};
use incrowd_transport::{Address, Http, Method, Request};

use crate::{confirm::confirm, moment, runtime};

/// Bytes that a list of tasks may have.
const LONGEST_LIST: usize = 16 << 20;

/// Where the operator's listener is, and who asks.
#[derive(Args)]
pub struct Admin {
    /// Base address of the admin listener.
    #[arg(long = "admin", value_name = "URL", default_value = "http://127.0.0.1:8788")]
    url: String,
    /// File with a token of the role admin, or monitor for `list`.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Send the token over plain HTTP to another machine, because a private network protects it.
    #[arg(long)]
    allow_plain_http: bool,
    /// PEM file with the certificates to trust there, instead of the system's.
    #[arg(long, value_name = "PEM")]
    ca: Option<PathBuf>,
}

pub fn close(admin: &Admin, task: &str, yes: bool) -> Result<(), Box<dyn Error>> {
    let task = admin.find(task)?;
    let done = format!("task {task} ends for good, and its unfinished batch is destroyed");
    confirm(&done, yes)?;
    admin.ask(Method::POST, &paths::close(&task))?;
    eprintln!("the task is closed, its unfinished batch destroyed");
    Ok(())
}

pub fn list(admin: &Admin) -> Result<(), Box<dyn Error>> {
    let tasks = admin.tasks()?;
    for status in tasks {
        let mut parts = Vec::new();
        match (status.closed, status.round, status.reports) {
            (Some(true), ..) => parts.push("closed".into()),
            (Some(false), Some(round), Some(reports)) => {
                parts.push(format!("round {round} with {reports} reports"));
                if let (Some(opens), Some(closes)) = (status.opens, status.closes) {
                    parts.push(window(opens, closes));
                }
            }
            (Some(false), None, _) => parts.push("finished".into()),
            _ => {}
        }
        if let (Some(absorbed), Some(model)) = (status.absorbed, status.model) {
            parts.push(format!("model {model} after {absorbed} rounds"));
        }
        out!("{}\n  {}", status.task, parts.join(", "));
    }
    Ok(())
}

/// When a round opens or closes, in seconds from now.
fn window(opens: u64, closes: u64) -> String {
    let now = moment::now();
    let seconds = |time: u64| time.saturating_sub(now).div_ceil(1000);
    let closes = format!("closes in {} s", seconds(closes));
    if now < opens { format!("opens in {} s, {closes}", seconds(opens)) } else { closes }
}

impl Admin {
    fn tasks(&self) -> Result<Vec<TaskStatus>, Box<dyn Error>> {
        Ok(serde_json::from_slice(&self.ask(Method::GET, paths::TASKS)?)?)
    }

    /// The task whose id begins like this.
    fn find(&self, beginning: &str) -> Result<TaskId, Box<dyn Error>> {
        if let Ok(id) = beginning.parse() {
            return Ok(id);
        }
        let hex = beginning.bytes().all(|b| b.is_ascii_hexdigit());
        if beginning.is_empty() || !hex {
            return Err(format!("task is {beginning:?}, must be 64 hex digits, or the first of them\nhint: `incrowd task list` shows all").into());
        }
        let beginning = beginning.to_ascii_lowercase();
        let tasks = self.tasks()?;
        let mut found = tasks.iter().filter(|one| one.task.to_string().starts_with(&beginning));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.task),
            (None, _) => Err(format!("the service has no task whose id begins with {beginning}\nhint: `incrowd task list` shows all").into()),
            _ => Err(format!("several tasks have ids that begin with {beginning}: give more digits\nhint: `incrowd task list` shows all").into()),
        }
    }

    fn ask(&self, method: Method, path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let token = read_token(&self.token_file)?;
        let address = Address::new(&self.url, "admin address", self.allow_plain_http)?;
        let http = Http::new(address, &trust(self.ca.as_deref())?)?;
        let request = Request::new(method, path).token(&token)?.limit(LONGEST_LIST);
        Ok(runtime()?.block_on(http.send(request))?.success()?.body)
    }
}
