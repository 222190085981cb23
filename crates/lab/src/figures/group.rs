//! Runs that belong together: by setting, by algorithm, by what is proved about them.

use incrowd_chart::{number, thousands};
use incrowd_sim::statistics;

use super::{is_random, palette};
use crate::experiment::{Row, Setting};

/// The runs of one algorithm in one setting.
pub struct Cell<'a> {
    pub algorithm: &'a str,
    pub variant: &'a str,
    /// Indices of rows.
    pub runs: Vec<usize>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Cumulative regret.
    Regret,
    /// Average reward per person, where nobody knows the regret.
    Reward,
}

impl Measure {
    /// What a setting's runs allow.
    pub fn of(rows: &[Row], runs: &[usize]) -> Self {
        let known = runs.iter().all(|&run| rows[run].regret.is_some());
        if known { Self::Regret } else { Self::Reward }
    }

    /// Its value for a run.
    pub fn value(self, row: &Row) -> f64 {
        match self {
            Self::Regret => row.regret.unwrap_or(f64::NAN),
            Self::Reward => row.reward / row.people as f64,
        }
    }

    /// Whether `a` is the better value.
    pub fn better(self, a: f64, b: f64) -> bool {
        match self {
            Self::Regret => a < b,
            Self::Reward => a > b,
        }
    }

    /// The title of its axis.
    pub fn title(self) -> &'static str {
        match self {
            Self::Regret => "reward lost since the first person (cumulative regret)",
            Self::Reward => "average reward per person",
        }
    }

    /// The value as text.
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::Regret => number(value),
            Self::Reward => format!("{value:.4}"),
        }
    }
}

/// What is proved about one person's data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Guarantee {
    /// Random choice looks at nobody's data.
    NoData,
    /// No privacy.
    None,
    /// Proved for the mechanism that ran.
    Certified(Epsilons),
    /// Noise was added, but nothing is proved for the mechanism that ran.
    NotCertified(Epsilons),
}

/// The largest of each over the runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epsilons {
    pub local: Option<f64>,
    pub central: Option<f64>,
    pub delta: Option<f64>,
}

impl Cell<'_> {
    pub fn values(&self, rows: &[Row], measure: Measure) -> Vec<f64> {
        self.runs.iter().map(|&run| measure.value(&rows[run])).collect()
    }

    pub fn mean(&self, rows: &[Row], measure: Measure) -> f64 {
        statistics::mean(&self.values(rows, measure)).unwrap_or(f64::NAN)
    }

    /// Mean of a quantity over the runs that have it.
    pub fn mean_of(&self, rows: &[Row], quantity: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let known: Vec<f64> = self.runs.iter().filter_map(|&run| quantity(&rows[run])).collect();
        statistics::mean(&known)
    }

    pub fn guarantee(&self, rows: &[Row]) -> Guarantee {
        if is_random(self.algorithm) {
            return Guarantee::NoData;
        }
        let largest = |epsilon: &dyn Fn(&Row) -> Option<f64>| {
            // Unless every run has it, nothing is said about the algorithm.
            let all: Option<Vec<f64>> = self.runs.iter().map(|&run| epsilon(&rows[run])).collect();
            all?.into_iter().reduce(f64::max).filter(|value| value.is_finite())
        };
        let epsilons = Epsilons {
            local: largest(&|row| row.epsilon_local_certified),
            central: largest(&|row| row.epsilon_central_certified),
            delta: largest(&|row| row.delta),
        };
        let noisy = self.runs.iter().any(|&run| rows[run].noise_std.is_some());
        if epsilons.local.is_none() && epsilons.central.is_none() && !noisy {
            return Guarantee::None;
        }
        if self.runs.iter().all(|&run| rows[run].certified) {
            Guarantee::Certified(epsilons)
        } else {
            Guarantee::NotCertified(epsilons)
        }
    }

    /// What a figure says under its name: who it is, and what is not proved.
    pub fn remark(&self, rows: &[Row]) -> String {
        let gloss = palette::gloss(self.algorithm);
        let missing = match self.guarantee(rows) {
            Guarantee::None if !gloss.contains("no privacy") => "no privacy",
            Guarantee::NotCertified(_) => "not certified",
            _ => "",
        };
        let parts: Vec<&str> = [gloss, missing].into_iter().filter(|p| !p.is_empty()).collect();
        parts.join("; ")
    }

    /// Whether the algorithm protects nobody, or needs to protect nobody.
    pub fn is_reference(&self, rows: &[Row]) -> bool {
        matches!(self.guarantee(rows), Guarantee::None | Guarantee::NoData)
    }
}

/// Runs with equal settings, in the order of the table.
pub fn settings(rows: &[Row]) -> Vec<(Setting, Vec<usize>)> {
    grouped(rows, |_| {})
}

/// Runs with equal settings after `clear` made some of it equal, in the order of the table.
pub fn grouped(rows: &[Row], clear: impl Fn(&mut Setting)) -> Vec<(Setting, Vec<usize>)> {
    let mut groups: Vec<(Setting, Vec<usize>)> = Vec::new();
    for (run, row) in rows.iter().enumerate() {
        let mut key = row.setting();
        clear(&mut key);
        match groups.iter_mut().find(|group| group.0 == key) {
            Some(group) => group.1.push(run),
            None => groups.push((key, vec![run])),
        }
    }
    groups
}

/// The runs of each algorithm and variant, in the order of the table.
pub fn cells<'a>(rows: &'a [Row], runs: &[usize]) -> Vec<Cell<'a>> {
    let mut cells: Vec<Cell<'a>> = Vec::new();
    for &run in runs {
        let (algorithm, variant) = (rows[run].algorithm.as_str(), rows[run].variant.as_str());
        match cells.iter_mut().find(|c| c.algorithm == algorithm && c.variant == variant) {
            Some(cell) => cell.runs.push(run),
            None => cells.push(Cell { algorithm, variant, runs: vec![run] }),
        }
    }
    cells
}

/// One variant of each algorithm: tuned, if there is one; and whether another one was left out.
pub fn preferred<'a>(rows: &'a [Row], runs: &[usize]) -> (Vec<Cell<'a>>, bool) {
    let mut all = cells(rows, runs);
    let tuned: Vec<&str> =
        all.iter().filter(|cell| cell.variant == "tuned").map(|cell| cell.algorithm).collect();
    let before = all.len();
    all.retain(|cell| cell.variant == "tuned" || !tuned.contains(&cell.algorithm));
    let dropped = all.len() < before;
    (all, dropped)
}

/// An environment as people would say it: who takes part.
pub fn people(environment: &str) -> String {
    let mut parts = environment.split(", ");
    let who = match parts.next().unwrap_or_default() {
        "synthetic" => "simulated people",
        "ordered" => "simulated people, new kinds one after the other",
        "drifting" => "simulated people whose taste changes",
        "fixed-arms" => "simulated people with the same choices",
        "classification" => "people from labelled data",
        "logged" => "people from a log",
        other => other,
    };
    let mut text = who.to_owned();
    for part in parts {
        text.push_str(", ");
        text.push_str(part);
        let law = ["correlated", "one-hot", "anisotropic", "heavy-tailed"].contains(&part);
        text.push_str(if law { " features" } else { "" });
    }
    text
}

/// The setting in words, without what `leave_out` names.
pub fn words(setting: &Setting, leave_out: &str) -> String {
    let mut parts = vec![
        format!("{} features", setting.dimension),
        format!("{} choices", setting.arms),
        format!("{} people", thousands(setting.horizon as f64)),
    ];
    if let Some(epsilon) = setting.central_epsilon {
        parts.push(format!("central epsilon up to {epsilon}"));
    }
    if let Some(epsilon) = setting.local_epsilon {
        parts.push(format!("local epsilon up to {epsilon}"));
    }
    if let Some(size) = setting.batch_size {
        parts.push(format!("batches of {}", thousands(f64::from(size))));
    }
    if !leave_out.is_empty() {
        parts.retain(|part| !part.contains(leave_out));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_in_words() {
        assert_eq!(people("synthetic"), "simulated people");
        assert_eq!(
            people("synthetic, one-hot, gap 0.1"),
            "simulated people, one-hot features, gap 0.1"
        );
        assert_eq!(people("clicks.csv"), "clicks.csv");
    }
}
