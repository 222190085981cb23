//! How much signal the privacy limits leave: fast guesses for searching, and a guess good enough to
//! certify.

use std::{cell::RefCell, collections::BTreeMap};

use incrowd_privacy::{
    PrivacyError,
    central::{Presence, Setting, approx_epsilon, honest_others},
    local,
    numeric::{Ends, bisect, halvings},
};
use incrowd_protocol::{BatchSize, Bits, Keep};
use libm::{exp, floor, log, sqrt};

use crate::{Request, request::Units};

/// A smaller keep probability is no plan: a report would weigh less than a millionth of an open
/// one.
pub const SMALLEST_KEEP: f64 = 1e-3;
/// c stays below it even when nothing limits it.
const LARGEST_KEEP: f64 = 0.999;
/// More bits are certified by the blanket bound only, which is looser.
const MOST_BITS_COVERED: u32 = 8;
/// Factor between the batch sizes at which the closed form is corrected.
const NODE: f64 = 4.0;
/// The closed form is never off by as much, in odds.
const IDLE: f64 = 8.0;

/// The privacy limits of a request, with what has been found out about them.
pub struct Budget {
    units: Units,
    local: Option<f64>,
    central: Option<f64>,
    /// Gaussian mechanism with the central limit: D_alpha <= alpha * rho for one batch.
    rho: f64,
    corrections: RefCell<BTreeMap<i32, f64>>,
    local_keeps: RefCell<BTreeMap<u32, f64>>,
    alone_keeps: RefCell<BTreeMap<u32, f64>>,
}

impl Budget {
    /// Whether another request has the same privacy limits.
    pub fn fits(&self, request: &Request) -> bool {
        let config = request.config();
        self.units == request.units
            && (self.local, self.central) == (config.local_epsilon.cap(), config.central_epsilon)
    }

    pub fn new(request: &Request) -> Self {
        let (config, units) = (request.config(), request.units);
        let (delta, k) = (units.delta.get(), f64::from(units.participations.get()));
        Self {
            units,
            local: config.local_epsilon.cap(),
            central: config.central_epsilon,
            rho: config.central_epsilon.map_or(f64::INFINITY, |e| rho(e, delta) / k),
            corrections: RefCell::default(),
            local_keeps: RefCell::default(),
            alone_keeps: RefCell::default(),
        }
    }

    /// The largest c that the local limit allows.
    pub fn local_keep(&self, bits: u32) -> Result<f64, PrivacyError> {
        let Some(epsilon) = self.local else { return Ok(LARGEST_KEEP) };
        if let Some(&keep) = self.local_keeps.borrow().get(&bits) {
            return Ok(keep);
        }
        let keep = local::largest_keep(self.units.dimension, Bits::new(bits)?, epsilon)?.get();
        let keep = keep.min(LARGEST_KEEP);
        self.local_keeps.borrow_mut().insert(bits, keep);
        Ok(keep)
    }

    /// A c at which the central limit is met without any crowd: all reports of a person together
    /// are local enough. 0 if there is none.
    fn alone_keep(&self, bits: u32) -> Result<f64, PrivacyError> {
        let Some(central) = self.central else { return Ok(LARGEST_KEEP) };
        if let Some(&keep) = self.alone_keeps.borrow().get(&bits) {
            return Ok(keep);
        }
        let each = central / f64::from(self.units.participations.get()) * (1.0 - 1e-6);
        let keep = match local::largest_keep(self.units.dimension, Bits::new(bits)?, each) {
            Ok(keep) => keep.get().min(LARGEST_KEEP),
            Err(PrivacyError::EpsilonLocalTooSmall { .. }) => 0.0,
            Err(error) => return Err(error),
        };
        self.alone_keeps.borrow_mut().insert(bits, keep);
        Ok(keep)
    }

    /// A fast guess at the largest c that both limits allow.
    pub fn guess_keep(&self, size: u32, bits: u32) -> Result<f64, PrivacyError> {
        let cap = self.local_keep(bits)?;
        if self.central_never_binds() {
            return Ok(cap);
        }
        let correction = self.correction(f64::from(size) * f64::from(bits))?;
        Ok(self.closed_form(size, bits, correction).max(self.alone_keep(bits)?).min(cap))
    }

    /// The largest c, to a few percent of epsilon, at which [`approx_epsilon`] meets the limits.
    pub fn keep(&self, size: u32, bits: u32) -> Result<f64, PrivacyError> {
        let cap = self.local_keep(bits)?;
        if self.central_never_binds() {
            return Ok(cap);
        }
        let start = self.guess_keep(size, bits)?;
        Ok(self.solve(size, bits, start, cap)?.max(self.alone_keep(bits)?.min(cap)))
    }

    /// A guess at the central epsilon of a batch.
    pub fn approx(&self, size: u32, bits: u32, keep: f64) -> Result<f64, PrivacyError> {
        let Units { dimension, delta, participations, honest_fraction } = self.units;
        let size = BatchSize::new(u64::from(size))?;
        Ok(approx_epsilon(&Setting {
            dimension,
            bits: Bits::new(bits)?,
            keep: Keep::new(keep)?,
            others: honest_others(size, honest_fraction),
            participations,
            delta,
            presence: Presence::Fixed,
        }))
    }

    /// The smallest batch that has any use, by the closed form.
    pub fn smallest_useful_batch(&self) -> u64 {
        let odds = SMALLEST_KEEP * SMALLEST_KEEP;
        let others = odds * self.squares() / (2.0 * self.rho);
        ((others + 2.0) / self.units.honest_fraction.get()).ceil() as u64
    }

    fn central_never_binds(&self) -> bool {
        let (Some(central), local) = (self.central, self.local) else { return true };
        local.is_some_and(|local| local * f64::from(self.units.participations.get()) <= central)
    }

    fn squares(&self) -> f64 {
        if self.units.dimension.get() == 1 { 4.0 } else { 4.5 }
    }

    fn others(&self, size: u32) -> f64 {
        (floor(self.units.honest_fraction.get() * f64::from(size)) - 1.0).max(0.0)
    }

    /// c if the sum of the others were Gaussian: its variance is n m (1 - c^2)/4 (n m (1 - c)/4
    /// given the blank bits), the person moves it by m c sqrt(4.5)/2.
    fn closed_form(&self, size: u32, bits: u32, correction: f64) -> f64 {
        let odds =
            correction * 2.0 * self.others(size) * self.rho / (self.squares() * f64::from(bits));
        if bits <= MOST_BITS_COVERED {
            keep_of(odds)
        } else {
            (sqrt(odds * odds + 4.0 * odds) - odds) / 2.0
        }
    }

    /// How far the closed form for m = 1 is off in a batch of `reports`: computed at a few sizes,
    /// interpolated between them.
    fn correction(&self, reports: f64) -> Result<f64, PrivacyError> {
        let place = (log(reports.max(2.0)) / log(NODE)).min(15.0);
        let (below, share) = (floor(place), place - floor(place));
        let (low, high) = (self.node(below as i32)?, self.node(below as i32 + 1)?);
        Ok(exp((1.0 - share) * log(low) + share * log(high)))
    }

    fn node(&self, index: i32) -> Result<f64, PrivacyError> {
        if let Some(&found) = self.corrections.borrow().get(&index) {
            return Ok(found);
        }
        let size = libm::pow(NODE, f64::from(index)).min(4e9) as u32;
        let guess = self.closed_form(size, 1, 1.0).clamp(1e-6, LARGEST_KEEP);
        // Where the local limit binds by far the central one needs no solution.
        let idle = odds_of(guess) > IDLE * odds_of(self.local_keep(1)?);
        let found = if self.others(size) < 1.0 || idle {
            1.0
        } else {
            let keep = self.solve(size, 1, guess, LARGEST_KEEP)?;
            (odds_of(keep) / odds_of(guess)).clamp(0.01, 10.0)
        };
        self.corrections.borrow_mut().insert(index, found);
        Ok(found)
    }

    /// Newton's method on a logarithmic scale, where epsilon grows like the square root of the
    /// odds, kept inside a bracket.
    fn solve(&self, size: u32, bits: u32, start: f64, cap: f64) -> Result<f64, PrivacyError> {
        let Some(target) = self.central else { return Ok(cap) };
        // Guesses for more bits take longer.
        let near = if bits == 1 { 0.99 } else { 0.97 };
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut keep = start.min(cap);
        for _ in 0..8 {
            let epsilon = self.approx(size, bits, keep)? * inflation(bits, keep);
            if epsilon <= target {
                low = keep;
                if epsilon >= near * target || keep >= cap {
                    break;
                }
            } else {
                high = keep;
            }
            let ratio = f64::midpoint(1.0, near) * target / epsilon;
            let newton = keep_of(odds_of(keep) * ratio * ratio);
            let inside = newton > low && newton < high.min(cap * 1.000_001);
            keep = if inside {
                newton.min(cap)
            } else if high.is_infinite() {
                cap
            } else {
                sqrt(low.max(high / 16.0) * high)
            };
        }
        Ok(low)
    }
}

/// c with c^2/(1 - c^2) = odds.
pub fn keep_of(odds: f64) -> f64 {
    if odds.is_infinite() { 1.0 } else { sqrt(odds / (1.0 + odds)) }
}

/// c^2/(1 - c^2).
pub fn odds_of(keep: f64) -> f64 {
    keep * keep / ((1.0 - keep) * (1.0 + keep))
}

/// What the certified value may be above the guess.
fn inflation(bits: u32, keep: f64) -> f64 {
    match bits {
        1 => 1.0,
        2..=MOST_BITS_COVERED => 1.02,
        _ => 1.04 * sqrt(1.0 + keep),
    }
}

/// The largest rho for which D_alpha <= alpha rho gives (epsilon, delta).
fn rho(epsilon: f64, delta: f64) -> f64 {
    let fits = |exponent: f64| gaussian_epsilon(exp(exponent), delta) <= epsilon;
    exp(bisect(Ends { holds: -60.0, fails: 12.0 }, halvings(80), fits).holds)
}

/// The smallest epsilon over a grid of orders.
fn gaussian_epsilon(rho: f64, delta: f64) -> f64 {
    let at = |i: i32| {
        let order = 1.0 + exp(f64::from(i) / 20.0);
        order * rho + log((order - 1.0) / order) - (log(delta) + log(order)) / (order - 1.0)
    };
    (-60..400).map(at).fold(f64::INFINITY, f64::min).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlanRequest;

    #[test]
    fn rho_inverts_the_conversion() {
        for epsilon in [0.01, 0.3, 1.0, 8.0] {
            let rho = rho(epsilon, 1e-6);
            assert!(gaussian_epsilon(rho, 1e-6) <= epsilon);
            assert!(gaussian_epsilon(1.01 * rho, 1e-6) > epsilon);
        }
    }

    #[test]
    fn the_guess_is_near_the_solution() {
        let request = PlanRequest { central_epsilon: Some(0.5), ..PlanRequest::new(5, 100_000) };
        let budget = Budget::new(&request.check().unwrap());
        for (size, bits) in [(150, 1), (700, 1), (3000, 2)] {
            let (guess, keep) =
                (budget.guess_keep(size, bits).unwrap(), budget.keep(size, bits).unwrap());
            assert!((guess / keep - 1.0).abs() < 0.1, "{size} {bits}: {guess} {keep}");
            let epsilon = budget.approx(size, bits, keep).unwrap();
            assert!(epsilon <= 0.5, "{epsilon}");
        }
    }
}
