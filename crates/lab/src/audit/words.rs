//! The audit of codebook reports.

use incrowd_bandit::WordMoments;
use incrowd_protocol::{CodebookLaw, STEPS};

use super::{
    Audit, AuditError, AuditReport, Side,
    auditor::{codebook, dot, rank, statistic},
    search::{self, Absent, Input, Pair},
    structure,
    subject::Subject,
    word_law::{self, WordLawCheck},
};

/// Evaluations of the search for the pair that is furthest apart.
const EVALUATIONS: usize = 20_000;

impl Audit {
    /// Everything about a codebook law.
    pub(super) fn run_words(
        &self,
        law: CodebookLaw,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<AuditReport, AuditError> {
        let subject = Subject::new(self.task.clone(), self.round, law);
        let by_time = subject.by_time();
        let runs = self.config.runs;
        let total = if by_time { 6 } else { 4 } * runs;
        let share = self.config.failure_probability / if by_time { 5.0 } else { 4.0 };
        let mut structure = word_law::promises(&subject, &mut self.stream(0))?;
        structure.extend(structure::of_any_law(&subject, &mut self.stream(5))?);
        let check = WordLawCheck { runs, failure_probability: 2.0 * share };
        structure.extend(check.run(&subject, &mut self.stream(1))?);
        let pair =
            search::worst(subject.dimension(), EVALUATIONS, &[], &mut self.stream(2), |pair| {
                let [first, second] = pair.each(|input| statistic(law, input));
                -dot(&first, &second)
            });
        let local = self.local_words(&subject, &pair, share, &mut |done| progress(done, total))?;
        let central = self.central_words(&subject, &pair, Absent::Nobody, share, &mut |done| {
            progress(2 * runs + done, total);
        })?;
        let presence = by_time.then(|| {
            self.central_words(&subject, &pair, Absent::Second, share, &mut |done| {
                progress(4 * runs + done, total);
            })
        });
        Ok(AuditReport {
            local,
            central,
            presence: presence.transpose()?,
            delta: self.config.delta,
            structure,
            failure_probability: self.config.failure_probability,
        })
    }

    /// Whoever sees a report knows its codebook, so only the index tells something: how likely the
    /// stated rule makes it with each of the two inputs.
    fn local_words(
        &self,
        subject: &Subject<CodebookLaw>,
        pair: &Pair,
        failure_probability: f64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Side, AuditError> {
        let law = subject.stated;
        let exact = word_law::epsilon(law);
        let statistics = pair.each(|input| statistic(law, input));
        let lower = self.lower_bound(0.0, failure_probability, progress, |second| {
            let mut rng = self.stream(10 + u64::from(second));
            let (statistics, input) = (&statistics, pair.input(second));
            move || {
                let (seed, index) = subject.word(input, &mut rng)?;
                let words = codebook(&seed, law.words, statistics[0].len());
                let picked = |z: &Vec<f64>| rank(&words, z, index) < law.chosen as usize;
                let [first, other] = [&statistics[0], &statistics[1]].map(picked);
                Ok(exact * (f64::from(u8::from(first)) - f64::from(u8::from(other))))
            }
        })?;
        let certified = self.config.certified_local;
        let inputs = pair.each(|input| Some(input.clone()));
        Ok(self.side(certified, lower, Some(exact), failure_probability, inputs, None))
    }

    /// One release with each of two inputs, or with a report and with a pad in its place: the sums
    /// along the difference of the two means.
    ///
    /// The log-likelihood ratio that ranks releases is that of two normal laws with the means and
    /// the common variance that the stated law gives. It is not exact, which costs the attack some
    /// power; the lower bound counts real releases and does not rely on it.
    fn central_words(
        &self,
        subject: &Subject<CodebookLaw>,
        pair: &Pair,
        absent: Absent,
        failure_probability: f64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Side, AuditError> {
        let law = subject.stated;
        let coordinates = subject.mechanism.coordinates();
        let released = |input: &Input| {
            let mut z = statistic(law, input);
            z.truncate(coordinates);
            z
        };
        // A pad has mean 0, like the report of nothing.
        let means = absent.padded(pair).each(|input| released(input));
        let mut direction: Vec<f64> = means[0].iter().zip(&means[1]).map(|(a, b)| a - b).collect();
        let distance = dot(&direction, &direction).sqrt().max(1e-9);
        direction.iter_mut().for_each(|x| *x /= distance);
        let moments = WordMoments::of(law);
        let size = f64::from(subject.round.size);
        let spread = |other: &Input| {
            let along = dot(&released(other), &direction);
            1.0 + (moments.variance_along - 1.0) * along * along
        };
        let candidates = search::crowds(subject.dimension(), pair);
        let others = candidates.into_iter().min_by(|a, b| spread(a).total_cmp(&spread(b)));
        let others = others.expect("invariant: there are crowds");
        let along = |z: &[f64]| moments.gain * dot(z, &direction);
        let around = (size - 1.0) * along(&released(&others));
        let middle = around + f64::midpoint(along(&means[0]), along(&means[1]));
        let variance = (size - 1.0) * spread(&others) + 1.0;
        let slope = moments.gain * distance / variance;
        let lower =
            self.lower_bound(self.config.delta, failure_probability, progress, |second| {
                let part = if absent == Absent::Nobody { 20 } else { 30 };
                let mut rng = self.stream(part + u64::from(second));
                let (mut batch, mut randomizer) = (subject.batch(), subject.randomizer());
                let (direction, others) = (&direction, &others);
                let victim = absent.victim(pair, second);
                move || {
                    let sums =
                        subject.release(&mut batch, &mut randomizer, victim, others, &mut rng)?;
                    let sum: f64 = sums.iter().zip(direction).map(|(&sum, x)| sum as f64 * x).sum();
                    Ok(slope * (sum / f64::from(STEPS) - middle))
                }
            })?;
        let certified = self.config.certified_central;
        let inputs = [false, true].map(|second| absent.victim(pair, second).cloned());
        Ok(self.side(certified, lower, None, failure_probability, inputs, Some(others)))
    }
}
