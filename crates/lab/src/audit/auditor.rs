//! The auditor's own view of a codebook report, from the format's text and not from the device's
//! code: which words a seed expands to, and which of them the stated rule picks.

use std::sync::LazyLock;

use incrowd_privacy::numeric::special::normal_quantile;
use incrowd_protocol::{CodebookLaw, STEPS};
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
use rand_core::Rng;

use super::search::Input;

/// Beside the seed in the generator's key.
const TAG: [u8; 16] = *b"incrowd/words/v1";
/// Entries of a word are a multiple of this.
const BLOCK: usize = 16;
/// Cells of the table of quantiles.
const CELLS: usize = 1 << 16;
/// Beyond this share of the half normal law the quantile is computed.
const TABLE_END: f64 = 0.99;

/// Quantiles of the half normal law at the ends of equal cells, up to the end of the table.
static QUANTILES: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let last = (TABLE_END * CELLS as f64) as usize + 2;
    (0..=last).map(|i| half_normal(i as f64 / CELLS as f64)).collect()
});

fn half_normal(share: f64) -> f64 {
    normal_quantile((1.0 - share) / 2.0)
}

/// A standard normal variable from 32 bits: the highest is its sign, the others, and a half, its
/// place in the half normal law. It is right to 2e-6 up to 4, beyond which 1 of 16,000 is.
fn normal(bits: u32) -> f64 {
    let share = (f64::from(bits & (u32::MAX >> 1)) + 0.5) / f64::from(1u32 << 31);
    let size = if share < TABLE_END {
        let place = share * CELLS as f64;
        let (cell, within) = (place as usize, place.fract());
        QUANTILES[cell] + within * (QUANTILES[cell + 1] - QUANTILES[cell])
    } else {
        half_normal(share)
    };
    if bits >> 31 == 0 { size } else { -size }
}

/// The normal vectors that a seed's words are rounded from, one after another.
pub(super) fn codebook(seed: &[u8; 16], words: u32, entries: usize) -> Vec<Vec<f64>> {
    let mut key = [0; 32];
    key[..16].copy_from_slice(seed);
    key[16..].copy_from_slice(&TAG);
    let mut generator = ChaCha20Rng::from_seed(key);
    let mut word = |_| {
        let bits: Vec<u32> =
            (0..entries.next_multiple_of(BLOCK)).map(|_| generator.next_u32()).collect();
        bits[..entries].iter().map(|&bits| normal(bits)).collect()
    };
    (0..words).map(&mut word).collect()
}

/// A word as the shuffler adds it: in sixteenths.
pub(super) fn rounded(word: &[f64]) -> Vec<i64> {
    word.iter().map(|x| (x * f64::from(STEPS)).round() as i64).collect()
}

/// z+ of an input that is brought into its range first.
pub(super) fn statistic(law: CodebookLaw, input: &Input) -> Vec<f64> {
    let Input { context, reward } = input.clipped();
    let weight = f64::from(law.moment_weight) / 256.0;
    let mut z: Vec<f64> = context.iter().map(|u| weight.sqrt() * reward * u).collect();
    for (i, u) in context.iter().enumerate() {
        for (j, v) in context[..=i].iter().enumerate() {
            let twice = if i == j { 1.0 } else { 2.0 };
            z.push(((1.0 - weight) * twice).sqrt() * u * v);
        }
    }
    let square: f64 = z.iter().map(|z| z * z).sum();
    z.push((1.0 - square).max(0.0).sqrt());
    z
}

/// How many words have a larger score than word `index`: the first k are picked.
pub(super) fn rank(codebook: &[Vec<f64>], statistic: &[f64], index: u8) -> usize {
    let score = |word: &[f64]| -> f64 { dot(word, statistic) };
    let Some(own) = codebook.get(usize::from(index)).map(|word| score(word)) else {
        return usize::MAX;
    };
    codebook.iter().filter(|word| score(word) > own).count()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
