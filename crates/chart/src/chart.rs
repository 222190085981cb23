//! A chart: axes, lines with bands, in one panel or several, and a legend under them.

use crate::{
    axis::{Axis, Frame, Ticks},
    canvas::{Anchor, Canvas, EDGE, SMALLEST_TEXT, Style, WIDTH},
    colour::{FAINT_GRID, GRID, INK, LEADER, SOFT_INK},
    legend::{self, Entry},
    text::{room, wrapped},
};

/// Height of a single panel, and of one of several.
const HEIGHT: (f64, f64) = (390.0, 250.0);
/// Gap between panels, across and down; the latter has room for a title.
const BETWEEN: (f64, f64) = (36.0, 40.0);
/// Size of axis titles and of the titles of panels.
const AXIS_TITLE: f64 = 17.0;
/// Height of a line of an axis title.
const LINE: f64 = 21.0;
/// Room to the right of a panel for letters, and from one letter to the next.
const LETTERS: (f64, f64) = (36.0, 18.0);
/// Thickness of a line, and radius of a marker.
const STROKE: f64 = 2.6;
const DOT: f64 = 5.0;
/// Lines of more points have markers only here and there.
const FEW_POINTS: usize = 12;

/// One line of a chart. Every part may be empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// What the legend says under the name.
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

/// Lines under one condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The condition; empty if there is only one.
    pub title: String,
    /// The lines, the first one lowest.
    pub series: Vec<Series>,
}

/// A chart of several lines.
///
/// The lines of a single panel have letters at their ends, which the legend repeats, so that no
/// colour is needed to find them.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Where it holds.
    pub subtitle: String,
    /// Across, the same in every panel.
    pub x: Axis,
    /// Up, the same in every panel.
    pub y: Axis,
    /// Two in a row.
    pub plots: Vec<Plot>,
}

impl Chart {
    /// Draws it.
    pub fn canvas(&self) -> Canvas {
        let (mut canvas, top) = Canvas::new(&self.title, &self.subtitle);
        let mut y = top + 8.0;
        for line in wrapped(&self.y.title, AXIS_TITLE, WIDTH - 2.0 * EDGE) {
            canvas.text((EDGE, y + LINE / 2.0), &line, AXIS_TITLE, INK, Anchor::Start);
            y += LINE;
        }
        let single = self.plots.len() < 2;
        y += if single { 12.0 } else { BETWEEN.1 - 6.0 };
        let frames = self.frames(y);
        for (index, (plot, frame)) in self.plots.iter().zip(&frames).enumerate() {
            let below = frames.get(index + 2).is_none();
            self.axes(&mut canvas, frame, (index % 2 == 0, below));
            let at = (frame.left, frame.top - 15.0);
            canvas.text(at, &plot.title, AXIS_TITLE, INK, Anchor::Start);
            plot.series.iter().for_each(|series| shade(&mut canvas, frame, series));
            for (order, series) in plot.series.iter().enumerate() {
                stroke(&mut canvas, frame, series, order as f64 / plot.series.len() as f64);
            }
        }
        let bottom = frames.iter().map(|frame| frame.bottom).fold(y, f64::max) + 34.0;
        let mut y = bottom;
        for line in wrapped(&self.x.title, AXIS_TITLE, WIDTH - 2.0 * EDGE) {
            let middle = frames.iter().map(|frame| frame.left).fold(WIDTH, f64::min) / 2.0;
            let at = (middle + (WIDTH - EDGE) / 2.0, y + LINE / 2.0);
            canvas.text(at, &line, AXIS_TITLE, INK, Anchor::Middle);
            y += LINE;
        }
        let end = match frames.first() {
            Some(frame) => self.names(&mut canvas, frame, y + 16.0),
            None => y,
        };
        canvas.end(end + 6.0)
    }

    fn series(&self) -> impl Iterator<Item = &Series> {
        self.plots.iter().flat_map(|plot| &plot.series)
    }

    fn frames(&self, top: f64) -> Vec<Frame> {
        let x = self.series().filter(|s| !s.level).flat_map(|s| {
            let ends = s.bars.iter().map(|bar| bar.0);
            s.line.iter().chain(&s.dots).map(|point| point.0).chain(ends)
        });
        // A shade may leave the plot, so that one wide band does not squeeze all lines.
        let y = self.series().flat_map(|s| {
            let ends = s.bars.iter().map(|bar| bar.2);
            s.line.iter().chain(&s.dots).map(|point| point.1).chain(ends)
        });
        let pad = self.series().any(|s| !s.dots.is_empty());
        let (x, y) = (self.x.range(x, if pad { 0.05 } else { 0.0 }), self.y.range(y, 0.04));
        let labels = self.y.ticks(y, 9).major.into_iter().map(|tick| self.y.label(tick));
        let left = EDGE + 10.0 + labels.map(|l| room(&l, SMALLEST_TEXT)).fold(0.0, f64::max);
        if self.plots.len() < 2 {
            let bottom = top + HEIGHT.0;
            return vec![Frame { left, right: WIDTH - LETTERS.0, top, bottom, x, y }];
        }
        let right = WIDTH - EDGE - 8.0;
        let width = (right - left - BETWEEN.0) / 2.0;
        (0..self.plots.len())
            .map(|index| {
                let left = left + (index % 2) as f64 * (width + BETWEEN.0);
                let top = top + (index / 2) as f64 * (HEIGHT.1 + BETWEEN.1);
                Frame { left, right: left + width, top, bottom: top + HEIGHT.1, x, y }
            })
            .collect()
    }

    /// The grid, and labels where there is nothing between the panel and the edge.
    fn axes(&self, canvas: &mut Canvas, frame: &Frame, (leftmost, lowest): (bool, bool)) {
        let (left, right, top, bottom) = (frame.left, frame.right, frame.top, frame.bottom);
        let (x_ticks, y_ticks) = (self.x_ticks(frame), self.y.ticks(frame.y, 7));
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
        for &tick in x_ticks.major.iter().filter(|_| lowest) {
            let at = frame.x_pixel(tick);
            canvas.line(vec![(at, bottom), (at, bottom + 6.0)], SOFT_INK, 1.5, (0.0, 0.0));
            let label = self.x.label(tick);
            let half = room(&label, SMALLEST_TEXT) / 2.0;
            let inside = at.clamp(half, WIDTH - half);
            canvas.text((inside, bottom + 19.0), &label, SMALLEST_TEXT, INK, Anchor::Middle);
        }
        for &tick in y_ticks.major.iter().filter(|_| leftmost) {
            let at = frame.y_pixel(tick);
            canvas.line(vec![(left - 5.0, at), (left, at)], SOFT_INK, 1.5, (0.0, 0.0));
            canvas.text((left - 9.0, at), &self.y.label(tick), SMALLEST_TEXT, INK, Anchor::End);
        }
    }

    /// The marks of the axis, if their labels do not touch each other; else round values.
    fn x_ticks(&self, frame: &Frame) -> Ticks {
        let pixel = |tick| frame.x_pixel(tick);
        let marks = &self.x.marks;
        if !marks.is_empty() && self.x.spaced(marks, pixel).len() == marks.len() {
            return Ticks { major: marks.clone(), minor: Vec::new() };
        }
        let Ticks { major, mut minor } = self.x.ticks(frame.x, 9);
        let labelled = self.x.spaced(&major, pixel);
        minor.extend(major);
        Ticks { major: labelled, minor }
    }

    /// Letters at the ends of the lines of a single panel, and the legend, in the order of the
    /// lines' ends; gives the lower end.
    fn names(&self, canvas: &mut Canvas, frame: &Frame, top: f64) -> f64 {
        let mut seen: Vec<&str> = Vec::new();
        let mut entries: Vec<(f64, f64, &Series)> = self
            .series()
            .filter_map(|series| {
                if seen.contains(&series.name.as_str()) {
                    return None;
                }
                let &(x, y) = series.line.last().or_else(|| series.dots.last())?;
                seen.push(&series.name);
                let x = if series.level { frame.right } else { frame.x_pixel(x) };
                Some((frame.y_pixel(y).clamp(frame.top, frame.bottom), x, series))
            })
            .collect();
        let single = self.plots.len() < 2;
        if single {
            entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let letter = |index: usize| {
            let letter = u8::try_from(index).ok().filter(|&index| single && index < 26);
            letter.map(|index| char::from(b'A' + index))
        };
        let step = LETTERS.1.min((frame.bottom - frame.top) / entries.len().max(1) as f64);
        let wishes: Vec<(f64, f64)> = entries.iter().map(|entry| (entry.0, step)).collect();
        let heights = spread(&wishes, (frame.top, frame.bottom + step / 2.0));
        for (index, ((end, x, _), height)) in entries.iter().zip(heights).enumerate() {
            let Some(letter) = letter(index) else { break };
            let start = frame.right + 2.0;
            if *x < frame.right - 12.0 {
                canvas.line(vec![(x + 8.0, *end), (start, *end)], LEADER, 1.0, (2.0, 3.0));
            }
            canvas.line(vec![(start, *end), (start + 13.0, height)], LEADER, 1.0, (0.0, 0.0));
            let at = (start + 16.0, height);
            canvas.text(at, &letter.to_string(), SMALLEST_TEXT, INK, Anchor::Start);
        }
        let entries: Vec<Entry> = entries
            .iter()
            .enumerate()
            .map(|(index, (_, _, series))| Entry {
                letter: letter(index),
                name: &series.name,
                detail: &series.detail,
                style: series.style,
                line: true,
            })
            .collect();
        legend::draw(canvas, &entries, top)
    }
}

fn shade(canvas: &mut Canvas, frame: &Frame, series: &Series) {
    let inside = |y: f64| y.clamp(frame.top, frame.bottom);
    let band = series.band.iter();
    let lower = band.clone().map(|&(x, low, _)| (frame.x_pixel(x), inside(frame.y_pixel(low))));
    let upper = band.rev().map(|&(x, _, high)| (frame.x_pixel(x), inside(frame.y_pixel(high))));
    canvas.area(lower.chain(upper).collect(), series.style.colour, 0.14);
}

/// The line with its bars and markers; `phase` from 0 to 1 keeps the markers of long lines apart.
fn stroke(canvas: &mut Canvas, frame: &Frame, series: &Series, phase: f64) {
    let style = series.style;
    let pixel = |&(x, y): &(f64, f64)| (frame.x_pixel(x), frame.y_pixel(y));
    let line: Vec<_> = match (series.level, series.line.first()) {
        (true, Some(first)) => {
            let y = frame.y_pixel(first.1);
            vec![(frame.left, y), (frame.right, y)]
        }
        _ => series.line.iter().map(pixel).collect(),
    };
    let marks: Vec<(f64, f64)> = match series.dots.as_slice() {
        [] if line.len() > FEW_POINTS || series.level => sparse(&line, frame, phase),
        [] => line.clone(),
        dots => dots.iter().map(pixel).collect(),
    };
    canvas.line(line, style.colour, STROKE, style.dash);
    for &(x, low, high) in &series.bars {
        let (x, low, high) = (frame.x_pixel(x), frame.y_pixel(low), frame.y_pixel(high));
        let low = low.clamp(frame.top, frame.bottom);
        // Ends that the dot would hide only make it ragged.
        if low - high < 2.0 * DOT + 3.0 {
            continue;
        }
        canvas.line(vec![(x, low), (x, high)], style.colour, 1.5, (0.0, 0.0));
        for end in [low, high] {
            canvas.line(vec![(x - 5.0, end), (x + 5.0, end)], style.colour, 1.5, (0.0, 0.0));
        }
    }
    marks.into_iter().for_each(|mark| canvas.mark(mark, DOT, style));
}

/// Four points of a line, at equal distances across the panel.
fn sparse(line: &[(f64, f64)], frame: &Frame, phase: f64) -> Vec<(f64, f64)> {
    let width = frame.right - frame.left;
    let at = |i: u32| frame.left + width * (f64::from(i) + 0.15 + 0.7 * phase) / 4.0;
    let crossing = |x: f64| {
        let pair = line.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&x))?;
        let share = (x - pair[0].0) / (pair[1].0 - pair[0].0).max(1e-9);
        Some((x, pair[0].1 + share * (pair[1].1 - pair[0].1)))
    };
    (0..4).filter_map(|i| crossing(at(i))).collect()
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
    fn letters_keep_their_distance_and_order() {
        let wishes = [100.0, 101.0, 102.0, 300.0].map(|wish| (wish, 20.0));
        assert_eq!(spread(&wishes, (0.0, 400.0)), [81.0, 101.0, 121.0, 300.0]);
        let uneven = spread(&[(100.0, 40.0), (100.0, 20.0), (390.0, 20.0)], (0.0, 400.0));
        assert_eq!(uneven, [80.0, 120.0, 380.0]);
        let crowded = spread(&[(5.0, 20.0); 10], (0.0, 200.0));
        assert!(crowded[0].abs() < 1e-9 && (crowded[9] - 180.0).abs() < 1e-9);
    }
}
