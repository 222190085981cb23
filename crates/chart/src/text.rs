//! Texts: how wide they are, where they break, and how markup is kept out of them.

/// Advance widths of Ubuntu Light, in thousandths of its size, from the space to the tilde.
const WIDTHS: [u16; 95] = [
    228, 274, 392, 653, 564, 831, 648, 240, 310, 310, 472, 564, 246, 282, 246, 359, 564, 564, 564,
    564, 564, 564, 564, 564, 564, 564, 246, 246, 564, 564, 564, 380, 940, 641, 630, 609, 702, 555,
    520, 658, 692, 248, 487, 599, 502, 865, 709, 774, 592, 774, 618, 517, 548, 680, 624, 921, 608,
    569, 560, 310, 359, 310, 564, 490, 376, 509, 583, 460, 583, 548, 376, 573, 569, 237, 237, 495,
    255, 863, 569, 582, 583, 583, 374, 428, 387, 569, 480, 775, 499, 474, 455, 319, 262, 319, 564,
];
/// Of every other character: that of a digit.
const OTHER_WIDTH: u16 = 564;
/// Room that is kept for the widest common font, relative to our own widths.
const SLACK: f64 = 1.12;

/// Width of a text in pixels in our own font; others may be an eighth wider.
pub fn text_width(text: &str, size: f64) -> f64 {
    let width = |character: char| {
        let place = (character as usize).checked_sub(' ' as usize);
        place.and_then(|place| WIDTHS.get(place)).copied().unwrap_or(OTHER_WIDTH)
    };
    let sum: u32 = text.chars().map(|character| u32::from(width(character))).sum();
    f64::from(sum) * size / 1000.0
}

/// Room that a text needs in any common font.
pub(crate) fn room(text: &str, size: f64) -> f64 {
    text_width(text, size) * SLACK
}

/// The text in lines that fit, broken between words; a word that is too long is cut.
pub(crate) fn wrapped(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = shortened(word, size, width);
        if let Some(line) = lines.last_mut()
            && room(&format!("{line} {word}"), size) <= width
        {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}

/// The same in as few lines, of about equal widths.
pub(crate) fn balanced(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines = wrapped(text, size, width);
    let count = lines.len();
    // A few characters at a time.
    let mut narrower = width - size;
    while count > 1 && narrower > width / 2.0 {
        let candidate = wrapped(text, size, narrower);
        if candidate.len() > count || candidate.concat().contains('…') {
            break;
        }
        lines = candidate;
        narrower -= size;
    }
    lines
}

/// The text, or as much of it as fits and an ellipsis.
pub(crate) fn shortened(text: &str, size: f64, width: f64) -> String {
    let fits = |text: &str| room(text, size) <= width;
    if fits(text) {
        return text.into();
    }
    let mut short: String = text.into();
    while short.pop().is_some() && !fits(&format!("{short}…")) {}
    format!("{short}…")
}

/// The text with markup characters replaced, for SVG and HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to say them.
            c if c.is_control() && !matches!(c, '\t' | '\n' | '\r') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{1}"), "a&lt;b &amp; &quot;c&quot;\u{fffd}");
    }

    #[test]
    fn a_text_is_as_wide_as_its_characters() {
        assert!((text_width("iW", 100.0) - 115.8).abs() < 1e-9);
        assert!((text_width("\u{3b5}", 10.0) - 5.64).abs() < 1e-9);
    }

    #[test]
    fn lines_fit_and_keep_their_words() {
        let text = "one two three four five six seven";
        let lines = wrapped(text, 16.0, 100.0);
        assert!(lines.len() > 2 && lines.iter().all(|line| room(line, 16.0) <= 100.0));
        assert_eq!(lines.join(" "), text);
        let even = balanced("one two three four five six", 16.0, 170.0);
        assert_eq!(even, ["one two three", "four five six"]);
        assert!(wrapped("", 16.0, 100.0).is_empty());
        let long = wrapped(&"W".repeat(50), 16.0, 100.0);
        assert!(long.len() == 1 && long[0].ends_with('…') && room(&long[0], 16.0) <= 100.0);
    }
}
