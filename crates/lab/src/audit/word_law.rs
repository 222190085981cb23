//! Promises about codebook reports that are not an epsilon: the stated law of the index, fresh
//! seeds, sums of the right words, pads with the stated law.

use std::{collections::HashSet, convert::Infallible};

use incrowd_bandit::WordMoments;
use incrowd_device::Device;
use incrowd_privacy::numeric::special::normal_tail;
use incrowd_protocol::{CodebookLaw, Payload, Report, ReportId, STEPS};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, TryRng};

use super::{
    AuditError,
    auditor::{codebook, rank, rounded, statistic},
    estimate,
    structure::{once_each, probes, send_twice},
    subject::Subject,
};

/// How far the auditor's own ranking may move a probability: words whose scores are nearly equal.
const RANKING: f64 = 1e-4;
/// Reports that are compared where there is no error of chance.
const REPORTS: usize = 64;
/// Most cells of ranks and of indices that are looked at, so that each has enough hits.
const CELLS: usize = 16;
/// Pads that are added up, beside single ones.
const PADS: u32 = 4;
/// Ends of the cells that sums of pads are sorted into, in standard deviations.
const ENDS: [f64; 7] = [-1.5, -1.0, -0.4, 0.1, 0.5, 1.1, 1.8];

/// Epsilon of one report: ln((1-o)(N-k)/(o k)).
pub(super) fn epsilon(law: CodebookLaw) -> f64 {
    let outside = law.outside.value();
    let (words, chosen) = (f64::from(law.words), f64::from(law.chosen));
    ((1.0 - outside) * (words - chosen) / (outside * chosen)).ln()
}

/// Everything that can be checked without an error of chance.
pub(super) fn promises(
    subject: &Subject<CodebookLaw>,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<String>, AuditError> {
    let mut broken = Vec::new();
    let size = subject.round.size as usize;
    for people in [1, size / 2 + 1, size, size + 1] {
        broken.extend(words_are_added_once(subject, people, rng)?);
    }
    broken.extend(seeds(subject, rng)?);
    Ok(once_each(broken))
}

/// So many people with words the auditor knows, each sent twice. By count the batch is released by
/// its last report; by time when it is closed, with pads of 0.
fn words_are_added_once(
    subject: &Subject<CodebookLaw>,
    people: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<String>, AuditError> {
    let (size, by_time) = (subject.round.size as usize, subject.by_time());
    let mut batch = subject.batch();
    let mut expected = vec![0; subject.mechanism.coordinates()];
    let (mut counted, mut released) = (0, None);
    for _ in 0..people {
        let (mut id, mut seed, mut place) = ([0; 16], [0; 16], [0; 1]);
        rng.fill_bytes(&mut id);
        rng.fill_bytes(&mut seed);
        rng.fill_bytes(&mut place);
        let index = (u32::from(place[0]) % subject.stated.words) as u8;
        let payload = Payload::Word { seed, index };
        let report = Report::new(&subject.mechanism, subject.round.number, ReportId(id), payload)?;
        if released.is_none() && counted < size {
            counted += 1;
            let words = codebook(&seed, u32::from(index) + 1, expected.len() + 1);
            let word = rounded(&words[usize::from(index)]);
            expected.iter_mut().zip(word).for_each(|(sum, entry)| *sum += entry);
        }
        let sums = send_twice(&mut batch, &report.encode(&subject.mechanism)?);
        released = released.or(sums);
        if released.is_some() && (by_time || counted < size) {
            return Ok(vec![format!("a batch of {size} was released with {counted} people in it")]);
        }
    }
    if by_time {
        let missing = batch.missing() as usize;
        if missing != size - counted {
            return Ok(vec![format!("{missing} pads for {counted} people in a batch of {size}")]);
        }
        released = Some(batch.close(&vec![0; expected.len()])?.sums().to_vec());
    }
    let Some(sums) = released else {
        let late = people >= size;
        return Ok(late
            .then(|| format!("a batch of {size} did not release after {people} reports"))
            .into_iter()
            .collect());
    };
    // Entries at a border of two steps may be rounded differently.
    let near = sums.iter().zip(&expected).all(|(found, own)| (found - own).abs() <= 2);
    let text = format!("the sums of {counted} words are not those of the words that were sent");
    Ok(if near { Vec::new() } else { vec![text] })
}

/// A generator that draws its first bytes from one generator and all others from another.
struct Spliced {
    first: ChaCha8Rng,
    rest: ChaCha8Rng,
    left: usize,
}

impl TryRng for Spliced {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        let (first, rest) = bytes.split_at_mut(self.left.min(bytes.len()));
        self.left -= first.len();
        self.first.fill_bytes(first);
        self.rest.fill_bytes(rest);
        Ok(())
    }
}

/// A seed is drawn for each report, before anything is looked at, and does not follow from the id.
fn seeds(subject: &Subject<CodebookLaw>, rng: &mut ChaCha8Rng) -> Result<Vec<String>, AuditError> {
    let mut broken = Vec::new();
    let inputs = probes(subject.dimension());
    for _ in 0..REPORTS {
        let mut same = rng.clone();
        let (seed, _) = subject.word(&inputs[1], rng)?;
        if subject.word(&inputs[2], &mut same)?.0 != seed {
            broken.push("the seed depends on context and reward".to_owned());
        }
        let (first, rest) = (
            rng.clone(),
            [1, 2].map(|stream| {
                let mut rest = rng.clone();
                rest.set_stream(u64::MAX - stream);
                rest
            }),
        );
        let [a, b] = rest.map(|rest| {
            let coins = Spliced { first: first.clone(), rest, left: 16 };
            let mut device = Device::simulated(subject.task(), coins);
            device.report(subject.round.number, &inputs[1].context, inputs[1].reward)
        });
        let [a, b] = [a?.report, b?.report];
        if a.id() == b.id() && seed_of(&a) == seed_of(&b) {
            broken.push("the seed follows from the id, which is seen on the wire".to_owned());
        }
        let _ = rng.next_u64();
    }
    Ok(broken)
}

fn seed_of(report: &Report) -> Option<[u8; 16]> {
    match report.payload() {
        Payload::Word { seed, .. } => Some(*seed),
        Payload::Counts(_) => None,
    }
}

/// The check that words have the stated law.
pub(super) struct WordLawCheck {
    /// Reports for each input, and pads where rounds close by time.
    pub runs: u64,
    /// Probability that a correct device fails.
    pub failure_probability: f64,
}

impl WordLawCheck {
    /// Ranks and indices of the words that are sent for some inputs, their mean, and pads.
    pub fn run(
        &self,
        subject: &Subject<CodebookLaw>,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<String>, AuditError> {
        let inputs = probes(subject.dimension());
        let share = self.failure_probability / (inputs.len() + 2) as f64;
        let mut broken = Vec::new();
        let (mut inside, mut seeds) = (0, HashSet::new());
        for input in &inputs {
            let mut tally = Tally::new(subject);
            let z = statistic(subject.stated, input);
            for _ in 0..self.runs {
                let (seed, index) = subject.word(input, rng)?;
                tally.count(subject.stated, &z, &seed, index);
                seeds.insert(seed);
            }
            inside += tally.inside;
            broken.extend(tally.judge(subject.stated, &z, self.runs, share)?);
        }
        let all = self.runs * inputs.len() as u64;
        let stated = 1.0 - subject.stated.outside.value();
        if !may_be(stated, inside, all, share)? {
            broken.push(
                "the word is one of those picked with another probability than stated".into(),
            );
        }
        // 128 random bits are equal with probability below 1e-20 for a billion reports.
        if (seeds.len() as u64) < all {
            let repeated = all - seeds.len() as u64;
            broken.push(format!("{repeated} of {all} reports share the seed of another one"));
        }
        if subject.by_time() {
            broken.extend(self.pads(subject, share, rng)?);
        }
        Ok(once_each(broken))
    }

    /// Each entry of a pad is a rounded standard normal variable, and pads are independent: sums of
    /// several have their variance.
    fn pads(
        &self,
        subject: &Subject<CodebookLaw>,
        failure_probability: f64,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<String>, AuditError> {
        let coordinates = subject.mechanism.coordinates();
        let each = failure_probability / (2 * coordinates * ENDS.len()) as f64;
        let mut broken = Vec::new();
        for number in [1, PADS] {
            let std = (f64::from(number) * (f64::from(STEPS * STEPS) + 1.0 / 12.0)).sqrt();
            let ends = ENDS.map(|end| (end * std).floor());
            let mut hits = vec![[0; ENDS.len()]; coordinates];
            for _ in 0..self.runs {
                for (hits, sum) in hits.iter_mut().zip(subject.pads(number, rng)) {
                    for (hits, end) in hits.iter_mut().zip(ends) {
                        *hits += u64::from(sum as f64 <= end);
                    }
                }
            }
            let exact = f64::from(STEPS) * f64::from(number).sqrt();
            for (end, cell) in ends.into_iter().zip(0..) {
                // A single one is rounded from a normal variable; several are nearly so.
                let std = if number == 1 { exact } else { std };
                let stated = below((end + 0.5) / std);
                for hits in &hits {
                    if !may_be(stated, hits[cell], self.runs, each)? {
                        broken
                            .push(format!("the sums of {number} pads do not have the stated law"));
                    }
                }
            }
        }
        Ok(broken)
    }
}

/// P(X <= x), X standard normal.
fn below(x: f64) -> f64 {
    if x < 0.0 { normal_tail(-x) } else { 1.0 - normal_tail(x) }
}

/// Whether an event of this probability may have been hit so often.
fn may_be(stated: f64, hits: u64, runs: u64, failure_probability: f64) -> Result<bool, AuditError> {
    let each = failure_probability / 2.0;
    let low = estimate::binomial_lower(hits, runs, each)?;
    let high = estimate::binomial_upper(hits, runs, each)?;
    Ok(stated >= low - RANKING && stated <= high + RANKING)
}

/// What the words of one input's reports were.
struct Tally {
    inside: u64,
    /// Ranks among those picked, and among the others, in at most [`CELLS`] cells each.
    picked: Vec<u64>,
    others: Vec<u64>,
    indices: Vec<u64>,
    /// Sum of the words as the shuffler adds them.
    sums: Vec<i64>,
}

impl Tally {
    fn new(subject: &Subject<CodebookLaw>) -> Self {
        let CodebookLaw { words, chosen, .. } = subject.stated;
        let cells = |number: u32| vec![0; CELLS.min(number as usize)];
        Self {
            inside: 0,
            picked: cells(chosen),
            others: cells(words - chosen),
            indices: cells(words),
            sums: vec![0; subject.mechanism.coordinates()],
        }
    }

    fn count(&mut self, law: CodebookLaw, z: &[f64], seed: &[u8; 16], index: u8) {
        let rank = rank(&codebook(seed, law.words, z.len()), z, index);
        let chosen = law.chosen as usize;
        if rank < chosen {
            self.inside += 1;
            hit(&mut self.picked, rank, chosen);
        } else {
            let others = law.words as usize - chosen;
            let place = (rank - chosen).min(others - 1);
            hit(&mut self.others, place, others);
        }
        hit(&mut self.indices, usize::from(index), law.words as usize);
        Payload::Word { seed: *seed, index }.add_to(&mut self.sums);
    }

    fn judge(
        &self,
        law: CodebookLaw,
        z: &[f64],
        runs: u64,
        failure_probability: f64,
    ) -> Result<Vec<String>, AuditError> {
        let outside = law.outside.value();
        let tests = self.picked.len() + self.others.len() + self.indices.len() + self.sums.len();
        let each = failure_probability / tests as f64;
        let mut broken = Vec::new();
        let kinds = [
            ("the rank of the word among those picked", &self.picked, law.chosen, 1.0 - outside),
            (
                "the rank of the word among the others",
                &self.others,
                law.words - law.chosen,
                outside,
            ),
            ("the index of the word", &self.indices, law.words, 1.0),
        ];
        for (what, hits, places, chance) in kinds {
            let places = places as usize;
            for (index, &hits_of) in hits.iter().enumerate() {
                let size = (0..places).filter(|&p| cell(p, places, hits.len()) == index).count();
                let stated = chance * size as f64 / places as f64;
                if !may_be(stated, hits_of, runs, each)? {
                    broken.push(format!("{what} does not have the stated law"));
                    break;
                }
            }
        }
        // An entry of a word has the mean 16 mu z; its proxy is at most that along z, and
        // rounding's.
        let moments = WordMoments::of(law);
        let proxy = moments.proxy_along.max(1.0) * 1.05;
        let off = (2.0 * proxy * (2.0 / each).ln() / runs as f64).sqrt() + RANKING;
        for (sum, z) in self.sums.iter().zip(z) {
            let mean = *sum as f64 / (f64::from(STEPS) * runs as f64);
            if (mean - moments.gain * z).abs() > off {
                broken.push(
                    "the mean of the words is not the statistic times the stated gain".into(),
                );
                break;
            }
        }
        Ok(broken)
    }
}

/// The cell of a place out of so many.
fn cell(place: usize, places: usize, cells: usize) -> usize {
    place * cells / places
}

fn hit(hits: &mut [u64], place: usize, places: usize) {
    let cells = hits.len();
    hits[cell(place, places, cells)] += 1;
}
