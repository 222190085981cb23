//! A pair of laws as a list of privacy losses, for Renyi divergences of any order.

use libm::{exp, log, log1p};

use crate::numeric::{Binomial, Pmf, Upper};

/// Outcomes with their mass under the second law and the log ratio of the first to the second one.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Losses {
    outcomes: Vec<(f64, f64)>,
    /// What is left out of the first law, and of the second one.
    spent: f64,
}

impl Losses {
    pub fn with_spent(spent: f64) -> Self {
        Self { outcomes: Vec::new(), spent }
    }

    /// Leaves out so much more.
    pub fn spend(&mut self, mass: f64) {
        self.spent += mass;
    }

    /// What is left out of either law.
    pub fn spent(&self) -> f64 {
        Upper::of(self.spent).value()
    }

    /// Adds outcomes with these masses under the second law, times `weight`, and leaves out those
    /// at both ends that have at most `tail` each.
    pub fn add(&mut self, weight: f64, masses: &[f64], loss: impl Fn(usize) -> f64, tail: f64) {
        let window = ends(masses, tail);
        let inside: f64 = masses[window.clone()].iter().sum();
        let largest = loss(masses.len().saturating_sub(1)).max(loss(0)).max(0.0);
        let left = (1.0 - inside).max(0.0);
        self.spent += weight * left.min(2.0 * tail) * exp(largest);
        let outcomes = window.map(|i| (weight * masses[i], loss(i)));
        self.outcomes.extend(outcomes);
    }

    /// Adds the pair of laws with densities 1 + tilt y and 1 - tilt y against y, the mean of
    /// `count` fair signs, and leaves out at most `tail` at either end.
    pub fn add_fair(&mut self, weight: f64, count: u64, tilt: f64, tail: f64) {
        if count == 0 {
            self.outcomes.push((weight, 0.0));
            return;
        }
        let (first, Pmf { values }) = Binomial::new(count, 0.5).pmf_with_start();
        let window = ends(&values, tail / 2.0);
        // Either density is at most 2.
        self.spent += 2.0 * weight * tail;
        for i in window {
            let y = 2.0 * (first + i as u64) as f64 / count as f64 - 1.0;
            let (up, down) = (log1p(tilt * y), log1p(-tilt * y));
            self.outcomes.push((weight * values[i] * exp(down), up - down));
        }
    }

    /// At least ln of the mean of e^(order loss) under the second law.
    pub fn ln_moment(&self, order: f64) -> f64 {
        let sum: f64 = self.outcomes.iter().map(|&(mass, loss)| mass * exp(order * loss)).sum();
        Upper::of(log(Upper::of(sum).value()).max(0.0)).value()
    }

    /// At least the Renyi divergence of the first law from the second one.
    pub fn divergence(&self, order: f64) -> f64 {
        self.ln_moment(order) / (order - 1.0)
    }

    /// At least the Renyi divergence of the second law from the first one.
    pub fn reversed(&self, order: f64) -> f64 {
        self.ln_moment(1.0 - order) / (order - 1.0)
    }
}

/// What is left when at most `tail` is cut off at each end.
fn ends(masses: &[f64], tail: f64) -> std::ops::Range<usize> {
    let beyond = |sum: &mut f64, mass: f64| {
        *sum += mass;
        *sum > tail
    };
    let (mut below, mut above) = (0.0, 0.0);
    let first = masses.iter().position(|&mass| beyond(&mut below, mass)).unwrap_or(0);
    let last = masses.iter().rposition(|&mass| beyond(&mut above, mass)).unwrap_or(0);
    first..last.max(first) + 1
}
