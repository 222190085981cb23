//! `incrowd task uplift`: what personalization is worth, from the releases of a comparison task.

use std::{error::Error, path::PathBuf, sync::Arc};

use clap::Args;
use incrowd_bandit::{Bandit, MeanReward, Uplift};
use incrowd_protocol::Release;

use crate::{Output, print::wrapped, service::BanditStoreArguments};

/// More than so many times as many people are no advice.
const MOST_TIMES: f64 = 1000.0;

/// What personalization is worth: the mean rewards of a comparison task's two groups and their
/// difference, with intervals. Also from a running bandit's store.
///
/// Devices that are held out report to slot "incumbent", an equal number that choose by the model
/// to slot "model" (`Builder::hold_out` of the client). Only released sums are read, so nobody's
/// reward is seen. An interval is for one look at a time that was fixed in advance: who looks after
/// every release and stops at the first good one is wrong more often. `docs/confidence.md` has the
/// formulas.
///
/// Example: incrowd task uplift --data incrowd-data --task comparison.toml
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    store: BanditStoreArguments,
    /// The file of the comparison task (`incrowd plan --comparison`).
    #[arg(long, value_name = "TOML")]
    task: PathBuf,
    /// Confidence of the intervals, from 0.5 to 0.999999.
    #[arg(long, default_value_t = 0.95, allow_negative_numbers = true)]
    confidence: f64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (files, store) = arguments.store.open()?;
    let task = files.task(&arguments.task)?;
    let mut bandit = Bandit::new(Arc::new(task.config().clone()));
    for (_, release) in store.releases(&task.id())? {
        let release: Release = serde_json::from_slice(&release)?;
        bandit.absorb(release.sums())?;
    }
    let found = bandit.uplift(arguments.confidence)?;
    match arguments.output {
        Output::Json => out!("{}", serde_json::to_string_pretty(&found)?),
        Output::Text => out!("{}", wrapped(&as_text(&found))),
    }
    Ok(())
}

fn as_text(found: &Uplift) -> String {
    let row = |name: &str, mean: Option<f64>, (lower, upper): (f64, f64), reports: String| {
        let mean = mean.map_or_else(|| "unknown".to_owned(), |mean| format!("{mean:.4}"));
        format!("{name:<20} {mean:>8}  {lower:>7.4} to {upper:>7.4}{reports}")
    };
    let group = |name: &str, group: &MeanReward| {
        let reports = format!("  {:>10.0}", group.reports.max(0.0));
        row(name, group.mean, (group.lower, group.upper), reports)
    };
    let rounds = if found.releases == 1 { "release" } else { "releases" };
    [
        format!("After {} {rounds}", found.releases),
        String::new(),
        format!(
            "{:<20} {:>8}  {:<18}  {:>10}",
            "mean reward",
            "estimate",
            format!("{} % interval", percent(found.confidence)),
            "reports"
        ),
        group("with the incumbent", &found.incumbent),
        group("with the model", &found.model),
        row("difference", found.difference, (found.lower, found.upper), String::new()),
        String::new(),
        sentence(found),
    ]
    .join("\n")
}

/// What it means.
fn sentence(found: &Uplift) -> String {
    let confidence = format!("with {} % confidence", percent(found.confidence));
    let Some(difference) = found.difference else {
        return "Nothing can be told yet: a group has too few reports for the noise in its sums."
            .to_owned();
    };
    let (lower, upper) = (found.lower, found.upper);
    if lower > 0.0 {
        return format!(
            "Personalization earns {difference:.4} more per decision; {confidence} between {lower:.4} and {upper:.4}."
        );
    }
    if upper < 0.0 {
        return format!(
            "Personalization earns {:.4} less per decision; {confidence} between {:.4} and {:.4}.",
            -difference, -upper, -lower
        );
    }
    // The length of the interval falls with the root of the number of people.
    let half = (upper - lower) / 2.0;
    let times = (half / difference) * (half / difference);
    let advice = if times <= MOST_TIMES {
        format!(
            " If the difference is as estimated, about {:.0} times as many people would tell.",
            times.ceil().max(2.0)
        )
    } else {
        String::new()
    };
    format!(
        "Personalization cannot be told apart from the incumbent yet: {confidence} it earns between {lower:.4} and {upper:.4} more per decision.{advice}"
    )
}

fn percent(share: f64) -> f64 {
    (1e6 * share).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(mean: f64, half: f64) -> MeanReward {
        let (lower, upper) = (mean - half, mean + half);
        MeanReward { reports: 12_345.6, mean: Some(mean), lower, upper }
    }

    fn uplift(model: f64, lower: f64, upper: f64) -> Uplift {
        let (incumbent, model) = (group(0.25, 0.01), group(model, 0.012));
        let difference = model.mean.zip(incumbent.mean).map(|(model, from)| model - from);
        Uplift { releases: 4, confidence: 0.95, incumbent, model, difference, lower, upper }
    }

    #[test]
    fn the_whole_text() {
        assert_eq!(
            as_text(&uplift(0.281, 0.0154, 0.0466)),
            "After 4 releases

mean reward          estimate  95 % interval          reports
with the incumbent     0.2500   0.2400 to  0.2600       12346
with the model         0.2810   0.2690 to  0.2930       12346
difference             0.0310   0.0154 to  0.0466

Personalization earns 0.0310 more per decision; with 95 % confidence between 0.0154 and 0.0466."
        );
    }

    #[test]
    fn what_is_not_good_news_is_told_too() {
        assert_eq!(
            sentence(&uplift(0.22, -0.05, -0.01)),
            "Personalization earns 0.0300 less per decision; with 95 % confidence between 0.0100 and 0.0500."
        );
        assert_eq!(
            sentence(&uplift(0.26, -0.01, 0.03)),
            "Personalization cannot be told apart from the incumbent yet: with 95 % confidence it earns between -0.0100 and 0.0300 more per decision. If the difference is as estimated, about 4 times as many people would tell."
        );
        let same = sentence(&uplift(0.25, -0.02, 0.02));
        assert!(same.ends_with("between -0.0200 and 0.0200 more per decision."), "{same}");
        let nobody = MeanReward { reports: -3.0, mean: None, lower: 0.0, upper: 1.0 };
        let unknown = Uplift {
            releases: 1,
            confidence: 0.999,
            model: nobody,
            difference: None,
            ..uplift(0.25, -0.26, 0.76)
        };
        assert_eq!(
            as_text(&unknown),
            "After 1 release

mean reward          estimate  99.9 % interval        reports
with the incumbent     0.2500   0.2400 to  0.2600       12346
with the model        unknown   0.0000 to  1.0000           0
difference            unknown  -0.2600 to  0.7600

Nothing can be told yet: a group has too few reports for the noise in its sums."
        );
    }
}
