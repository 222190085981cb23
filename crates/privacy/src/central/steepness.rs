//! How fast one coin's tilt moves the quantiles of a sum. Proof: `docs/privacy-proofs.md`, section
//! 9.

use crate::numeric::{Pmf, special::density_at_tail};

/// Laws of at most so many points are looked at point by point.
const MOST_POINTS: usize = 1024;
/// Larger ones in about so many blocks, each of a thirtieth of a standard deviation: the tangents
/// are above by a share of 2e-4.
const BLOCKS: usize = 768;

/// The largest T(t)/phi(Phi^-1(F(t))) over thresholds t with F(t) in [`level`, 1 - `level`], where
/// T is the law of the other coins, F the distribution function of T plus one coin with tilt 1 or
/// -1, and thresholds between two integers choose between them at random.
///
/// `law` may miss a mass far below `level`. T is a concave function of F, so that in a block of
/// points it is below its two tangents; phi(Phi^-1) is concave too, so above its chord.
pub(super) fn steepest(law: &Pmf, keep: f64, level: f64) -> f64 {
    let masses = &law.values;
    let sums = |masses: &mut dyn Iterator<Item = &f64>| -> Vec<f64> {
        masses
            .scan(0.0, |sum, mass| {
                let before = *sum;
                *sum += mass;
                Some(before)
            })
            .collect()
    };
    let below = sums(&mut masses.iter());
    let mut above = sums(&mut masses.iter().rev());
    above.reverse();
    let stride = if masses.len() <= MOST_POINTS { 1 } else { masses.len().div_ceil(BLOCKS) };
    let (up, down) = (f64::midpoint(1.0, keep), f64::midpoint(1.0, -keep));
    let side = |zero: f64| Side { masses, below: &below, above: &above, zero, stride };
    side(down).steepest(level).max(side(up).steepest(level))
}

/// The sum with one more coin, which is zero with the chance `zero`.
struct Side<'a> {
    masses: &'a [f64],
    /// Mass of smaller and of larger integers.
    below: &'a [f64],
    above: &'a [f64],
    zero: f64,
    stride: usize,
}

/// A point of the curve of T over F.
#[derive(Clone, Copy)]
struct Point {
    mass: f64,
    /// F and 1 - F, each summed up from its own side.
    below: f64,
    above: f64,
}

impl Point {
    fn density(self) -> f64 {
        density_at_tail(self.below.min(self.above).min(0.5))
    }

    /// F(other) - F(self).
    fn distance(self, other: Self) -> f64 {
        if other.below <= 0.5 { other.below - self.below } else { self.above - other.above }
    }

    /// A point of the segment to `other`.
    fn towards(self, other: Self, share: f64) -> Self {
        let mix = |a: f64, b: f64| a + share.clamp(0.0, 1.0) * (b - a);
        Self {
            mass: mix(self.mass, other.mass),
            below: mix(self.below, other.below),
            above: mix(self.above, other.above),
        }
    }
}

impl Side<'_> {
    /// Vertices of the curve; before the first and after the last one T is zero.
    fn point(&self, index: usize) -> Point {
        let mass = self.masses[index];
        Point {
            mass,
            below: self.below[index] + mass * self.zero,
            above: self.above[index] + mass * (1.0 - self.zero),
        }
    }

    fn steepest(&self, level: f64) -> f64 {
        let last = self.masses.len() - 1;
        let first_in = self.partition(|point| point.below < level);
        let after_in = self.partition(|point| point.above >= level);
        // The ends of the range, inside a segment or before the first or after the last vertex.
        let nothing = Point { mass: 0.0, below: 0.0, above: 1.0 };
        let everything = Point { mass: 0.0, below: 1.0, above: 0.0 };
        let at = |index: Option<usize>| match index {
            None => nothing,
            Some(index) if index > last => everything,
            Some(index) => self.point(index),
        };
        let (from, to) = (at(first_in.checked_sub(1)), at(Some(first_in)));
        let mut low = from.towards(to, (level - from.below) / (to.below - from.below));
        (low.below, low.above) = (level, 1.0 - level);
        let (from, to) = (at(after_in.checked_sub(1)), at(Some(after_in)));
        let mut high = from.towards(to, (from.above - level) / (from.above - to.above));
        (high.below, high.above) = (1.0 - level, level);
        let mut worst = (low.mass / low.density()).max(high.mass / high.density());
        if first_in >= after_in {
            return worst;
        }
        let (mut index, last) = (first_in, after_in - 1);
        let mut point = self.point(index);
        let mut density = point.density();
        worst = worst.max(point.mass / density);
        while index < last {
            let next = (index + self.stride).min(last);
            let end = self.point(next);
            let end_density = end.density();
            worst = worst.max(end.mass / end_density);
            if next > index + 1 {
                let (width, tangents) =
                    (point.distance(end), (self.slope(index), self.slope(next - 1)));
                let (rise, bend) = (end.mass - point.mass, tangents.0 - tangents.1);
                let share = ((rise - tangents.1 * width) / (bend * width)).clamp(0.0, 1.0);
                // Both tangents are above the curve; where they do not meet it is straight.
                if share.is_finite() {
                    let peak = (point.mass + tangents.0 * share * width)
                        .max(end.mass - tangents.1 * (1.0 - share) * width);
                    worst = worst.max(peak / (density + share * (end_density - density)));
                }
            }
            (index, point, density) = (next, end, end_density);
        }
        worst
    }

    /// Slope of the curve between a vertex and the next one.
    fn slope(&self, index: usize) -> f64 {
        let (a, b) = (self.masses[index], self.masses[index + 1]);
        (b - a) / (a * (1.0 - self.zero) + b * self.zero)
    }

    /// The first vertex for which the condition, which holds up to some vertex, does not hold.
    fn partition(&self, holds: impl Fn(Point) -> bool) -> usize {
        let (mut low, mut high) = (0, self.masses.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if holds(self.point(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}
