//! Normal variables from the bits that a word's entries are rounded from.

use std::sync::LazyLock;

use incrowd_protocol::Words;
use libm::{cos, erfc, exp, log, sqrt};

/// Coefficients of a cell's polynomial.
const COEFFICIENTS: usize = 5;
/// Cells between a power of two and the next: their number's logarithm.
const PARTS: u32 = 3;
/// What is left of a magnitude's bits is at least 2^-33 (half of a last low bit) and below 2^31.
const SMALLEST: i32 = -33;
const OCTAVES: usize = 64;
/// Bits of a float's mantissa.
const MANTISSA: u32 = 52;
/// Where less is left, the low bits count.
const LOW_COUNTS: f64 = 4_194_304.0;
const TWO_31: f64 = 2_147_483_648.0;
const TWO_32: f64 = 4_294_967_296.0;

/// How a standard normal variable grows where what is left of its magnitude's bits is in a short
/// interval: the quantile of the half normal law by a polynomial. As the ends of an interval are in
/// a ratio of 9/8 at most, one degree serves everywhere, also far out.
#[derive(Clone, Copy)]
struct Cell {
    middle: f64,
    polynomial: [f64; COEFFICIENTS],
}

static CELLS: LazyLock<Vec<Cell>> = LazyLock::new(|| {
    let part = |cell: usize| {
        let (octave, part) = (cell >> PARTS, cell & ((1 << PARTS) - 1));
        let power = libm::ldexp(1.0, SMALLEST + octave as i32 - PARTS as i32);
        Cell::new(power * ((1 << PARTS) + part) as f64, power)
    };
    (0..OCTAVES << PARTS).map(part).collect()
});

impl Cell {
    /// Interpolates at the Chebyshev nodes of the cell.
    fn new(start: f64, width: f64) -> Self {
        let nodes: [f64; COEFFICIENTS] = std::array::from_fn(|i| {
            let angle = (i as f64 + 0.5) * std::f64::consts::PI / COEFFICIENTS as f64;
            -0.5 * cos(angle)
        });
        let middle = start + width / 2.0;
        let values = nodes.map(|node| quantile((middle + node * width) / TWO_31));
        let mut polynomial = interpolate(nodes, values);
        let mut scale = 1.0;
        for coefficient in &mut polynomial {
            *coefficient *= scale;
            scale /= width;
        }
        Self { middle, polynomial }
    }
}

/// x >= 0 with P(|X| >= x) = `tail`, by Newton's method on ln of the tail, which is concave: from
/// above, where P(|X| >= x) <= exp(-x^2/2) begins, it decreases monotonically.
fn quantile(tail: f64) -> f64 {
    let mut x = sqrt(-2.0 * log(tail));
    for _ in 0..100 {
        let (at, density) =
            (erfc(x / sqrt(2.0)), exp(-x * x / 2.0) * sqrt(2.0 / std::f64::consts::PI));
        let step = log(at / tail) * at / density;
        x += step;
        if step.abs() <= 1e-15 * x {
            break;
        }
    }
    x
}

/// The polynomial through these points, lowest power first (Newton's divided differences).
fn interpolate(nodes: [f64; COEFFICIENTS], mut values: [f64; COEFFICIENTS]) -> [f64; COEFFICIENTS] {
    for order in 1..COEFFICIENTS {
        for i in (order..COEFFICIENTS).rev() {
            values[i] = (values[i] - values[i - 1]) / (nodes[i] - nodes[i - order]);
        }
    }
    let mut polynomial = [0.0; COEFFICIENTS];
    for i in (0..COEFFICIENTS).rev() {
        // polynomial = polynomial (t - nodes[i]) + values[i]
        for power in (1..COEFFICIENTS).rev() {
            polynomial[power] = polynomial[power - 1] - nodes[i] * polynomial[power];
        }
        polynomial[0] = values[i] - nodes[i] * polynomial[0];
    }
    polynomial
}

/// The normal variables that entries are rounded from, to within `docs/formats.md`'s tolerance of
/// 2^-24.
pub(crate) struct Normal(&'static [Cell]);

impl Normal {
    pub fn new() -> Self {
        Self(&CELLS)
    }

    /// Of the entry with these bits.
    pub fn of(&self, bits: u32, words: &Words, word: usize, entry: usize) -> f64 {
        let size = self.size(bits & (u32::MAX >> 1), || words.low(word, entry));
        // The top bit of the entry is the sign.
        f64::from_bits(size.to_bits() | u64::from(bits >> 31) << 63)
    }

    /// The magnitude with these 31 high bits, and low ones that are asked for only where they
    /// count.
    fn size(&self, high: u32, low: impl FnOnce() -> u32) -> f64 {
        let mut left = f64::from((1 << 31) - high) - 0.5;
        if left < LOW_COUNTS {
            // Exact: fewer than 53 bits are left, and one half.
            let bits = u64::from(high) << 32 | u64::from(low());
            left = (((1 << 63) - bits) as f64 - 0.5) / TWO_32;
        }
        // Exponent and first bits of the mantissa number the cells.
        let number = (left.to_bits() >> (MANTISSA - PARTS)) as usize;
        let first = ((1023 + SMALLEST) as usize) << PARTS;
        let Cell { middle, polynomial } = &self.0[number - first];
        let t = left - middle;
        polynomial.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/formats.md`, Words: what a score may be off for each entry.
    const TOLERANCE: f64 = 1.0 / (1 << 24) as f64;

    /// Magnitudes' bits and the exact normal variable, from the golden vectors: at both ends of
    /// every cell of the words' table, and 20 points inside.
    fn exact() -> Vec<(u64, f64)> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/v1/words.json");
        let text = std::fs::read_to_string(path).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let cases = file["cases"].as_array().unwrap();
        let case = cases.iter().find(|case| case["kind"] == "normals").unwrap();
        let point = |point: &serde_json::Value| {
            (point[0].as_str().unwrap().parse().unwrap(), point[1].as_f64().unwrap())
        };
        case["points"].as_array().unwrap().iter().map(point).collect()
    }

    fn size(bits: u64) -> f64 {
        Normal::new().size((bits >> 32) as u32, || bits as u32)
    }

    #[test]
    fn normals_are_right_to_the_stated_tolerance_in_all_cells_of_the_words_table() {
        let exact = exact();
        assert!(exact.len() > 2500);
        let off = |(bits, x): &(u64, f64)| (size(*bits) - x).abs();
        let worst = exact.iter().map(off).max_by(f64::total_cmp).unwrap();
        println!("{worst:e}, {:.3} of the tolerance", worst / TOLERANCE);
        assert!(worst <= TOLERANCE, "{worst:e}");
    }

    /// At both ends of every cell of this module and at 64 points inside, whatever the low bits
    /// are: against Newton's method, which the test above holds against the exact values.
    #[test]
    fn normals_are_right_to_the_stated_tolerance_in_all_cells_of_the_polynomials() {
        for (bits, x) in exact() {
            let tail = ((1 << 63) - bits) as f64 - 0.5;
            let found = quantile(tail / (2.0 * TWO_31 * TWO_31));
            assert!((found - x).abs() < 1e-13 * (1.0 + x), "{found} instead of {x}");
        }
        let mut points = 0;
        for octave in 0..63 {
            for part in 0..1u64 << 9 {
                // 2^63 less the bits: from a power of two in steps of 1/512 of it.
                let left = (1u128 << octave) + (u128::from(part) << octave >> 9);
                for left in [left, left + 1, (left | 0xffff_ffff) + 1, left | 0xffff_ffff] {
                    if left > 1 << 63 {
                        continue;
                    }
                    let bits = ((1u128 << 63) - left) as u64;
                    let x = quantile((left as f64 - 0.5) / (2.0 * TWO_31 * TWO_31));
                    assert!((size(bits) - x).abs() <= TOLERANCE, "{bits:x}");
                    points += 1;
                }
            }
        }
        assert!(points > 100_000);
    }

    /// The sign is the top bit, and the low bits are asked for in the tail only.
    #[test]
    fn low_bits_are_asked_for_in_the_tail_only() {
        let normal = Normal::new();
        let words = Words::new(&[5; 16], 3);
        for bits in [0, 1 << 20, 1 << 30, (1 << 31) - (1 << 22) - 1] {
            let plus = normal.size(bits, || panic!("not needed"));
            assert_eq!(normal.of(bits, &words, 0, 0).to_bits(), plus.to_bits());
            assert_eq!(normal.of(bits | 1 << 31, &words, 0, 0).to_bits(), (-plus).to_bits());
        }
        let mut asked = false;
        normal.size((1 << 31) - (1 << 22) + 1, || {
            asked = true;
            0
        });
        assert!(asked);
    }
}
