//! Regret over time, one figure for each setting.

use incrowd_chart::{Axis, Chart, Plot, Series, thousands};

use super::{
    Figure, Palette,
    data::Experiment,
    group::{self, Measure},
    summary,
};
use incrowd_sim::statistics;

use crate::experiment::Setting;

/// From this many runs on a band holds most runs; below, it is about the mean.
const QUANTILE_RUNS: usize = 10;
/// Factors of ten before the horizon: earlier all lines are the same.
const DECADES: i32 = 3;

/// One figure for each setting.
pub fn figures(experiment: &Experiment, palette: &Palette) -> Vec<Figure> {
    let settings = group::settings(&experiment.rows);
    settings
        .iter()
        .enumerate()
        .map(|(i, (setting, runs))| figure(experiment, palette, i + 1, setting, runs))
        .collect()
}

fn figure(
    experiment: &Experiment,
    palette: &Palette,
    number: usize,
    setting: &Setting,
    runs: &[usize],
) -> Figure {
    let measure = Measure::of(&experiment.rows, runs);
    let (cells, dropped) = group::preferred(&experiment.rows, runs);
    let fewest = cells.iter().map(|cell| cell.runs.len()).min().unwrap_or(0);
    let most = cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
    let band = Band::of(fewest);
    let start = setting.horizon as f64 / 10f64.powi(DECADES);
    let series = cells
        .iter()
        .map(|cell| {
            let curves: Vec<&[(f64, f64)]> =
                cell.runs.iter().map(|&run| experiment.curves[run].as_slice()).collect();
            let style = palette.style(cell.algorithm);
            let mut series = Series::new(cell.algorithm, style, Vec::new());
            series.detail = cell.remark(&experiment.rows);
            for (people, mut values) in aligned(&curves) {
                if people < start {
                    continue;
                }
                if measure == Measure::Reward {
                    values.iter_mut().for_each(|sum| *sum /= people);
                }
                let Some(mean) = statistics::mean(&values) else { continue };
                // A log axis has no place for a regret of 0.
                if measure == Measure::Regret && mean <= 0.0 {
                    continue;
                }
                series.line.push((people, mean));
                if let Some((low, high)) = band.around(mean, &values) {
                    series.band.push((people, low, high));
                }
            }
            series
        })
        .collect();
    let title = summary::headline(&experiment.rows, runs);
    let runs = if fewest == most { format!("{most}") } else { format!("{fewest} to {most}") };
    let average = if most > 1 { format!("mean of {runs} runs") } else { "one run".into() };
    let mut subtitle = format!(
        "{}: {}; {average}{}",
        sentence_case(&group::people(&setting.environment)),
        group::words(setting, ""),
        band.short()
    );
    if dropped {
        subtitle.push_str("; tuned exploration");
    }
    let what = match measure {
        Measure::Regret => "Cumulative regret",
        Measure::Reward => "Average reward per person",
    };
    let y = match measure {
        Measure::Regret => Axis::log(measure.title()),
        Measure::Reward => Axis::linear(measure.title()),
    };
    let mut caption = format!(
        "{what} of {} up to {} people ({}). Lines: {average}. {}{}",
        group::people(&setting.environment),
        thousands(setting.horizon as f64),
        group::words(setting, "people"),
        band.sentence(),
        match measure {
            Measure::Regret => " Both axes are logarithmic; lower is better.",
            Measure::Reward =>
                " The data does not know what the best choice would have earned, so this shows \
                 reward, not regret; higher is better.",
        },
    );
    if dropped {
        caption.push_str(
            " Where an algorithm ran with default and with tuned exploration, only tuned is drawn; \
             the table has both.",
        );
    }
    let plots = vec![Plot { title: String::new(), series }];
    let x = Axis::log("people so far");
    let canvas = Chart { title, subtitle, x, y, plots }.canvas();
    Figure { name: format!("regret-{number}"), canvas, caption }
}

/// The text with a capital letter.
pub(super) fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// What the shade around a line means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Band {
    None,
    Errors,
    Quantiles,
}

impl Band {
    fn of(runs: usize) -> Self {
        match runs {
            0..2 => Self::None,
            2..QUANTILE_RUNS => Self::Errors,
            _ => Self::Quantiles,
        }
    }

    fn around(self, mean: f64, values: &[f64]) -> Option<(f64, f64)> {
        match self {
            Self::None => None,
            Self::Errors => statistics::standard_error(values)
                .map(|error| (mean - 2.0 * error, mean + 2.0 * error)),
            Self::Quantiles => {
                statistics::quantile(values, 0.1).zip(statistics::quantile(values, 0.9))
            }
        }
    }

    fn short(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Errors => ", band: 2 standard errors",
            Self::Quantiles => ", band: 10% to 90% of runs",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::None => "There are too few runs for bands.",
            Self::Errors => "Bands: mean plus and minus two standard errors over the runs.",
            Self::Quantiles => "Bands: from the 10% to the 90% quantile of the runs.",
        }
    }
}

/// The values of all curves at every abscissa of any of them, as far as all of them go.
fn aligned(curves: &[&[(f64, f64)]]) -> Vec<(f64, Vec<f64>)> {
    let first = curves.iter().filter_map(|c| c.first()).map(|p| p.0).fold(0.0, f64::max);
    let last = curves.iter().filter_map(|c| c.last()).map(|p| p.0).fold(f64::INFINITY, f64::min);
    let mut grid: Vec<f64> = curves
        .iter()
        .flat_map(|curve| curve.iter().map(|point| point.0))
        .filter(|x| (first..=last).contains(x))
        .collect();
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    grid.into_iter()
        .map(|x| (x, curves.iter().map(|curve| interpolated(curve, x)).collect()))
        .collect()
}

/// The curve at `x`, straight between its points.
fn interpolated(curve: &[(f64, f64)], x: f64) -> f64 {
    let after = curve.partition_point(|point| point.0 < x);
    match (after.checked_sub(1).map(|i| curve[i]), curve.get(after)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0),
        (None, Some(only)) => only.1,
        (Some(only), None) => only.1,
        (None, None) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_meet_on_a_common_grid() {
        let a = [(1.0, 10.0), (3.0, 30.0), (5.0, 50.0)];
        let b = [(2.0, 4.0), (4.0, 8.0)];
        let aligned = aligned(&[&a, &b]);
        assert_eq!(
            aligned,
            [(2.0, vec![20.0, 4.0]), (3.0, vec![30.0, 6.0]), (4.0, vec![40.0, 8.0])]
        );
    }
}
