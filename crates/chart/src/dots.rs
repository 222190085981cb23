//! Dots in rows: one row per situation, one dot with its interval per name, in panels side by side.

use crate::{
    axis::{Axis, Frame},
    canvas::{Anchor, Canvas, Colour, SIZE, text_width},
    chart::{FONT_SLACK, GRID, INK, SOFT_INK, Style},
};

/// Left and right edge, and the gap between panels.
const EDGE: f64 = 30.0;
const BETWEEN: f64 = 22.0;
/// First line of the legend, and the height of a line.
const LEGEND: (f64, f64) = (100.0, 24.0);
/// From the legend to the plot, and from the plot to the lower edge.
const MARGIN: (f64, f64) = (34.0, 78.0);
/// Radius of a dot.
const DOT: f64 = 4.0;
/// Every second row is shaded.
const SHADE: Colour = Colour(120, 130, 150);

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

/// Dots in rows.
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
    /// The rows, from top to bottom.
    pub rows: Vec<String>,
    /// Who the dots belong to; the order within a row.
    pub series: Vec<(String, Style)>,
    /// From left to right.
    pub panels: Vec<Panel>,
}

impl DotPlot {
    /// Draws it.
    pub fn canvas(&self) -> Canvas {
        let mut canvas = Canvas::new(&self.title);
        canvas.heading(&self.title, &self.subtitle);
        let top = self.legend(&mut canvas) + MARGIN.0;
        let bottom = f64::from(SIZE.1) - MARGIN.1;
        let height = (bottom - top) / self.rows.len().max(1) as f64;
        let size = (0.62 * height).clamp(9.0, 17.0);
        let widest = self.rows.iter().map(|row| text_width(row, size)).fold(0.0, f64::max);
        let left = EDGE + widest * FONT_SLACK + 8.0;
        let middle = |row: usize| top + (row as f64 + 0.5) * height;
        for (row, name) in self.rows.iter().enumerate() {
            if row % 2 == 0 {
                let (y, end) = (top + row as f64 * height, f64::from(SIZE.0) - EDGE);
                let below = y + height;
                let corners = vec![(EDGE, y), (end, y), (end, below), (EDGE, below)];
                canvas.area(corners, SHADE, 0.08);
            }
            canvas.text((EDGE + 4.0, middle(row)), name, size, INK, Anchor::Start);
        }
        let count = self.panels.len().max(1) as f64;
        let width = (f64::from(SIZE.0) - EDGE - left - BETWEEN * (count - 1.0)) / count;
        let dots = self.panels.iter().flat_map(|panel| panel.rows.iter().flatten());
        let values = dots.flat_map(|dot| {
            let (low, high) = dot.interval.unwrap_or((dot.value, dot.value));
            [dot.value, low, high]
        });
        let x = self.x.range(values.chain([self.centre]), 0.03);
        for (index, panel) in self.panels.iter().enumerate() {
            let left = left + index as f64 * (width + BETWEEN);
            let frame = Frame { left, right: left + width, top, bottom, x, y: x };
            self.axes(&mut canvas, &frame, &panel.title);
            let lane = height / (self.series.len() as f64 + 1.0);
            for (row, dots) in panel.rows.iter().enumerate() {
                for dot in dots {
                    let from_middle = dot.series as f64 - (self.series.len() as f64 - 1.0) / 2.0;
                    self.dot(&mut canvas, &frame, dot, middle(row) + lane * from_middle);
                }
            }
        }
        canvas
    }

    fn dot(&self, canvas: &mut Canvas, frame: &Frame, dot: &Dot, y: f64) {
        let Some((_, style)) = self.series.get(dot.series) else { return };
        let inside = |value: f64| frame.x_pixel(value).clamp(frame.left, frame.right);
        if let Some((low, high)) = dot.interval {
            let line = vec![(inside(low), y), (inside(high), y)];
            canvas.line(line, style.colour, 1.6, (0.0, 0.0));
        }
        let at = (inside(dot.value), y);
        canvas.dot(at, DOT, style.colour);
        // More names than colours: those of the second round have a hole.
        if style.dash.0 > 0.0 {
            canvas.dot(at, DOT - 1.8, Colour(255, 255, 255));
        }
    }

    fn axes(&self, canvas: &mut Canvas, frame: &Frame, title: &str) {
        let (top, bottom) = (frame.top, frame.bottom);
        let ticks = self.x.ticks(frame.x, 7);
        for &tick in &ticks.major {
            let at = frame.x_pixel(tick);
            canvas.line(vec![(at, top), (at, bottom)], GRID, 1.0, (0.0, 0.0));
            let label = self.x.label(tick);
            canvas.text((at, bottom + 18.0), &label, 16.0, INK, Anchor::Middle);
        }
        let centre = frame.x_pixel(self.centre);
        canvas.line(vec![(centre, top), (centre, bottom)], SOFT_INK, 1.5, (0.0, 0.0));
        canvas.line(vec![(frame.left, bottom), (frame.right, bottom)], SOFT_INK, 1.5, (0.0, 0.0));
        let middle = f64::midpoint(frame.left, frame.right);
        canvas.text((middle, top - 14.0), title, 18.0, INK, Anchor::Middle);
        canvas.text((middle, bottom + 48.0), &self.x.title, 17.0, INK, Anchor::Middle);
    }

    /// Names with their dots, in as many lines as they need; gives the lower end.
    fn legend(&self, canvas: &mut Canvas) -> f64 {
        let (mut x, mut y) = (EDGE, LEGEND.0);
        for (name, style) in &self.series {
            let wide = 20.0 + text_width(name, 17.0) * FONT_SLACK;
            if x > EDGE && x + wide > f64::from(SIZE.0) - EDGE {
                (x, y) = (EDGE, y + LEGEND.1);
            }
            canvas.dot((x + 6.0, y), DOT + 1.0, style.colour);
            if style.dash.0 > 0.0 {
                canvas.dot((x + 6.0, y), DOT - 0.8, Colour(255, 255, 255));
            }
            canvas.text((x + 18.0, y), name, 17.0, INK, Anchor::Start);
            x += wide + 14.0;
        }
        y + LEGEND.1 / 2.0
    }
}
