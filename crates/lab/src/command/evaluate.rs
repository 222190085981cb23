//! `incrowd-lab evaluate`: what a policy would have earned on logged data.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::{ArgGroup, Args};
use incrowd_lab::evaluate::{
    Estimate, Evaluation, EvaluationConfig, Format, ModelFile, PolicyConfig, Settings,
};

use crate::Output;

/// What a policy would have earned: evaluation on logged bandit data.
///
/// A log has, for each event, the context, the action that was taken, its probability and its
/// reward. From that the mean reward of another policy is estimated in three ways: ips weights
/// every reward by the policy's probability over the logged one (right if the logged ones are),
/// snips divides by the sum of the weights (steadier), dr adds a reward model fitted on the other
/// folds of the log (right if the logged probabilities or the reward model are; steadier still
/// where each action has many events). Look at the effective sample size and at the warnings
/// first; docs/evaluation.md says when to trust what.
///
/// Logs: CSV with the columns action, reward, pscore, the context, and action:feature for features
/// of one action; the Open Bandit data's CSV as it is; DSJSON lines of Vowpal Wabbit or Azure
/// Personalizer as they are (reward = -cost).
///
/// An estimate from people's logs is a new release of their data without any guarantee: use logs
/// that are public, simulated, or given by people for this purpose.
///
/// Examples: incrowd-lab evaluate --log log.csv --policy uniform; incrowd-lab evaluate --log
/// log.json --policy always:#1 --clip 50; incrowd-lab evaluate --log log.csv --model model.json
/// --features map.toml --greedy --output json
#[derive(Args)]
#[command(allow_negative_numbers = true)]
#[command(group(ArgGroup::new("what").required(true).args(["policy", "model", "prior"])))]
pub struct Arguments {
    /// The log.
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Its format; by its content if not given.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// uniform; logged (the policy that wrote the log); always:ACTION (always:#1 is the first
    /// action that an event offers).
    #[arg(long)]
    policy: Option<String>,
    /// A published model (JSON, with or without its signature): the action with the largest upper
    /// confidence bound, equals by lot. Needs --features.
    #[arg(long, value_name = "FILE", requires = "features")]
    model: Option<PathBuf>,
    /// A prior of `incrowd fit`, as the model that is served before the first report.
    #[arg(long, value_name = "FILE")]
    prior: Option<PathBuf>,
    /// The feature map of the model or prior, .json or .toml. The action's name is its field `action`.
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    features: Option<PathBuf>,
    /// The largest mean instead of the largest upper confidence bound.
    #[arg(long, conflicts_with = "policy")]
    greedy: bool,
    /// Cut weights to this, at least 1: less variance, some bias. No limit if not given.
    #[arg(long, value_name = "WEIGHT")]
    clip: Option<f64>,
    /// Parts of the log for the reward model of dr: each part is predicted from the others.
    #[arg(long, default_value_t = 5)]
    folds: u32,
    /// Penalty of the reward model's regressions.
    #[arg(long, default_value_t = 1.0)]
    ridge: f64,
    /// Fields of the context for the reward model; all if not given.
    #[arg(long, value_delimiter = ',', value_name = "FIELDS")]
    context: Option<Vec<String>>,
    /// Actions that could be taken but were never logged.
    #[arg(long, value_delimiter = ',', value_name = "ACTIONS")]
    actions: Vec<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let published = arguments.model.clone().map(ModelFile::Published);
    let model = published.or(arguments.prior.clone().map(ModelFile::Prior));
    let policy = match (&arguments.policy, model, &arguments.features) {
        (Some(policy), ..) => PolicyConfig::Named(policy.clone()),
        (None, Some(model), Some(features)) => {
            PolicyConfig::Model { model, features: features.clone(), greedy: arguments.greedy }
        }
        _ => return Err("--policy, or --model or --prior with --features, must be given".into()),
    };
    let config = EvaluationConfig {
        log: arguments.log.clone(),
        format: arguments.format,
        actions: arguments.actions.clone(),
        policy,
        settings: Settings {
            clip: arguments.clip,
            folds: arguments.folds,
            ridge: arguments.ridge,
            context: arguments.context.clone(),
        },
    };
    let evaluation = config.run()?;
    match arguments.output {
        Output::Text => print_text(&evaluation),
        Output::Json => out!("{:#}", serde_json::to_value(&evaluation)?),
    }
    for warning in &evaluation.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_text(evaluation: &Evaluation) {
    let (log, weights) = (&evaluation.log, &evaluation.weights);
    let skipped = match log.skipped {
        0 => String::new(),
        skipped => format!(", {skipped} records without a decision skipped"),
    };
    out!("{} events, {} actions{skipped}", log.events, log.actions);
    out!("policy: {}", evaluation.policy);
    out!("");
    out!("mean reward           value   standard error   95 % interval");
    print_estimate("of the log", log.reward.as_ref());
    print_estimate("ips", evaluation.estimates.ips.as_ref());
    print_estimate("snips", evaluation.estimates.snips.as_ref());
    print_estimate("dr", evaluation.estimates.dr.as_ref());
    out!(
        "(value +- 1.96 standard errors: for independent events, right probabilities, many events)"
    );
    out!("");
    let clip = match evaluation.clip {
        Some(clip) => format!("{:.2} % cut to {clip}", 100.0 * weights.clipped_share),
        None => "none cut".into(),
    };
    out!(
        "weights: mean {:.4} +- {:.4} (should be 1), largest {:.4}, {clip}",
        weights.mean,
        weights.mean_standard_error,
        weights.largest
    );
    out!("effective sample size: {:.1} of {} events", weights.effective_sample_size, log.events);
    out!("choices that the log cannot show: {:.2} %", 100.0 * evaluation.coverage.uncovered_share);
}

fn print_estimate(name: &str, estimate: Option<&Estimate>) {
    match estimate {
        Some(Estimate { value, standard_error, interval: [low, high] }) => {
            out!("{name:<14} {value:>12.6} {standard_error:>16.6}   {low:.6} to {high:.6}");
        }
        None => out!("{name:<14} {:>12} {:>16}   -", "-", "-"),
    }
}
