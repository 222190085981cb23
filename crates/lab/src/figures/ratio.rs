//! Every setting at once: regret over that of the algorithm that an experiment compares with.

use std::fmt::Write;

use incrowd_chart::{Axis, Dot, DotPlot, Name, Panel, number, thousands};

use super::{
    Figure, Palette,
    data::Experiment,
    group::{self, Cell, Measure},
    is_random,
    palette::gloss,
};
use incrowd_sim::statistics::ratio_interval;

use crate::experiment::{Row, Setting};

/// Whoever is further from 1 in most settings does not decide how wide the axis is.
const NEAR: f64 = 4.0;
/// The axis goes at most so far from 1.
const WIDEST: f64 = 8.0;

/// A ratio of mean regrets with its 95% interval.
type Ratio = (f64, Option<(f64, f64)>);

/// One setting with one kind of exploration.
struct Line {
    /// As in the table, and as a figure says it.
    setting: String,
    words: String,
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
    /// None unless the experiment compares with someone and knows regrets.
    pub fn of(experiment: &'a Experiment) -> Option<Self> {
        let (rows, against) = (&experiment.rows, experiment.manifest.against.as_deref()?);
        let settings = group::settings(rows);
        if rows.iter().any(|row| row.regret.is_none()) {
            return None;
        }
        let mut algorithms: Vec<&str> = Vec::new();
        for row in rows {
            let name = row.algorithm.as_str();
            if name != against && !is_random(name) && !algorithms.contains(&name) {
                algorithms.push(name);
            }
        }
        let all: Vec<&Setting> = settings.iter().map(|(setting, _)| setting).collect();
        let names: Vec<(String, String)> =
            names(&all, &SYMBOLS).into_iter().zip(names(&all, &WORDS)).collect();
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

    /// All of it as a figure: a row for each setting, or of a single setting for each algorithm.
    pub fn figure(&self, palette: &Palette) -> Figure {
        let mut settings: Vec<&str> = Vec::new();
        for line in &self.lines {
            if !settings.contains(&line.setting.as_str()) {
                settings.push(&line.setting);
            }
        }
        let variants: Vec<&str> = ["default", "tuned"]
            .into_iter()
            .filter(|&variant| self.lines.iter().any(|line| line.variant == variant))
            .collect();
        let single = settings.len() == 1;
        let panel = |&variant: &&str| {
            let of = |setting: &&str| {
                self.lines.iter().find(|line| line.variant == variant && line.setting == *setting)
            };
            let title = match variants.len() {
                1 => String::new(),
                _ => format!("{variant} exploration"),
            };
            let rows = settings.iter().map(|setting| of(setting).map_or(vec![], dots));
            let rows: Vec<Vec<Dot>> = if single {
                let dots: Vec<Dot> = rows.flatten().collect();
                let of = |series| dots.iter().copied().filter(|dot| dot.series == series).collect();
                (0..self.algorithms.len()).map(of).collect()
            } else {
                rows.collect()
            };
            Panel { title, rows }
        };
        let panels: Vec<Panel> = variants.iter().map(panel).collect();
        let rows = if single {
            self.algorithms.iter().map(|&name| name.to_owned()).collect()
        } else {
            let words = |setting: &&str| {
                self.lines.iter().find(|line| line.setting == *setting).map(|line| &line.words)
            };
            settings.iter().filter_map(words).cloned().collect()
        };
        let mut x = Axis::log(&format!("times the reward that {} loses", self.against));
        let of = |algorithm: usize| {
            self.lines.iter().filter_map(|line| line.ratios[algorithm]).collect::<Vec<Ratio>>()
        };
        let ratios: Vec<Vec<Ratio>> = (0..self.algorithms.len()).map(of).collect();
        x.limits = limits(&ratios);
        let names = self.algorithms.iter().map(|&name| Name {
            name: name.to_owned(),
            detail: gloss(name).into(),
            style: palette.style(name),
        });
        let plot = DotPlot {
            title: self.title(),
            subtitle: self.subtitle(),
            x,
            centre: 1.0,
            sides: ("loses less".into(), "loses more".into()),
            rows,
            series: names.collect(),
            panels,
        };
        let caption = format!(
            "Mean regret over that of {} with the same people and the same kind of exploration. \
             Lines are 95% intervals by a bootstrap over seeds; arrows with a number are beyond the \
             axis. Tuned exploration was chosen on other seeds.",
            self.against
        );
        Figure { name: "ratios".into(), canvas: plot.canvas(), caption }
    }

    /// What the first algorithm of the table loses, over all settings.
    fn title(&self) -> String {
        let ratios = self.lines.iter().filter_map(|line| Some(line.ratios.first()?.as_ref()?.0));
        let (low, high) = ratios
            .fold((f64::INFINITY, 0.0), |(low, high), r| (f64::min(low, r), f64::max(high, r)));
        let Some(first) = self.algorithms.first().filter(|_| low <= high) else {
            return format!("Reward lost, over that of {}", self.against);
        };
        let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
        let range = if low == high { low } else { format!("{low} to {high}") };
        format!("{first} loses {range} times as much as {}", self.against)
    }

    fn subtitle(&self) -> String {
        let who = match gloss(self.against) {
            "" => String::new(),
            gloss => format!("{}: {gloss}. ", self.against),
        };
        let intervals = self.lines.iter().flat_map(|line| line.ratios.iter().flatten());
        let lines = match intervals.filter(|ratio| ratio.1.is_some()).count() {
            0 => format!("{} seeds, too few for intervals", self.runs),
            _ => format!("lines: 95% interval, bootstrap over {} seeds", self.runs),
        };
        format!("{who}Reward lost over that of {}; {lines}; logarithmic", self.against)
    }
}

/// An axis that shows differences of a fifth: it has room for all values of the algorithms that are
/// near 1 in most settings, within [`WIDEST`]. The others stay at its edge.
fn limits(ratios: &[Vec<Ratio>]) -> Option<(f64, f64)> {
    let is_near = |ratios: &&Vec<Ratio>| {
        let near = ratios.iter().filter(|ratio| (1.0 / NEAR..=NEAR).contains(&ratio.0)).count();
        2 * near > ratios.len()
    };
    let ends = ratios.iter().filter(is_near).flatten().flat_map(|(value, interval)| {
        let (low, high) = interval.unwrap_or((*value, *value));
        [low, high]
    });
    let ends: Vec<f64> = ends.map(|end| end.clamp(1.0 / WIDEST, WIDEST)).collect();
    let low = ends.iter().copied().fold(0.9, f64::min);
    let high = ends.iter().copied().fold(1.1, f64::max);
    (!ends.is_empty()).then_some((low, high))
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
    (setting, words): &(String, String),
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
        setting: setting.clone(),
        words: words.clone(),
        variant,
        reference: (
            reference.mean(rows, Measure::Regret),
            reference.mean_of(rows, |row| row.regret_random),
        ),
        ratios: algorithms.iter().map(ratio).collect(),
    })
}

/// What a part of a setting is called.
type Part = fn(&Setting) -> String;

/// As tables say it.
const SYMBOLS: [Part; 7] = [
    |setting| setting.environment.clone(),
    |setting| format!("d = {}", setting.dimension),
    |setting| format!("K = {}", setting.arms),
    |setting| format!("T = {}", thousands(setting.horizon as f64)),
    |setting| limit("central", setting.central_epsilon),
    |setting| limit("local", setting.local_epsilon),
    |setting| setting.batch_size.map_or("planned".into(), |size| format!("l = {size}")),
];

/// As figures say it.
const WORDS: [Part; 7] = [
    |setting| group::people(&setting.environment),
    |setting| format!("{} features", setting.dimension),
    |setting| format!("{} choices", setting.arms),
    |setting| format!("{} people", thousands(setting.horizon as f64)),
    |setting| limit("central epsilon", setting.central_epsilon),
    |setting| limit("local epsilon", setting.local_epsilon),
    |setting| setting.batch_size.map_or("planned batches".into(), |l| format!("batches of {l}")),
];

fn limit(name: &str, value: Option<f64>) -> String {
    value.map_or(format!("no {name} limit"), |epsilon| format!("{name} {epsilon}"))
}

/// Settings by what differs between them.
fn names(settings: &[&Setting], parts: &[Part]) -> Vec<String> {
    let differ = |part: &&Part| settings.iter().any(|other| part(other) != part(settings[0]));
    let used: Vec<&Part> = parts.iter().filter(differ).collect();
    let name = |setting: &&Setting| used.iter().map(|part| part(setting)).collect::<Vec<_>>();
    settings.iter().map(|setting| name(setting).join(", ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_algorithms_do_not_squeeze_the_others() {
        let plain = |values: &[f64]| values.iter().map(|&value| (value, None)).collect::<Vec<_>>();
        let near = vec![(0.95, Some((0.8, 1.2))), (1.7, Some((1.5, 1.8)))];
        assert_eq!(limits(&[near.clone(), plain(&[7.0, 54.0])]), Some((0.8, 1.8)));
        assert_eq!(limits(&[near, plain(&[3.0, 3.0, 30.0])]), Some((0.8, 8.0)));
        assert_eq!(limits(&[plain(&[1.01])]), Some((0.9, 1.1)));
        assert_eq!(limits(&[plain(&[1000.0])]), None);
    }
}
