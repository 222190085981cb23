//! Sums of integers plus a binomial: the Renyi divergence of a binomial against its shifts. Proof:
//! `docs/privacy-proofs.md`, section 8.4.

use incrowd_privacy::{
    local::{coordinates, exact_diameter_2},
    numeric::{Binomial, slack, special::exp_excess_upper, up},
    renyi,
};
use incrowd_protocol::Dimension;
use libm::{exp, log1p, sqrt};

/// Chance of a coin.
pub(super) const CHANCE: f64 = 0.25;
/// Share of delta that pays for cutting off tails.
const TAIL_SHARE: f64 = 1e-3;
/// More coins are not used, which is sound.
pub(super) const MOST_COINS: u64 = 1 << 34;
/// Groups of neighbouring points in which a law is looked at.
const GROUPS: usize = 300;
/// Every shift up to this one is looked at, and then in steps of this share.
const EVERY_SHIFT: u32 = 12;
const SHIFT_STEP: f64 = 1.08;

/// At least the epsilon, at `delta`, of D sums in which one person's value v is rounded at random
/// to steps of 2/`levels` and to which Bin(`coins`, 1/4) is added, independently for each. None
/// where nothing can be said: too few coins to hide a shift by `levels`.
pub(super) fn epsilon_upper(
    dimension: Dimension,
    levels: u32,
    coins: u64,
    delta: f64,
) -> Option<f64> {
    let laws =
        Shifts::new(coins.min(MOST_COINS), levels, TAIL_SHARE * delta / coordinates(dimension))?;
    let left = delta - laws.outside * coordinates(dimension);
    if left < delta / 2.0 {
        return None;
    }
    let best = |rounding: Rounding| {
        let at = |exponent: f64| {
            let order = 1.0 + exp(exponent);
            let divergence = divergence(dimension, levels, order, laws.kappa(order), rounding);
            (renyi::epsilon_upper(divergence, order, left), order)
        };
        renyi::best_exponent(at).0
    };
    let epsilon = best(Rounding::Largest).min(best(Rounding::Average));
    epsilon.is_finite().then(|| up(epsilon))
}

/// How random rounding is accounted for.
#[derive(Clone, Copy)]
enum Rounding {
    /// Every coordinate moves by one step more than v does.
    Largest,
    /// The variance of the steps it moves by, and Hoeffding's lemma.
    Average,
}

/// Renyi divergence of all sums, from that of one sum when it is shifted by s: kappa s^2.
fn divergence(
    dimension: Dimension,
    levels: u32,
    order: f64,
    kappa: f64,
    rounding: Rounding,
) -> f64 {
    let d = coordinates(dimension);
    let steps = exact_diameter_2(dimension) * f64::from(levels) / 2.0 * (1.0 + slack::PRODUCT);
    kappa
        * match rounding {
            Rounding::Largest => (steps + sqrt(d)) * (steps + sqrt(d)),
            Rounding::Average => {
                let width = 2.0 * steps + sqrt(d);
                steps * steps + d / 4.0 + (order - 1.0) * kappa * width * width / 8.0
            }
        }
}

/// The log-likelihood of a binomial against its shifts by 1, ..., `levels` in both directions, at
/// chosen shifts.
struct Shifts {
    /// Mass of the binomial that is left out.
    outside: f64,
    /// Relative error of weights and log-likelihoods.
    error: f64,
    /// Per direction, in the order of the shifts.
    directions: [Vec<Shift>; 2],
}

struct Shift {
    size: f64,
    groups: Vec<Group>,
}

/// Neighbouring points: their mass, and the mean, lowest and highest log-likelihood ratio.
struct Group {
    mass: f64,
    mean: f64,
    low: f64,
    high: f64,
}

impl Shifts {
    fn new(coins: u64, levels: u32, tail: f64) -> Option<Self> {
        let reach = u64::from(levels);
        if coins < 2 * reach + 1 {
            return None;
        }
        let (first, law) = Binomial::new(coins, CHANCE).pmf_with_start();
        let window = law.window(tail)?;
        // Both the point and its shifts are possible.
        let low = window.start.max(reach.saturating_sub(first) as usize);
        let last = (coins - reach).checked_sub(first)? as usize;
        let high = window.end.min(last + 1);
        if low >= high {
            return None;
        }
        let left_out: f64 = law.values[..low].iter().chain(&law.values[high..]).sum();
        let weights = &law.values[low..high];
        // ln of P(k)/P(k+1) from `reach` below the window to `reach` above.
        let start = first + low as u64 - reach;
        let steps: Vec<f64> =
            (start..start + weights.len() as u64 + 2 * reach).map(|k| step(coins, k)).collect();
        let steps = &steps[..];
        let shifts = |upward: bool| {
            chosen(levels)
                .map(move |s| Shift::new(weights, steps, reach as usize, s as usize, upward))
        };
        Some(Self {
            outside: left_out * (1.0 + slack::LEFT_OUT) + tail * slack::LEFT_OUT,
            error: 8.0 * f64::EPSILON * (law.values.len() as f64 + 4.0 * f64::from(levels)),
            directions: [shifts(true).collect(), shifts(false).collect()],
        })
    }

    /// At least D_alpha/s^2 for every shift s up to `levels`, in both directions.
    fn kappa(&self, order: f64) -> f64 {
        let of_direction = |shifts: &Vec<Shift>| {
            let points: Vec<(f64, f64)> =
                shifts.iter().map(|s| (s.size, s.log_moment(order - 1.0, self.error))).collect();
            let ends = points.iter().map(|&(s, value)| value / (s * s)).fold(0.0, largest);
            points.windows(2).map(|pair| between(pair[0], pair[1])).fold(ends, largest)
        };
        self.directions.iter().map(of_direction).fold(0.0, largest) / (order - 1.0)
    }
}

/// The larger one; what is not a number says nothing.
fn largest(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::INFINITY } else { a.max(b) }
}

/// ln P(k) - ln P(k+1) of Bin(n, 1/4): ln(3 (k+1)/(n-k)).
fn step(n: u64, k: u64) -> f64 {
    let (above, rest) = ((4 * k + 3) as f64 - n as f64, (n - k) as f64);
    log1p(above / rest)
}

/// Shifts from 1 to `levels`: every small one, then in small steps.
fn chosen(levels: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1), move |&s| {
        let next = if s < EVERY_SHIFT { s + 1 } else { (f64::from(s) * SHIFT_STEP) as u32 };
        (s < levels).then(|| next.max(s + 1).min(levels))
    })
}

/// At least F(x)/x^2 for whole numbers x between two shifts, for an F that is at most its chord.
fn between((s, at_s): (f64, f64), (t, at_t): (f64, f64)) -> f64 {
    let slope = (at_t - at_s) / (t - s);
    let intercept = at_s - slope * s;
    // (a + b x)/x^2 is largest at x = -2a/b, if that lies between.
    let top = -2.0 * intercept / slope;
    let inside = t - s > 1.0 && top > s && top < t;
    if inside { slope * slope / (-4.0 * intercept) * (1.0 + slack::ROUNDING) } else { 0.0 }
}

impl Shift {
    /// The shift by `size`: points x against x + size or x - size. `steps` starts `reach` below the
    /// first point.
    fn new(weights: &[f64], steps: &[f64], reach: usize, size: usize, upward: bool) -> Self {
        let per_group = weights.len().div_ceil(GROUPS);
        let of_group = |(number, chunk): (usize, &[f64])| {
            // Upward: the sum of the steps x, ..., x + size - 1. Downward: minus that of x - size,
            // ..., x - 1.
            let at = number * per_group + reach - if upward { 0 } else { size };
            let sign = if upward { 1.0 } else { -1.0 };
            let mut ratio: f64 = steps[at..at + size].iter().sum();
            let mut group =
                Group { mass: 0.0, mean: 0.0, low: f64::INFINITY, high: f64::NEG_INFINITY };
            for (i, &weight) in chunk.iter().enumerate() {
                let y = sign * ratio;
                group.mass += weight;
                group.mean += weight * y;
                group.low = group.low.min(y);
                group.high = group.high.max(y);
                ratio += steps[at + i + size] - steps[at + i];
            }
            group.mean = (group.mean / group.mass).clamp(group.low, group.high);
            group
        };
        let groups = weights.chunks(per_group).enumerate().map(of_group).collect();
        Self { size: size as f64, groups }
    }

    /// At least ln of the sum of P(x) (P(x)/P(x + s))^power over the window.
    fn log_moment(&self, power: f64, error: f64) -> f64 {
        let of_group = |group: &Group| {
            let (low, high) = (power * group.low, power * group.high);
            let spread = high - low;
            let share = if spread > 0.0 { (power * group.mean - low) / spread } else { 0.0 };
            let chord = exp_excess_upper(low) * (1.0 - share) + exp_excess_upper(high) * share;
            // Errors of the weights and of y, to first order and in the exponent.
            let size = low.abs().max(high.abs());
            let chord = chord * (1.0 + error * (4.0 + 2.0 * size));
            group.mass * (power * group.mean + chord + error * size)
        };
        let sum: f64 = self.groups.iter().map(of_group).sum();
        // What is not a number says nothing; `max` would ignore it.
        if sum.is_nan() { f64::INFINITY } else { log1p(sum.max(0.0)) }
    }
}
