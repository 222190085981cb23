//! `incrowd plan`: from what you know to a mechanism with its certificate.

use std::{
    error::Error,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use incrowd_planner::{
    Advice, ClosingRule, DEFAULT_HONEST_FRACTION, EncodingChoice, LocalLimit, Plan, PlanRequest,
    Preset, Shape, Timetable, plan,
};
use incrowd_privacy::format_epsilon;
use incrowd_protocol::Prior;
use serde_json::{Value, json};

use crate::{
    Output,
    features::{FeatureArguments, Planned},
    layout::LayoutArguments,
    moment::{self, Opens},
    plot,
    print::wrapped,
};

/// From what you know (features, people, how private) to a certified mechanism and what it costs.
///
/// Chooses how reports are randomized (bits or words of a codebook) and the batches, so that the
/// certified epsilons keep to your limits and the predicted regret is least. `docs/planning.md`
/// explains the numbers.
///
/// With people per day rounds close by time, which is what is deployed. Without, or with a preset,
/// they close when they are full, as in the paper: for simulations.
///
/// Examples: incrowd plan --features map.toml --users-per-day 20000 --days 30 --central-epsilon 1
/// --task-file task.toml; incrowd plan --dimension 5 --horizon 100000 --central-epsilon 1; incrowd
/// plan --comparison --users-per-day 2000 --days 30 --central-epsilon 1 --task-file comparison.toml
#[derive(Args)]
pub struct Arguments {
    /// Features of an action (d), 1 to 1000.
    #[arg(
        long,
        required_unless_present_any = ["features", "comparison"],
        allow_negative_numbers = true
    )]
    dimension: Option<u32>,
    /// Plan the task that hold-outs report to, which learns nothing and measures what
    /// personalization is worth: the mean rewards of people who get the incumbent's choice and of
    /// people who get the model's. People are those of both groups together: with
    /// `hold_out(0.05, ..)` a tenth of all. Then `incrowd task uplift` has the difference.
    #[arg(
        long,
        conflicts_with_all = [
            "features", "dimension", "slots", "shared", "prior", "preset", "half_life", "batches",
            "actions", "gap", "strict",
        ]
    )]
    comparison: bool,
    #[command(flatten)]
    layout: LayoutArguments,
    #[command(flatten)]
    features: FeatureArguments,
    /// What `incrowd fit` wrote: the bandit starts from it, and serves a model before the first
    /// report.
    #[arg(long, value_name = "JSON")]
    prior: Option<PathBuf>,
    /// Reports in all (T).
    #[arg(long, allow_negative_numbers = true)]
    horizon: Option<u64>,
    /// Reports per day, on average. Rounds then close by time.
    #[arg(long, allow_negative_numbers = true)]
    users_per_day: Option<f64>,
    /// Days the task runs, instead of --horizon.
    #[arg(long, allow_negative_numbers = true)]
    days: Option<f64>,
    /// Most that one report may tell whoever reads the wire; 8 if not given, 'unlimited' lifts the
    /// cap.
    #[arg(long, value_name = "EPSILON", allow_negative_numbers = true)]
    local_epsilon: Option<LocalLimit>,
    /// Most that all releases and models together may tell about one person.
    #[arg(long, value_name = "EPSILON", allow_negative_numbers = true)]
    central_epsilon: Option<f64>,
    /// Delta of the central guarantee, above 0 and below 1.
    #[arg(long, default_value_t = 1e-6, allow_negative_numbers = true)]
    delta: f64,
    /// Reports in a batch (expected in a round that closes by time), if you want to fix it.
    #[arg(long, allow_negative_numbers = true)]
    batch_size: Option<u32>,
    /// Bits per coordinate (m), 1 to 4095, if you want to fix it.
    #[arg(long, allow_negative_numbers = true)]
    bits: Option<u32>,
    /// How reports are randomized: bits (the paper's), words of a random codebook (less noise where
    /// the local epsilon is capped), or whatever has less noise.
    #[arg(long, value_enum, default_value_t = EncodingChoice::Auto)]
    encoding: EncodingChoice,
    /// Longest time in days that a round may be open, or take to fill; needs --users-per-day.
    #[arg(long, allow_negative_numbers = true)]
    latency_days: Option<f64>,
    /// Reports one person may send (k), at most one in a batch.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    participations: u32,
    /// Share of the reports of a round that surely come from honest devices or are pads (h), above
    /// 0 and at most 1. The rest may be made up by an adversary and adds no privacy.
    #[arg(long, default_value_t = DEFAULT_HONEST_FRACTION, allow_negative_numbers = true)]
    honest: f64,
    /// What closes a batch: the clock if people per day are known, else its last report.
    #[arg(long, value_enum)]
    closes: Option<ClosingRule>,
    /// When round 1 opens, like 2027-01-15T08:00:00Z; 'now' is the first full minute at least a
    /// minute from now, so that a service can be started in time; the next full hour if not given.
    #[arg(long, value_name = "TIME")]
    opens: Option<Opens>,
    /// Peak rate over mean rate that rounds have room for, at least 1; 2 if not given.
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    peak: Option<f64>,
    /// Reports of the busiest 24 hours over those of the mean day, from 1 to the peak: long rounds
    /// then need less room. The peak if not given, which assumes nothing.
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    busiest_day: Option<f64>,
    /// Seconds from the moment a report is due until it arrives, at most; 10 if not given.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    upload_seconds: Option<f64>,
    /// People after whom half of what they like has changed: the bandit then forgets, and batches
    /// are equal.
    #[arg(long, value_name = "PEOPLE", allow_negative_numbers = true)]
    half_life: Option<f64>,
    /// Exit with 3 if the plan is predicted to lose more than 60 % of what uniform choices lose.
    #[arg(long)]
    strict: bool,
    /// Actions to choose from, for the prediction; 10, or as many as there are slots, if not given.
    #[arg(long, allow_negative_numbers = true)]
    actions: Option<u32>,
    /// How far the mean reward of an action is from the usual one at most, for the prediction; 0.5
    /// if not given.
    #[arg(long, allow_negative_numbers = true)]
    gap: Option<f64>,
    /// Rounds a report may be late, where batches close by count; 1 if not given.
    #[arg(long, allow_negative_numbers = true)]
    grace: Option<u32>,
    /// Hours from a decision to its report, at most.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    reward_window_hours: f64,
    /// Equal or growing batches.
    #[arg(long, value_enum, default_value_t = Shape::Auto)]
    batches: Shape,
    /// The paper's parameters instead of a search, for reproduction.
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    /// Write the task configuration that the services read.
    #[arg(long, value_name = "TOML")]
    task_file: Option<PathBuf>,
    /// Write the task file over one that exists.
    #[arg(long, requires = "task_file")]
    force: bool,
    /// Draw central epsilon against batch size to NAME.svg.
    #[arg(long, value_name = "NAME")]
    plot: Option<PathBuf>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let map = arguments.features.read()?;
    let prior = arguments.prior.as_deref().map(read_prior).transpose()?;
    let mut plan = plan(&request(arguments, map.as_ref(), moment::now()).check()?)?;
    complete(&mut plan, map.as_ref(), prior)?;
    if let Some(late) = plan.timetable.as_ref().filter(|table| table.opens < moment::now()) {
        eprintln!("round 1 opens in the past: {}", moment::words(late.opens));
    }
    if let Some(path) = &arguments.task_file {
        let file = moment::annotated(&toml::to_string(plan.task())?, plan.task.mechanism());
        write_task(path, &file, arguments.force)?;
        eprintln!("wrote {}", path.display());
    }
    map.as_ref().map(Planned::write).transpose()?;
    if let Some(path) = &arguments.plot {
        eprintln!("wrote {}", plot::draw(path, &plan)?.display());
    }
    match arguments.output {
        Output::Json => out!("{:#}", as_json(&plan, map.as_ref())),
        Output::Text => out!("{}", wrapped(&as_text(&plan, map.as_ref()))),
    }
    if plan.warning().is_some() && arguments.strict {
        return Ok(ExitCode::from(3));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a task file; over another one only with `force`: a service whose file is planned anew
/// would be another service.
fn write_task(path: &Path, file: &str, force: bool) -> Result<(), String> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).create_new(!force);
    let written = options.open(path).and_then(|mut new| new.write_all(file.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "--task-file {} exists: a service may be running with it\nhint: --force writes over it; or name another file",
            path.display()
        ),
        _ => format!("cannot write --task-file {}: {error}", path.display()),
    })
}

fn read_prior(path: &Path) -> Result<Prior, Box<dyn Error>> {
    let wrong = |error: &dyn Error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    Ok(serde_json::from_str(&text).map_err(|error| wrong(&error))?)
}

/// Adds the actions of the map and the prior, and what is to be said about them.
fn complete(
    plan: &mut Plan,
    map: Option<&Planned>,
    prior: Option<Prior>,
) -> Result<(), Box<dyn Error>> {
    if let Some(planned) = map {
        let actions = planned.map.config().actions.clone();
        plan.task = plan.task.clone().with_actions(actions)?;
        plan.notes.splice(0..0, planned.notes());
    }
    if let Some(prior) = prior {
        plan.notes.push(format!(
            "the prior counts for {} people; the predicted regret is that of a start without it, and the people it was made from are not protected by anything",
            prior.people()
        ));
        plan.task = plan.task.clone().with_prior(prior)?;
    }
    Ok(())
}

fn request(arguments: &Arguments, map: Option<&Planned>, now: u64) -> PlanRequest {
    let measures = PlanRequest::comparison(0);
    let (dimension, layout) = match map {
        Some(Planned { map, .. }) => (map.dimension() as u32, map.layout()),
        None if arguments.comparison => (measures.dimension, measures.layout),
        None => (arguments.dimension.unwrap_or_default(), arguments.layout.layout()),
    };
    let timed = arguments.users_per_day.is_some()
        && arguments.preset.is_none()
        && arguments.closes != Some(ClosingRule::Count);
    let opens = (timed || arguments.opens.is_some()).then(|| Opens::resolve(arguments.opens, now));
    PlanRequest {
        closes: arguments.closes,
        opens,
        peak: arguments.peak,
        busiest_day: arguments.busiest_day,
        upload_seconds: arguments.upload_seconds,
        dimension,
        layout,
        horizon: arguments.horizon,
        users_per_day: arguments.users_per_day,
        days: arguments.days,
        local_epsilon: arguments.local_epsilon.unwrap_or_default(),
        central_epsilon: arguments.central_epsilon,
        delta: arguments.delta,
        batch_size: arguments.batch_size,
        encoding: arguments.encoding,
        bits: arguments.bits,
        latency_days: arguments.latency_days,
        participations: arguments.participations,
        honest_fraction: arguments.honest,
        grace: arguments.grace,
        reward_window_hours: arguments.reward_window_hours,
        shape: if arguments.comparison { measures.shape } else { arguments.batches },
        preset: arguments.preset,
        half_life: arguments.half_life,
        actions: arguments.actions,
        gap: arguments.gap,
        comparison: arguments.comparison,
    }
}

fn as_json(plan: &Plan, map: Option<&Planned>) -> Value {
    let most = plan.most_telling().stage;
    let certificate = &plan.certificate;
    let fill = |pick: fn((f64, f64)) -> f64| plan.fill_days.map(pick);
    let predicted = plan.half_width.is_none().then_some(&plan.prediction);
    json!({
        "dimension": plan.task.mechanism().dimension(),
        "features": map.map(Planned::as_json),
        "prior_people": plan.task.prior().map(Prior::people),
        "horizon": plan.request.horizon(),
        "law": most.law,
        "schedule": certificate.rounds(),
        "epsilon_local": certificate.epsilon_local(),
        "epsilon_local_bound": certificate.epsilon_local_bound(),
        "epsilon_local_limit": plan.request.config().local_epsilon.cap(),
        "epsilon_central": certificate.epsilon_central(),
        "epsilon_central_bound": certificate.epsilon_central_bound(),
        "delta": certificate.delta(),
        "report_bytes": plan.report_bytes,
        "closes": plan.request.closing_rule(),
        "timetable": plan.timetable,
        "smallest_batch_fill_days": fill(|days| days.0),
        "largest_batch_fill_days": fill(|days| days.1),
        "lost_share": plan.lost_share,
        "predicted_regret": predicted.map(|prediction| prediction.regret),
        "random_regret": predicted.map(|prediction| prediction.random_regret),
        "comparison_half_width": plan.half_width,
        "honest_fraction": plan.task.mechanism().honest_fraction().get(),
        "if_all_honest": plan.if_all_honest,
        "discount": plan.task.learner().config().discount,
        "learning": predicted.map(|_| plan.learning()),
        "advice": plan.advice.iter().map(|advice| json!({ "change": advice.change, "share": advice.share })).collect::<Vec<_>>(),
        "alternatives": plan.alternatives,
        "paper": plan.paper,
        "notes": plan.notes,
        "certificate": certificate,
    })
}

fn as_text(plan: &Plan, map: Option<&Planned>) -> String {
    let people = plan.request.horizon();
    let what = match plan.half_width {
        Some(_) => "two groups".to_owned(),
        None => format!("{} features", plan.task.mechanism().dimension()),
    };
    let mut lines = match &plan.timetable {
        None => vec![format!("Plan for {people} people, {what}")],
        Some(table) => {
            let days = moment::span((table.closes - table.opens) as f64);
            vec![
                format!("Plan for {people} people in {days}, {what}"),
                format!("Round 1 opens {}", moment::words(table.opens)),
            ]
        }
    };
    lines.extend(map.iter().flat_map(|map| map.lines()));
    if let Some(prior) = plan.task.prior() {
        lines.push(format!("Prior     counts for {} people", prior.people()));
    }
    lines.push(String::new());
    lines.extend(schedule(plan));
    lines.push(String::new());
    lines.extend(costs(plan));
    lines.push(match plan.half_width {
        Some(half) => format!(
            "what it can tell        at the end, with 95 % confidence: mean rewards that differ by {half:.4} or more (near one half, half of the people in each group)"
        ),
        None => format!("will it learn           {}", plan.learning()),
    });
    if let (Some(_), Some(half)) = (plan.half_width, plan.if_all_honest) {
        lines.push(format!("  if all were honest    {half:.4}  {}", honesty(plan)));
    }
    if !plan.advice.is_empty() {
        lines.extend([
            String::new(),
            "What would help most (predicted share of uniform choices)".into(),
        ]);
        let line =
            |advice: &Advice| format!("  {:>4.0} %  {}", 100.0 * advice.share, advice.change);
        lines.extend(plan.advice.iter().map(line));
    }
    if let Some(paper) = &plan.paper {
        lines.extend(paper_lines(paper));
    }
    if !plan.alternatives.is_empty() {
        lines.extend([String::new(), "The price of each choice (searched, not certified)".into()]);
        lines.push(format!(
            "  {:<27} {:>13}  {:<15} {:>10} {:>7}",
            "", "batch size", "a report has", "local", "lost"
        ));
        lines.extend(plan.alternatives.iter().map(alternative));
        lines.push("(local: local epsilon; lost: share of what uniform choices lose)".into());
    }
    if !plan.notes.is_empty() {
        lines.extend([String::new(), "Notes".into()]);
        lines.extend(plan.notes.iter().map(|note| format!("  - {note}")));
    }
    lines.extend([String::new(), plan.certificate.to_string()]);
    lines.join("\n")
}

/// The stages, with their windows where rounds close by time.
fn schedule(plan: &Plan) -> Vec<String> {
    let by_time = plan.timetable.as_ref().map_or(&[][..], |table| &table.stages);
    let mut lines = vec![if by_time.is_empty() {
        "  rounds   reports      local   central  a report has".to_owned()
    } else {
        "  rounds       window  expected  capacity      local   central  a report has".to_owned()
    }];
    for (i, round) in plan.certificate.rounds().iter().enumerate() {
        let batches = match by_time.get(i) {
            None => format!("{:>9}", round.stage.size),
            Some(timed) => format!(
                "{:>12} {:>9.0} {:>9}",
                moment::span(f64::from(timed.window)),
                timed.expected,
                timed.capacity
            ),
        };
        lines.push(format!(
            "{:>8} {batches} {:>10} {:>9}  {}",
            round.stage.rounds,
            format_epsilon(round.epsilon_local),
            format_epsilon(round.epsilon_central),
            round.stage.law.report(),
        ));
    }
    lines.push("(local, central: certified epsilons of the rounds)".to_owned());
    lines
}

/// What to expect of rounds that close by time.
fn timetable(table: &Timetable) -> Vec<String> {
    let (soonest, latest) = table.latency_days;
    let days = |days: f64| moment::span(days * 86_400_000.0);
    let day = if table.busiest_day < table.peak {
        format!(", {} times the mean day", table.busiest_day)
    } else {
        String::new()
    };
    let latency = if soonest < latest {
        format!("{} in the first round, {} in the longest", days(soonest), days(latest))
    } else {
        days(latest)
    };
    vec![
        format!(
            "pads                    {:>9.1}%  (room for {} times the mean rate{day})",
            100.0 * table.padding_share,
            table.peak
        ),
        format!(
            "surplus, lost           {:>9.0e}%  (at most, if all rounds are so busy; any in a round: \
             chance {:e})",
            100.0 * table.surplus_share,
            table.surplus_chance
        ),
        format!(
            "under way, lost         {:>9.2}%  (at most, when their round closes)",
            100.0 * table.in_flight_share
        ),
        format!("decision to model       at most {latency}"),
    ]
}

fn costs(plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("bytes in a report       {:>10}", plan.report_bytes)];
    if plan.half_width.is_none() {
        let share = 100.0 * plan.prediction.regret / plan.prediction.random_regret;
        lines.push(format!(
            "predicted regret        {:>10.0}  ({share:.1}% of uniform choices; a prediction, no promise)",
            plan.prediction.regret
        ));
        lines.push(format!("  uniform choices       {:>10.0}", plan.prediction.random_regret));
        if let Some(regret) = plan.if_all_honest {
            lines.push(format!("  if all were honest    {regret:>10.0}  {}", honesty(plan)));
        }
    }
    if let Some((smallest, largest)) = plan.fill_days {
        lines
            .push(format!("days to fill a batch    {smallest:>10.3}  (the largest: {largest:.3})"));
    }
    if let Some(table) = &plan.timetable {
        lines.extend(timetable(table));
    } else if let Some(lost) = plan.lost_share {
        lines.push(format!("reports too late        {:>9.1}%  (at most)", 100.0 * lost));
    }
    lines
}

/// What the price of the honest fraction is compared with.
fn honesty(plan: &Plan) -> String {
    let assumed = plan.task.mechanism().honest_fraction().get();
    format!("(searched, not certified; this plan: --honest {assumed})")
}

fn alternative(alternative: &incrowd_planner::Alternative) -> String {
    let (smallest, largest) = alternative.batch_sizes;
    let sizes = if largest > smallest + 1 {
        format!("{smallest}..{largest}")
    } else {
        smallest.to_string()
    };
    let lost = 100.0 * alternative.predicted_regret / alternative.random_regret;
    format!(
        "  {:<27} {sizes:>13}  {:<15} {:>10} {lost:>6.1}%",
        alternative.change,
        alternative.report,
        format_epsilon(alternative.epsilon_local),
    )
}

fn paper_lines(paper: &incrowd_planner::PaperStatement) -> Vec<String> {
    vec![
        String::new(),
        format!("What the paper says about {} ({})", paper.preset, paper.warning),
        format!("  local epsilon         {:>10.4}", paper.epsilon_local),
        format!("  central epsilon       {:>10.4}", paper.epsilon_central),
        format!("  batch size            {:>10}", paper.batch_size),
        format!("  by its Prop. 3        {:>10}", paper.batch_size_proposition_3),
        format!(
            "  regret, Thm 2         {:>10.3e}  (case {})",
            paper.regret_theorem_2, paper.regret_case
        ),
        format!("  regret, appendix      {:>10.3e}", paper.regret_fixed_schedule),
        format!("  regret, rate          {:>10.3e}", paper.regret_rate),
    ]
}
