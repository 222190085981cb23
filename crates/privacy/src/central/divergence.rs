//! kappa: the largest Renyi divergence of a sum between two values of one person, per squared
//! difference. Proof: `docs/privacy-proofs.md`, section 3.

use std::ops::Range;

use crate::numeric::{Pmf, Upper, slack, special::power_excess_upper};

/// How finely an order is looked at; every effort gives a valid bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Effort {
    /// Intervals are split until their bound is within this share of the largest value found.
    pub tolerance: f64,
    /// Pieces in which a chord between two nodes is looked at.
    pub pieces: u32,
}

/// The laws of a sum plus the m coins of one person, ready to be compared at any order.
pub(super) struct Laws {
    bits: u32,
    /// For both ends of every cell: the end against its neighbour.
    cells: Vec<Groups>,
    /// For every grid point and both directions: the point against points of the cells that do not
    /// touch it.
    beyond: Vec<Vec<Node>>,
}

impl Laws {
    /// Laws of `sums` plus the person's coins, with tails of mass `tail` cut off and points put
    /// into at most `groups` groups. None if the window is too small to say anything.
    pub fn new(sums: &Pmf, bits: u32, keep: f64, tail: f64, groups: usize) -> Option<Self> {
        let grid = grid_laws(sums, bits, keep);
        let window = window(&grid, tail)?;
        let laws: Vec<&[f64]> = grid.iter().map(|law| &law.values[window.clone()]).collect();
        let m = bits as usize;
        let ends = (0..m).flat_map(|cell| [(cell, cell + 1), (cell + 1, cell)]);
        let cells: Vec<Groups> =
            ends.map(|(end, other)| Groups::new(laws[end], laws[other], groups)).collect();
        if cells.iter().any(|groups| groups.largest_difference() < slack::SMALLEST_DIFFERENCE) {
            return None;
        }
        let sides = (0..=m).flat_map(|fixed| {
            [beyond(&laws, fixed, true, groups), beyond(&laws, fixed, false, groups)]
        });
        let beyond = sides.filter(|nodes| !nodes.is_empty()).collect();
        Some(Self { bits, cells, beyond })
    }

    /// At least D_alpha(P_v || P_v') / (v - v')^2 for all v, v' in [-1, 1].
    pub fn kappa(&self, order: f64, effort: Effort) -> Option<f64> {
        let mut worst = 0f64;
        // v or v' at the end of a cell, the other one inside or beyond: the likelihood ratio to the
        // power alpha or 1 - alpha.
        for power in [order, 1.0 - order] {
            for groups in &self.cells {
                worst = worst.max(within_cell(groups, self.bits, power, effort));
            }
            for nodes in &self.beyond {
                worst = worst.max(across_cells(nodes, power, effort));
            }
        }
        let kappa = Upper::raised(worst / (order - 1.0), slack::KAPPA).value();
        kappa.is_finite().then_some(kappa)
    }
}

/// Laws of the sum when v is a grid point: k coins lean up, m - k lean down, k = 0..=m. All on the
/// same positions.
fn grid_laws(sums: &Pmf, bits: u32, keep: f64) -> Vec<Pmf> {
    let (up, down) = (f64::midpoint(1.0, keep), f64::midpoint(1.0, -keep));
    let mut downs = vec![sums.clone()];
    for k in 0..bits as usize {
        downs.push(downs[k].with_coin(down));
    }
    (0..=bits as usize)
        .map(|k| (0..k).fold(downs[bits as usize - k].clone(), |law, _| law.with_coin(up)))
        .collect()
}

/// Positions outside of which every law has at most `tail`; all laws are positive on it.
fn window(laws: &[Pmf], tail: f64) -> Option<Range<usize>> {
    let (mut low, mut high) = (usize::MAX, 0);
    for law in laws {
        let own = law.window(tail)?;
        low = low.min(own.start);
        high = high.max(own.end);
    }
    let positive = laws.iter().all(|law| law.values[low..high].iter().all(|&value| value > 0.0));
    positive.then_some(low..high)
}

/// Points of a window with weight w and relative difference y = other/end - 1, in groups of
/// neighbours: a convex function of y is at most its chord.
struct Groups(Vec<Group>);

struct Group {
    mass: f64,
    mean: f64,
    low: f64,
    high: f64,
}

impl Groups {
    fn new(end: &[f64], other: &[f64], most: usize) -> Self {
        let size = end.len().div_ceil(most);
        let groups = end.chunks(size).zip(other.chunks(size)).map(|(end, other)| {
            let mut group =
                Group { mass: 0.0, mean: 0.0, low: f64::INFINITY, high: f64::NEG_INFINITY };
            for (&weight, &value) in end.iter().zip(other) {
                let y = (value - weight) / weight;
                group.mass += weight;
                group.mean += value - weight;
                group.low = group.low.min(y);
                group.high = group.high.max(y);
            }
            group.mean = (group.mean / group.mass).clamp(group.low, group.high);
            group
        });
        Self(groups.collect())
    }

    fn largest_difference(&self) -> f64 {
        self.0
            .iter()
            .fold(0.0, |largest: f64, group| largest.max(group.low.abs()).max(group.high.abs()))
    }

    /// At least the sum of w f(y), for a convex f.
    fn upper(&self, f: impl Fn(f64) -> f64) -> f64 {
        let of_group = |group: &Group| {
            let spread = group.high - group.low;
            let value = if spread <= 0.0 {
                f(group.mean)
            } else {
                let share = (group.mean - group.low) / spread;
                f(group.low) * (1.0 - share) + f(group.high) * share
            };
            group.mass * value
        };
        let sum: f64 = self.0.iter().map(of_group).sum();
        // What is not a number says nothing; `max` would ignore it.
        if sum.is_nan() { f64::INFINITY } else { sum }
    }
}

/// At least ln(phi(x))/x^2 for x in (0, 2/m], phi(x) = 1 + x^2 K(x), K convex.
fn within_cell(groups: &Groups, bits: u32, power: f64, effort: Effort) -> f64 {
    let width = 2.0 / f64::from(bits);
    // y is the whole difference of two neighbours, at distance `width`.
    let node = |x: f64| (x, groups.upper(|y| power_excess_upper(x / width * y, power)) / (x * x));
    let value = |x: f64, curvature: f64| (curvature * x * x).ln_1p() / (x * x);
    let at_zero = power * (power - 1.0) / 2.0 * groups.upper(|y| (y / width) * (y / width));
    let nodes: Vec<(f64, f64)> =
        (0..7).map(|halvings| node(width / f64::from(1u32 << halvings))).collect();
    // Below the last node ln(1 + K x^2)/x^2 <= K <= the larger end.
    let mut worst = at_zero.max(nodes[6].1);
    let mut found = nodes.iter().map(|&(x, curvature)| value(x, curvature)).fold(worst, f64::max);
    let mut open: Vec<Chord> =
        nodes.windows(2).map(|pair| Chord { from: pair[1], to: pair[0] }).collect();
    while let Some(chord) = open.pop() {
        let bound = chord.largest(effort.pieces, value);
        if bound <= found * (1.0 + effort.tolerance) || chord.to.0 < 1.01 * chord.from.0 {
            worst = worst.max(bound);
        } else {
            let middle = node((chord.from.0 * chord.to.0).sqrt());
            found = found.max(value(middle.0, middle.1));
            open.push(Chord { from: chord.from, to: middle });
            open.push(Chord { from: middle, to: chord.to });
        }
    }
    worst
}

/// A linear function on an interval of positive numbers.
struct Chord {
    from: (f64, f64),
    to: (f64, f64),
}

impl Chord {
    /// At least `ratio(x, y)` for all x of the interval and y at most the chord at x, for a ratio
    /// that falls in x and grows in y.
    fn largest(&self, pieces: u32, ratio: impl Fn(f64, f64) -> f64) -> f64 {
        let at = |piece: u32| {
            let share = f64::from(piece) / f64::from(pieces);
            let mix = |a: f64, b: f64| a + share * (b - a);
            (mix(self.from.0, self.to.0), mix(self.from.1, self.to.1))
        };
        let mut worst = f64::NEG_INFINITY;
        for piece in 0..pieces {
            let ((start, first), (_, second)) = (at(piece), at(piece + 1));
            worst = worst.max(ratio(start, first.max(second)));
        }
        worst
    }
}

/// A value at some distance from a grid point, and its law against the grid point's.
struct Node {
    distance: f64,
    groups: Groups,
}

/// Nodes in the cells above or below the grid point `fixed` that do not touch it, by distance: the
/// ends of the cells and some points inside, more of them where the distance is small.
fn beyond(laws: &[&[f64]], fixed: usize, above: bool, groups: usize) -> Vec<Node> {
    let m = laws.len() - 1;
    let cells = if above { m - fixed } else { fixed };
    let grid = |steps: usize| laws[if above { fixed + steps } else { fixed - steps }];
    let node = |near: usize, share: f64| {
        let mix = |(a, b): (&f64, &f64)| a + share * (b - a);
        let law: Vec<f64> = grid(near).iter().zip(grid((near + 1).min(cells))).map(mix).collect();
        let distance = (near as f64 + share) * 2.0 / m as f64;
        Node { distance, groups: Groups::new(laws[fixed], &law, groups) }
    };
    let mut nodes = Vec::new();
    for near in 1..cells {
        let inside = 8usize.div_ceil(near).max(24usize.div_ceil(m));
        nodes.extend((0..inside).map(|i| node(near, i as f64 / inside as f64)));
    }
    if cells > 1 {
        nodes.push(node(cells, 0.0));
    }
    nodes
}

/// At least ln(phi)/(v - v')^2 for v (or v') at a grid point and the other one in a cell that does
/// not touch it: phi is convex along a cell.
fn across_cells(nodes: &[Node], power: f64, effort: Effort) -> f64 {
    let at =
        |node: &Node| (node.distance, node.groups.upper(|y| power_excess_upper(y, power)).max(0.0));
    let points: Vec<(f64, f64)> = nodes.iter().map(at).collect();
    let chords = points.windows(2).map(|ends| Chord { from: ends[0], to: ends[1] });
    let largest = |chord: Chord| chord.largest(effort.pieces, |x, excess| excess.ln_1p() / (x * x));
    chords.map(largest).fold(0.0, f64::max)
}
