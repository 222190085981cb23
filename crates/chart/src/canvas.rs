//! What every figure of incrowd is drawn on: shapes that become an SVG.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

/// Width and height of every figure in pixels.
pub const SIZE: (u32, u32) = (1100, 760);
/// Advance widths of Ubuntu Light, in thousandths of its size, from the space to the tilde.
const WIDTHS: [u16; 95] = [
    228, 274, 392, 653, 564, 831, 648, 240, 310, 310, 472, 564, 246, 282, 246, 359, 564, 564, 564,
    564, 564, 564, 564, 564, 564, 564, 246, 246, 564, 564, 564, 380, 940, 641, 630, 609, 702, 555,
    520, 658, 692, 248, 487, 599, 502, 865, 709, 774, 592, 774, 618, 517, 548, 680, 624, 921, 608,
    569, 560, 310, 359, 310, 564, 490, 376, 509, 583, 460, 583, 548, 376, 573, 569, 237, 237, 495,
    255, 863, 569, 582, 583, 583, 374, 428, 387, 569, 480, 775, 499, 474, 455, 319, 262, 319, 564,
];
/// Of every other character: that of a digit.
const OTHER_WIDTH: u16 = 564;

/// Red, green, blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// The colour as CSS writes it.
    pub fn css(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// Length of dash and gap; (0, 0) is a solid line.
pub type Dash = (f64, f64);

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
    Line { points: Vec<(f64, f64)>, colour: Colour, width: f64, dash: Dash },
    Area { points: Vec<(f64, f64)>, colour: Colour, opacity: f64 },
    Dot { centre: (f64, f64), radius: f64, colour: Colour },
    Text { at: (f64, f64), text: String, size: f64, colour: Colour, anchor: Anchor, upright: bool },
}

/// A figure as a list of shapes, later ones on top.
#[derive(Debug, Clone, PartialEq)]
pub struct Canvas {
    title: String,
    shapes: Vec<Shape>,
}

impl Canvas {
    /// An empty white figure; the title is for those who cannot see it.
    pub fn new(title: &str) -> Self {
        Self { title: title.into(), shapes: Vec::new() }
    }

    /// A line through points.
    pub fn line(&mut self, points: Vec<(f64, f64)>, colour: Colour, width: f64, dash: Dash) {
        if points.len() > 1 {
            self.shapes.push(Shape::Line { points, colour, width, dash });
        }
    }

    /// A filled polygon.
    pub fn area(&mut self, points: Vec<(f64, f64)>, colour: Colour, opacity: f64) {
        if points.len() > 2 {
            self.shapes.push(Shape::Area { points, colour, opacity });
        }
    }

    /// A filled circle.
    pub fn dot(&mut self, centre: (f64, f64), radius: f64, colour: Colour) {
        self.shapes.push(Shape::Dot { centre, radius, colour });
    }

    /// A text, vertically centred at its position.
    pub fn text(&mut self, at: (f64, f64), text: &str, size: f64, colour: Colour, anchor: Anchor) {
        let text = text.into();
        self.shapes.push(Shape::Text { at, text, size, colour, anchor, upright: true });
    }

    /// A text that runs from bottom to top, centred at its position.
    pub fn sideways(&mut self, at: (f64, f64), text: &str, size: f64, colour: Colour) {
        let (text, anchor) = (text.into(), Anchor::Middle);
        self.shapes.push(Shape::Text { at, text, size, colour, anchor, upright: false });
    }

    /// Writes `name`.svg and gives its path.
    pub fn write(&self, name: &Path) -> io::Result<PathBuf> {
        let mut path = name.as_os_str().to_owned();
        path.push(".svg");
        let path = PathBuf::from(path);
        fs::write(&path, self.svg())?;
        Ok(path)
    }

    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let (width, height) = SIZE;
        let title = escape(&self.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" \
             font-family=\"Ubuntu, 'Helvetica Neue', Helvetica, Arial, sans-serif\">\n\
             <title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        for shape in &self.shapes {
            svg.push_str(&element(shape));
            svg.push('\n');
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Width of a text in pixels; where another font stands in for ours it may be a third more.
pub fn text_width(text: &str, size: f64) -> f64 {
    let width = |character: char| {
        let place = (character as usize).checked_sub(' ' as usize);
        place.and_then(|place| WIDTHS.get(place)).copied().unwrap_or(OTHER_WIDTH)
    };
    let sum: u32 = text.chars().map(|character| u32::from(width(character))).sum();
    f64::from(sum) * size / 1000.0
}

/// The text with markup characters replaced, for SVG and HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to say them.
            c if c.is_control() && !matches!(c, '\t' | '\n' | '\r') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Line { points, colour, width, dash } => {
            let dashes = if dash.0 > 0.0 {
                format!(" stroke-dasharray=\"{} {}\"", dash.0, dash.1)
            } else {
                String::new()
            };
            format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" \
                 stroke-linejoin=\"round\"{dashes}/>",
                listed(points),
                colour.css()
            )
        }
        Shape::Area { points, colour, opacity } => format!(
            "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"{opacity}\"/>",
            listed(points),
            colour.css()
        ),
        Shape::Dot { centre: (x, y), radius, colour } => {
            format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{}\"/>",
                colour.css()
            )
        }
        Shape::Text { at: (x, y), text, size, colour, anchor, upright } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let place = if *upright {
                format!("x=\"{x:.1}\" y=\"{:.1}\"", y + 0.35 * size)
            } else {
                format!(
                    "transform=\"translate({:.1} {y:.1}) rotate(-90)\" x=\"0\" y=\"0\"",
                    x + 0.35 * size
                )
            };
            format!(
                "<text {place} font-size=\"{size}\" fill=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                colour.css(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{1}"), "a&lt;b &amp; &quot;c&quot;\u{fffd}");
    }

    #[test]
    fn a_text_is_as_wide_as_its_characters() {
        assert!((text_width("iW", 100.0) - 115.8).abs() < 1e-9);
        assert!((text_width("\u{3b5}", 10.0) - 5.64).abs() < 1e-9);
    }
}
