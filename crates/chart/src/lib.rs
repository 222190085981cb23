//! Line charts as SVG: axes, lines with bands, and their names beside them.
//!
//! The same chart always gives the same bytes.

mod axis;
mod canvas;
mod chart;
mod number;

pub use axis::{Axis, Scale};
pub use canvas::{Anchor, Canvas, Colour, Dash, SIZE, escape, text_width};
pub use chart::{Chart, Series, Style};
pub use number::{grouped, number, thousands};
