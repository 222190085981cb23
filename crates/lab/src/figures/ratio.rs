//! Every setting at once: regret over that of the algorithm that an experiment compares with.

use std::fmt::Write;

use incrowd_chart::{Axis, Dot, DotPlot, Panel, number, thousands};

use super::{
    Figure, Palette,
    data::Experiment,
    group::{self, Cell, Measure},
    is_random,
};
use incrowd_sim::statistics::ratio_interval;

use crate::experiment::{Row, Setting};

/// A ratio of mean regrets with its 95% interval.
type Ratio = (f64, Option<(f64, f64)>);

/// One setting with one kind of exploration.
struct Line {
    setting: String,
    variant: &'static str,
    /// Regret of the algorithm that is compared with, and of a random choice.
    reference: (f64, Option<f64>),
    /// In the order of the algorithms.
    ratios: Vec<Option<Ratio>>,
}

/// All ratios of an experiment.
pub struct Ratios<'a> {
    against: &'a str,
    runs: usize,
    /// Who is compared, without the one that is compared with and without random.
    algorithms: Vec<&'a str>,
    lines: Vec<Line>,
}

impl<'a> Ratios<'a> {
    /// None unless the experiment compares with someone in at least two settings and knows regrets.
    pub fn of(experiment: &'a Experiment) -> Option<Self> {
        let (rows, against) = (&experiment.rows, experiment.manifest.against.as_deref()?);
        let settings = group::settings(rows);
        if settings.len() < 2 || rows.iter().any(|row| row.regret.is_none()) {
            return None;
        }
        let mut algorithms: Vec<&str> = Vec::new();
        for row in rows {
            let name = row.algorithm.as_str();
            if name != against && !is_random(name) && !algorithms.contains(&name) {
                algorithms.push(name);
            }
        }
        let names = names(&settings.iter().map(|(setting, _)| setting).collect::<Vec<_>>());
        let mut lines = Vec::new();
        for variant in ["default", "tuned"] {
            if !rows.iter().any(|row| row.variant == variant) {
                continue;
            }
            for ((_, runs), name) in settings.iter().zip(&names) {
                let cells = group::cells(rows, runs);
                lines.extend(line(rows, &cells, name, variant, (against, &algorithms)));
            }
        }
        let runs = settings.iter().flat_map(|(_, runs)| group::cells(rows, runs));
        let runs = runs.map(|cell| cell.runs.len()).min().unwrap_or(0);
        (!lines.is_empty()).then_some(Self { against, runs, algorithms, lines })
    }

    /// All of it as a table of Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("| setting | exploration | regret of {} |", self.against);
        for algorithm in &self.algorithms {
            let _ = write!(text, " {algorithm} |");
        }
        text.push_str("\n|---|---|---|");
        text.push_str(&"---|".repeat(self.algorithms.len()));
        for line in &self.lines {
            let (regret, random) = line.reference;
            let share = random.map_or(String::new(), |random| {
                format!(" ({}% of random)", number(100.0 * regret / random))
            });
            let regret = thousands(regret);
            let _ = write!(text, "\n| {} | {} | {regret}{share} |", line.setting, line.variant);
            for ratio in &line.ratios {
                let _ = match ratio {
                    None => write!(text, " |"),
                    Some((value, None)) => write!(text, " {value:.2} |"),
                    Some((value, Some((low, high)))) => {
                        write!(text, " {value:.2} [{low:.2}, {high:.2}] |")
                    }
                };
            }
        }
        text.push('\n');
        text
    }

    /// All of it as a figure.
    pub fn figure(&self, palette: &Palette) -> Figure {
        let mut rows: Vec<String> = Vec::new();
        for line in &self.lines {
            if !rows.contains(&line.setting) {
                rows.push(line.setting.clone());
            }
        }
        let variants: Vec<&str> = ["default", "tuned"]
            .into_iter()
            .filter(|&variant| self.lines.iter().any(|line| line.variant == variant))
            .collect();
        let panel = |&variant: &&str| {
            let of = |row: &String| {
                self.lines.iter().find(|line| line.variant == variant && line.setting == *row)
            };
            let title = match variants.len() {
                1 => String::new(),
                _ => format!("{variant} exploration"),
            };
            Panel { title, rows: rows.iter().map(|row| of(row).map_or(vec![], dots)).collect() }
        };
        let title = format!("Regret over that of {}", self.against);
        let subtitle = format!(
            "lines: 95% interval, bootstrap over {} seeds; logarithmic, left is better",
            self.runs
        );
        let caption = format!(
            "Mean regret over that of {} with the same people and the same kind of exploration, one \
             row for each setting. Lines are 95% intervals by a bootstrap over seeds. Tuned \
             exploration was chosen on other seeds.",
            self.against
        );
        let series = self.algorithms.iter().map(|&name| (name.to_owned(), palette.style(name)));
        let panels = variants.iter().map(panel).collect();
        let (x, series) = (Axis::log("ratio of regrets"), series.collect());
        let plot = DotPlot { title, subtitle, x, centre: 1.0, rows, series, panels };
        Figure { name: "ratios".into(), canvas: plot.canvas(), caption }
    }
}

fn dots(line: &Line) -> Vec<Dot> {
    let dot = |(series, ratio): (usize, &Option<Ratio>)| {
        let (value, interval) = (*ratio)?;
        (value > 0.0).then_some(Dot { series, value, interval })
    };
    line.ratios.iter().enumerate().filter_map(dot).collect()
}

/// Tuned runs are compared with tuned ones; whoever was not tuned has default runs alone.
fn line(
    rows: &[Row],
    cells: &[Cell],
    setting: &str,
    variant: &'static str,
    (against, algorithms): (&str, &[&str]),
) -> Option<Line> {
    let cell = |algorithm: &str| {
        let of = |wanted: &str| {
            cells.iter().find(|cell| cell.algorithm == algorithm && cell.variant == wanted)
        };
        of(variant).or_else(|| of("default"))
    };
    // Pairs belong to the same seeds.
    let regrets = |cell: &Cell| {
        let mut runs = cell.runs.clone();
        runs.sort_by_key(|&run| rows[run].seed);
        runs.iter().map(|&run| Measure::Regret.value(&rows[run])).collect::<Vec<f64>>()
    };
    let reference = cell(against)?;
    let other = regrets(reference);
    let ratio = |&algorithm: &&str| ratio_interval(&regrets(cell(algorithm)?), &other);
    Some(Line {
        setting: setting.into(),
        variant,
        reference: (
            reference.mean(rows, Measure::Regret),
            reference.mean_of(rows, |row| row.regret_random),
        ),
        ratios: algorithms.iter().map(ratio).collect(),
    })
}

/// Settings by what differs between them.
fn names(settings: &[&Setting]) -> Vec<String> {
    let differ = |part: &dyn Fn(&Setting) -> String| {
        settings.iter().any(|setting| part(setting) != part(settings[0]))
    };
    let limit = |name: &str, value: Option<f64>| {
        value.map_or(format!("no {name} limit"), |epsilon| format!("{name} {epsilon}"))
    };
    let parts: [&dyn Fn(&Setting) -> String; 7] = [
        &|setting| setting.environment.clone(),
        &|setting| format!("d = {}", setting.dimension),
        &|setting| format!("K = {}", setting.arms),
        &|setting| format!("T = {}", thousands(setting.horizon as f64)),
        &|setting| limit("central", setting.central_epsilon),
        &|setting| limit("local", setting.local_epsilon),
        &|setting| setting.batch_size.map_or("planned".into(), |size| format!("l = {size}")),
    ];
    let used: Vec<_> = parts.into_iter().filter(|part| differ(*part)).collect();
    let name = |setting: &&Setting| used.iter().map(|part| part(setting)).collect::<Vec<_>>();
    settings.iter().map(|setting| name(setting).join(", ")).collect()
}
