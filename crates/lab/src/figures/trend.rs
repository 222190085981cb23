//! Regret at the end against something that was varied: horizon, privacy limit, batch size.

use std::fmt::Write;

use incrowd_chart::{Axis, Chart, Plot, Series};

use super::{
    Figure, Palette,
    data::Experiment,
    group::{self, Cell, Guarantee, Measure},
    regret::sentence_case,
};
use incrowd_sim::statistics::{self, Line, Sample, power_law};

use crate::experiment::{Row, Setting};

/// Below this many seeds a percentile bootstrap promises too much.
const ENOUGH_RUNS: usize = 10;

/// How fast an algorithm's regret grows with the horizon, all else equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Slope {
    /// Label of the algorithm.
    pub algorithm: String,
    /// `default` or `tuned`; tuned where both have two horizons.
    pub variant: String,
    /// What was equal; its horizon is the largest.
    pub setting: Setting,
    /// Exponent: regret grows like T^slope.
    pub slope: f64,
    /// Lower end of the 95% bootstrap interval; none if a horizon has a single run.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Horizons, ascending.
    pub horizons: Vec<u64>,
}

/// What is varied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    Horizon,
    CentralEpsilon,
    LocalEpsilon,
    BatchSize,
}

/// The runs of one algorithm at each value, or without a value.
struct Track<'a> {
    cell: Cell<'a>,
    /// Value and runs, ascending; empty for a line that is the same everywhere.
    points: Vec<(f64, Vec<usize>)>,
}

impl Sweep {
    fn value(self, row: &Row) -> Option<f64> {
        match self {
            Self::Horizon => Some(row.horizon as f64),
            Self::CentralEpsilon => row.central_epsilon,
            Self::LocalEpsilon => row.local_epsilon,
            Self::BatchSize => row.batch_size.map(f64::from),
        }
    }

    fn clear(self, setting: &mut Setting) {
        match self {
            Self::Horizon => setting.horizon = 0,
            Self::CentralEpsilon => setting.central_epsilon = None,
            Self::LocalEpsilon => setting.local_epsilon = None,
            Self::BatchSize => setting.batch_size = None,
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Horizon => "slope",
            Self::CentralEpsilon | Self::LocalEpsilon => "epsilon",
            Self::BatchSize => "batch-size",
        }
    }

    fn axis(self) -> &'static str {
        match self {
            Self::Horizon => "people in all (T)",
            Self::CentralEpsilon => "central epsilon asked for (further left is more private)",
            Self::LocalEpsilon => "local epsilon asked for (further left is more private)",
            Self::BatchSize => "batch size (reports)",
        }
    }

    fn title(self, measure: Measure) -> &'static str {
        match (self, measure) {
            (Self::Horizon, _) => "How the loss grows with the number of people",
            (Self::CentralEpsilon | Self::LocalEpsilon, Measure::Regret) => {
                "What each level of privacy costs"
            }
            (Self::CentralEpsilon | Self::LocalEpsilon, Measure::Reward) => {
                "What is earned at each level of privacy"
            }
            (Self::BatchSize, Measure::Regret) => "What each batch size costs",
            (Self::BatchSize, Measure::Reward) => "What is earned at each batch size",
        }
    }

    /// What `group::words` says about it.
    fn word(self) -> &'static str {
        match self {
            Self::Horizon => "people",
            Self::CentralEpsilon => "central",
            Self::LocalEpsilon => "local",
            Self::BatchSize => "batches",
        }
    }
}

/// Every figure the table allows.
pub fn figures(experiment: &Experiment, palette: &Palette) -> Vec<Figure> {
    let rows = &experiment.rows;
    let mut figures = all(rows, palette, Sweep::Horizon);
    let central = all(rows, palette, Sweep::CentralEpsilon);
    if central.is_empty() {
        figures.extend(all(rows, palette, Sweep::LocalEpsilon));
    } else {
        figures.extend(central);
    }
    figures.extend(all(rows, palette, Sweep::BatchSize));
    figures
}

/// The growth of every algorithm's regret, wherever there are two horizons for an otherwise equal
/// setting.
pub fn slopes(rows: &[Row]) -> Vec<Slope> {
    let groups = group::grouped(rows, |setting| Sweep::Horizon.clear(setting));
    let mut slopes = Vec::new();
    for (setting, runs) in groups {
        if Measure::of(rows, &runs) == Measure::Reward {
            continue;
        }
        for line in lines(rows, &runs, Sweep::Horizon) {
            if let Some((slope, _)) = slope(rows, &setting, &line) {
                slopes.push(slope);
            }
        }
    }
    slopes
}

fn slope(rows: &[Row], setting: &Setting, line: &Track) -> Option<(Slope, Line)> {
    let value = |run: &usize| (rows[*run].seed, rows[*run].regret.unwrap_or(f64::NAN));
    let samples: Vec<Sample> = line
        .points
        .iter()
        .map(|(x, runs)| Sample { x: *x, values: runs.iter().map(value).collect() })
        .collect();
    let law = power_law(&samples)?;
    let horizons: Vec<u64> = samples.iter().map(|sample| sample.x as u64).collect();
    let slope = Slope {
        algorithm: line.cell.algorithm.into(),
        variant: line.cell.variant.into(),
        setting: Setting { horizon: *horizons.last()?, ..setting.clone() },
        slope: law.line.slope,
        low: law.interval.map(|interval| interval.0),
        high: law.interval.map(|interval| interval.1),
        horizons,
    };
    Some((slope, law.line))
}

/// One line for each algorithm of the group: tuned, unless only default has two values.
fn lines<'a>(rows: &'a [Row], runs: &[usize], sweep: Sweep) -> Vec<Track<'a>> {
    let mut lines: Vec<Track<'a>> = Vec::new();
    for cell in group::cells(rows, runs) {
        let constant =
            matches!(sweep, Sweep::CentralEpsilon | Sweep::LocalEpsilon) && cell.is_reference(rows);
        let mut points: Vec<(f64, Vec<usize>)> = Vec::new();
        for &run in cell.runs.iter().filter(|_| !constant) {
            let Some(x) = sweep.value(&rows[run]) else { continue };
            match points.iter_mut().find(|point| point.0.total_cmp(&x).is_eq()) {
                Some(point) => point.1.push(run),
                None => points.push((x, vec![run])),
            }
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        lines.push(Track { cell, points });
    }
    // Another variant of the same algorithm says more: it has a line and this one has not, or both
    // have and it is tuned.
    let better = |this: &Track, other: &Track| {
        this.cell.algorithm == other.cell.algorithm
            && this.cell.variant != other.cell.variant
            && (other.points.len().min(2), other.cell.variant == "tuned")
                > (this.points.len().min(2), this.cell.variant == "tuned")
    };
    let keep: Vec<bool> =
        lines.iter().map(|line| !lines.iter().any(|other| better(line, other))).collect();
    let mut keep = keep.into_iter();
    lines.retain(|_| keep.next().unwrap_or(true));
    lines
}

fn all(rows: &[Row], palette: &Palette, sweep: Sweep) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for (setting, runs) in group::grouped(rows, |setting| sweep.clear(setting)) {
        let measure = Measure::of(rows, &runs);
        let lines = lines(rows, &runs, sweep);
        if !lines.iter().any(|line| line.points.len() > 1)
            || (sweep == Sweep::Horizon && measure == Measure::Reward)
        {
            continue;
        }
        let mut figure = figure(rows, palette, sweep, &setting, measure, &lines);
        if !figures.is_empty() {
            figure.name = format!("{}-{}", figure.name, figures.len() + 1);
        }
        figures.push(figure);
    }
    figures
}

fn figure(
    rows: &[Row],
    palette: &Palette,
    sweep: Sweep,
    setting: &Setting,
    measure: Measure,
    lines: &[Track],
) -> Figure {
    let mut series: Vec<Series> = Vec::new();
    for line in lines {
        let drawn = match (sweep, line.points.as_slice()) {
            (_, []) => level(rows, palette, measure, line),
            (Sweep::Horizon, _) => fitted(rows, palette, setting, line),
            (_, points) => {
                let mut series = pointed(rows, palette, measure, line);
                if points.len() > 1 {
                    series.line.clone_from(&series.dots);
                }
                series
            }
        };
        if !drawn.line.is_empty() || !drawn.dots.is_empty() {
            series.push(drawn);
        }
    }
    let mut x = Axis::log(sweep.axis());
    x.marks = lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    x.marks.sort_by(f64::total_cmp);
    x.marks.dedup();
    let y = match measure {
        Measure::Regret => Axis::log(measure.title()),
        Measure::Reward => Axis::linear(measure.title()),
    };
    let tuned = lines.iter().any(|line| line.cell.variant == "tuned");
    let mut subtitle = format!(
        "{}: {}; mean over runs, bars: 2 standard errors",
        sentence_case(&group::people(&setting.environment)),
        group::words(setting, sweep.word())
    );
    if tuned {
        subtitle.push_str("; tuned exploration");
    }
    let caption = caption(rows, sweep, setting, measure, lines);
    let (title, plots) = (sweep.title(measure).into(), vec![Plot { title: String::new(), series }]);
    let canvas = Chart { title, subtitle, x, y, plots }.canvas();
    Figure { name: sweep.file().into(), canvas, caption }
}

fn caption(
    rows: &[Row],
    sweep: Sweep,
    setting: &Setting,
    measure: Measure,
    lines: &[Track],
) -> String {
    let what = match measure {
        Measure::Regret => "Mean cumulative regret",
        Measure::Reward => "Mean of the average reward per person",
    };
    let place = format!(
        "{} ({})",
        group::people(&setting.environment),
        group::words(setting, sweep.word())
    );
    let mut text = match sweep {
        Sweep::Horizon => format!(
            "{what} against the number of people with {place}, both axes logarithmic. Lines are least-squares fits through the means; a slope of 0.5 \
             means that four times the people cost twice the regret, a slope of 1 that nothing is learned. Brackets: 95% bootstrap interval over \
             seeds."
        ),
        Sweep::CentralEpsilon | Sweep::LocalEpsilon => {
            format!("{what} against the limit on epsilon that was asked for, with {place}.")
        }
        Sweep::BatchSize => format!("{what} against the size of a batch with {place}."),
    };
    text.push_str(" Dots are means over the runs, bars two standard errors (left out where the dot is larger).");
    if lines.iter().any(|line| line.points.is_empty()) {
        text.push_str(match sweep {
            Sweep::CentralEpsilon | Sweep::LocalEpsilon => {
                " Horizontal lines do not depend on the limit: algorithms without privacy, and those that ran without a limit."
            }
            _ => " Horizontal lines: no batch size was asked for.",
        });
    }
    let fewest = lines.iter().flat_map(|l| &l.points).map(|point| point.1.len()).min();
    if sweep == Sweep::Horizon && fewest.is_some_and(|runs| runs < ENOUGH_RUNS) {
        text.push_str(" With so few runs the intervals are rather too narrow.");
    }
    let unproved: Vec<&str> = lines
        .iter()
        .filter(|line| matches!(line.cell.guarantee(rows), Guarantee::NotCertified(_)))
        .map(|line| line.cell.algorithm)
        .collect();
    if !unproved.is_empty() {
        let _ = write!(text, " Privacy not certified: {}.", unproved.join("; "));
    }
    if lines.iter().any(|line| line.cell.variant == "tuned") {
        text.push_str(" Where an algorithm ran with tuned exploration, that is drawn.");
    }
    text
}

/// Dots and bars at every value.
fn pointed(rows: &[Row], palette: &Palette, measure: Measure, line: &Track) -> Series {
    let style = palette.style(line.cell.algorithm);
    let mut series = Series::new(line.cell.algorithm, style, Vec::new());
    series.detail = line.cell.remark(rows);
    for (x, runs) in &line.points {
        let values: Vec<f64> = runs.iter().map(|&run| measure.value(&rows[run])).collect();
        let Some(mean) = statistics::mean(&values) else { continue };
        // A log axis has no place for a regret of 0.
        if measure == Measure::Regret && mean <= 0.0 {
            continue;
        }
        series.dots.push((*x, mean));
        if let Some(error) = statistics::standard_error(&values) {
            series.bars.push((*x, mean - 2.0 * error, mean + 2.0 * error));
        }
    }
    series
}

/// The same everywhere.
fn level(rows: &[Row], palette: &Palette, measure: Measure, line: &Track) -> Series {
    let mean = line.cell.mean(rows, measure);
    let style = palette.style(line.cell.algorithm);
    let mut series = Series::new(line.cell.algorithm, style, vec![(1.0, mean)]);
    series.level = true;
    series.detail = line.cell.remark(rows);
    series
}

/// Dots, bars, and the fitted line with its slope.
fn fitted(rows: &[Row], palette: &Palette, setting: &Setting, line: &Track) -> Series {
    let mut series = pointed(rows, palette, Measure::Regret, line);
    let Some((slope, fit)) = slope(rows, setting, line) else { return series };
    series.line = series.dots.iter().map(|&(x, _)| (x, fit.at(x.ln()).exp())).collect();
    let growth = match (slope.low, slope.high) {
        (Some(low), Some(high)) => format!("slope {:.2} [{low:.2}, {high:.2}]", slope.slope),
        _ => format!("slope {:.2} (one run)", slope.slope),
    };
    series.detail.push_str(if series.detail.is_empty() { "" } else { "\n" });
    series.detail.push_str(&growth);
    series
}
