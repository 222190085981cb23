//! `incrowd fit`: a prior from public data.

use std::{error::Error, fs, path::PathBuf, process::ExitCode};

use clap::Args;
use incrowd_sim::public_data::{
    DataKind, Examples, Fit, FitConfig, HeldOut, MeanReward, PublicDataError, fit, survey,
};
use serde_json::{Value, json};

use crate::{
    Output,
    features::{self, SAME_FOR_EVERYONE},
    print::wrapped,
};

/// Make a prior from public or consented data, so that the first model exists before the first
/// report.
///
/// The file has a column for each context field of the map and ACTION:field for fields of actions.
/// Rewards are the right action of each row (--label), columns reward:ACTION from 0 to 1, or those
/// of a log: action and reward. `docs/planning.md` has examples.
///
/// The people in the file are not protected by anything: the prior is published as it is.
///
/// Example: incrowd fit --data public.csv --features map.toml --label topic --out prior.json &&
/// incrowd plan --features map.toml --prior prior.json --users-per-day 20000 --days 30
/// --central-epsilon 1 --task-file task.toml
#[derive(Args)]
pub struct Arguments {
    /// Rows of public or consented data.
    #[arg(long, value_name = "CSV")]
    data: PathBuf,
    /// The devices' feature map, TOML or JSON by its extension.
    #[arg(long, value_name = "MAP")]
    features: PathBuf,
    /// The column that names the right action of each row: reward 1 for it, 0 for all others.
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// How many people's reports without noise the prior counts for, above 0 and at most 1e12; the
    /// number of rows if not given.
    #[arg(long, allow_negative_numbers = true)]
    people: Option<f64>,
    /// Parts of the rows, 2 to 100; each is held out once to see how good the prior is.
    #[arg(long, default_value_t = 5)]
    folds: u32,
    /// Where the prior is written.
    #[arg(long, value_name = "JSON")]
    out: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let map = features::read(&arguments.features)?;
    let examples = Examples::read(&arguments.data, &map, arguments.label.as_deref())?;
    let config = FitConfig { people: arguments.people, folds: arguments.folds };
    let fit = fit(&examples, &config)?;
    let path = &arguments.out;
    let file = format!("{}\n", serde_json::to_string(&fit.prior)?);
    fs::write(path, file).map_err(|error| format!("{}: {error}", path.display()))?;
    eprintln!("wrote {}", path.display());
    let notes = notes(&examples, &fit)?;
    match arguments.output {
        Output::Json => out!("{:#}", as_json(&fit, &notes)),
        Output::Text => out!("{}", wrapped(&as_text(&fit, &notes))),
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(fit: &Fit, notes: &[String]) -> Value {
    let mean = |mean: &MeanReward| json!({"mean": mean.mean, "standard_error": mean.standard_error, "rows": mean.rows});
    let held_out = |held_out: &HeldOut| {
        json!({
            "folds": held_out.folds,
            "estimate": held_out.estimate.as_ref().map(mean),
            "uniform": mean(&held_out.uniform),
            "best": held_out.best.as_ref().map(mean),
        })
    };
    json!({
        "people": fit.prior.people(),
        "rows": fit.rows,
        "rewards": fit.answers,
        "actions": fit.actions,
        "held_out": fit.held_out.as_ref().map(held_out),
        "notes": notes,
    })
}

fn as_text(fit: &Fit, notes: &[String]) -> String {
    let kind = match fit.kind {
        DataKind::Sample => "without rewards",
        DataKind::Labelled => "with the right action",
        DataKind::Rewards => "with the rewards of all actions",
        DataKind::Logged => "of a log",
    };
    let mut lines = vec![
        format!("Prior from {} rows {kind}", fit.rows),
        format!("Actions   {}", fit.actions.join(", ")),
        format!("Weight    {} people (the file has {} rewards)", fit.prior.people(), fit.answers),
        String::new(),
    ];
    match &fit.held_out {
        None => lines.push("There are no rows to hold out.".into()),
        Some(held_out) => lines.extend(table(fit, held_out)),
    }
    lines.extend([String::new(), "Notes".into()]);
    lines.extend(notes.iter().map(|note| format!("  - {note}")));
    lines.join("\n")
}

fn table(fit: &Fit, held_out: &HeldOut) -> Vec<String> {
    let accuracy = if fit.kind == DataKind::Labelled { " (accuracy)" } else { "" };
    let mut lines = vec![format!(
        "Mean reward{accuracy} on held-out rows, {} folds: the prior as a model that never learns",
        held_out.folds
    )];
    let mut line = |name: &str, mean: Option<&MeanReward>| {
        lines.push(match mean {
            Some(MeanReward { mean, standard_error, rows }) => {
                format!("  {name:<32} {mean:>7.4} +- {standard_error:.4}  ({rows} rows)")
            }
            None => format!("  {name:<32} unknown: no row has what it would choose"),
        });
    };
    line("prior, largest estimate", held_out.estimate.as_ref());
    line("uniform choices", Some(&held_out.uniform));
    if held_out.best.is_some() {
        line("best action of each row", held_out.best.as_ref());
    }
    lines
}

fn notes(examples: &Examples<'_>, fit: &Fit) -> Result<Vec<String>, PublicDataError> {
    let mut notes = vec![
        "the people in the file are not protected by anything: everyone reads the prior; public or consented data only".to_owned(),
        "the prior fits this feature map only: its fields, actions and scale; make it again when they change".to_owned(),
    ];
    if !examples.map().personalises() && !survey(examples)?.own_fields_vary {
        notes.push(SAME_FOR_EVERYONE.to_owned());
    }
    match fit.kind {
        DataKind::Labelled | DataKind::Rewards => notes.push(format!(
            "each row is one person who could have been shown any of the {} actions, and counts as the mean of these reports",
            fit.actions.len()
        )),
        DataKind::Logged if examples.has_propensities() => notes.push(
            "pscore weights held-out rows; the prior does not need it".to_owned(),
        ),
        DataKind::Logged => notes.push(
            "the log has no pscore: mean rewards on held-out rows are right if each action was equally likely to be logged".to_owned(),
        ),
        DataKind::Sample => {}
    }
    if let Some(HeldOut { estimate: Some(estimate), uniform, .. }) = &fit.held_out
        && estimate.mean <= uniform.mean + 2.0 * estimate.standard_error
    {
        notes.push("the prior is no better than uniform choices on held-out rows: use another map, or no prior".to_owned());
    }
    if fit.prior.people() > fit.answers as f64 {
        notes.push("the prior counts for more people than the file has rewards".to_owned());
    }
    notes.extend(fit.problems.iter().map(|(problem, rows)| format!("{problem} (in {rows} rows)")));
    Ok(notes)
}
