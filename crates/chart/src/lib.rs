//! Charts as SVG: lines with bands and a legend, and dots in rows.
//!
//! The same chart always gives the same bytes. Every figure is [`WIDTH`] pixels wide, has no text
//! below [`SMALLEST_TEXT`], so that it can be read 400 pixels wide, and changes its colours where
//! a page is dark.

mod axis;
mod canvas;
mod chart;
pub mod colour;
mod dots;
mod legend;
mod marker;
mod number;
mod text;

pub use axis::{Axis, Scale};
pub use canvas::{Anchor, Canvas, Dash, SMALLEST_TEXT, Style, WIDTH};
pub use chart::{Chart, Plot, Series};
pub use colour::Colour;
pub use dots::{Dot, DotPlot, Name, Panel};
pub use marker::{Fill, Marker};
pub use number::{grouped, number, thousands};
pub use text::{escape, text_width};
