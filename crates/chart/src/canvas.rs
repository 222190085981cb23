//! What every figure of incrowd is drawn on: shapes that become an SVG.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    colour::{Colour, INK, PAPER, SOFT_INK, dark_rules},
    marker::{Fill, Marker},
    text::{balanced, escape},
};

/// Width of every figure in pixels.
pub const WIDTH: f64 = 640.0;
/// Size of the smallest text: 10 pixels where a figure is shown 400 pixels wide.
pub const SMALLEST_TEXT: f64 = 16.0;
/// Left and right edge that stays free.
pub(crate) const EDGE: f64 = 14.0;
/// Sizes of titles and of the lines under them.
const TITLE: f64 = 25.0;
const SUBTITLE: f64 = 16.5;
/// Thickness of markers of lines, and of hollow ones' outlines, relative to their radius.
const OUTLINE: f64 = 0.45;

/// Length of dash and gap; (0, 0) is a solid line.
pub type Dash = (f64, f64);

/// How a line and its points look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    /// Its colour.
    pub colour: Colour,
    /// Its dashes.
    pub dash: Dash,
    /// The outline of its points.
    pub marker: Marker,
    /// How its points are filled.
    pub fill: Fill,
}

/// Which point of a text is at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}

/// One thing to draw; coordinates in pixels from the top left corner.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Line { points: Vec<(f64, f64)>, width: f64, dash: Dash },
    Area { points: Vec<(f64, f64)>, opacity: f64 },
    Disc { centre: (f64, f64), radius: f64 },
    Text { at: (f64, f64), text: String, size: f64, anchor: Anchor },
}

/// A figure as a list of shapes, later ones on top.
#[derive(Debug, Clone, PartialEq)]
pub struct Canvas {
    title: String,
    subtitle: String,
    height: f64,
    shapes: Vec<(Colour, Shape)>,
}

impl Canvas {
    /// A figure with its title and subtitle, and how far down they go.
    pub(crate) fn new(title: &str, subtitle: &str) -> (Self, f64) {
        let mut canvas = Self {
            title: title.into(),
            subtitle: subtitle.into(),
            height: 0.0,
            shapes: Vec::new(),
        };
        let mut y = 12.0;
        for (text, size, colour) in [(title, TITLE, INK), (subtitle, SUBTITLE, SOFT_INK)] {
            for line in balanced(text, size, WIDTH - 2.0 * EDGE) {
                y += 1.25 * size;
                canvas.text((EDGE, y - 0.6 * size), &line, size, colour, Anchor::Start);
            }
            y += 5.0;
        }
        (canvas, y)
    }

    /// Ends the figure at a height.
    pub(crate) fn end(mut self, height: f64) -> Self {
        self.height = height.ceil();
        self
    }

    /// A line through points.
    pub(crate) fn line(&mut self, points: Vec<(f64, f64)>, colour: Colour, width: f64, dash: Dash) {
        if points.len() > 1 {
            self.shapes.push((colour, Shape::Line { points, width, dash }));
        }
    }

    /// A filled polygon.
    pub(crate) fn area(&mut self, points: Vec<(f64, f64)>, colour: Colour, opacity: f64) {
        if points.len() > 2 {
            self.shapes.push((colour, Shape::Area { points, opacity }));
        }
    }

    /// A marker of a style.
    pub(crate) fn mark(&mut self, (x, y): (f64, f64), radius: f64, style: Style) {
        let place = |scale: f64| move |(dx, dy): (f64, f64)| (x + scale * dx, y + scale * dy);
        let lines = style.marker.lines();
        if !lines.is_empty() {
            for ends in lines {
                let ends = ends.map(place(radius)).to_vec();
                self.line(ends, style.colour, 2.0 * OUTLINE * radius, (0.0, 0.0));
            }
            // What has no inside is ringed instead of hollow.
            let rings = match style.fill {
                Fill::Full => 0,
                Fill::Hollow => 1,
                Fill::Target => 2,
            };
            for ring in 0..rings {
                let round = 1.7 + 0.7 * f64::from(ring);
                let points = (0..=24).map(|i| {
                    let (sin, cos) = (f64::from(i) * std::f64::consts::TAU / 24.0).sin_cos();
                    (x + round * radius * cos, y + round * radius * sin)
                });
                self.line(points.collect(), style.colour, 1.2, (0.0, 0.0));
            }
            return;
        }
        let mut layer = |scale: f64, colour: Colour| {
            let corners = style.marker.corners();
            if corners.is_empty() {
                let disc = Shape::Disc { centre: (x, y), radius: scale * radius };
                self.shapes.push((colour, disc));
            } else {
                let points = corners.into_iter().map(place(scale * radius)).collect();
                self.area(points, colour, 1.0);
            }
        };
        layer(1.0, style.colour);
        if style.fill != Fill::Full {
            layer(1.0 - OUTLINE, PAPER);
        }
        if style.fill == Fill::Target {
            layer(0.3, style.colour);
        }
    }

    /// A text, vertically centred at its position.
    pub(crate) fn text(
        &mut self,
        at: (f64, f64),
        text: &str,
        size: f64,
        colour: Colour,
        anchor: Anchor,
    ) {
        let text = text.into();
        self.shapes.push((colour, Shape::Text { at, text, size, anchor }));
    }

    /// Writes `name`.svg and gives its path.
    pub fn write(&self, name: &Path) -> io::Result<PathBuf> {
        let mut path = name.as_os_str().to_owned();
        path.push(".svg");
        let path = PathBuf::from(path);
        fs::write(&path, self.svg())?;
        Ok(path)
    }

    /// The figure as SVG. Colours of a light page are attributes; a dark page changes them by their
    /// classes.
    pub fn svg(&self) -> String {
        let (height, paper) = (self.height, PAPER.css());
        let colours: BTreeSet<Colour> =
            self.shapes.iter().map(|shape| shape.0).chain([PAPER]).collect();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" style=\"max-width: 100%; height: auto\" \
             font-family=\"Ubuntu, 'Helvetica Neue', Helvetica, Arial, sans-serif\">\n\
             <title>{}</title>\n<desc>{}</desc>\n<style>{}</style>\n\
             <rect class=\"{}\" color=\"{paper}\" width=\"{WIDTH}\" height=\"{height}\" \
             fill=\"currentColor\"/>\n",
            escape(&self.title),
            escape(&self.subtitle),
            dark_rules(colours),
            PAPER.class(),
        );
        let mut now: Option<Colour> = None;
        for (colour, shape) in &self.shapes {
            if now != Some(*colour) {
                svg.push_str(if now.is_some() { "</g>\n" } else { "" });
                let (class, value) = (colour.class(), colour.css());
                let _ = writeln!(svg, "<g class=\"{class}\" color=\"{value}\">");
                now = Some(*colour);
            }
            svg.push_str(&element(shape));
            svg.push('\n');
        }
        svg.push_str(if now.is_some() { "</g>\n</svg>\n" } else { "</svg>\n" });
        svg
    }
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Line { points, width, dash } => {
            let dashes = if dash.0 > 0.0 {
                format!(" stroke-dasharray=\"{} {}\"", dash.0, dash.1)
            } else {
                String::new()
            };
            let points = listed(points);
            format!(
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"currentColor\" \
                 stroke-width=\"{width:.1}\" stroke-linejoin=\"round\"{dashes}/>"
            )
        }
        Shape::Area { points, opacity } => {
            let opacity =
                if *opacity < 1.0 { format!(" fill-opacity=\"{opacity}\"") } else { String::new() };
            let points = listed(points);
            format!("<polygon points=\"{points}\" fill=\"currentColor\"{opacity}/>")
        }
        Shape::Disc { centre: (x, y), radius } => {
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"currentColor\"/>")
        }
        Shape::Text { at: (x, y), text, size, anchor } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{size}\" fill=\"currentColor\"{anchor}>\
                 {}</text>",
                y + 0.35 * size,
                escape(text)
            )
        }
    }
}

fn listed(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (x, y) in points {
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text.trim_end().into()
}
