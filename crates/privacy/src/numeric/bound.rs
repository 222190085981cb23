//! Numbers that are known to lie on one side of the number they stand for. Every operation rounds
//! to that side.

use std::ops::Add;

use super::slack;

/// A computed number that is at least the number it stands for, which is not negative.
///
/// It can only be asked whether it is small enough: that it is large says nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Upper(f64);

/// A computed number that is at most the number it stands for, which is not negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lower(f64);

impl Upper {
    /// Nothing was left out.
    pub const ZERO: Self = Self(0.0);

    /// From a number that is right to [`slack::ROUNDING`].
    #[must_use]
    pub fn of(computed: f64) -> Self {
        Self::raised(computed, slack::ROUNDING)
    }

    /// From a number that is right to the share `slack`. The smallest normal float covers
    /// underflow.
    #[must_use]
    pub fn raised(computed: f64, slack: f64) -> Self {
        Self(computed * (1.0 + slack) + f64::MIN_POSITIVE)
    }

    /// From the nearest float of a number.
    #[must_use]
    pub fn nearest(rounded: f64) -> Self {
        Self(rounded.next_up())
    }

    /// Whether the number is surely at most `limit`. Not for what is not a number.
    pub fn is_at_most(self, limit: f64) -> bool {
        self.0 <= limit
    }

    /// The smaller one of this and another upper bound.
    #[must_use]
    pub fn min(self, other: f64) -> Self {
        Self(self.0.min(other))
    }

    /// The bound.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl Add for Upper {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self((self.0 + other.0).next_up())
    }
}

impl Lower {
    /// What holds of every number that is not negative.
    pub const ZERO: Self = Self(0.0);

    /// From a number that is right to [`slack::ROUNDING`]. At most the smallest normal float below
    /// zero.
    #[must_use]
    pub fn of(computed: f64) -> Self {
        Self(computed * (1.0 - slack::ROUNDING) - f64::MIN_POSITIVE)
    }

    /// The larger one of this and another lower bound.
    #[must_use]
    pub fn max(self, other: f64) -> Self {
        Self(self.0.max(other))
    }

    /// The bound that a lower bound on a probability is on that of the opposite event.
    pub fn complement(self) -> Upper {
        Upper::of(1.0 - self.0).min(1.0)
    }

    /// The bound.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// The last step of a certificate: `epsilon`, rounded up. Zero stays zero: it is computed only
/// where it was proved.
pub fn up(epsilon: f64) -> f64 {
    if epsilon == 0.0 { 0.0 } else { Upper::of(epsilon).value() }
}

/// An epsilon as people see it: four digits after the point, rounded up.
pub fn format_epsilon(epsilon: f64) -> String {
    format!("{:.4}", (epsilon * 1e4).ceil() / 1e4)
}

/// A delta as people see it: three digits, rounded up.
pub fn format_delta(delta: f64) -> String {
    let text = format!("{delta:.2e}");
    match text.parse::<f64>() {
        Ok(rounded) if rounded >= delta => text,
        _ => {
            // Half a unit of the third digit more: what was rounded down is rounded up.
            let unit = libm::pow(10.0, libm::floor(libm::log10(delta)) - 2.0);
            format!("{:.2e}", delta + unit / 2.0)
        }
    }
}
