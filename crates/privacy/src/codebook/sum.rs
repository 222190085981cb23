//! The released sum: the person's word among the sum of blind ones, against two Gaussians. Proof:
//! `docs/privacy-proofs.md`, section 10.3.

use incrowd_protocol::Blocks;
use libm::{exp, log, sqrt};

use super::{
    lattice,
    odds::Odds,
    slope::{ApproxSlope, Slope},
};
use crate::{
    gaussian::delta_upper,
    local,
    numeric::{Binomial, Ends, Pmf, Upper, bisect, relative, slack, special::normal_quantile},
    renyi::Ideal,
};

/// Fewer blind words than these are not enough for anything.
const FEWEST: u64 = 8;
/// More blind words are not used, which is sound.
const MOST: f64 = (1u64 << 20) as f64;
/// Share of delta that may pay for words that are not ideal.
const WORDS_SHARE: f64 = 2e-3;
/// Relative width of the ranges of blind words that are treated as their lower end.
const RANGE: f64 = 5e-3;
/// The same for Lambda, which changes slowly.
const WIDE: f64 = 0.3;
/// The same where two releases differ.
const COARSE: f64 = 2e-2;
/// How far above the smallest epsilon the search may stop, relatively.
const SEARCH: f64 = 1e-7;
/// The largest relative change of a likelihood ratio by scores for which the bound is offered.
const MOST_SCORES: f64 = 1e-3;

/// One release as a mixture of pairs of Gaussians, known to which of them it belongs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sum {
    /// Probabilities, and mu^2 of a drift of one: Lambda^2/(B+1).
    parts: Vec<(f64, f64)>,
    /// mu^2 for the two inputs that are farthest apart is so many times that.
    squares: f64,
    /// The mass that is left out of either law of one release.
    pub spent: f64,
    /// What one release has to do with one of normal words.
    pub ideal: Ideal,
}

impl Sum {
    /// One release with `others` honest reports besides the person's, of which at most `tail` is
    /// left out; none where nothing is proved. `delta` says how much of it words may cost.
    pub fn new(odds: Odds, blocks: Blocks, others: u64, tail: f64, delta: f64) -> Option<Self> {
        if odds.gain() <= 0.0 || tail < 1e-200 {
            return None;
        }
        let entries = local::coordinates(blocks) + 1.0;
        let most = WORDS_SHARE * delta / lattice::table(1.0, entries) - f64::from(odds.words) - 1.0;
        let most = most.min(MOST);
        if most < FEWEST as f64 {
            return None;
        }
        let (ranges, missed) = blind(&odds, others, most as u64, tail / 2.0)?;
        let (fewest, largest) = (ranges.first()?.0, ranges.last()?.0);
        if fewest < FEWEST {
            return None;
        }
        let variance = |b: u64| b as f64 / (b as f64 + 1.0) * (1.0 - slack::PRODUCT);
        let rounding = lattice::rounding(&odds, variance(fewest));
        if rounding.is_nan() || rounding > lattice::MOST_ROUNDING {
            return None;
        }
        let slope = Slope::new(odds);
        let exit = tail / 2.0 * (1.0 - 4.0 * slack::ROUNDING);
        let far = normal_quantile(exit / 8.0) * (1.0 + slack::ROUNDING) + slack::ROUNDING;
        let mut parts = Vec::new();
        let (mut lambda, mut end, mut steepest) = (0.0, 0, 0f64);
        for (b, probability) in ranges {
            if b >= end {
                lambda = lambda_at(&slope, &odds, entries, b, far, variance(b))?;
                steepest = steepest.max(lambda);
                end = b + ((b as f64 * WIDE) as u64).max(1);
            }
            let square = Upper::of(lambda * lambda / (b as f64 + 1.0)).value();
            parts.push((probability, square));
        }
        let scores = lattice::scores(entries, steepest);
        if scores.is_nan() || scores > MOST_SCORES {
            return None;
        }
        let words = f64::from(odds.words) + 1.0 + largest as f64;
        let ideal = Ideal {
            // ln((1+x)/(1-x)) <= 2.01 x for x <= 1e-3, and products of both factors.
            epsilon: 2.01 * (rounding + scores) * 1.001,
            distance: lattice::table(words, entries),
        };
        let spent = Upper::of(missed + exit).value();
        Some(Self { parts, squares: odds.squares(), spent, ideal })
    }

    /// A fast guess at it.
    pub fn approx(odds: Odds, others: u64, tail: f64) -> Option<Self> {
        let mean = others as f64 * odds.blind;
        let fewest = Binomial::new(others, odds.blind.min(1.0 - 1e-9)).lower_quantile(tail / 2.0);
        if odds.gain() <= 0.0 || fewest < FEWEST {
            return None;
        }
        let variance = mean * (1.0 - odds.blind).max(0.0);
        let far = normal_quantile(tail / 16.0);
        let mut parts = Vec::new();
        let slope = ApproxSlope::new(odds);
        let largest = |b: f64| {
            let reach = far / sqrt(b + 1.0) + 2.0 / b;
            let at = |i: i32| slope.at(f64::from(i) / 4.0 * reach, b / (b + 1.0));
            (-4..=4).map(at).fold(0.0, f64::max)
        };
        let slopes = [mean - 3.0 * sqrt(variance), mean].map(|b| largest(b.max(FEWEST as f64)));
        for i in -16..=16 {
            let x = f64::from(i) * 0.4;
            let b = (mean + x * sqrt(variance)).max(1.0);
            let probability = 0.4 * exp(-x * x / 2.0) / sqrt(std::f64::consts::TAU);
            // Lambda is about linear in 1/sqrt(B).
            let weight = (-x / 3.0).clamp(-1.0, 2.0);
            let lambda = slopes[1] + weight * (slopes[0] - slopes[1]);
            parts.push((probability, lambda * lambda * 1.006 / (b + 1.0)));
        }
        Some(Self { parts, squares: odds.squares(), spent: 0.0, ideal: Ideal::NONE })
    }

    /// mu of one release for the two inputs that are farthest apart, whatever the number of blind
    /// words.
    pub fn mu(&self) -> f64 {
        let largest = self.parts.iter().map(|part| part.1).fold(0.0, f64::max);
        Upper::of(sqrt(self.squares * largest)).value()
    }

    /// At least the Renyi divergence of one release for these inputs. That of two releases with a
    /// report in one world only is not larger.
    pub fn divergence(&self, order: f64) -> f64 {
        self.moment(order, self.squares)
    }

    /// The same of one release with a report in one world only.
    pub fn single(&self, order: f64) -> f64 {
        self.moment(order, 1.0)
    }

    fn moment(&self, order: f64, squares: f64) -> f64 {
        let half = order * (order - 1.0) / 2.0 * squares;
        let sum: f64 = self.parts.iter().map(|&(mass, square)| mass * exp(half * square)).sum();
        Upper::of(log(Upper::of(sum).value()).max(0.0) / (order - 1.0)).value()
    }

    /// At least the divergence at e^epsilon of one replaced report, without what is spent.
    pub fn replaced(&self, epsilon: f64) -> Upper {
        let of = |&(mass, square): &(f64, f64)| {
            mass * delta_upper(sqrt(self.squares * square), epsilon).value()
        };
        Upper::of(self.parts.iter().map(of).sum())
    }

    /// The same of one moved report: two releases, each with a report in one world and a blind word
    /// in the other.
    pub fn moved(&self, epsilon: f64) -> Upper {
        let parts = self.coarse();
        let mut sum = 0.0;
        for (i, &(mass, square)) in parts.iter().enumerate() {
            for (j, &(other_mass, other)) in parts[..=i].iter().enumerate() {
                let times = if i == j { 1.0 } else { 2.0 };
                let delta = delta_upper(sqrt(square + other), epsilon).value();
                sum += times * mass * other_mass * delta;
            }
        }
        Upper::of(sum)
    }

    /// Fewer parts, each with the largest square of those it stands for.
    fn coarse(&self) -> Vec<(f64, f64)> {
        let mut parts: Vec<(f64, f64)> = Vec::new();
        for &(mass, square) in &self.parts {
            match parts.last_mut() {
                Some(part) if square <= part.1 && square > part.1 * (1.0 - COARSE) => {
                    part.0 += mass;
                }
                _ => parts.push((mass, square)),
            }
        }
        parts
    }

    /// At least the epsilon at `delta`, at most `cap`, by `divergence`.
    pub fn solve(delta: f64, cap: f64, divergence: impl Fn(f64) -> Upper) -> Option<f64> {
        let is_enough = |epsilon: f64| divergence(epsilon).is_at_most(delta);
        if is_enough(0.0) {
            return Some(0.0);
        }
        is_enough(cap)
            .then(|| bisect(Ends { holds: cap, fails: 0.0 }, relative(SEARCH), is_enough).holds)
    }
}

/// Lambda where `b` other words are blind, or more: the largest slope in the window that the sum
/// leaves with a small chance, which depends on Lambda.
fn lambda_at(
    slope: &Slope,
    odds: &Odds,
    entries: f64,
    b: u64,
    far: f64,
    variance: f64,
) -> Option<f64> {
    let time = b as f64 + 1.0;
    let mut most = 1.1 * ApproxSlope::new(*odds).at(far / sqrt(time), variance).max(0.05);
    for _ in 0..20 {
        let reach = far / sqrt(time) + most / time + 2.0 * lattice::score_error(entries);
        let found = slope.largest(reach * (1.0 + slack::PRODUCT), variance);
        if found <= most {
            return Some(found);
        }
        most = 1.05 * found;
    }
    None
}

/// Numbers of blind words among the others, Bin(others, gamma), at most `most`, in ranges that are
/// treated as their lower end; and the probability of what is left out below, at most `tail`.
fn blind(odds: &Odds, others: u64, most: u64, tail: f64) -> Option<(Vec<(u64, f64)>, f64)> {
    if others == 0 {
        return None;
    }
    if odds.blind >= 1.0 {
        return Some((vec![(others.min(most), 1.0)], 0.0));
    }
    // Larger batches are treated as smaller, so that laws stay short.
    let others = others.min(1 << 34);
    let law = Binomial::new(others, odds.blind);
    let (first, below) = law.cut(tail * (1.0 - 4.0 * slack::ROUNDING));
    let (start, Pmf { values }) = law.pmf_with_start();
    let mut ranges: Vec<(u64, f64)> = Vec::new();
    let mut end = 0;
    for (b, probability) in (start..).zip(values) {
        if b < first {
            continue;
        }
        match ranges.last_mut() {
            Some(range) if b < end || range.0 >= most => range.1 += probability,
            _ => {
                let b = b.min(most);
                ranges.push((b, probability));
                end = b + ((b as f64 * RANGE) as u64).max(1);
            }
        }
    }
    // Few are far above: they are treated as less.
    while let [.., (_, a), (_, b)] = ranges[..]
        && a + b < 1e-12
    {
        ranges.pop();
        ranges.last_mut().expect("invariant: two ranges").1 = a + b;
    }
    Some((ranges, below.value()))
}
