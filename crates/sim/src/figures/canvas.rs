//! What every figure of incrowd is drawn on: shapes that become an SVG and a PNG with the same layout.
//!
//! SVG is written directly, so that lines keep their fractions of a pixel; the PNG is drawn by plotters at twice the size and averaged down, with a font
//! inside the program: figures have text on machines without fonts.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use plotters::{
    prelude::*,
    style::{
        FontStyle, FontTransform, register_font,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::FigureError;

/// Width and height of every figure in pixels.
pub const SIZE: (u32, u32) = (1100, 760);
/// Pixels drawn per pixel kept, in each direction.
const OVERSAMPLING: u32 = 2;
const FONT: &str = "sans-serif";

/// Red, green, blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// The colour as CSS writes it.
    pub fn css(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    fn rgb(self) -> RGBColor {
        RGBColor(self.0, self.1, self.2)
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
    pub fn new(title: &str) -> Result<Self, FigureError> {
        register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
            .map_err(|_| FigureError::Font)?;
        Ok(Self { title: title.into(), shapes: Vec::new() })
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

    /// Writes `name`.svg and `name`.png.
    pub fn write(&self, name: &Path) -> Result<[PathBuf; 2], FigureError> {
        let with = |extension: &str| {
            let mut path = name.as_os_str().to_owned();
            path.push(extension);
            PathBuf::from(path)
        };
        let (svg, png) = (with(".svg"), with(".png"));
        let written = |file: &Path, bytes: &[u8]| {
            fs::write(file, bytes)
                .map_err(|source| FigureError::Write { file: file.to_owned(), source })
        };
        written(&svg, self.svg().as_bytes())?;
        written(&png, &self.png()?)?;
        Ok([svg, png])
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

    fn png(&self) -> Result<Vec<u8>, FigureError> {
        let (width, height) = (SIZE.0 * OVERSAMPLING, SIZE.1 * OVERSAMPLING);
        let mut large = vec![0; (width * height * 3) as usize];
        {
            let area = BitMapBackend::with_buffer(&mut large, (width, height)).into_drawing_area();
            area.fill(&WHITE).map_err(|_| FigureError::Draw)?;
            for shape in &self.shapes {
                draw(&area, shape).map_err(|_| FigureError::Draw)?;
            }
            area.present().map_err(|_| FigureError::Draw)?;
        }
        let small = averaged(&large, width as usize, OVERSAMPLING as usize);
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, SIZE.0, SIZE.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|_| FigureError::Draw)?;
        writer.write_image_data(&small).map_err(|_| FigureError::Draw)?;
        writer.finish().map_err(|_| FigureError::Draw)?;
        Ok(bytes)
    }
}

/// Width of a text in pixels; where another font stands in for ours it may be a third more.
pub fn text_width(text: &str, size: f64) -> f64 {
    // Measured large: the answer comes in whole pixels.
    (FONT, 100).into_font().box_size(text).map_or(0.0, |(width, _)| f64::from(width) * size / 100.0)
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

/// 1000 as 1,000; from 10 on without decimals, below with up to three significant digits.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return format!("{value}");
    }
    let size = value.abs();
    if size >= 9.995 {
        return thousands(value);
    }
    if size > 0.0 && size < 1e-3 {
        return format!("{value:.1e}");
    }
    let places = if size >= 0.9995 || size == 0.0 { 2 } else { 3 };
    let text = format!("{value:.places$}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// 12345.6 as 12,346.
pub fn thousands(value: f64) -> String {
    grouped(value, 0)
}

/// 12345.67 with one decimal as 12,345.7.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, size) = text.split_at(usize::from(text.starts_with('-')));
    let (whole, rest) = size.split_at(size.find('.').unwrap_or(size.len()));
    let mut grouped = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
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

type Area<'a> = DrawingArea<BitMapBackend<'a>, plotters::coord::Shift>;
type DrawResult<'a> =
    Result<(), DrawingAreaErrorKind<<BitMapBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(area: &Area<'a>, shape: &Shape) -> DrawResult<'a> {
    let scale = f64::from(OVERSAMPLING);
    let pixel = |&(x, y): &(f64, f64)| ((x * scale).round() as i32, (y * scale).round() as i32);
    match shape {
        Shape::Line { points, colour, width, dash } => {
            let style = colour.rgb().stroke_width((width * scale).round().max(1.0) as u32);
            for piece in pieces(points, *dash) {
                let mut path: Vec<_> = piece.iter().map(pixel).collect();
                path.dedup();
                area.draw(&PathElement::new(path, style))?;
            }
        }
        Shape::Area { points, colour, opacity } => {
            let path: Vec<_> = points.iter().map(pixel).collect();
            area.draw(&Polygon::new(path, colour.rgb().mix(*opacity)))?;
        }
        Shape::Dot { centre, radius, colour } => {
            area.draw(&Circle::new(pixel(centre), radius * scale, colour.rgb().filled()))?;
        }
        Shape::Text { at, text, size, colour, anchor, upright } => {
            let across = match anchor {
                Anchor::Start => HPos::Left,
                Anchor::Middle => HPos::Center,
                Anchor::End => HPos::Right,
            };
            let turn = if *upright { FontTransform::None } else { FontTransform::Rotate270 };
            let ink = colour.rgb();
            let style = TextStyle::from((FONT, size * scale).into_font().transform(turn))
                .color(&ink)
                .pos(Pos::new(across, VPos::Center));
            // The box that plotters centres has room for accents above.
            let (down, right) = if *upright { (0.11 * size, 0.0) } else { (0.0, 0.11 * size) };
            let at = pixel(&(at.0 + right, at.1 + down));
            area.draw(&Text::new(text.as_str(), at, style))?;
        }
    }
    Ok(())
}

/// The dashes of a line, or the line itself.
fn pieces(points: &[(f64, f64)], dash: Dash) -> Vec<Vec<(f64, f64)>> {
    if dash.0 <= 0.0 || dash.1 <= 0.0 {
        return vec![points.to_vec()];
    }
    let mut pieces = Vec::new();
    let (mut current, mut on, mut left) = (vec![points[0]], true, dash.0);
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            if length <= left {
                left -= length;
                if on {
                    current.push(to);
                }
                break;
            }
            let share = left / length;
            from = (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
            if on {
                current.push(from);
                pieces.push(std::mem::take(&mut current));
            } else {
                current = vec![from];
            }
            on = !on;
            left = if on { dash.0 } else { dash.1 };
        }
    }
    if on && current.len() > 1 {
        pieces.push(current);
    }
    pieces
}

/// Every `factor` x `factor` block of a picture becomes one pixel.
fn averaged(large: &[u8], width: usize, factor: usize) -> Vec<u8> {
    let (columns, rows) = (width / factor, large.len() / 3 / width / factor);
    let mut small = Vec::with_capacity(columns * rows * 3);
    for row in 0..rows {
        for column in 0..columns {
            for channel in 0..3 {
                let mut sum = 0;
                for y in row * factor..(row + 1) * factor {
                    for x in column * factor..(column + 1) * factor {
                        sum += usize::from(large[(y * width + x) * 3 + channel]);
                    }
                }
                small.push((sum / (factor * factor)) as u8);
            }
        }
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let shown: Vec<String> =
            [0.0, 0.5, 0.125, 1.0, 2.5, 9.999, 36.4, 1000.0, 1_234_567.8, -1500.0, 1e-6]
                .map(number)
                .into();
        assert_eq!(
            shown,
            ["0", "0.5", "0.125", "1", "2.5", "10", "36", "1,000", "1,234,568", "-1,500", "1.0e-6"]
        );
    }

    #[test]
    fn groups() {
        assert_eq!(grouped(12_345.67, 1), "12,345.7");
        assert_eq!(grouped(-123_456.0, 0), "-123,456");
        assert_eq!(grouped(60.0, 2), "60.00");
    }

    #[test]
    fn dashes_cover_the_line_in_turn() {
        let dashes = pieces(&[(0.0, 0.0), (10.0, 0.0)], (4.0, 2.0));
        assert_eq!(dashes, [[(0.0, 0.0), (4.0, 0.0)], [(6.0, 0.0), (10.0, 0.0)]]);
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{1}"), "a&lt;b &amp; &quot;c&quot;\u{fffd}");
    }
}
