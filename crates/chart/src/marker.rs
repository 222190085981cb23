//! Markers of points, so that colour is not all that tells lines apart.

/// The outline of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// A disc.
    Circle,
    /// A square.
    Square,
    /// A square on its corner.
    Diamond,
    /// A triangle that points up.
    Up,
    /// A triangle that points down.
    Down,
    /// A triangle that points left.
    Left,
    /// A triangle that points right.
    Right,
    /// A star of five points.
    Star,
    /// Six corners.
    Hexagon,
    /// Two lines across each other.
    Plus,
    /// The same, on its corner.
    Cross,
    /// Three lines across each other.
    Asterisk,
    /// A horizontal line.
    Bar,
    /// A vertical line.
    Tick,
}

/// How a marker is filled: variants of one algorithm have one outline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// All of it.
    #[default]
    Full,
    /// Only its outline.
    Hollow,
    /// Its outline and its middle.
    Target,
}

impl Marker {
    /// The corners of its outline round the origin, of about the area of a disc of radius 1; none
    /// for a circle and for markers of lines.
    pub(crate) fn corners(self) -> Vec<(f64, f64)> {
        match self {
            Self::Square => regular(4, 1.22, 45.0),
            Self::Diamond => regular(4, 1.35, 0.0),
            Self::Up => regular(3, 1.45, -90.0),
            Self::Down => regular(3, 1.45, 90.0),
            Self::Left => regular(3, 1.45, 180.0),
            Self::Right => regular(3, 1.45, 0.0),
            Self::Hexagon => regular(6, 1.15, 0.0),
            Self::Star => {
                let (tips, notches) = (regular(5, 1.6, -90.0), regular(5, 0.68, -54.0));
                tips.into_iter().zip(notches).flat_map(|(tip, notch)| [tip, notch]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The lines of a marker of lines.
    pub(crate) fn lines(self) -> Vec<[(f64, f64); 2]> {
        let across = |degrees: f64, length: f64| {
            let (sin, cos) = degrees.to_radians().sin_cos();
            [(-length * cos, -length * sin), (length * cos, length * sin)]
        };
        match self {
            Self::Plus => vec![across(0.0, 1.35), across(90.0, 1.35)],
            Self::Cross => vec![across(45.0, 1.35), across(135.0, 1.35)],
            Self::Asterisk => vec![across(30.0, 1.35), across(90.0, 1.35), across(150.0, 1.35)],
            Self::Bar => vec![across(0.0, 1.4)],
            Self::Tick => vec![across(90.0, 1.5)],
            _ => Vec::new(),
        }
    }
}

/// The corners of a regular polygon, the first one at an angle.
fn regular(corners: u32, radius: f64, first: f64) -> Vec<(f64, f64)> {
    (0..corners)
        .map(|i| {
            let angle = (first + 360.0 * f64::from(i) / f64::from(corners)).to_radians();
            (radius * angle.cos(), radius * angle.sin())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_has_one_kind_of_outline() {
        for marker in [Marker::Square, Marker::Up, Marker::Star, Marker::Hexagon, Marker::Left] {
            assert!(marker.corners().len() > 2 && marker.lines().is_empty(), "{marker:?}");
        }
        for marker in [Marker::Plus, Marker::Cross, Marker::Asterisk, Marker::Bar, Marker::Tick] {
            assert!(marker.corners().is_empty() && !marker.lines().is_empty(), "{marker:?}");
        }
        let up = Marker::Up.corners()[0];
        assert!(up.0.abs() < 1e-9 && up.1 < 0.0);
    }
}
