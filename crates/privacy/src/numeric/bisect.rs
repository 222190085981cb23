//! Bisection: the one loop behind every search for the place where a condition changes.

use std::convert::Infallible;

use libm::sqrt;

/// Two values between which a condition changes once. Either may be the larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends<T> {
    /// The condition holds here.
    pub holds: T,
    /// The condition does not hold here.
    pub fails: T,
}

/// Narrows the ends until `middle` finds nothing between them.
///
/// An end that is returned either was given or was tested, so a caller who takes `holds` has a
/// value for which the condition holds (if it held for the one given), whatever the condition does
/// elsewhere.
pub fn bisect<T: Copy>(
    ends: Ends<T>,
    middle: impl FnMut(Ends<T>) -> Option<T>,
    mut holds: impl FnMut(T) -> bool,
) -> Ends<T> {
    let Ok(ends) = try_bisect(ends, middle, |at| Ok::<_, Infallible>(holds(at)));
    ends
}

/// [`bisect`] with a condition that can fail to have an answer; the first error ends it.
pub fn try_bisect<T: Copy, E>(
    mut ends: Ends<T>,
    mut middle: impl FnMut(Ends<T>) -> Option<T>,
    mut holds: impl FnMut(T) -> Result<bool, E>,
) -> Result<Ends<T>, E> {
    while let Some(at) = middle(ends) {
        if holds(at)? { ends.holds = at } else { ends.fails = at }
    }
    Ok(ends)
}

/// The midpoint, until the ends differ by at most the share `tolerance` of the larger one, or are
/// neighbours. Ends are not negative.
pub fn relative(tolerance: f64) -> impl Fn(Ends<f64>) -> Option<f64> {
    move |ends| {
        let (low, high) = ordered(ends);
        let middle = f64::midpoint(low, high);
        (high - low > tolerance * high && low < middle && middle < high).then_some(middle)
    }
}

/// The geometric mean, until the larger end exceeds the smaller one by at most the share
/// `tolerance`. Ends are positive.
pub fn geometric(tolerance: f64) -> impl Fn(Ends<f64>) -> Option<f64> {
    move |ends| {
        let (low, high) = ordered(ends);
        (high > low * (1.0 + tolerance)).then(|| sqrt(low * high))
    }
}

/// The midpoint, so many times.
pub fn halvings(times: u32) -> impl FnMut(Ends<f64>) -> Option<f64> {
    let mut left = times;
    move |ends| {
        left = left.checked_sub(1)?;
        Some(f64::midpoint(ends.holds, ends.fails))
    }
}

/// The whole number in the middle, rounded down, until the ends are neighbours.
pub fn whole(ends: Ends<u64>) -> Option<u64> {
    let (low, high) = (ends.holds.min(ends.fails), ends.holds.max(ends.fails));
    (high - low > 1).then(|| low + (high - low) / 2)
}

fn ordered(ends: Ends<f64>) -> (f64, f64) {
    (ends.holds.min(ends.fails), ends.holds.max(ends.fails))
}
