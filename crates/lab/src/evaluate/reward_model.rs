use incrowd_bandit::cholesky;
use incrowd_protocol::triangle;
use rayon::prelude::*;

use super::{EvaluateError, Log, encoder::Encoder};

/// Estimated rewards of actions that were not taken, from the other folds.
///
/// With z the columns of [`Encoder`] and r0 the mean reward of the other folds, the reward of
/// action a is r0 + b'z, where b minimises the sum of (r - r0 - b'z)^2 over the events of the
/// other folds that chose a, plus ridge |b|^2. An action that they never chose has r0.
///
/// Folds are consecutive parts of the log, so that events that belong together (one visit, one
/// page) are mostly in the same fold.
pub(super) struct RewardModel {
    folds: usize,
    events: usize,
    base: Vec<f64>,
    /// b, by action and fold; none for an action that was never chosen.
    coefficients: Vec<Option<Vec<Vec<f64>>>>,
}

/// Sums over the events of one action in one fold.
#[derive(Clone)]
struct Sums {
    /// Of z z', packed.
    gram: Vec<f64>,
    /// Of r z.
    moment: Vec<f64>,
}

impl RewardModel {
    pub(super) fn fit(
        log: &Log,
        encoder: &Encoder,
        folds: usize,
        ridge: f64,
    ) -> Result<Self, EvaluateError> {
        let events = log.events.len();
        let mut base = Vec::with_capacity(folds);
        for fold in 0..folds {
            let others = (0..events).filter(|&event| fold_of(event, events, folds) != fold);
            let (sum, count) = others.fold((0.0, 0.0), |(sum, count), event| {
                (sum + log.events[event].reward, count + 1.0)
            });
            base.push(sum / count);
        }
        let mut of_action = vec![Vec::new(); log.actions.len()];
        for (index, event) in log.events.iter().enumerate() {
            of_action[event.action(event.chosen)].push(index);
        }
        let mut model = Self { folds, events, base, coefficients: Vec::new() };
        let fit = |(action, events): (usize, &Vec<usize>)| {
            if events.is_empty() {
                return Ok(None);
            }
            let solved = model.solve(log, encoder, events, ridge);
            solved.map(Some).ok_or_else(|| EvaluateError::Regression {
                at: log.place(),
                action: log.actions.get(action as u32).to_owned(),
            })
        };
        let coefficients = of_action.par_iter().enumerate().map(fit);
        model.coefficients = coefficients.collect::<Result<_, _>>()?;
        Ok(model)
    }

    /// The estimate for an action in an event with these columns, which is not in its own fold's
    /// regression.
    pub(super) fn predict(&self, event: usize, action: usize, z: &[f64]) -> f64 {
        let fold = fold_of(event, self.events, self.folds);
        let own = self.coefficients[action].as_ref();
        own.map_or(0.0, |own| own[fold].iter().zip(z).map(|(b, z)| b * z).sum()) + self.base[fold]
    }

    /// The estimate for an action of which nothing is known.
    pub(super) fn base(&self, event: usize) -> f64 {
        self.base[fold_of(event, self.events, self.folds)]
    }

    /// b for each fold, from the events of one action.
    fn solve(
        &self,
        log: &Log,
        encoder: &Encoder,
        events: &[usize],
        ridge: f64,
    ) -> Option<Vec<Vec<f64>>> {
        let columns = encoder.columns();
        let empty = Sums { gram: vec![0.0; triangle(columns)], moment: vec![0.0; columns] };
        let mut of_fold = vec![empty.clone(); self.folds];
        let mut z = vec![0.0; columns];
        for &index in events {
            let event = &log.events[index];
            encoder.write_context(event, &mut z);
            encoder.write_arm(event, event.chosen, &mut z);
            of_fold[fold_of(index, self.events, self.folds)].add(&z, event.reward);
        }
        let mut all = Vec::with_capacity(self.folds);
        for fold in 0..self.folds {
            let mut sums = empty.clone();
            for (other, part) in of_fold.iter().enumerate() {
                if other != fold {
                    sums.gram.iter_mut().zip(&part.gram).for_each(|(sum, part)| *sum += part);
                    sums.moment.iter_mut().zip(&part.moment).for_each(|(sum, part)| *sum += part);
                }
            }
            // Column 0 is constant: its row of the Gram matrix is the sum of z.
            for i in 0..columns {
                sums.moment[i] -= self.base[fold] * sums.gram[triangle(i)];
                sums.gram[triangle(i + 1) - 1] += ridge;
            }
            let solution = solve(&cholesky(&sums.gram, columns)?, sums.moment);
            all.push(solution.iter().all(|b| b.is_finite()).then_some(solution)?);
        }
        Some(all)
    }
}

impl Sums {
    fn add(&mut self, z: &[f64], reward: f64) {
        for (i, &left) in z.iter().enumerate().filter(|&(_, &left)| left != 0.0) {
            self.moment[i] += reward * left;
            let row = &mut self.gram[triangle(i)..triangle(i + 1)];
            row.iter_mut().zip(z).for_each(|(sum, right)| *sum += left * right);
        }
    }
}

/// The x with C C' x = b.
fn solve(factor: &[f64], mut b: Vec<f64>) -> Vec<f64> {
    for i in 0..b.len() {
        let row = &factor[triangle(i)..triangle(i + 1)];
        let known: f64 = row.iter().zip(&b[..i]).map(|(c, x)| c * x).sum();
        b[i] = (b[i] - known) / row[i];
    }
    for i in (0..b.len()).rev() {
        let row = &factor[triangle(i)..triangle(i + 1)];
        b[i] /= row[i];
        let value = b[i];
        b[..i].iter_mut().zip(row).for_each(|(x, c)| *x -= c * value);
    }
    b
}

/// Consecutive parts that differ by at most one event.
fn fold_of(event: usize, events: usize, folds: usize) -> usize {
    (event as u128 * folds as u128 / events as u128) as usize
}
