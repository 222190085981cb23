//! Laws of sums of coins on a window of the integers, every entry with a small relative error.

use std::ops::Range;

use super::slack;

/// Probabilities of consecutive integers; positions do not matter, only order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pmf {
    /// The probabilities.
    pub values: Vec<f64>,
}

impl Pmf {
    /// The law of the sum of two independent ones, four weights at a time.
    #[must_use]
    pub fn convolve(&self, other: &Self) -> Self {
        let (long, short) =
            if self.values.len() >= other.values.len() { (self, other) } else { (other, self) };
        let padded = [&[0.0; 3], &long.values[..], &[0.0; 3]].concat();
        let length = long.values.len() + short.values.len() - 1;
        let mut values = vec![0.0; length + 3];
        for (start, weights) in short.values.chunks(4).enumerate() {
            let mut w = [0.0; 4];
            w[..weights.len()].copy_from_slice(weights);
            for (sum, near) in values[4 * start..].iter_mut().zip(padded.windows(4)) {
                *sum += w[0] * near[3] + w[1] * near[2] + w[2] * near[1] + w[3] * near[0];
            }
        }
        values.truncate(length);
        Self { values }
    }

    /// The law after one more coin.
    #[must_use]
    pub fn with_coin(&self, chance: f64) -> Self {
        let mut values = vec![0.0; self.values.len() + 1];
        for (i, &value) in self.values.iter().enumerate() {
            values[i] += value * (1.0 - chance);
            values[i + 1] += value * chance;
        }
        Self { values }
    }

    /// Entries outside of which the law has at most `tail`, half of it on each side. None if that
    /// is too small to say anything.
    pub fn window(&self, tail: f64) -> Option<Range<usize>> {
        if tail < slack::SMALLEST_TAIL {
            return None;
        }
        let half = tail / 2.0 * (1.0 - slack::LEFT_OUT);
        let beyond = |mass: &mut f64, value: f64| {
            *mass += value;
            *mass > half
        };
        let (mut below, mut above) = (0.0, 0.0);
        let first = self.values.iter().position(|&value| beyond(&mut below, value))?;
        let last = self.values.iter().rposition(|&value| beyond(&mut above, value))?;
        (first <= last).then_some(first..last + 1)
    }
}
