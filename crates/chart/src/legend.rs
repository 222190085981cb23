//! Legends: names with a sample of their line or marker, in columns.

use crate::{
    canvas::{Anchor, Canvas, EDGE, SMALLEST_TEXT, Style, WIDTH},
    colour::{INK, SOFT_INK},
    text::{balanced, room, wrapped},
};

/// Size of a name, and its height and that of the lines under it.
const NAME: f64 = 17.0;
const LINE: f64 = 21.0;
/// Gap between entries, and between columns.
const GAP: (f64, f64) = (7.0, 16.0);
/// Widths of the letter and of the sample of a line or marker.
const LETTER: f64 = 22.0;
const LINE_SAMPLE: f64 = 42.0;
const MARKER_SAMPLE: f64 = 22.0;

/// A name and what belongs to it.
pub(crate) struct Entry<'a> {
    /// What stands at the end of its line.
    pub letter: Option<char>,
    pub name: &'a str,
    pub detail: &'a str,
    pub style: Style,
    /// Whether the sample is a line with its marker, or a marker alone.
    pub line: bool,
}

impl Entry<'_> {
    fn indent(&self) -> f64 {
        let letter = if self.letter.is_some() { LETTER } else { 0.0 };
        letter + if self.line { LINE_SAMPLE } else { MARKER_SAMPLE }
    }

    /// Lines of the name and of the detail in a column of some width.
    fn lines(&self, width: f64) -> (Vec<String>, Vec<String>) {
        let width = width - self.indent();
        let detail = self.detail.lines().flat_map(|line| wrapped(line, SMALLEST_TEXT, width));
        (balanced(self.name, NAME, width), detail.collect())
    }

    fn height(&self, width: f64) -> f64 {
        let (name, detail) = self.lines(width);
        LINE * (name.len() + detail.len()) as f64 + GAP.0
    }

    fn draw(&self, canvas: &mut Canvas, (x, y): (f64, f64), width: f64) {
        let middle = y + LINE / 2.0;
        if let Some(letter) = self.letter {
            canvas.text((x, middle), &letter.to_string(), NAME, INK, Anchor::Start);
        }
        let start = if self.letter.is_some() { x + LETTER } else { x };
        if self.line {
            let sample = vec![(start, middle), (start + LINE_SAMPLE - 9.0, middle)];
            canvas.line(sample, self.style.colour, 3.0, self.style.dash);
            canvas.mark((start + (LINE_SAMPLE - 9.0) / 2.0, middle), 5.5, self.style);
        } else {
            canvas.mark((start + 8.0, middle), 5.5, self.style);
        }
        let (name, detail) = self.lines(width);
        let text = x + self.indent();
        let mut at = middle;
        for (lines, size, colour) in [(name, NAME, INK), (detail, SMALLEST_TEXT, SOFT_INK)] {
            for line in lines {
                canvas.text((text, at), &line, size, colour, Anchor::Start);
                at += LINE;
            }
        }
    }
}

/// Draws the entries below `top`, down one column after the other; gives the lower end.
pub(crate) fn draw(canvas: &mut Canvas, entries: &[Entry], top: f64) -> f64 {
    let all = WIDTH - 2.0 * EDGE;
    let widest = entries.iter().map(|entry| entry.indent() + room(entry.name, NAME));
    let widest = widest.fold(0.0, f64::max);
    // Names that would break in a third of the width get half of it, if there is no detail that
    // wants it anyway.
    let narrow = entries.iter().all(|entry| entry.detail.is_empty());
    let columns = match entries.len() {
        0..2 => 1,
        _ if narrow && widest <= (all - 2.0 * GAP.1) / 3.0 => 3,
        _ => 2,
    };
    let width = (all - GAP.1 * f64::from(columns - 1)) / f64::from(columns);
    let heights: Vec<f64> = entries.iter().map(|entry| entry.height(width)).collect();
    let split = split(&heights, columns as usize);
    let mut lowest = top;
    let mut next = 0;
    for (column, count) in split.into_iter().enumerate() {
        let (x, mut y) = (EDGE + column as f64 * (width + GAP.1), top);
        for (entry, height) in entries.iter().zip(&heights).skip(next).take(count) {
            entry.draw(canvas, (x, y), width);
            y += height;
        }
        next += count;
        lowest = f64::max(lowest, y);
    }
    lowest
}

/// How many entries each column gets, so that the longest one is short.
fn split(heights: &[f64], columns: usize) -> Vec<usize> {
    let counts = |limit: f64| {
        let mut counts = vec![0];
        let mut used = 0.0;
        for &height in heights {
            if used + height > limit && used > 0.0 {
                counts.push(0);
                used = 0.0;
            }
            used += height;
            *counts.last_mut().expect("invariant: there is a first column") += 1;
        }
        counts
    };
    let total: f64 = heights.iter().sum();
    // Limits that matter are sums of neighbours.
    let mut limits: Vec<f64> = (0..heights.len())
        .flat_map(|from| {
            let ends = from..heights.len();
            ends.map(move |to| heights[from..=to].iter().sum::<f64>() + 1e-6)
        })
        .collect();
    limits.sort_by(f64::total_cmp);
    let limit = limits.into_iter().find(|&limit| counts(limit).len() <= columns);
    counts(limit.unwrap_or(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_even() {
        assert_eq!(split(&[20.0; 5], 2), [3, 2]);
        assert_eq!(split(&[60.0, 20.0, 20.0, 20.0], 2), [1, 3]);
        assert_eq!(split(&[20.0; 7], 3), [3, 3, 1]);
        assert_eq!(split(&[20.0], 1), [1]);
    }
}
