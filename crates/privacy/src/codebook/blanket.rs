//! The blanket: a report is blind with a chance that does not depend on its input, and hides among
//! the other blind ones. Proof: `docs/privacy-proofs.md`, section 10.2.

use libm::{exp, expm1, floor, log};

use super::{losses::Losses, odds::Odds};
use crate::numeric::{Binomial, Ends, Pmf, Upper, bisect, relative, slack};

/// Larger batches are treated as of this size, which is sound.
const MOST_REPORTS: u64 = 1 << 24;
/// Relative width of the ranges of blind words that are treated as their lower end.
const RANGE: f64 = 1e-3;
/// The same for Renyi divergences, and for the number of words that tell the two inputs apart.
const COARSE: f64 = 2e-2;
/// Entries of a law below this are left out, and paid for.
const SMALL: f64 = 1e-24;
/// Tails of fair coins are computed anew after so many steps.
const STEPS: u32 = 64;
/// How far above the smallest epsilon the search may stop, relatively.
const SEARCH: f64 = 1e-6;

/// A batch of codebook reports as a multiset of words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Blanket {
    odds: Odds,
    /// Numbers M of blind words, the person's among them, each with its probability and the law of
    /// how many of them tell the two inputs apart.
    ranges: Vec<Range>,
    /// The probability of all smaller M.
    missed: f64,
}

#[derive(Debug, Clone, PartialEq)]
struct Range {
    blind: u64,
    probability: f64,
    /// The first count of `apart`.
    first: u64,
    apart: Vec<f64>,
}

impl Blanket {
    /// `reports` honest reports, the person's among them, for deltas that are not far below
    /// `delta`.
    pub fn new(odds: Odds, reports: u64, delta: f64) -> Self {
        Self::in_ranges(odds, blind(&odds, reports, RANGE, 1e-5 * delta))
    }

    /// A guess at it in fewer ranges.
    pub fn approx(odds: Odds, reports: u64, delta: f64) -> Self {
        let width = 0.25 / libm::sqrt((reports as f64 * odds.blind).max(1.0));
        Self::in_ranges(odds, blind(&odds, reports, width.max(RANGE), 1e-2 * delta))
    }

    fn in_ranges(odds: Odds, (ranges, missed): (Vec<(u64, f64)>, f64)) -> Self {
        let ranges = ranges.into_iter().map(|(blind, probability)| {
            let (first, apart) = apart(&odds, blind);
            Range { blind, probability, first, apart }
        });
        Self { odds, ranges: ranges.collect(), missed }
    }

    /// At least the hockey-stick divergence at e^epsilon, epsilon >= 0, of the worst two inputs.
    pub fn delta(&self, epsilon: f64) -> Upper {
        let of = |range: &Range| range.probability * self.given(range, epsilon);
        let sum = self.ranges.iter().map(of).sum();
        Upper::raised(sum, slack::CLONES) + Upper::of(self.missed)
    }

    /// At least the epsilon at `delta`, at most `cap`.
    pub fn epsilon(&self, delta: f64, cap: f64) -> f64 {
        let is_enough = |epsilon| self.delta(epsilon).is_at_most(delta);
        if is_enough(0.0) {
            return 0.0;
        }
        bisect(Ends { holds: cap, fails: 0.0 }, relative(SEARCH), is_enough).holds
    }

    /// The divergence given M: (a-gamma)(1+e)/M times the mean of (I - t)_+, I of C words in favour
    /// of the first input, t = (e (a-gamma) C + gamma (e-1) M)/((a-gamma)(1+e)).
    fn given(&self, range: &Range, epsilon: f64) -> f64 {
        let (gain, m) = (self.odds.gain(), range.blind as f64);
        // Divided by e^eps, so that nothing overflows.
        let inverse = exp(-epsilon);
        let both = gain * (1.0 + inverse);
        let fixed = self.odds.blind * -expm1(-epsilon) * m / both;
        let slope = gain / both;
        let mut tail = FairTail::default();
        let mut sum = 0.0;
        for (count, probability) in (range.first..).zip(&range.apart) {
            sum += probability * tail.excess(count, slope * count as f64 + fixed);
        }
        // What the entries that are left out may add: a word adds at most a.
        let left_out = 2.0 * SMALL * m;
        (both * exp(epsilon) * sum / m + self.odds.inside * left_out).min(1.0)
    }
}

/// The pair of the worst two inputs as losses, with at most `tail` of either law left out.
pub(crate) fn strong(odds: &Odds, reports: u64, tail: f64) -> Losses {
    let part = tail / 4.0;
    let (ranges, missed) = blind(odds, reports, COARSE, part);
    let mut losses = Losses::with_spent(missed);
    for (m, probability) in ranges {
        let (first, law) = apart(odds, m);
        let m = m as f64;
        // Both laws have the same law of C: that of blind words, reweighted.
        let reweighted = |(c, value): (u64, &f64)| {
            probability * value * (odds.gain() * c as f64 / 2.0 + odds.blind * m) / m
        };
        let weights: Vec<f64> = (first..).zip(&law).map(reweighted).collect();
        let mut start = 0;
        while start < weights.len() {
            let low = first + start as u64;
            let width = ((low as f64 * COARSE) as usize).max(1);
            let end = (start + width).min(weights.len());
            let high = (first + end as u64 - 1) as f64;
            let weight: f64 = weights[start..end].iter().sum();
            let tilt = odds.gain() * high / 2.0;
            let tilt = tilt / (tilt + odds.blind * m);
            losses.add_fair(weight, low, tilt, part);
            start = end;
        }
        losses.spend(probability * odds.inside * 2.0 * SMALL * m);
    }
    losses
}

/// The pair of a report and a word picked blindly, likewise.
pub(crate) fn weak(odds: &Odds, reports: u64, tail: f64) -> Losses {
    let part = tail / 4.0;
    let (ranges, missed) = blind(odds, reports, COARSE, part);
    let mut losses = Losses::with_spent(missed);
    for (m, probability) in ranges {
        let (first, Pmf { values }) = Binomial::new(m, odds.share()).pmf_with_start();
        let ratio = |i: usize| odds.blind + odds.gain() * (first + i as u64) as f64 / m as f64;
        losses.add(probability, &values, |i| log(ratio(i)), part / odds.inside);
    }
    losses
}

/// Numbers of blind words, the person's among them, in ranges that are treated as their lower end:
/// 1 + Bin(reports - 1, gamma). And the probability of what is left out below, at most `tail`.
fn blind(odds: &Odds, reports: u64, width: f64, tail: f64) -> (Vec<(u64, f64)>, f64) {
    let others = reports.min(MOST_REPORTS) - 1;
    if odds.blind >= 1.0 || others == 0 {
        return (vec![(others + 1, 1.0)], 0.0);
    }
    let (first, Pmf { values }) = Binomial::new(others, odds.blind).pmf_with_start();
    let mut ranges: Vec<(u64, f64)> = Vec::new();
    let (mut missed, mut end) = (slack::NEGLIGIBLE * (others as f64 + 1.0), 0);
    for (m, probability) in (first + 1..).zip(values) {
        match ranges.last_mut() {
            None if missed + probability <= tail => missed += probability,
            Some(range) if m < end => range.1 += probability,
            _ => {
                ranges.push((m, probability));
                end = m + ((m as f64 * width) as u64).max(1);
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
    (ranges, missed)
}

/// How many of `blind` words are chosen by one of two inputs that choose different words, without
/// entries below [`SMALL`].
fn apart(odds: &Odds, blind: u64) -> (u64, Vec<f64>) {
    let share = 2.0 * odds.share();
    if share >= 1.0 {
        return (blind, vec![1.0]);
    }
    let (first, Pmf { values }) = Binomial::new(blind, share).pmf_with_start();
    let skip = values.iter().take_while(|&&value| value < SMALL).count();
    let kept = values[skip..].iter().copied().take_while(|&value| value >= SMALL);
    (first + skip as u64, kept.collect())
}

/// P(I >= i) and P(I = i) of I ~ Bin(C, 1/2) for growing C and i.
#[derive(Default)]
struct FairTail {
    count: u64,
    at: u64,
    point: f64,
    tail: f64,
    /// The tail when it was last computed from nothing but a point.
    fresh: f64,
    steps: u32,
}

impl FairTail {
    /// E (I - t)_+ = (C/2 - t) P(I >= i) + (i/2) P(I = i), i = floor(t) + 1.
    fn excess(&mut self, count: u64, t: f64) -> f64 {
        let c = count as f64;
        if t >= c {
            return 0.0;
        }
        let at = floor(t) as u64 + 1;
        self.walk(count, at);
        ((c / 2.0 - t) * self.tail + at as f64 / 2.0 * self.point).max(0.0)
    }

    /// Goes to (count, at); a neighbour is reached by adding or taking away one point.
    fn walk(&mut self, count: u64, at: u64) {
        let near = self.steps > 0 && count == self.count + 1 && at >= self.at && at <= self.at + 1;
        if !near || self.point <= f64::MIN_POSITIVE {
            return self.start(count, at);
        }
        let (c, i) = (self.count as f64, self.at as f64);
        // P(Bin(C+1) >= i) = P(Bin(C) >= i) + P(Bin(C) = i-1)/2.
        self.tail += self.point * i / (c - i + 1.0) / 2.0;
        self.point *= (c + 1.0) / (2.0 * (c + 1.0 - i));
        if at > self.at {
            self.tail -= self.point;
            self.point *= (c + 1.0 - i) / (i + 1.0);
        }
        (self.count, self.at) = (count, at);
        self.steps -= 1;
        // Differences lose digits.
        if self.tail < 0.01 * self.fresh {
            self.start(count, at);
        }
    }

    fn start(&mut self, count: u64, at: u64) {
        let (c, mut i) = (count as f64, at as f64);
        self.point = Binomial::new(count, 0.5).point(at);
        let (mut term, mut sum) = (self.point, self.point);
        while i < c && term > 1e-17 * sum {
            term *= (c - i) / (i + 1.0);
            i += 1.0;
            sum += term;
        }
        (self.count, self.at, self.tail, self.fresh) = (count, at, sum, sum);
        self.steps = STEPS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walking along counts agrees with sums over all outcomes.
    #[test]
    fn excesses_of_fair_coins_are_those_of_the_sum() {
        for (slope, fixed) in [(0.5, 0.0), (0.55, 3.0), (0.7, 0.1), (0.9, 1.5), (0.52, 11.0)] {
            let mut tail = FairTail::default();
            for count in 5..400 {
                let t = slope * count as f64 + fixed;
                let law = Binomial::new(count, 0.5);
                let exact: f64 = (0..=count).map(|i| (i as f64 - t).max(0.0) * law.point(i)).sum();
                let found = tail.excess(count, t);
                assert!(
                    (found - exact).abs() <= 1e-9 * exact + 1e-300,
                    "{count} {t}: {found} {exact}"
                );
            }
        }
    }
}
