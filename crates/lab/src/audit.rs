//! The audit: the real device and shuffler, run many times on the worst inputs a search finds,
//! against what is certified.
//!
//! A certificate is an upper bound from a proof; an audit is a lower bound from runs. If the lower
//! one is above the upper one, the code is not what the proof is about. These are looked at:
//!
//! - **local**: reports of one device with each of two inputs, through their bytes;
//! - **central**: released sums of whole batches in which one person has each of two inputs and the
//!   others are fixed;
//! - **presence**, where rounds close by time: released sums of windows with the person's report,
//!   and with the pad that the shuffler puts in its place (a person who reports in another round is
//!   not attacked);
//! - **structure**: promises that are not an epsilon and that every certificate assumes: a release
//!   is the sum of exactly the stated number of people, each counted once; values out of range are
//!   clipped; the coins have the stated law.
//!
//! Of codebook reports the auditor expands every seed itself and checks which words the stated rule
//! picks; the attack on a release is along the difference of the two means.
//!
//! The event whose frequencies are compared is chosen by a pilot whose runs are not used again.

use std::{panic, sync::Arc, thread};

use incrowd_device::DeviceError;
use incrowd_privacy::numeric::slack;
use incrowd_protocol::{
    BitsLaw, Closes, CodebookLaw, Law, Layout, Learner, Mechanism, MechanismConfig, Policy,
    ProtocolError, Round, Stage, TaskConfig,
};
use incrowd_shuffler::{CloseError, Refusal};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::Serialize;
use thiserror::Error;

mod auditor;
mod estimate;
mod law;
mod search;
mod structure;
mod subject;
mod word_law;
mod words;

pub use estimate::EstimateError;
use search::{Absent, Input, Pair};
use subject::Subject;

use crate::experiment::ClosedBy;

/// One of this many runs is for the pilot that chooses the event.
const PILOT_SHARE: u64 = 8;

/// The unchecked form of an [`Audit`].
#[derive(Debug, Clone, PartialEq)]
pub struct AuditConfig {
    /// Dimension of the contexts (d), 1 to 20.
    pub dimension: u32,
    /// How reports are randomized.
    pub law: Law,
    /// Reports in a batch (l), at least 1, with l m at most 10000; of words at most 10000.
    pub batch_size: u32,
    /// What closes a batch.
    pub closes: ClosedBy,
    /// Certified epsilon of one report, at least 0.
    pub certified_local: f64,
    /// Certified epsilon of one release, at least 0.
    pub certified_central: f64,
    /// Delta of `certified_central`, above 0 and below 1.
    pub delta: f64,
    /// Runs with each of the two inputs, 1000 to 1e9.
    pub runs: u64,
    /// Probability that the audit of correct code finds a violation, above 0 and at most 0.1.
    pub failure_probability: f64,
    /// Where all coins of the audit come from.
    pub seed: u64,
}

/// What an audit cannot be run with, or stumbled over.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Too many dimensions to search.
    #[error("dimension is {0}, must be from 1 to 20 for an audit")]
    Dimension(u32),
    /// The exact law of the sums would be too large.
    #[error("batch_size times bits is {0}, must be at most 10000 for an audit")]
    Coins(u64),
    /// Too few or too many runs.
    #[error("runs are {0}, must be from 1000 to 1000000000")]
    Runs(u64),
    /// A certified epsilon that is none.
    #[error("certified {side} epsilon is {value}, must be at least 0 and finite")]
    Certified {
        /// Local or central.
        side: &'static str,
        /// Value found.
        value: f64,
    },
    /// The failure probability is out of range.
    #[error("failure_probability is {0}, must be above 0 and at most 0.1")]
    FailureProbability(f64),
    /// A parameter that the protocol does not allow.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The shuffler refused.
    #[error(transparent)]
    Shuffler(#[from] Refusal),
    /// The shuffler did not close a round.
    #[error(transparent)]
    Close(#[from] CloseError),
    /// A report of bits where a word was asked for.
    #[error("the device sent bits in a round of words")]
    NoWord,
    /// A batch that took all reports and did not release.
    #[error("the batch took {0} reports and released nothing")]
    NotReleased(u32),
    /// An estimate of impossible numbers.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
}

/// One of the two epsilons, from both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// The certified upper bound.
    pub certified: f64,
    /// The lower bound that the runs prove, up to the failure probability.
    pub lower: f64,
    /// Epsilon of the audited pair, exact from the device's thresholds (and by enumeration of the
    /// sums); none where it is infinite or the sums are too many.
    pub exact_for_pair: Option<f64>,
    /// Probability that `lower` is above the true epsilon.
    pub failure_probability: f64,
    /// Runs with each input, pilot included.
    pub runs: u64,
    /// The two inputs: context, then reward; none where the person is absent.
    pub inputs: [Option<(Vec<f64>, f64)>; 2],
    /// What all other people in the batch have; none for the local side.
    pub others: Option<(Vec<f64>, f64)>,
    /// Whether the lower bound or the exact value is above what is certified.
    pub violated: bool,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditReport {
    /// One report on the wire.
    pub local: Side,
    /// One release.
    pub central: Side,
    /// One release with and without the person's report, where rounds close by time.
    pub presence: Option<Side>,
    /// Delta of the sides that are about a release.
    pub delta: f64,
    /// Broken promises that are not an epsilon, in words.
    pub structure: Vec<String>,
    /// Probability that correct code is called broken, over everything in this report.
    pub failure_probability: f64,
}

impl AuditReport {
    /// Whether the code is not what the certificate is about.
    pub fn violated(&self) -> bool {
        let presence = self.presence.as_ref().is_some_and(|side| side.violated);
        self.local.violated || self.central.violated || presence || !self.structure.is_empty()
    }
}

impl AuditConfig {
    /// The valid audit, or the first rule that is violated.
    pub fn check(self) -> Result<Audit, AuditError> {
        if self.dimension == 0 || self.dimension > 20 {
            return Err(AuditError::Dimension(self.dimension));
        }
        let each = self.law.as_bits().map_or(1, |law| law.bits);
        let coins = u64::from(self.batch_size) * u64::from(each);
        if coins > 10_000 {
            return Err(AuditError::Coins(coins));
        }
        if !(1000..=estimate::MAX_TRIALS).contains(&self.runs) {
            return Err(AuditError::Runs(self.runs));
        }
        for (side, value) in [("local", self.certified_local), ("central", self.certified_central)]
        {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(AuditError::Certified { side, value });
            }
        }
        if !(self.failure_probability > 0.0 && self.failure_probability <= 0.1) {
            return Err(AuditError::FailureProbability(self.failure_probability));
        }
        let mechanism = self.mechanism()?;
        let round = mechanism.round(1)?;
        let task = TaskConfig::new(mechanism, Learner::default(), Policy::default())?;
        Ok(Audit { task: Arc::new(task), round, config: self })
    }

    /// The mechanism that is audited.
    pub fn mechanism(&self) -> Result<Mechanism, ProtocolError> {
        let (size, law) = (self.batch_size, self.law);
        let (window, closes) = match self.closes {
            ClosedBy::Count => (None, Closes::Count { grace: 0 }),
            ClosedBy::Time => (Some(10), Closes::Time { opens: 0 }),
        };
        MechanismConfig {
            dimension: self.dimension,
            context_bound: 1.0,
            // One batch after another on one shuffler: as many rounds as a schedule can have.
            schedule: vec![Stage { rounds: u32::MAX - 1, size, window, law }],
            layout: Layout::Shared,
            closes,
            central_delta: self.delta,
            participations: 1,
            honest_fraction: 1.0,
        }
        .check()
    }
}

/// Epsilon of one codebook report, ln((1-o)(N-k)/(o k)), rounded up.
pub fn word_epsilon(law: CodebookLaw) -> f64 {
    word_law::epsilon(law) * (1.0 + slack::ROUNDING) + slack::ROUNDING
}

/// An audit that can be run.
#[derive(Debug, Clone)]
pub struct Audit {
    config: AuditConfig,
    task: Arc<TaskConfig>,
    round: Round,
}

impl Audit {
    /// Runs everything. `progress` hears of the runs done and of all that will be done.
    pub fn run(&self, mut progress: impl FnMut(u64, u64)) -> Result<AuditReport, AuditError> {
        match self.config.law {
            Law::Bits(law) => self.run_bits(law, &mut progress),
            Law::Codebook(law) => self.run_words(law, &mut progress),
        }
    }

    fn run_bits(
        &self,
        law: BitsLaw,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<AuditReport, AuditError> {
        let subject = Subject::new(self.task.clone(), self.round, law);
        let by_time = subject.by_time();
        let total = if by_time { 6 } else { 4 } * self.config.runs;
        let share = self.config.failure_probability / if by_time { 5.0 } else { 4.0 };
        let mut structure = structure::promises(&subject, &mut self.stream(0))?;
        let law = structure::LawCheck {
            runs: (self.config.runs / 10).max(1000),
            pads: self.config.runs,
            failure_probability: 2.0 * share,
        };
        structure.extend(law.run(&subject, &mut self.stream(1))?);
        let (local, pair) = self.local(&subject, share, &mut |done| progress(done, total))?;
        let (nobody, either) = ([Absent::Nobody], [Absent::First, Absent::Second]);
        let central = self.central(&subject, &pair, &nobody, share, &mut |done| {
            progress(2 * self.config.runs + done, total);
        })?;
        let presence = by_time.then(|| {
            self.central(&subject, &pair, &either, share, &mut |done| {
                progress(4 * self.config.runs + done, total);
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

    /// A generator of its own for every part.
    fn stream(&self, number: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.config.seed);
        rng.set_stream(number);
        rng
    }

    fn local(
        &self,
        subject: &Subject<BitsLaw>,
        failure_probability: f64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Side, Pair), AuditError> {
        let mut randomizer = subject.randomizer();
        let mut laws = |pair: &Pair| pair.each(|input| subject.law(&mut randomizer, input));
        let pair = search::worst(subject.dimension(), 20_000, &[], &mut self.stream(2), |pair| {
            let [p, q] = laws(pair);
            p.largest_log_ratio(&q)
        });
        let [p, q] = laws(&pair);
        let exact = p.largest_log_ratio(&q);
        let statistic = p.log_ratios(&q);
        let lower = self.lower_bound(0.0, failure_probability, progress, |second| {
            let mut rng = self.stream(10 + u64::from(second));
            let (statistic, input) = (&statistic, pair.input(second));
            move || {
                let counts = subject.report(input, &mut rng)?;
                Ok(law::total(statistic, counts.iter().map(|&count| usize::from(count))))
            }
        })?;
        let certified = self.config.certified_local;
        let inputs = pair.each(|input| Some(input.clone()));
        let side = self.side(certified, lower, Some(exact), failure_probability, inputs, None);
        Ok((side, pair))
    }

    /// One release with each of two inputs, or with and without a report: the worst of what
    /// `absent` allows.
    fn central(
        &self,
        subject: &Subject<BitsLaw>,
        local: &Pair,
        absent: &[Absent],
        failure_probability: f64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Side, AuditError> {
        let (pair, others, absent) = self.worst_batch(subject, local, absent);
        let mut randomizer = subject.randomizer();
        let crowd = subject.others(&mut randomizer, &others);
        let padded = absent.padded(&pair);
        let [p, q] = padded.each(|input| crowd.with(&subject.law(&mut randomizer, input)));
        let exact = p.exact_epsilon(&q, self.config.delta);
        let statistic = p.log_ratios(&q);
        let lower =
            self.lower_bound(self.config.delta, failure_probability, progress, |second| {
                let part = if absent == Absent::Nobody { 20 } else { 30 };
                let mut rng = self.stream(part + u64::from(second));
                let (mut batch, mut randomizer) = (subject.batch(), subject.randomizer());
                let (statistic, others) = (&statistic, &others);
                let victim = absent.victim(&pair, second);
                move || {
                    let sums =
                        subject.release(&mut batch, &mut randomizer, victim, others, &mut rng)?;
                    Ok(law::total(statistic, sums.iter().map(|&sum| sum as usize)))
                }
            })?;
        let certified = self.config.certified_central;
        let inputs = [false, true].map(|second| absent.victim(&pair, second).cloned());
        Ok(self.side(certified, lower, exact, failure_probability, inputs, Some(others)))
    }

    /// The victim's inputs and the others' that an attack with this many runs gets most from, as a
    /// Renyi bound ranks them.
    fn worst_batch(
        &self,
        subject: &Subject<BitsLaw>,
        local: &Pair,
        absent: &[Absent],
    ) -> (Pair, Input, Absent) {
        let delta = self.config.delta.max(100.0 / self.config.runs as f64).min(0.1);
        let mut randomizer = subject.randomizer();
        let mut rng = self.stream(4);
        let known = [local.clone(), local.clone().swapped()];
        let mut best: Option<(f64, Pair, Input, Absent)> = None;
        for others in search::crowds(subject.dimension(), local) {
            let crowd = subject.others(&mut randomizer, &others);
            let evaluations = (4_000_000 / crowd.points().max(1)).clamp(100, 5000);
            for &absent in absent {
                let mut score = |pair: &Pair| {
                    let law = |input: &Input| crowd.with(&subject.law(&mut randomizer, input));
                    let [p, q] = absent.padded(pair).each(law);
                    p.renyi_score(&q, delta)
                };
                let pair =
                    search::worst(subject.dimension(), evaluations, &known, &mut rng, &mut score);
                let value = score(&pair);
                if best.as_ref().is_none_or(|(found, ..)| value > *found) {
                    best = Some((value, pair, others.clone(), absent));
                }
            }
        }
        let (_, pair, others, absent) = best.expect("invariant: there are crowds and worlds");
        (pair, others, absent)
    }

    /// The lower bound on epsilon from runs of the statistic that `runner` gives for the first
    /// (false) and the second (true) input.
    fn lower_bound<R: FnMut() -> Result<f64, AuditError> + Send>(
        &self,
        delta: f64,
        failure_probability: f64,
        progress: &mut dyn FnMut(u64),
        runner: impl Fn(bool) -> R,
    ) -> Result<f64, AuditError> {
        let pilot = self.config.runs / PILOT_SHARE;
        let rest = self.config.runs - pilot;
        let mut runners = [runner(false), runner(true)];
        let mut done = 0;
        let mut tick = || {
            done += 2;
            if done % 10_000 == 0 {
                progress(done);
            }
        };
        let samples = both(&mut runners, &mut tick, |run, tick| {
            (0..pilot).map(|_| run().inspect(|_| tick())).collect::<Result<Vec<_>, _>>()
        })?;
        let threshold = best_threshold(&samples, rest, delta, failure_probability)?;
        let [p, q] = both(&mut runners, &mut tick, |run, tick| {
            (0..rest).try_fold(0, |hits, _| {
                tick();
                Ok(hits + u64::from(run()? >= threshold))
            })
        })?;
        Ok(estimate::epsilon_lower(p, rest, q, rest, delta, failure_probability)?)
    }

    fn side(
        &self,
        certified: f64,
        lower: f64,
        exact: Option<f64>,
        failure_probability: f64,
        inputs: [Option<Input>; 2],
        others: Option<Input>,
    ) -> Side {
        let parts = |input: Input| (input.context, input.reward);
        let above = |value: f64| value > certified * (1.0 + slack::ROUNDING) + slack::ROUNDING;
        Side {
            certified,
            lower,
            exact_for_pair: exact.filter(|value| value.is_finite()),
            failure_probability,
            runs: self.config.runs,
            inputs: inputs.map(|input| input.map(parts)),
            others: others.map(parts),
            violated: lower > certified || exact.is_some_and(above),
        }
    }
}

/// The same work with both inputs, each in a thread; `tick` follows the first.
fn both<R: Send, T: Send>(
    runners: &mut [R; 2],
    tick: &mut dyn FnMut(),
    work: impl Fn(&mut R, &mut dyn FnMut()) -> Result<T, AuditError> + Sync,
) -> Result<[T; 2], AuditError> {
    let [first, second] = runners;
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| work(second, &mut || {}));
        (work(first, tick), second.join())
    });
    Ok([first?, second.unwrap_or_else(|cause| panic::resume_unwind(cause))?])
}

/// The threshold from whose hits, as the pilot predicts them for `runs`, the largest bound would
/// follow.
///
/// The statistic L is the log-likelihood ratio of the stated law, so of a run from either input a
/// share 1/(1 + e^-L) speaks for the first and the rest for the second. Counted like this both
/// predictions err in the same direction, and the choice does not chase the pilot's luck.
fn best_threshold(
    samples: &[Vec<f64>; 2],
    runs: u64,
    delta: f64,
    failure_probability: f64,
) -> Result<f64, AuditError> {
    let mut pooled = samples.concat();
    pooled.sort_by(|a, b| b.total_cmp(a));
    let scale = 2.0 * runs as f64 / pooled.len().max(1) as f64;
    let hits = |weight: f64| ((weight * scale) as u64).min(runs);
    let (mut best, mut next) = ((0.0, f64::INFINITY), 1.0);
    let (mut first, mut second) = (0.0, 0.0);
    for (index, &statistic) in pooled.iter().enumerate() {
        first += 1.0 / (1.0 + (-statistic).exp());
        second += 1.0 / (1.0 + statistic.exp());
        let last_of_equals = pooled.get(index + 1).is_none_or(|&below| below < statistic);
        if index as f64 + 1.0 < next || !last_of_equals {
            continue;
        }
        next = (index as f64 + 1.0) * 1.1;
        let (p, q) = (hits(first), hits(second));
        let bound = estimate::epsilon_lower(p, runs, q, runs, delta, failure_probability)?;
        if bound > best.0 {
            best = (bound, statistic);
        }
    }
    Ok(best.1)
}
