//! Axes: range, ticks and their labels, and where a value is drawn.

use crate::{canvas::SMALLEST_TEXT, text::room};

/// How values become distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally long.
    Linear,
    /// Equal ratios are equally long.
    Log,
}

/// An axis: what it shows, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it shows, with the unit.
    pub title: String,
    /// How.
    pub scale: Scale,
    /// Values to label instead of round ones, if their labels fit.
    pub marks: Vec<f64>,
    /// What is below or above is not shown.
    pub limits: Option<(f64, f64)>,
}

/// Where an axis begins and ends, and its scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

/// Values with a label, and values with only a faint line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ticks {
    /// Labelled.
    pub major: Vec<f64>,
    /// Not labelled.
    pub minor: Vec<f64>,
}

/// The plot's place in the figure and the values at its edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Left edge in pixels.
    pub left: f64,
    /// Right edge in pixels.
    pub right: f64,
    /// Upper edge in pixels.
    pub top: f64,
    /// Lower edge in pixels.
    pub bottom: f64,
    /// Values from left to right.
    pub x: Range,
    /// Values from bottom to top.
    pub y: Range,
}

impl Frame {
    /// Pixel of a value of the horizontal axis.
    pub fn x_pixel(&self, value: f64) -> f64 {
        self.left + self.x.share(value) * (self.right - self.left)
    }

    /// Pixel of a value of the vertical axis.
    pub fn y_pixel(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value) * (self.bottom - self.top)
    }
}

impl Range {
    /// 0 at the beginning, 1 at the end. What a log axis cannot show is far below.
    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Log => -1.0,
        }
    }
}

impl Axis {
    /// A logarithmic axis.
    pub fn log(title: &str) -> Self {
        Self { title: title.into(), scale: Scale::Log, marks: Vec::new(), limits: None }
    }

    /// A linear axis.
    pub fn linear(title: &str) -> Self {
        Self { title: title.into(), scale: Scale::Linear, marks: Vec::new(), limits: None }
    }

    /// The range of the values that can be shown, with some padding at both ends.
    pub fn range(&self, values: impl Iterator<Item = f64>, padding: f64) -> Range {
        let shown =
            |value: &f64| value.is_finite() && (self.scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(shown) {
            let value = self.limits.map_or(value, |(low, high)| value.clamp(low, high));
            (low, high) = (low.min(value), high.max(value));
        }
        let scale = self.scale;
        match scale {
            _ if low > high => Range { low: 1.0, high: 10.0, scale },
            Scale::Log => {
                let (a, b) = if high / low < 1.05 {
                    ((low / 1.5).ln(), (high * 1.5).ln())
                } else {
                    (low.ln(), high.ln())
                };
                let pad = padding * (b - a);
                Range { low: (a - pad).exp(), high: (b + pad).exp(), scale }
            }
            Scale::Linear => {
                let width = if high > low { high - low } else { high.abs().max(1.0) };
                let pad = width * padding.max(if high > low { 0.0 } else { 0.5 });
                Range { low: low - pad, high: high + pad, scale }
            }
        }
    }

    /// The labelled ones of some ticks: all, or every second, third, ... so that no label touches
    /// another.
    pub(crate) fn spaced(&self, ticks: &[f64], pixel: impl Fn(f64) -> f64) -> Vec<f64> {
        let fits = |every: usize| {
            let mut end = f64::NEG_INFINITY;
            ticks.iter().step_by(every).all(|&tick| {
                let half = room(&self.label(tick), SMALLEST_TEXT) / 2.0;
                let free = pixel(tick) - half > end;
                end = pixel(tick) + half + 7.0;
                free
            })
        };
        let every = (1..=ticks.len().max(1)).find(|&every| fits(every)).unwrap_or(1);
        ticks.iter().copied().step_by(every).collect()
    }

    /// Round values in a range, at most about `most` of them with labels.
    pub fn ticks(&self, range: Range, most: usize) -> Ticks {
        match self.scale {
            Scale::Linear => Ticks { major: even(range, most), minor: Vec::new() },
            Scale::Log => logarithmic(range, most),
        }
    }

    /// 100, 1k, 31.6k, 10M; 0.01 as it is.
    pub fn label(&self, tick: f64) -> String {
        if tick.abs() < 10.0 {
            // Ticks are round: twelve places only remove what floating point added.
            let text = format!("{tick:.12}");
            return text.trim_end_matches('0').trim_end_matches('.').into();
        }
        let (mut value, mut unit) = (tick, "");
        for next in ["k", "M", "G"] {
            if value.abs() >= 999.5 {
                (value, unit) = (value / 1000.0, next);
            }
        }
        let places = match value.abs() {
            ..10.0 => 2,
            10.0..100.0 => 1,
            _ => 0,
        };
        let text = format!("{value:.places$}");
        let text = match places {
            0 => &text,
            _ => text.trim_end_matches('0').trim_end_matches('.'),
        };
        format!("{text}{unit}")
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn even(range: Range, most: usize) -> Vec<f64> {
    let rough = (range.high - range.low) / most as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= rough)
        .unwrap_or(10.0 * power);
    // A tick at the very end belongs to the range, whatever rounding did.
    let first = (range.low / step - 1e-6).ceil() as i64;
    let last = (range.high / step + 1e-6).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

/// Powers of ten; between them 2 and 5, or more, if there are few.
fn logarithmic(range: Range, most: usize) -> Ticks {
    let within = |mantissas: &[f64], every: i32| -> Vec<f64> {
        let decades = (range.low.log10().floor() as i32)..=(range.high.log10().ceil() as i32);
        decades
            .filter(|decade| decade % every == 0)
            .flat_map(|decade| mantissas.iter().map(move |m| rounded(*m, decade)))
            .filter(|v| (range.low * 0.999_999..=range.high * 1.000_001).contains(v))
            .collect()
    };
    let decades = within(&[1.0], 1).len();
    if decades > most {
        return Ticks { major: within(&[1.0], 2), minor: within(&[1.0], 1) };
    }
    let minor = within(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], 1);
    let choices: [&[f64]; 4] = [
        &[1.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0],
        &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    ];
    let major = choices
        .iter()
        .map(|mantissas| within(mantissas, 1))
        .find(|ticks| ticks.len() >= 4)
        .unwrap_or_else(|| even(range, 5));
    Ticks { major, minor }
}

/// m * 10^e, as near as a float can be.
fn rounded(mantissa: f64, exponent: i32) -> f64 {
    format!("{mantissa}e{exponent}").parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn major(axis: &Axis, low: f64, high: f64) -> Vec<String> {
        let range = axis.range([low, high].into_iter(), 0.0);
        axis.ticks(range, 9).major.into_iter().map(|tick| axis.label(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        let log = Axis::log("");
        assert_eq!(major(&log, 100.0, 1e6), ["100", "1k", "10k", "100k", "1M"]);
        assert_eq!(major(&log, 0.5, 8.0), ["0.5", "1", "2", "5"]);
        assert_eq!(major(&log, 1e5, 1e8), ["100k", "1M", "10M", "100M"]);
        assert_eq!(major(&log, 1.0, 1.2).len(), 5);
        assert_eq!(
            major(&Axis::linear(""), 0.4, 0.8),
            ["0.4", "0.45", "0.5", "0.55", "0.6", "0.65", "0.7", "0.75", "0.8"]
        );
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.05, 1.0, 372.0, 999.7, 1500.0, 31_623.0, 316_228.0, 2e7];
        let shown = labels.map(|label| Axis::log("").label(label));
        assert_eq!(shown, ["0.05", "1", "372", "1k", "1.5k", "31.6k", "316k", "20M"]);
    }

    #[test]
    fn values_land_in_proportion() {
        let range = Axis::log("").range([1.0, 100.0, f64::NAN, -3.0, 0.0].into_iter(), 0.0);
        assert!((range.share(10.0) - 0.5).abs() < 1e-12);
        assert!(range.share(0.0) < 0.0);
        let nothing = Axis::linear("").range(std::iter::empty(), 0.0);
        assert!(nothing.share(1.0).abs() < 1e-12);
    }
}
