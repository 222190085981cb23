//! Numbers as people write them.

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
}
