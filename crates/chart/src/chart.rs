//! A chart: axes, lines with bands, and their names to the right, each near the end of its line.

use crate::{
    axis::{Axis, Frame, Ticks},
    canvas::{Anchor, Canvas, Colour, Dash, SIZE, text_width},
};

pub(crate) const INK: Colour = Colour(34, 34, 34);
pub(crate) const SOFT_INK: Colour = Colour(90, 90, 90);
pub(crate) const GRID: Colour = Colour(218, 218, 218);
const FAINT_GRID: Colour = Colour(241, 241, 241);
const LEADER: Colour = Colour(170, 170, 170);
/// Upper and lower margin of the plot.
const MARGIN: (f64, f64) = (104.0, 84.0);
/// Room for the vertical axis' title and the gaps around its labels.
const AXIS_TITLE: f64 = 52.0;
/// From the plot to the names: leader, sample of the line, gap.
const KEY: (f64, f64, f64) = (30.0, 30.0, 9.0);
const WIDEST_NAME: f64 = 310.0;
/// Height of a name, and of the smaller line under it.
const NAME: f64 = 26.0;
const DETAIL: f64 = 18.0;
/// Radius of a dot.
const DOT: f64 = 4.5;
/// Where our font is missing, others stand in for it in an SVG; the widest common one is this much
/// wider.
pub(crate) const FONT_SLACK: f64 = 1.3;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    /// Its colour.
    pub colour: Colour,
    /// Its dashes.
    pub dash: Dash,
}

/// One line of a chart. Every part may be empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// A second, smaller line under the name.
    pub detail: String,
    /// How it looks.
    pub style: Style,
    /// Points joined by the line.
    pub line: Vec<(f64, f64)>,
    /// x, lowest, highest: a shade around the line.
    pub band: Vec<(f64, f64, f64)>,
    /// Points marked with dots.
    pub dots: Vec<(f64, f64)>,
    /// x, lowest, highest: error bars.
    pub bars: Vec<(f64, f64, f64)>,
    /// Draws the line from edge to edge at the height of its first point.
    pub level: bool,
}

impl Series {
    /// A line without band, dots and bars.
    pub fn new(name: &str, style: Style, line: Vec<(f64, f64)>) -> Self {
        let (band, dots, bars) = (Vec::new(), Vec::new(), Vec::new());
        let (name, detail) = (name.into(), String::new());
        Self { name, detail, style, line, band, dots, bars, level: false }
    }
}

/// A chart of several lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Where it holds.
    pub subtitle: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines, the first one lowest.
    pub series: Vec<Series>,
}

impl Chart {
    /// Draws it.
    pub fn canvas(&self) -> Canvas {
        let mut canvas = Canvas::new(&self.title);
        let frame = self.frame();
        canvas.heading(&self.title, &self.subtitle);
        self.axes(&mut canvas, &frame);
        for series in &self.series {
            shade(&mut canvas, &frame, series);
        }
        for series in &self.series {
            stroke(&mut canvas, &frame, series);
        }
        self.names(&mut canvas, &frame);
        canvas
    }

    fn frame(&self) -> Frame {
        let widest = self
            .series
            .iter()
            .map(|s| text_width(&s.name, 18.0).max(text_width(&s.detail, 15.0)) * FONT_SLACK)
            .fold(60.0, f64::max)
            .min(WIDEST_NAME);
        let right = f64::from(SIZE.0) - widest - KEY.0 - KEY.1 - KEY.2 - 14.0;
        let x = self.series.iter().filter(|s| !s.level).flat_map(|s| {
            let ends = s.bars.iter().map(|bar| bar.0);
            s.line.iter().chain(&s.dots).map(|point| point.0).chain(ends)
        });
        // A shade may leave the plot, so that one wide band does not squeeze all lines.
        let y = self.series.iter().flat_map(|s| {
            let ends = s.bars.iter().map(|bar| bar.2);
            s.line.iter().chain(&s.dots).map(|point| point.1).chain(ends)
        });
        let pad = self.series.iter().any(|s| !s.dots.is_empty());
        let y = self.y.range(y, 0.04);
        let labels = self.y.ticks(y, 9).major.into_iter().map(|tick| self.y.label(tick));
        let widest = labels.map(|label| text_width(&label, 17.0)).fold(0.0, f64::max);
        Frame {
            left: AXIS_TITLE + widest * FONT_SLACK,
            right,
            top: MARGIN.0,
            bottom: f64::from(SIZE.1) - MARGIN.1,
            x: self.x.range(x, if pad { 0.06 } else { 0.0 }),
            y,
        }
    }

    fn axes(&self, canvas: &mut Canvas, frame: &Frame) {
        let (left, right, top, bottom) = (frame.left, frame.right, frame.top, frame.bottom);
        let (x_ticks, y_ticks) = (self.x_ticks(frame), self.y.ticks(frame.y, 9));
        for (ticks, colour) in [(&x_ticks.minor, FAINT_GRID), (&x_ticks.major, GRID)] {
            for &tick in ticks {
                let at = frame.x_pixel(tick);
                canvas.line(vec![(at, top), (at, bottom)], colour, 1.0, (0.0, 0.0));
            }
        }
        for (ticks, colour) in [(&y_ticks.minor, FAINT_GRID), (&y_ticks.major, GRID)] {
            for &tick in ticks {
                let at = frame.y_pixel(tick);
                canvas.line(vec![(left, at), (right, at)], colour, 1.0, (0.0, 0.0));
            }
        }
        let frame_line = vec![(left, top), (left, bottom), (right, bottom)];
        canvas.line(frame_line, SOFT_INK, 1.5, (0.0, 0.0));
        for &tick in &x_ticks.major {
            let at = frame.x_pixel(tick);
            canvas.line(vec![(at, bottom), (at, bottom + 6.0)], SOFT_INK, 1.5, (0.0, 0.0));
            let label = self.x.label(tick);
            canvas.text((at, bottom + 20.0), &label, 17.0, INK, Anchor::Middle);
        }
        for &tick in &y_ticks.major {
            let at = frame.y_pixel(tick);
            canvas.line(vec![(left - 6.0, at), (left, at)], SOFT_INK, 1.5, (0.0, 0.0));
            canvas.text((left - 11.0, at), &self.y.label(tick), 17.0, INK, Anchor::End);
        }
        let middle = (f64::midpoint(left, right), f64::midpoint(top, bottom));
        canvas.text((middle.0, bottom + 54.0), &self.x.title, 19.0, INK, Anchor::Middle);
        canvas.sideways((24.0, middle.1), &self.y.title, 19.0, INK);
    }

    /// The marks of the axis, if their labels do not touch each other; else round values.
    fn x_ticks(&self, frame: &Frame) -> Ticks {
        let mut end = f64::NEG_INFINITY;
        let fits = |&mark: &f64| {
            let half = text_width(&self.x.label(mark), 17.0) * FONT_SLACK / 2.0;
            let centre = frame.x_pixel(mark);
            let free = centre - half > end;
            end = centre + half + 8.0;
            free
        };
        if self.x.marks.is_empty() || !self.x.marks.iter().all(fits) {
            return self.x.ticks(frame.x, 9);
        }
        Ticks { major: self.x.marks.clone(), minor: Vec::new() }
    }

    /// The names in the order of the ends of their lines, as near to them as they fit.
    fn names(&self, canvas: &mut Canvas, frame: &Frame) {
        let mut entries: Vec<(f64, f64, &Series)> = self
            .series
            .iter()
            .filter_map(|series| {
                let &(x, y) = series.line.last().or_else(|| series.dots.last())?;
                let x = if series.level { frame.right } else { frame.x_pixel(x) };
                Some((frame.y_pixel(y).clamp(frame.top, frame.bottom), x, series))
            })
            .collect();
        entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted = |series: &Series| if series.detail.is_empty() { NAME } else { NAME + DETAIL };
        let (top, bottom) = (frame.top - 8.0, frame.bottom + 24.0);
        let needed: f64 = entries.iter().map(|entry| wanted(entry.2)).sum();
        let squeeze = f64::min(1.0, (bottom - top) / needed.max(1.0));
        let wishes: Vec<(f64, f64)> =
            entries.iter().map(|entry| (entry.0, wanted(entry.2) * squeeze)).collect();
        let heights = spread(&wishes, (top + squeeze * NAME / 2.0, bottom + squeeze * NAME / 2.0));
        let size = 18.0 * squeeze;
        let (leader, sample) = (frame.right + KEY.0 - 4.0, frame.right + KEY.0);
        for ((end, x, series), height) in entries.into_iter().zip(heights) {
            let (colour, dash) = (series.style.colour, series.style.dash);
            let start = frame.right + 3.0;
            if x < frame.right - 2.0 {
                canvas.line(vec![(x + 6.0, end), (start, end)], LEADER, 0.75, (2.0, 3.0));
            }
            canvas.line(vec![(start, end), (leader, height)], LEADER, 1.0, (0.0, 0.0));
            let line = vec![(sample, height), (sample + KEY.1, height)];
            canvas.line(line, colour, 3.0, dash);
            let at = sample + KEY.1 + KEY.2;
            let room = f64::from(SIZE.0) - at - 6.0;
            let wide = text_width(&series.name, size) * FONT_SLACK;
            let size = if wide > room { (size * room / wide).max(11.0) } else { size };
            let name = shortened(&series.name, size, room);
            canvas.text((at, height), &name, size, INK, Anchor::Start);
            if !series.detail.is_empty() {
                let small = 15.0 * squeeze;
                let under = (at, height + squeeze * DETAIL);
                canvas.text(under, &series.detail, small, SOFT_INK, Anchor::Start);
            }
        }
    }
}

impl Canvas {
    /// Title and subtitle, smaller if they are long.
    pub(crate) fn heading(&mut self, title: &str, subtitle: &str) {
        let room = f64::from(SIZE.0) - 60.0;
        let fitted = |text: &str, size: f64| {
            size.min(size * room / (text_width(text, size) * FONT_SLACK).max(1.0)).max(11.0)
        };
        self.text((30.0, 36.0), title, fitted(title, 29.0), INK, Anchor::Start);
        self.text((30.0, 70.0), subtitle, fitted(subtitle, 18.0), SOFT_INK, Anchor::Start);
    }
}

/// The text, or as much of it as fits and an ellipsis.
fn shortened(text: &str, size: f64, room: f64) -> String {
    let fits = |text: &str| text_width(text, size) <= room;
    if fits(text) {
        return text.into();
    }
    let mut short: String = text.into();
    while short.pop().is_some() && !fits(&format!("{short}…")) {}
    format!("{short}…")
}

fn shade(canvas: &mut Canvas, frame: &Frame, series: &Series) {
    let inside = |y: f64| y.clamp(frame.top, frame.bottom);
    let band = series.band.iter();
    let lower = band.clone().map(|&(x, low, _)| (frame.x_pixel(x), inside(frame.y_pixel(low))));
    let upper = band.rev().map(|&(x, _, high)| (frame.x_pixel(x), inside(frame.y_pixel(high))));
    canvas.area(lower.chain(upper).collect(), series.style.colour, 0.16);
}

fn stroke(canvas: &mut Canvas, frame: &Frame, series: &Series) {
    let Style { colour, dash } = series.style;
    let pixel = |&(x, y): &(f64, f64)| (frame.x_pixel(x), frame.y_pixel(y));
    let line: Vec<_> = match (series.level, series.line.first()) {
        (true, Some(first)) => {
            let y = frame.y_pixel(first.1);
            vec![(frame.left, y), (frame.right, y)]
        }
        _ => series.line.iter().map(pixel).collect(),
    };
    canvas.line(line, colour, 2.6, dash);
    for &(x, low, high) in &series.bars {
        let (x, low, high) = (frame.x_pixel(x), frame.y_pixel(low), frame.y_pixel(high));
        let low = low.clamp(frame.top, frame.bottom);
        // Ends that the dot would hide only make it ragged.
        if low - high < 2.0 * DOT + 3.0 {
            continue;
        }
        canvas.line(vec![(x, low), (x, high)], colour, 1.5, (0.0, 0.0));
        for end in [low, high] {
            canvas.line(vec![(x - 5.0, end), (x + 5.0, end)], colour, 1.5, (0.0, 0.0));
        }
    }
    for dot in &series.dots {
        canvas.dot(pixel(dot), DOT, colour);
    }
}

/// Positions in the given order near the wanted ones, each followed by the room it needs; the first
/// is not above `top`, the end of the last not below `bottom`.
///
/// Neighbours that collide form a block, placed where its members' wishes are met on average.
fn spread(wishes: &[(f64, f64)], (top, bottom): (f64, f64)) -> Vec<f64> {
    // First position of each block, and its members.
    let mut blocks: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
    let room = |members: &[(f64, f64)]| members.iter().map(|member| member.1).sum::<f64>();
    let place = |members: &[(f64, f64)]| {
        let (mut offset, mut sum) = (0.0, 0.0);
        for (wish, room) in members {
            sum += wish - offset;
            offset += room;
        }
        (sum / members.len() as f64).min(bottom - offset).max(top)
    };
    for &wish in wishes {
        blocks.push((place(&[wish]), vec![wish]));
        while let [.., before, last] = blocks.as_mut_slice() {
            if before.0 + room(&before.1) <= last.0 {
                break;
            }
            before.1.append(&mut last.1);
            before.0 = place(&before.1);
            blocks.pop();
        }
    }
    let mut places = Vec::with_capacity(wishes.len());
    for (first, members) in blocks {
        let mut at = first;
        for (_, room) in members {
            places.push(at);
            at += room;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_and_order() {
        let wishes = [100.0, 101.0, 102.0, 300.0].map(|wish| (wish, 20.0));
        assert_eq!(spread(&wishes, (0.0, 400.0)), [81.0, 101.0, 121.0, 300.0]);
        let uneven = spread(&[(100.0, 40.0), (100.0, 20.0), (390.0, 20.0)], (0.0, 400.0));
        assert_eq!(uneven, [80.0, 120.0, 380.0]);
        let crowded = spread(&[(5.0, 20.0); 10], (0.0, 200.0));
        assert!(crowded[0].abs() < 1e-9 && (crowded[9] - 180.0).abs() < 1e-9);
    }
}
