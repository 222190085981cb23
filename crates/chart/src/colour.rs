//! Colours that have a value on white and one on black, and the hues of all figures.

use std::fmt::Write;

/// A colour with its two values. Elements carry its class; a style sheet swaps the value in dark
/// mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Colour {
    /// What its class is called after `ic-`.
    pub name: &'static str,
    /// 0xRRGGBB on a white page.
    pub light: u32,
    /// 0xRRGGBB on a dark page.
    pub dark: u32,
}

/// Texts and strong lines.
pub const INK: Colour = Colour::new("ink", 0x1d_1f21, 0xf0_f1f2);
/// Texts that step back.
pub const SOFT_INK: Colour = Colour::new("soft", 0x50_565c, 0xb4_bac0);
/// Lines of labelled values.
pub const GRID: Colour = Colour::new("grid", 0xd9_dcdf, 0x3c_4146);
/// Lines of values without a label.
pub const FAINT_GRID: Colour = Colour::new("faint", 0xf0_f1f2, 0x2a_2e32);
/// Thin lines between a line and its letter, and shades.
pub const LEADER: Colour = Colour::new("leader", 0xa3_a9af, 0x6e_757c);
/// What figures are drawn on.
pub const PAPER: Colour = Colour::new("paper", 0xff_ffff, 0x1b_1e21);

/// Blue.
pub const BLUE: Colour = Colour::new("blue", 0x00_66b3, 0x4f_a8ff);
/// Light blue.
pub const SKY: Colour = Colour::new("sky", 0x2a_93d1, 0xa6_dcff);
/// Dark blue.
pub const NAVY: Colour = Colour::new("navy", 0x23_3a8c, 0x8f_96ff);
/// Red between orange and brick.
pub const VERMILION: Colour = Colour::new("vermilion", 0xb8_3800, 0xff_7a3d);
/// Orange.
pub const ORANGE: Colour = Colour::new("orange", 0xcc_8400, 0xff_c44d);
/// Brown.
pub const BROWN: Colour = Colour::new("brown", 0x7a_4a21, 0xc9_9b70);
/// Dark red.
pub const MAROON: Colour = Colour::new("maroon", 0x98_1540, 0xff_7196);
/// Green with some blue.
pub const GREEN: Colour = Colour::new("green", 0x00_8862, 0x2e_c79b);
/// Green with some yellow.
pub const LIME: Colour = Colour::new("lime", 0x62_921c, 0xb2_dd66);
/// Dark green.
pub const FOREST: Colour = Colour::new("forest", 0x0b_5235, 0x52_a47c);
/// Pink.
pub const PINK: Colour = Colour::new("pink", 0xc4_569b, 0xf5_9fce);
/// Purple.
pub const PURPLE: Colour = Colour::new("purple", 0x74_3a9c, 0xc1_8df2);
/// Dark yellow.
pub const OLIVE: Colour = Colour::new("olive", 0x85_7b00, 0xd9_cf4c);
/// Grey.
pub const GREY: Colour = Colour::new("grey", 0x6c_7278, 0x9b_a1a7);

/// Every colour for data, in the order in which they are given to who has none of his own.
pub const HUES: [Colour; 14] = [
    BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BROWN, PURPLE, LIME, NAVY, MAROON, OLIVE, FOREST,
    GREY,
];

impl Colour {
    /// A colour with its class and its values on white and on black.
    pub const fn new(name: &'static str, light: u32, dark: u32) -> Self {
        Self { name, light, dark }
    }

    /// The class of elements of this colour.
    pub fn class(self) -> String {
        format!("ic-{}", self.name)
    }

    /// The value on white as CSS writes it.
    pub fn css(self) -> String {
        hexadecimal(self.light)
    }
}

/// Rules that give the classes of some colours their values on a dark page.
pub(crate) fn dark_rules(colours: impl IntoIterator<Item = Colour>) -> String {
    let mut rules = String::from("@media (prefers-color-scheme: dark) {");
    for colour in colours {
        let _ = write!(rules, " .{} {{ color: {} }}", colour.class(), hexadecimal(colour.dark));
    }
    rules + " }"
}

/// Rules for the classes of some colours on light and dark pages.
pub fn stylesheet(colours: impl IntoIterator<Item = Colour> + Clone) -> String {
    let mut rules = String::new();
    for colour in colours.clone() {
        let _ = writeln!(rules, ".{} {{ color: {}; }}", colour.class(), colour.css());
    }
    rules + &dark_rules(colours) + "\n"
}

fn hexadecimal(value: u32) -> String {
    format!("#{value:06x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear light of red, green, blue.
    fn linear(value: u32) -> [f64; 3] {
        [16, 8, 0].map(|shift| {
            let c = f64::from((value >> shift) & 255) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn contrast(a: u32, b: u32) -> f64 {
        let luminance = |value| {
            let [r, g, b] = linear(value);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// CIE L*a*b* of what somebody sees.
    fn lab([r, g, b]: [f64; 3]) -> [f64; 3] {
        let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
        let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Machado, Oliveira, Fernandes 2009, severity 1: normal, protanopia, deuteranopia, tritanopia.
    const EYES: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ];

    fn distance(eye: &[[f64; 3]; 3], a: u32, b: u32) -> f64 {
        let seen = |value| {
            let c = linear(value);
            lab(eye.map(|row| (row[0] * c[0] + row[1] * c[1] + row[2] * c[2]).clamp(0.0, 1.0)))
        };
        let (a, b) = (seen(a), seen(b));
        (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn colours_are_seen_on_both_pages() {
        for hue in HUES {
            let (light, dark) = (contrast(hue.light, PAPER.light), contrast(hue.dark, PAPER.dark));
            assert!(light >= 3.0 && dark >= 4.5, "{}: {light:.2} {dark:.2}", hue.name);
        }
        for ink in [INK, SOFT_INK] {
            assert!(contrast(ink.light, PAPER.light) >= 7.0, "{}", ink.name);
            assert!(contrast(ink.dark, PAPER.dark) >= 7.0, "{}", ink.name);
        }
    }

    /// Two just noticeable differences are about 5; lines and dots need several times that.
    #[test]
    fn the_first_colours_differ_for_every_eye() {
        let first = [BLUE, VERMILION, GREEN, PINK, ORANGE, INK];
        for eye in &EYES {
            for (i, a) in first.iter().enumerate() {
                for b in &first[..i] {
                    let light = distance(eye, a.light, b.light);
                    let dark = distance(eye, a.dark, b.dark);
                    assert!(light.min(dark) > 11.0, "{} {}: {light} {dark}", a.name, b.name);
                }
            }
        }
    }

    #[test]
    fn a_style_sheet_has_both_values() {
        let sheet = stylesheet([BLUE]);
        assert_eq!(
            sheet,
            ".ic-blue { color: #0066b3; }\n\
             @media (prefers-color-scheme: dark) { .ic-blue { color: #4fa8ff } }\n"
        );
    }
}
