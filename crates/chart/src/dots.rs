//! Dots in rows: one row per situation, one dot with its interval per name, in panels side by side.

use crate::{
    axis::{Axis, Frame},
    canvas::{Anchor, Canvas, EDGE, SMALLEST_TEXT, Style, WIDTH},
    colour::{GRID, INK, LEADER, SOFT_INK},
    legend::{self, Entry},
    number::thousands,
    text::{room, shortened, wrapped},
};

/// Gap between panels.
const BETWEEN: f64 = 24.0;
/// Height of the name of a row, of a lane with a dot, and of a lane with a number.
const HEADING: f64 = 26.0;
const LANE: f64 = 11.5;
const TALL_LANE: f64 = 20.0;
/// Under the last lane of a row.
const REST: f64 = 6.0;
/// Size of titles of panels and of the axis.
const TITLE: f64 = 17.0;
const LINE: f64 = 21.0;
/// Radius of a dot.
const DOT: f64 = 4.6;
/// So few dots have their numbers beside them.
const FEW_DOTS: usize = 16;

/// A value and its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dot {
    /// Index of its name.
    pub series: usize,
    /// Where.
    pub value: f64,
    /// Lower and upper end.
    pub interval: Option<(f64, f64)>,
}

/// The same rows under one condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The condition; empty if there is only one.
    pub title: String,
    /// The dots of each row.
    pub rows: Vec<Vec<Dot>>,
}

/// Who dots belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct Name {
    /// The name.
    pub name: String,
    /// What the legend says under it.
    pub detail: String,
    /// How its dots look.
    pub style: Style,
}

/// Dots in rows. What is beyond the limits of the axis is an arrow at the edge with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct DotPlot {
    /// What it shows.
    pub title: String,
    /// Where it holds.
    pub subtitle: String,
    /// Across, the same in every panel.
    pub x: Axis,
    /// A value with a stronger line.
    pub centre: f64,
    /// What it means to be left and right of the centre.
    pub sides: (String, String),
    /// The rows, from top to bottom.
    pub rows: Vec<String>,
    /// Who the dots belong to; the order within a row.
    pub series: Vec<Name>,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// The lanes of a row: how far below its top their middles are, by series, and its height.
struct Lanes {
    middles: Vec<f64>,
    height: f64,
}

impl DotPlot {
    /// Draws it.
    pub fn canvas(&self) -> Canvas {
        let (mut canvas, top) = Canvas::new(&self.title, &self.subtitle);
        let top = self.legend(&mut canvas, top + 8.0) + self.head();
        let dots = self.panels.iter().flat_map(|panel| panel.rows.iter().flatten());
        let values = dots.clone().flat_map(|dot| {
            let (low, high) = dot.interval.unwrap_or((dot.value, dot.value));
            [dot.value, low, high]
        });
        let x = self.x.range(values.chain([self.centre]), 0.05);
        let numbers = dots.count() <= FEW_DOTS;
        let lanes: Vec<Lanes> = (0..self.rows.len()).map(|row| self.lanes(row, numbers)).collect();
        let bottom = top + lanes.iter().map(|lanes| lanes.height).sum::<f64>();
        shade_rows(&mut canvas, &lanes, top);
        let count = self.panels.len().max(1) as f64;
        let width = (WIDTH - 2.0 * EDGE - 12.0 - BETWEEN * (count - 1.0)) / count;
        for (index, panel) in self.panels.iter().enumerate() {
            let left = EDGE + 6.0 + index as f64 * (width + BETWEEN);
            let frame = Frame { left, right: left + width, top, bottom, x, y: x };
            self.axes(&mut canvas, &frame, &panel.title, &lanes);
            let mut y = top;
            for (dots, lanes) in panel.rows.iter().zip(&lanes) {
                for dot in dots {
                    if let Some(middle) = lanes.middles.get(dot.series) {
                        self.dot(&mut canvas, &frame, dot, y + middle, numbers);
                    }
                }
                y += lanes.height;
            }
        }
        self.names(&mut canvas, &lanes, top);
        let mut y = bottom + 34.0;
        for line in wrapped(&self.x.title, TITLE, WIDTH - 2.0 * EDGE) {
            canvas.text((WIDTH / 2.0, y + LINE / 2.0), &line, TITLE, INK, Anchor::Middle);
            y += LINE;
        }
        canvas.end(y + 12.0)
    }

    /// Whether rows are called like their only dots.
    fn rows_are_names(&self) -> bool {
        self.rows.len() == self.series.len()
            && self.rows.iter().zip(&self.series).all(|(row, series)| *row == series.name)
    }

    /// Room above the rows: titles of panels and what the sides mean.
    fn head(&self) -> f64 {
        let titles = self.panels.iter().any(|panel| !panel.title.is_empty());
        if titles { 58.0 } else { 34.0 }
    }

    fn is_off(&self, dot: &Dot) -> bool {
        self.x.limits.is_some_and(|(low, high)| !(low..=high).contains(&dot.value))
    }

    /// Names without a dot in any panel of the row get no lane; numbers need a tall one.
    fn lanes(&self, row: usize, numbers: bool) -> Lanes {
        let mut middles = vec![0.0; self.series.len()];
        let mut height = HEADING;
        for (series, middle) in middles.iter_mut().enumerate() {
            let mut here = self
                .panels
                .iter()
                .filter_map(|panel| panel.rows.get(row))
                .flatten()
                .filter(|dot| dot.series == series)
                .peekable();
            if here.peek().is_none() {
                continue;
            }
            let tall = numbers || here.any(|dot| self.is_off(dot));
            let lane = if tall { TALL_LANE } else { LANE };
            *middle = height + lane / 2.0;
            height += lane;
        }
        Lanes { middles, height: height + REST }
    }

    fn names(&self, canvas: &mut Canvas, lanes: &[Lanes], top: f64) {
        let mut y = top;
        for (name, lanes) in self.rows.iter().zip(lanes) {
            let name = shortened(name, SMALLEST_TEXT, WIDTH - 2.0 * EDGE);
            canvas.text((EDGE, y + 15.0), &name, SMALLEST_TEXT, INK, Anchor::Start);
            y += lanes.height;
        }
    }

    fn dot(&self, canvas: &mut Canvas, frame: &Frame, dot: &Dot, y: f64, numbers: bool) {
        let Some(Name { style, .. }) = self.series.get(dot.series) else { return };
        let inside = |value: f64| frame.x_pixel(value).clamp(frame.left, frame.right);
        let (low, high) = dot.interval.unwrap_or((dot.value, dot.value));
        let (start, at, end) = (inside(low), inside(dot.value), inside(high));
        let text = times(dot.value);
        let off = self.is_off(dot);
        if !off {
            canvas.line(vec![(start, y), (end, y)], style.colour, 2.0, (0.0, 0.0));
            canvas.mark((at, y), DOT, *style);
            if !numbers {
                return;
            }
            // Beside the interval, on the side that has room.
            let wide = room(&text, SMALLEST_TEXT) + 10.0;
            let (x, anchor) = if end + wide < frame.right {
                (end.max(at + DOT) + 6.0, Anchor::Start)
            } else {
                (start.min(at - DOT) - 6.0, Anchor::End)
            };
            canvas.text((x, y), &text, SMALLEST_TEXT, INK, anchor);
            return;
        }
        let right = dot.value > self.centre;
        let (tip, back, anchor) =
            if right { (frame.right, -1.0, Anchor::End) } else { (frame.left, 1.0, Anchor::Start) };
        let base = tip + back * 9.0;
        canvas.area(vec![(tip, y), (base, y - 5.5), (base, y + 5.5)], style.colour, 1.0);
        canvas.mark((base + back * 9.0, y), DOT, *style);
        let at = (base + back * 20.0, y);
        canvas.text(at, &text, SMALLEST_TEXT, INK, anchor);
    }

    fn axes(&self, canvas: &mut Canvas, frame: &Frame, title: &str, lanes: &[Lanes]) {
        let (top, bottom) = (frame.top, frame.bottom);
        let pixel = |tick| frame.x_pixel(tick);
        let ticks = self.x.ticks(frame.x, 7).major;
        let labelled = self.x.spaced(&ticks, pixel);
        // Whatever is left out, the centre is not.
        let is_centre = |tick: &f64| (tick - self.centre).abs() < 1e-9;
        let labelled = if labelled.iter().any(is_centre) || !ticks.iter().any(is_centre) {
            labelled
        } else {
            self.x.spaced(&ticks[1..], pixel)
        };
        let centre = frame.x_pixel(self.centre);
        // Lines stop at the names of rows.
        let mut y = top;
        for row in lanes {
            let (from, to) = (y + HEADING, y + row.height);
            for &tick in &ticks {
                let at = frame.x_pixel(tick);
                canvas.line(vec![(at, from), (at, to)], GRID, 1.0, (0.0, 0.0));
            }
            canvas.line(vec![(centre, from), (centre, to)], SOFT_INK, 1.6, (0.0, 0.0));
            y = to;
        }
        for &tick in &labelled {
            let at = frame.x_pixel(tick);
            let label = self.x.label(tick);
            canvas.line(vec![(at, bottom), (at, bottom + 5.0)], SOFT_INK, 1.5, (0.0, 0.0));
            canvas.text((at, bottom + 18.0), &label, SMALLEST_TEXT, INK, Anchor::Middle);
        }
        canvas.line(vec![(frame.left, bottom), (frame.right, bottom)], SOFT_INK, 1.5, (0.0, 0.0));
        let middle = f64::midpoint(frame.left, frame.right);
        canvas.text((middle, top - 44.0), title, TITLE, INK, Anchor::Middle);
        let less = format!("\u{2190} {}", self.sides.0);
        let more = format!("{} \u{2192}", self.sides.1);
        let (size, y) = (SMALLEST_TEXT, top - 15.0);
        let fits = centre - 8.0 - room(&less, size) > frame.left - EDGE
            && centre + 8.0 + room(&more, size) < frame.right + EDGE;
        if fits {
            canvas.text((centre - 8.0, y), &less, size, SOFT_INK, Anchor::End);
            canvas.text((centre + 8.0, y), &more, size, SOFT_INK, Anchor::Start);
        } else {
            canvas.text((frame.left, y), &less, size, SOFT_INK, Anchor::Start);
            canvas.text((frame.right, y), &more, size, SOFT_INK, Anchor::End);
        }
    }

    /// Names with their dots; gives the lower end.
    fn legend(&self, canvas: &mut Canvas, top: f64) -> f64 {
        if self.rows_are_names() {
            return top;
        }
        let entries: Vec<Entry> = self
            .series
            .iter()
            .map(|Name { name, detail, style }| Entry {
                letter: None,
                name,
                detail,
                style: *style,
                line: false,
            })
            .collect();
        legend::draw(canvas, &entries, top)
    }
}

/// Shades every second row.
fn shade_rows(canvas: &mut Canvas, lanes: &[Lanes], top: f64) {
    let (mut y, left, right) = (top, EDGE / 2.0, WIDTH - EDGE / 2.0);
    for (row, lanes) in lanes.iter().enumerate() {
        let below = y + lanes.height;
        if row % 2 == 0 {
            let corners = vec![(left, y), (right, y), (right, below), (left, below)];
            canvas.area(corners, LEADER, 0.13);
        }
        y = below;
    }
}

/// 54×, 1.03×, 0.035×.
fn times(value: f64) -> String {
    match value.abs() {
        0.095..9.995 => format!("{value:.2}×"),
        0.000_95..0.095 => format!("{value:.3}×"),
        ..0.000_95 => format!("{value:.0e}×"),
        _ => format!("{}×", thousands(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples() {
        let shown = [54.05, 1.034, 0.0351, 0.004, 1234.0, 0.0001].map(times);
        assert_eq!(shown, ["54×", "1.03×", "0.035×", "0.004×", "1,234×", "1e-4×"]);
    }
}
