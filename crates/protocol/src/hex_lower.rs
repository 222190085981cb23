//! Bytes as lower-case hex digits: one text for each value, so texts can be compared.

/// The `N` bytes that `text` writes, if it has exactly 2N lower-case hex digits.
pub fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut bytes = [0; N];
    (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_digits_of_the_right_number() {
        assert_eq!(parse_hex::<2>("00af"), Some([0, 0xaf]));
        assert_eq!(parse_hex::<0>(""), Some([]));
        for bad in ["", "00", "00af0", "00af00", "00AF", "00aF", "0xaf", " 0af", "00ag", "é0a"] {
            assert_eq!(parse_hex::<2>(bad), None, "{bad:?}");
        }
    }
}
