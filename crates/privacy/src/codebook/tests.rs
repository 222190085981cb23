//! The pieces against exact values: enumeration of small batches, integrals, convolutions.

use std::collections::HashMap;

use libm::{exp, log, sqrt};

use super::{
    blanket::{self, Blanket},
    lattice,
    odds::Odds,
    slope::{self, ApproxSlope, Slope},
    sum::Sum,
};
use crate::numeric::{Binomial, Pmf, special::normal_density};

/// The law with a local epsilon, and w = 1/2.
fn odds(words: u32, chosen: u32, epsilon: f64) -> Odds {
    let inside = super::largest_inside(words, chosen, epsilon);
    Odds::new(words, chosen, inside, 1.0 - inside, 0.5)
}

/// A small generator, so that cases are many and always the same.
struct Cases(u64);

impl Cases {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A random subset as bits.
    fn subset(&mut self, of: u32, size: u32) -> u32 {
        let mut found = 0u32;
        while found.count_ones() < size {
            found |= 1 << self.below(u64::from(of));
        }
        found
    }
}

/// The law of the counts of all words when every report chooses these subsets.
fn counts(odds: &Odds, subsets: &[u32]) -> HashMap<Vec<u8>, f64> {
    let n = f64::from(odds.words);
    let mut law = HashMap::from([(vec![0; odds.words as usize], 1.0)]);
    for subset in subsets {
        let mut next = HashMap::new();
        for (counts, probability) in law {
            for word in 0..odds.words {
                let density = if subset >> word & 1 == 1 { odds.inside } else { odds.blind };
                let mut counts: Vec<u8> = counts.clone();
                counts[word as usize] += 1;
                *next.entry(counts).or_insert(0.0) += probability * density / n;
            }
        }
        law = next;
    }
    law
}

/// Batches with one common codebook, whatever the people in it choose: exactly, by enumeration.
#[test]
fn the_blanket_is_never_below_small_batches() {
    let mut cases = Cases(7);
    let mut nearest = 0f64;
    for case in 0..400 {
        let words = 2 + cases.below(4) as u32;
        let chosen = 1 + cases.below(u64::from(words / 2)) as u32;
        let reports = 2 + cases.below(4);
        let local = [0.3, 1.0, 2.0, 4.0][cases.below(4) as usize];
        let odds = odds(words, chosen, local);
        let others: Vec<u32> = (1..reports).map(|_| cases.subset(words, chosen)).collect();
        let [one, two] = [(); 2].map(|()| {
            let subset = cases.subset(words, chosen);
            counts(&odds, &[&[subset][..], &others[..]].concat())
        });
        let bound = Blanket::new(odds, reports, 1e-12);
        for share in [0.0, 0.2, 0.5, 0.8, 0.95] {
            let epsilon = share * local;
            let excess = |(counts, p): (&Vec<u8>, &f64)| (p - exp(epsilon) * two[counts]).max(0.0);
            let exact: f64 = one.iter().map(excess).sum();
            let found = bound.delta(epsilon).value();
            assert!(exact <= found, "case {case}: {odds:?} {reports} {epsilon}: {exact} {found}");
            if exact > 1e-3 {
                nearest = nearest.max(exact / found);
            }
        }
    }
    assert!(nearest > 0.9, "{nearest}");
}

/// The pair that dominates a batch, outcome by outcome: probabilities of (M, I, J) under both laws.
fn pair(odds: &Odds, reports: u64) -> Vec<(f64, f64)> {
    let others = Binomial::new(reports - 1, odds.blind);
    let mut all = Vec::new();
    for m in 1..=reports {
        let apart = Binomial::new(m, 2.0 * odds.share());
        for c in 0..=m {
            let weight = others.point(m - 1) * apart.point(c);
            for i in 0..=c {
                let weight = weight * if c == 0 { 1.0 } else { Binomial::new(c, 0.5).point(i) };
                let of = |own: u64| odds.blind + odds.gain() * own as f64 / m as f64;
                all.push((weight * of(i), weight * of(c - i)));
            }
        }
    }
    all
}

/// The same for a report and a blind word.
fn weak_pair(odds: &Odds, reports: u64) -> Vec<(f64, f64)> {
    let others = Binomial::new(reports - 1, odds.blind);
    let mut all = Vec::new();
    for m in 1..=reports {
        for i in 0..=m {
            let weight = others.point(m - 1) * Binomial::new(m, odds.share()).point(i);
            all.push((weight * (odds.blind + odds.gain() * i as f64 / m as f64), weight));
        }
    }
    all
}

fn divergence(one: &[(f64, f64)], two: &[(f64, f64)], epsilon: f64) -> f64 {
    let grown = exp(epsilon);
    let mut sum = 0.0;
    for (p, q) in one {
        sum += two.iter().map(|(r, s)| (p * r - grown * q * s).max(0.0)).sum::<f64>();
    }
    sum
}

#[test]
fn the_blanket_is_the_divergence_of_one_pair() {
    for (words, chosen, local, reports) in [(8, 2, 2.0, 20), (64, 3, 4.0, 35), (6, 3, 1.0, 9)] {
        let odds = odds(words, chosen, local);
        let pair = if 2 * chosen == words { Vec::new() } else { pair(&odds, reports) };
        let bound = Blanket::new(odds, reports, 1e-12);
        for share in [0.0, 0.3, 0.6, 0.9] {
            let exact = divergence(&pair, &[(1.0, 1.0)], share * local);
            let found = bound.delta(share * local).value();
            let near = pair.is_empty() || found <= exact * (1.0 + 2e-4) + 1e-12;
            assert!(exact <= found && near, "{words} {chosen} {share}: {exact} {found}");
        }
    }
}

/// Two batches, and a report that is moved to another batch, against all pairs of outcomes.
#[test]
fn renyi_divergences_are_never_below_products_of_pairs() {
    for (words, chosen, local, reports) in [(16, 3, 1.0, 24), (64, 3, 3.0, 20)] {
        let odds = odds(words, chosen, local);
        let strong = pair(&odds, reports);
        let weak = weak_pair(&odds, reports);
        let reversed: Vec<(f64, f64)> = weak.iter().map(|&(p, q)| (q, p)).collect();
        let strong_losses = blanket::strong(&odds, reports, 1e-9);
        let weak_losses = blanket::weak(&odds, reports, 1e-9);
        for order in [1.5, 3.0, 8.0, 20.0] {
            let exact = |pair: &[(f64, f64)]| {
                let moment: f64 = pair.iter().map(|(p, q)| q * exp(order * log(p / q))).sum();
                log(moment) / (order - 1.0)
            };
            for (exact, found) in [
                (exact(&strong), strong_losses.divergence(order)),
                (exact(&weak), weak_losses.divergence(order)),
                (exact(&reversed), weak_losses.reversed(order)),
            ] {
                // What is left out of the laws may matter at high orders.
                let low = if order < 10.0 { 0.999_99 } else { 0.9 };
                assert!(found >= low * exact && found <= 1.06 * exact, "{order}: {exact} {found}");
            }
        }
        let delta = 1e-3;
        let epsilon = |divergence: &dyn Fn(f64) -> f64| {
            let at = |exponent: f64| {
                let order = 1.0 + exp(exponent);
                (crate::renyi::epsilon_upper(divergence(order), order, delta), order)
            };
            crate::renyi::best_exponent(at).0
        };
        let twice = epsilon(&|order| 2.0 * strong_losses.divergence(order));
        assert!(divergence(&strong, &strong, twice) <= delta);
        assert!(divergence(&strong, &strong, 0.6 * twice) > delta, "{twice}");
        let moved = epsilon(&|order| weak_losses.divergence(order) + weak_losses.reversed(order));
        assert!(divergence(&weak, &reversed, moved) <= delta);
        assert!(divergence(&weak, &reversed, 0.6 * moved) > delta, "{moved}");
    }
}

/// The two-dimensional integral for normal words: E (H(s) - e^eps H(s'))_+, s and s' normal with
/// variance 1/(B+1) and the smallest correlation, averaged over B in ranges that are treated as
/// their upper end, so that it is a little too small.
fn integral(odds: &Odds, others: u64, epsilon: f64, ranges: u64) -> f64 {
    let (first, Pmf { values }) = Binomial::new(others, odds.blind).pmf_with_start();
    let width = (values.len() as u64 / ranges).max(1);
    let mut sum = 0.0;
    for (i, range) in values.chunks(width as usize).enumerate() {
        let mass: f64 = range.iter().sum();
        if mass > 1e-12 {
            let b = first + (i as u64 + 1) * width - 1;
            sum += mass * given(odds, b as f64, epsilon);
        }
    }
    sum
}

fn given(odds: &Odds, b: f64, epsilon: f64) -> f64 {
    let smoothed = Smoothed::new(odds, b);
    excess(&smoothed, &smoothed, -odds.kappa, epsilon)
}

/// The likelihood ratio of a sum with so many other blind words, as a function of its component in
/// standard deviations.
struct Smoothed(Vec<f64>);

impl Smoothed {
    const STEP: f64 = 0.025;

    fn new(odds: &Odds, b: f64) -> Self {
        let (time, variance) = (b + 1.0, b / (b + 1.0));
        let psis: Vec<(f64, f64)> =
            (-140..=160).map(|i| f64::from(i) / 16.0).map(|y| (y, slope::psi(odds, y))).collect();
        let mean = |m: f64| {
            let weight = |y: f64| normal_density((y - m) / sqrt(variance)) / sqrt(variance) / 16.0;
            odds.blind + odds.gain() * psis.iter().map(|&(y, psi)| psi * weight(y)).sum::<f64>()
        };
        let at = |i: i32| mean(f64::from(i) * Self::STEP / sqrt(time));
        Self((-400..=400).map(at).collect())
    }

    fn at(&self, x: f64) -> f64 {
        let place = (x / Self::STEP + 400.0).clamp(0.0, 799.999);
        let i = place as usize;
        self.0[i] + (place - i as f64) * (self.0[i + 1] - self.0[i])
    }
}

/// E (H(s) - e^eps H'(s'))_+ for s, s' normal with this correlation.
fn excess(one: &Smoothed, two: &Smoothed, cosine: f64, epsilon: f64) -> f64 {
    const STEP: f64 = 0.05;
    let sine = sqrt(1.0 - cosine * cosine);
    let grid: Vec<(f64, f64)> =
        (-136..=136).map(|i| f64::from(i) * STEP).map(|x| (x, normal_density(x) * STEP)).collect();
    let mut sum = 0.0;
    for &(x, weight) in &grid {
        let first = one.at(x);
        let excess = |&(y, w): &(f64, f64)| {
            w * (first - exp(epsilon) * two.at(cosine * x + sine * y)).max(0.0)
        };
        sum += weight * grid.iter().map(excess).sum::<f64>();
    }
    sum
}

#[test]
fn the_sum_is_above_the_integral_and_near_it() {
    let blocks = incrowd_protocol::Dimension::new(3).unwrap().into();
    let delta = 1e-5;
    for (words, chosen, local, reports, most) in [
        (256, 59, 2.0, 1000, 1.03),
        (64, 5, 4.0, 400, 1.07),
        (256, 17, 4.0, 2000, 1.03),
        (256, 1, 8.0, 3000, 1.07),
    ] {
        let odds = odds(words, chosen, local);
        let sum = Sum::new(odds, blocks, reports - 1, 1e-3 * delta, delta).unwrap();
        let left = delta - sum.spent;
        let epsilon = Sum::solve(left, local, |epsilon| sum.replaced(epsilon)).unwrap();
        let exact = integral(&odds, reports - 1, epsilon, 40);
        assert!(exact <= delta, "{local} {reports}: {exact} at {epsilon}");
        let exact = integral(&odds, reports - 1, epsilon / most, 40);
        assert!(exact > delta, "{local} {reports}: {exact} at {epsilon} over {most}");
    }
}

/// Sums of psi over a lattice along one of its axes, wherever the lattice starts, against the
/// integral.
#[test]
fn rounding_moves_likelihoods_by_less_than_said() {
    for (words, chosen, local) in [(256, 17, 4.0), (256, 1, 8.0), (256, 128, 1.0), (8, 2, 2.0)] {
        let odds = odds(words, chosen, local);
        let variance = 0.9;
        let bound = lattice::rounding(&odds, variance);
        assert!(bound > 0.0 && bound < lattice::MOST_ROUNDING, "{words} {chosen}: {bound}");
        let sum = |step: f64, start: f64, m: f64| {
            let terms = (-3000..3000).map(|i| (f64::from(i) + start) * step).map(|y| {
                let weight = normal_density((y - m) / sqrt(variance)) / sqrt(variance);
                step * weight * slope::psi(&odds, y)
            });
            odds.blind + odds.gain() * terms.sum::<f64>()
        };
        for (start, m) in [(0.0, 0.0), (0.3, 0.5), (0.5, -0.7)] {
            let (exact, rounded) = (sum(1.0 / 256.0, 0.0, m), sum(1.0 / 16.0, start, m));
            let error = (rounded / exact - 1.0).abs();
            assert!(error <= bound + 1e-13, "{words} {chosen}: {error} {bound}");
        }
        // A coarser lattice would be seen.
        if chosen == 17 {
            assert!((sum(1.0, 0.3, 0.5) / sum(1.0 / 256.0, 0.0, 0.5) - 1.0).abs() > 1e-3);
        }
    }
}

/// Values that were computed before this code, for N = 1024 and delta = 1e-6. They came without k:
/// here it is the k that fits a row best, one number for five values.
#[test]
fn the_blanket_has_the_values_of_an_earlier_table() {
    for (local, chosen, row) in [
        (1.0, 394, [0.469, 0.261, 0.137, 0.076, 0.040]),
        (2.0, 227, [1.22, 0.662, 0.342, 0.190, 0.099]),
        (4.0, 77, [3.29, 2.55, 1.44, 0.724, 0.370]),
        (8.0, 4, [7.99, 6.45, 5.37, 4.57, 3.79]),
    ] {
        let odds = odds(1024, chosen, local);
        for (reports, value) in [100, 300, 1000, 3000, 10_000].into_iter().zip(row) {
            let found = Blanket::new(odds, reports, 1e-6).epsilon(1e-6, local);
            assert!((found / value - 1.0).abs() < 0.005, "{local} {reports}: {found} {value}");
        }
    }
}

/// The slope is bounded in the whole window and for all variances, not only where words are
/// likeliest.
#[test]
fn lambda_is_the_largest_slope_in_the_window() {
    for (words, chosen, local) in [(256, 17, 4.0), (256, 1, 8.0), (64, 24, 1.0), (4, 1, 3.0)] {
        let odds = odds(words, chosen, local);
        let approx = ApproxSlope::new(odds);
        for (reach, variance) in [(0.05, 0.999), (0.4, 0.98), (1.2, 0.9)] {
            let found = Slope::new(odds).largest(reach, variance);
            let mut largest = 0f64;
            for i in -20..=20 {
                for v in [variance, f64::midpoint(variance, 1.0), 1.0] {
                    largest = largest.max(approx.at(f64::from(i) / 20.0 * reach, v));
                }
            }
            // Ranges of variances are cut into a few pieces, which costs most where they are wide.
            let most = 1.015 + 1.5 * (1.0 - variance);
            assert!(found >= largest && found <= most * largest, "{local}: {found} {largest}");
        }
        // Of a release: in the window that a sum of so many blind words leaves almost never.
        let (others, tail) = ((60.0 / odds.blind) as u64, 1e-9);
        let blocks = incrowd_protocol::Dimension::new(3).unwrap().into();
        let mu = Sum::new(odds, blocks, others, tail, 1e-6).unwrap().mu();
        let time = Binomial::new(others, odds.blind).cut(tail / 2.0).0 as f64 + 1.0;
        let slope =
            [-1.0, -0.6, -0.3, 0.3, 0.6, 1.0].map(|part| approx.at(6.0 * part / sqrt(time), 1.0));
        let least = sqrt(odds.squares() / time) * slope.into_iter().fold(0.0, f64::max);
        assert!(mu >= least, "{local}: {mu} {least}");
    }
}

/// A moved report: two independent sums, with a report in one of them in either world.
#[test]
fn a_moved_report_costs_at_least_its_integral() {
    let blocks = incrowd_protocol::Dimension::new(3).unwrap().into();
    let odds = odds(256, 17, 4.0);
    let others = 2000;
    let sum = Sum::new(odds, blocks, others, 1e-9, 1e-6).unwrap();
    let (first, Pmf { values }) = Binomial::new(others, odds.blind).pmf_with_start();
    for epsilon in [0.1, 0.3] {
        let mut exact = 0.0;
        let width = values.len() / 40;
        let ranges: Vec<(f64, f64)> = values
            .chunks(width)
            .enumerate()
            .map(|(i, range)| (range.iter().sum(), (first as usize + (i + 1) * width - 1) as f64))
            .filter(|range: &(f64, f64)| range.0 > 1e-7)
            .collect();
        for &(mass, b) in &ranges {
            let one = Smoothed::new(&odds, b);
            for &(other_mass, other) in &ranges {
                let two = Smoothed::new(&odds, other);
                exact += mass * other_mass * excess(&one, &two, 0.0, epsilon);
            }
        }
        let (moved, replaced) = (sum.moved(epsilon).value(), sum.replaced(epsilon).value());
        assert!(exact <= moved && moved <= 2.0 * exact, "{epsilon}: {exact} {moved}");
        assert!(moved < replaced);
    }
}

/// Against mpmath (`tests/reference/numeric.py`).
#[test]
fn psi_is_right_in_both_tails() {
    let file = include_str!("../../tests/reference/numeric.json");
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    let rows = file["among_best"].as_array().unwrap();
    assert!(rows.len() >= 30);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        let value: f64 = row["value"].as_str().unwrap().parse().unwrap();
        let odds = odds(number("words") as u32, number("chosen") as u32, 1.0);
        let found = slope::psi(&odds, number("y"));
        assert!((found - value).abs() <= 1e-11 * value + 1e-300, "{row}: {found}");
    }
}
