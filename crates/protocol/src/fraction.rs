use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Keep, ProtocolError};

/// A probability as an exact fraction in lowest terms, strictly between 0 and 1. As text it is
/// `numerator/denominator`.
macro_rules! fraction {
    ($(#[$doc:meta])* $name:ident, $error:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name {
            numerator: u32,
            denominator: u32,
        }

        impl $name {
            /// `numerator / denominator`, which must be in lowest terms and strictly between 0 and
            /// 1.
            pub fn new(numerator: u32, denominator: u32) -> Result<Self, ProtocolError> {
                if numerator == 0 || numerator >= denominator || gcd(numerator, denominator) != 1 {
                    return Err(ProtocolError::$error(format!("{numerator}/{denominator}")));
                }
                Ok(Self { numerator, denominator })
            }

            /// The numerator.
            pub const fn numerator(self) -> u32 {
                self.numerator
            }

            /// The denominator.
            pub const fn denominator(self) -> u32 {
                self.denominator
            }

            /// The nearest float.
            pub fn value(self) -> f64 {
                f64::from(self.numerator) / f64::from(self.denominator)
            }

            /// 1 - this probability, as the nearest float.
            pub fn keep(self) -> f64 {
                f64::from(self.denominator - self.numerator) / f64::from(self.denominator)
            }

            /// The fraction with denominator 2^30 nearest to 1 - `keep`, rounded toward more noise.
            pub fn from_keep(keep: f64) -> Result<Self, ProtocolError> {
                const DENOMINATOR: u32 = 1 << 30;
                let refuse = || ProtocolError::$error(format!("1 - {keep}"));
                let keep = Keep::new(keep).map_err(|_| refuse())?.get();
                let kept = (keep * f64::from(DENOMINATOR)).floor() as u32;
                let left = DENOMINATOR - kept;
                let divisor = gcd(left, DENOMINATOR);
                Self::new(left / divisor, DENOMINATOR / divisor).map_err(|_| refuse())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.numerator, self.denominator)
            }
        }

        impl FromStr for $name {
            type Err = ProtocolError;

            fn from_str(text: &str) -> Result<Self, ProtocolError> {
                let refuse = || ProtocolError::$error(text.chars().take(40).collect());
                let (numerator, denominator) = text.split_once('/').ok_or_else(refuse)?;
                let number = |digits| {
                    crate::wire::canonical_integer(digits).and_then(|n| u32::try_from(n).ok())
                };
                match (number(numerator), number(denominator)) {
                    (Some(n), Some(d)) => Self::new(n, d).map_err(|_| refuse()),
                    _ => Err(refuse()),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = ProtocolError;
            fn try_from(text: String) -> Result<Self, ProtocolError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(fraction: $name) -> Self {
                fraction.to_string()
            }
        }
    };
}

fraction! {
    /// The flip parameter p of R_p^{0/1} as an exact fraction, 0 < p < 1: with probability p a bit
    /// is replaced by a fair coin. c = 1 - p is the share of the signal that is left.
    ///
    /// # Privacy
    /// The law of every coin is derived from these two integers, so the mechanism hash binds it
    /// exactly.
    FlipProbability, Flip
}
fraction! {
    /// The chance that a codebook report sends none of the words that its statistic picks, as an
    /// exact fraction.
    ///
    /// # Privacy
    /// The device tosses exactly this coin, and the local epsilon is computed from these two
    /// integers.
    OutsideProbability, Outside
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_is_never_larger_than_asked() {
        for keep in [1e-9, 0.1, 0.3, 0.47, 0.5, 0.999_999_999] {
            assert!(FlipProbability::from_keep(keep).unwrap().keep() <= keep);
        }
        for keep in [0.0, 1.0, -1.0, f64::NAN, 1e-12] {
            assert!(FlipProbability::from_keep(keep).is_err(), "{keep}");
        }
    }
}
