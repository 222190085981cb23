//! Charts as SVG: lines with bands and their names beside them, and dots in rows.
//!
//! The same chart always gives the same bytes.

mod axis;
mod canvas;
mod chart;
mod dots;
mod number;

pub use axis::{Axis, Scale};
pub use canvas::{Anchor, Canvas, Colour, Dash, SIZE, escape, text_width};
pub use chart::{Chart, Series, Style};
pub use dots::{Dot, DotPlot, Panel};
pub use number::{grouped, number, thousands};
