//! Numbers as a person writes them: `1e5`, `100_000`, `1_000.5`.

use std::fmt::Display;

/// A whole number from `least` to `most`.
pub fn whole<T: TryFrom<i128> + Display + Copy>(
    text: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    let number = digits(text).as_deref().and_then(integer).and_then(|n| T::try_from(n).ok());
    number.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
}

/// A number as a float, which may be infinite or none: whoever knows its range and name refuses it.
pub fn real(text: &str) -> Result<f64, String> {
    let number = digits(text).and_then(|text| text.parse().ok());
    number.ok_or_else(|| "must be a number".to_owned())
}

/// The text without the underscores between its digits.
fn digits(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let between = |at: usize| at > 0 && digit(at - 1) && digit(at + 1);
    let separated = (0..bytes.len()).all(|at| bytes[at] != b'_' || between(at));
    separated.then(|| text.replace('_', ""))
}

/// Exact, with a decimal point and a power of ten as long as the number is whole.
fn integer(text: &str) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !after.bytes().all(|b| b.is_ascii_digit()) || mantissa.ends_with('.') {
        return None;
    }
    let number: i128 = format!("{before}{after}").parse().ok()?;
    if number == 0 {
        return Some(0);
    }
    let places = exponent.checked_sub(i32::try_from(after.len()).ok()?)?;
    let power = 10i128.checked_pow(places.unsigned_abs())?;
    if places >= 0 {
        return number.checked_mul(power);
    }
    (number % power == 0).then(|| number / power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_exact() {
        let read = |text| whole(text, 0, u64::MAX);
        for (text, number) in [
            ("0", 0),
            ("+7", 7),
            ("1e5", 100_000),
            ("1E+5", 100_000),
            ("100_000", 100_000),
            ("1.5e3", 1500),
            ("2500e-2", 25),
            ("3.0", 3),
            ("0e99", 0),
            ("18446744073709551615", u64::MAX),
            ("1.8446744073709551615e19", u64::MAX),
        ] {
            assert_eq!(read(text), Ok(number), "{text}");
        }
        for text in [
            "",
            "-1",
            "1.5",
            "1e-1",
            "1e30",
            "1e999999999999",
            "1e400",
            "_1",
            "1_",
            "1__0",
            "1_e5",
            "1e",
            "e5",
            ".",
            "1.",
            "0x10",
            "nan",
            "inf",
            "1 0",
            "1.-5",
            "1.+5",
            "--1",
        ] {
            let rule = "must be a whole number from 0 to 18446744073709551615";
            assert_eq!(read(text), Err(rule.into()), "{text}");
        }
        assert_eq!(whole("-5", -8i64, 8), Ok(-5));
    }

    #[test]
    fn other_numbers_are_the_nearest_floats() {
        for (text, number) in
            [("1_000.5", 1000.5), ("-1", -1.0), ("1e-6", 1e-6), ("inf", f64::INFINITY), (".5", 0.5)]
        {
            assert_eq!(real(text), Ok(number), "{text}");
        }
        assert!(real("nan").unwrap().is_nan());
        for text in ["", "1,5", "1_.5", "1._5", "_1", "one"] {
            assert_eq!(real(text), Err("must be a number".into()), "{text}");
        }
    }
}
