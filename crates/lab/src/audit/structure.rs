//! Promises that are not an epsilon, and that every certificate assumes.

use incrowd_protocol::{BitsLaw, Report, ReportId};
use incrowd_shuffler::{Batch, Outcome};
use rand_chacha::ChaCha8Rng;

use super::{AuditError, Subject, estimate, law::Law, search::Input};

/// Reports that are compared for each input out of range.
const CLIPPED_REPORTS: usize = 64;

/// Everything that can be checked without an error of chance.
pub(super) fn promises(
    subject: &Subject<BitsLaw>,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<String>, AuditError> {
    let mut broken = Vec::new();
    let size = subject.round.size as usize;
    let mut positions = vec![0, size / 2, size - 1];
    positions.dedup();
    for position in positions {
        broken.extend(if subject.by_time() {
            marked_window(subject, position)?
        } else {
            marked_batch(subject, position)?
        });
    }
    broken.extend(of_any_law(subject, rng)?);
    Ok(once_each(broken))
}

/// What holds of a device whatever its law.
pub(super) fn of_any_law<L>(
    subject: &Subject<L>,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<String>, AuditError> {
    let mut broken = clipping(subject, rng)?;
    broken.extend(second_report(subject, rng));
    Ok(once_each(broken))
}

pub(super) fn once_each(mut broken: Vec<String>) -> Vec<String> {
    broken.sort();
    broken.dedup();
    broken
}

/// A batch of reports that all have 1 in the first coordinate, and of which only the one at
/// `position` has 1 in the last. Each is sent twice.
fn marked_batch(subject: &Subject<BitsLaw>, position: usize) -> Result<Vec<String>, AuditError> {
    let size = subject.round.size as usize;
    let mut batch = subject.batch();
    for person in 0..=size {
        let bytes = marked_report(subject, person, person == position)?;
        if let Some(sums) = send_twice(&mut batch, &bytes) {
            return Ok(judge_release(&sums, person + 1, size, person >= position));
        }
    }
    Ok(vec![format!("a batch of {size} did not release after {} reports", size + 1)])
}

/// The same where the clock closes: nothing is released before, what comes when the batch is full
/// does not count, and with pads of 0 the release is the sum of the reports.
fn marked_window(subject: &Subject<BitsLaw>, position: usize) -> Result<Vec<String>, AuditError> {
    let size = subject.round.size as usize;
    // The marked report is the last but one that comes, so that windows are empty, half full and
    // overfull in turn.
    let people = position + 2;
    let mut batch = subject.batch();
    for person in 0..people {
        let bytes = marked_report(subject, person, person == position)?;
        if send_twice(&mut batch, &bytes).is_some() {
            return Ok(vec![format!("a window was released by its report {}", person + 1)]);
        }
    }
    let counted = people.min(size);
    let missing = batch.missing() as usize;
    let sums = batch.close(&vec![0; subject.mechanism.coordinates()])?.sums().to_vec();
    let mut broken = judge_release(&sums, counted, counted, true);
    if missing != size - counted {
        broken.push(format!("{missing} pads for {counted} people in a batch of {size}"));
    }
    Ok(broken)
}

fn marked_report(
    subject: &Subject<BitsLaw>,
    person: usize,
    marked: bool,
) -> Result<Vec<u8>, AuditError> {
    let mut counts = vec![0; subject.mechanism.coordinates()];
    if let Some(first) = counts.first_mut() {
        *first = 1;
    }
    if let Some(last) = counts.last_mut() {
        *last = u16::from(marked);
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(person as u64).to_be_bytes());
    let report = Report::new(&subject.mechanism, subject.round.number, ReportId(id), counts)?;
    Ok(report.encode(&subject.mechanism)?)
}

pub(super) fn send_twice(batch: &mut Batch, bytes: &[u8]) -> Option<Vec<i64>> {
    (0..2).find_map(|_| match batch.accept_bytes(bytes) {
        Outcome::Released(sums) => Some(sums.sums().to_vec()),
        _ => None,
    })
}

fn judge_release(sums: &[i64], people: usize, size: usize, marked: bool) -> Vec<String> {
    let mut broken = Vec::new();
    if people != size {
        broken.push(format!("a batch of {size} was released with {people} people in it"));
    }
    let &[first, .., last] = sums else {
        broken.push(format!("a release has {} sums", sums.len()));
        return broken;
    };
    if first != people as i64 {
        broken.push(format!("{people} people with one each have the sum {first}"));
    }
    if last != i64::from(marked) {
        broken.push(format!("a report that a batch holds once counts {last} times"));
    }
    broken
}

/// Inputs out of range must give, with the same coins, the report of the nearest input in range.
fn clipping<L>(subject: &Subject<L>, rng: &mut ChaCha8Rng) -> Result<Vec<String>, AuditError> {
    let d = subject.dimension();
    let axis = |length: f64, reward: f64| Input::axis(d, d - 1, length, reward);
    let cases = [
        ("a context outside the ball", axis(1e3, 0.5), axis(1.0, 0.5)),
        ("a context outside the ball", axis(-1e200, 0.5), axis(-1.0, 0.5)),
        ("a reward above 1", axis(0.5, 50.0), axis(0.5, 1.0)),
        ("a reward below 0", axis(0.5, -50.0), axis(0.5, 0.0)),
        ("a reward that is no number", axis(0.5, f64::NAN), axis(0.0, 0.0)),
        ("a context that is infinite", axis(f64::INFINITY, 0.5), axis(0.0, 0.0)),
    ];
    let mut broken = Vec::new();
    for (what, wild, tame) in cases {
        for _ in 0..CLIPPED_REPORTS {
            let mut same = rng.clone();
            if subject.payload(&wild, rng)? != subject.payload(&tame, &mut same)? {
                broken.push(format!("{what} is not brought into its range"));
                break;
            }
        }
    }
    Ok(broken)
}

/// A device must not answer twice in one round.
fn second_report<L>(subject: &Subject<L>, rng: &mut ChaCha8Rng) -> Option<String> {
    let mut device = subject.device(rng);
    let context = vec![0.0; subject.dimension()];
    let mut answers = || device.report(subject.round.number, &context, 0.0).is_ok();
    (answers() && answers()).then(|| "a device answered twice in one round".to_owned())
}

/// The check that the coins have the stated law.
pub(super) struct LawCheck {
    /// Reports for each input.
    pub runs: u64,
    /// Pads, where rounds close by time.
    pub pads: u64,
    /// Probability that a correct device fails.
    pub failure_probability: f64,
}

impl LawCheck {
    /// Frequencies of all counts of all coordinates, for some inputs, against the formula.
    pub fn run(
        &self,
        subject: &Subject<BitsLaw>,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<String>, AuditError> {
        let inputs = probes(subject.dimension());
        let cells = subject.mechanism.coordinates() * (subject.stated.bits as usize + 1);
        let laws = inputs.len() + usize::from(subject.by_time());
        let each = self.failure_probability / (2 * laws * cells) as f64;
        let mut broken = Vec::new();
        if subject.by_time() {
            let law = stated(subject, &inputs[0]);
            let mut hits = nothing(&law);
            for _ in 0..self.pads {
                for (row, count) in hits.iter_mut().zip(subject.pads(1, rng)) {
                    row[count as usize] += 1;
                }
            }
            let wrong = judge(subject, &law, &hits, self.pads, each)?;
            broken.extend(wrong.into_iter().map(|text| format!("of a pad, {text}")));
        }
        for input in inputs {
            let law = stated(subject, &input);
            let mut hits = nothing(&law);
            for _ in 0..self.runs {
                for (row, count) in hits.iter_mut().zip(subject.report(&input, rng)?) {
                    row[usize::from(count)] += 1;
                }
            }
            broken.extend(judge(subject, &law, &hits, self.runs, each)?);
        }
        Ok(once_each(broken))
    }
}

/// Coordinates whose frequencies in `runs` reports are not those of the law.
fn judge(
    subject: &Subject<BitsLaw>,
    law: &Law,
    hits: &[Vec<u64>],
    runs: u64,
    failure_probability: f64,
) -> Result<Vec<String>, AuditError> {
    // Thresholds are rounded to 32 bits.
    let rounding = f64::from(subject.stated.bits) / f64::from(1u32 << 30);
    let mut broken = Vec::new();
    for (coordinate, (law, hits)) in law.coordinates().iter().zip(hits).enumerate() {
        for (&p, &hits) in law.iter().zip(hits) {
            let low = estimate::binomial_lower(hits, runs, failure_probability)?;
            let high = estimate::binomial_upper(hits, runs, failure_probability)?;
            if p < low - rounding || p > high + rounding {
                broken.push(format!("coordinate {coordinate} does not have the stated law"));
                break;
            }
        }
    }
    Ok(broken)
}

/// No hits yet.
fn nothing(law: &Law) -> Vec<Vec<u64>> {
    law.coordinates().iter().map(|row| vec![0; row.len()]).collect()
}

/// In range, so that the formula applies as it is: the middle, which is also the law of a pad, the
/// ends of every axis, and the diagonal.
pub(super) fn probes(dimension: usize) -> Vec<Input> {
    let side = 0.999 / (dimension as f64).sqrt();
    vec![
        Input::new(vec![0.0; dimension], 0.0),
        Input::new(vec![side; dimension], 1.0),
        Input::new(vec![-side; dimension], 0.7),
        Input::axis(dimension, dimension - 1, 0.6, 1.0),
    ]
}

/// The law of the report of an input in range, from the formula alone.
fn stated(subject: &Subject<BitsLaw>, input: &Input) -> Law {
    let u = &input.context;
    let moment = u.iter().map(|x| input.reward * x);
    let gram = (0..u.len()).flat_map(|i| (0..=i).map(move |j| u[i] * u[j]));
    let values: Vec<f64> = moment.chain(gram).collect();
    Law::stated(&values, subject.stated.bits, subject.stated.flip.keep())
}
