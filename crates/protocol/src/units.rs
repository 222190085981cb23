//! The quantities that a guarantee depends on, valid by construction.
//!
//! Each rule stands once, here. Plain configuration structs hold bare numbers and make units in
//! their `check`.

use thiserror::Error;

/// A number outside of its unit's range.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("{name} is {}, must be {allowed}", format_number(*value))]
pub struct UnitError {
    /// Which quantity, as the reader knows it.
    pub name: &'static str,
    /// The number; counts that are refused are exact as floats.
    pub value: f64,
    /// The range, in words.
    pub allowed: &'static str,
}

impl UnitError {
    /// The same error under the name that the quantity has in a file or an interface.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

/// A number in a message: very large and very small ones with a power of ten.
pub fn format_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() || (1e-9..1e15).contains(&value.abs()) {
        return value.to_string();
    }
    format!("{value:e}")
}

macro_rules! unit {
    ($(#[$doc:meta])* $unit:ident($number:ty), $name:literal, $valid:expr, $allowed:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
        pub struct $unit($number);

        impl $unit {
            #[doc = concat!("The number as a unit; it must be ", $allowed, ".")]
            #[allow(clippy::cast_lossless, reason = "every kind of number is cast alike")]
            pub fn new(value: $number) -> Result<Self, UnitError> {
                let valid: fn($number) -> bool = $valid;
                if valid(value) {
                    return Ok(Self(value));
                }
                Err(UnitError { name: $name, value: value as f64, allowed: $allowed })
            }

            /// The number.
            pub const fn get(self) -> $number {
                self.0
            }
        }
    };
}

unit! {
    /// Dimension of the contexts (d).
    Dimension(u32), "dimension", |d| (1..=1000).contains(&d), "from 1 to 1000"
}
unit! {
    /// Bits per coordinate (m).
    Bits(u32), "bits", |m| (1..=4095).contains(&m), "from 1 to 4095"
}
unit! {
    /// Reports in a batch (l).
    BatchSize(u64), "batch_size", |l| l > 0, "at least 1"
}
unit! {
    /// Delta of a guarantee.
    Delta(f64), "delta", |delta| delta > 0.0 && delta < 1.0, "above 0 and below 1"
}
unit! {
    /// Share of the signal that is left (c = 1 - p).
    Keep(f64), "keep", |c| c > 0.0 && c < 1.0, "above 0 and below 1"
}
unit! {
    /// Share of every batch that is surely not the adversary's (h).
    HonestFraction(f64), "honest fraction", |h| h > 0.0 && h <= 1.0, "above 0 and at most 1"
}
unit! {
    /// Reports one device may send in the life of a task (k).
    Participations(u32), "participations", |k| k > 0, "at least 1"
}

impl Dimension {
    /// Coordinates of a report: D = d(d+3)/2.
    pub const fn coordinates(self) -> usize {
        crate::coordinates(self.0 as usize)
    }
}

impl Bits {
    /// One bit per coordinate.
    pub const ONE: Self = Self(1);
}

impl HonestFraction {
    /// Everybody is honest.
    pub const ALL: Self = Self(1.0);
}

impl Participations {
    /// One report in all.
    pub const ONE: Self = Self(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_every_range() {
        assert!(Dimension::new(1).is_ok() && Dimension::new(1000).is_ok());
        assert!(Dimension::new(0).is_err() && Dimension::new(1001).is_err());
        assert!(Bits::new(1).is_ok() && Bits::new(4095).is_ok());
        assert!(Bits::new(0).is_err() && Bits::new(4096).is_err());
        assert!(BatchSize::new(1).is_ok() && BatchSize::new(u64::MAX).is_ok());
        assert!(BatchSize::new(0).is_err());
        assert!(Participations::new(1).is_ok() && Participations::new(u32::MAX).is_ok());
        assert!(Participations::new(0).is_err());
        assert!(HonestFraction::new(1.0).is_ok() && HonestFraction::new(1e-300).is_ok());
        for bad in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(HonestFraction::new(bad).is_err(), "{bad}");
        }
        assert!(HonestFraction::new(1.1).is_err());
        for bad in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(Delta::new(bad).is_err() && Keep::new(bad).is_err(), "{bad}");
        }
        assert!(Delta::new(1e-300).is_ok() && Keep::new(1.0 - 1e-16).is_ok());
    }

    #[test]
    fn an_error_names_the_quantity_its_value_and_its_range() {
        let text = |error: UnitError| error.to_string();
        assert_eq!(
            text(Dimension::new(1001).unwrap_err()),
            "dimension is 1001, must be from 1 to 1000"
        );
        assert_eq!(
            text(Delta::new(f64::NAN).unwrap_err().named("central_delta")),
            "central_delta is NaN, must be above 0 and below 1"
        );
        assert_eq!(text(BatchSize::new(0).unwrap_err()), "batch_size is 0, must be at least 1");
    }
}
