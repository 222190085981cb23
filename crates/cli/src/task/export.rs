//! What a bandit has of a task.

use std::{error::Error, path::PathBuf};

use clap::{Args, ValueEnum};
use incrowd_privacy::certify;
use serde_json::json;

use crate::service::BanditStoreArguments;

/// Models, releases or privacy ledger of a task, a JSON object a line, also from a running
/// bandit's store.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    store: BanditStoreArguments,
    /// The task's file.
    #[arg(long, value_name = "TOML")]
    task: PathBuf,
    /// What.
    #[arg(value_enum)]
    what: Export,
}

#[derive(Clone, Copy, ValueEnum)]
enum Export {
    /// Every published model.
    Models,
    /// Every release.
    Releases,
    /// For each release, what it was made with and what it may tell.
    Ledger,
}

pub fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { store, task, what } = arguments;
    let (files, store) = store.open()?;
    let task = files.task(task)?;
    let line = |bytes: Vec<u8>| out!("{}", String::from_utf8_lossy(&bytes));
    match what {
        Export::Models => store.models(&task.id())?.into_iter().for_each(|model| line(model.bytes)),
        Export::Releases => {
            store.releases(&task.id())?.into_iter().for_each(|(_, bytes)| line(bytes));
        }
        Export::Ledger => {
            let certificate = certify(task.mechanism())?;
            let mut ends = 0;
            let stages: Vec<_> = certificate
                .rounds()
                .iter()
                .map(|certified| {
                    ends += certified.stage.rounds;
                    (ends, certified)
                })
                .collect();
            for (number, _) in store.releases(&task.id())? {
                let round = task.mechanism().round(number)?;
                let stage = stages.iter().find(|(end, _)| number <= *end).map(|(_, stage)| stage);
                out!(
                    "{}",
                    json!({
                        "round": number, "reports": round.size, "law": round.law,
                        "epsilon_local": stage.map(|stage| stage.epsilon_local),
                        "epsilon_central": stage.map(|stage| stage.epsilon_central),
                        "delta": certificate.delta(),
                    })
                );
            }
        }
    }
    Ok(())
}
