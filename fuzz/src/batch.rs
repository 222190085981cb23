//! The shuffler's batch against a model that keeps everything.

use std::sync::Arc;

use incrowd_protocol::{Law, Mechanism, Payload, Report, ReportId, Round};
use incrowd_shuffler::{Batch, Entry, IdsEntry, Kind, Outcome, PartialSums};

use crate::{
    bytes::{put_right, said},
    known::{MECHANISMS, TASK, WORDS},
};

/// Everything that was counted so far.
struct Model {
    mechanism: Arc<Mechanism>,
    counted: Vec<Counted>,
    released: u32,
}

struct Counted {
    report: Report,
    /// Round in whose batch it was counted.
    counted_in: u32,
}

/// A byte for the mechanism, then reports: two bytes say what to do with the next one. See
/// [`next_report`].
pub fn batch(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let mechanism = small(&MECHANISMS[usize::from(first & 15) % MECHANISMS.len()], first >> 4);
    run(mechanism, &mut rest);
}

/// Entries of a shuffler's log, each a byte for its kind, one for its round, and its bytes with
/// their length (u16) in front. The first kind says whether the task has codebook rounds. The batch
/// goes on from there until it is full.
pub fn snapshot(mut data: &[u8]) {
    let words = data.first().is_some_and(|kind| *kind > 128);
    let mechanism = if words { WORDS.mechanism() } else { TASK.mechanism() };
    let mechanism = Arc::new(mechanism.clone());
    let mut batch = Batch::new(mechanism.clone());
    let mut expected = vec![0; mechanism.coordinates()];
    while let Some((&[kind, round, high, low], rest)) = data.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        data = rest;
        let kind = [Kind::Snapshot, Kind::Delta, Kind::Ids][usize::from(kind % 3)];
        let entry = Entry { round: u32::from(round), kind, bytes: bytes.to_vec() };
        if let Ok(sums) = PartialSums::decode(bytes) {
            assert!(sums.encode() == bytes, "one way of writing sums");
        }
        if batch.advance(&entry).is_err() {
            return;
        }
        if kind != Kind::Ids {
            if kind == Kind::Snapshot {
                expected.fill(0);
            }
            let sums = unpacked(bytes, &mechanism, entry.round);
            expected.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
    }
    if batch.settle().is_err() {
        return;
    }
    let written = batch.snapshot();
    let Some(round) = batch.round() else { return assert_eq!(written.round, batch.next_round()) };
    let sums = unpacked(&written.bytes, &mechanism, round.number);
    assert!(sums.eq(expected.iter().copied()), "nothing is lost");
    assert!(batch.count() < round.size);
    fill(batch, &mechanism, &expected);
}

/// The sums of an entry, bit by bit: above -136 for each report of a codebook round.
fn unpacked(bytes: &[u8], mechanism: &Mechanism, round: u32) -> impl Iterator<Item = i64> {
    let [count, number] =
        [5, 9].map(|at| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()));
    let width = usize::from(bytes[13]);
    let least = match mechanism.round(round).map(|round| round.law) {
        Ok(Law::Codebook(_)) => -136 * i64::from(count),
        _ => 0,
    };
    let bit = move |place: usize| i64::from(bytes[14 + place / 8] >> (place % 8) & 1);
    let sum = move |j| (0..width).map(|k| bit(j * width + k) << k).sum::<i64>();
    (0..number as usize).map(move |j| least + sum(j))
}

/// A report's content that any input may choose: counts or a word, from these bytes.
fn payload(law: Law, mechanism: &Mechanism, raw: &[u8]) -> Payload {
    let at = |place: usize| raw.get(place).copied().unwrap_or(0);
    match law {
        Law::Bits(law) => {
            let count = |j| u16::from(at(j)) % (law.bits as u16 + 1);
            Payload::Counts((0..mechanism.coordinates()).map(count).collect())
        }
        Law::Codebook(law) => Payload::Word {
            seed: std::array::from_fn(at),
            index: (u32::from(at(16)) % law.words) as u8,
        },
    }
}

/// Sends a batch the reports that it lacks: it releases what it had and what they add.
fn fill(mut batch: Batch, mechanism: &Mechanism, before: &[i64]) {
    let (count, round) = (batch.count(), batch.round().unwrap());
    let mut sent = count;
    let mut expected = before.to_vec();
    for number in 0u64.. {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        let raw: [u8; 17] =
            std::array::from_fn(|j| if j == 6 { number as u8 } else { j as u8 % 4 });
        let payload = payload(round.law, mechanism, &raw);
        let added = said(&payload, mechanism);
        let report = Report::new(mechanism, round.number, ReportId(id), payload).unwrap();
        let outcome = batch.accept(&report);
        if outcome != Outcome::Duplicate {
            expected.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
        }
        match outcome {
            Outcome::Duplicate => {}
            Outcome::Counted => {
                sent += 1;
                assert!(sent < round.size);
            }
            Outcome::Released(sums) => {
                assert_eq!(sent + 1, round.size);
                assert_eq!(sums.sums(), expected);
                return assert_eq!(sums.check(mechanism), Ok(()));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Feeds a batch of this mechanism and checks every outcome; it is written down and resumed where
/// the input says so.
fn run(mechanism: Arc<Mechanism>, rest: &mut &[u8]) {
    let mut batch = Batch::new(mechanism.clone());
    let mut model = Model { mechanism, counted: Vec::new(), released: 0 };
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut restart = false;
    while let Some(bytes) = next_report(rest, &model.mechanism, &sent, batch.round()) {
        if restart {
            batch = model.restarted(&batch);
        }
        restart = bytes.last().is_some_and(|byte| byte % 4 == 1);
        let outcome = batch.accept_bytes(&bytes);
        model.check(&bytes, &outcome);
        let open = model.mechanism.round(model.released + 1).ok();
        assert_eq!(batch.round(), open);
        assert_eq!(batch.count() as usize, model.in_batch(model.released + 1).count());
        assert!(batch.remembered() <= model.counted.len());
        sent.push(bytes);
    }
}

/// The same law with batches of one to four reports and some grace, so that an input can fill
/// several.
fn small(mechanism: &Mechanism, choice: u8) -> Arc<Mechanism> {
    let mut config = incrowd_protocol::MechanismConfig::from(mechanism.clone());
    config.closes = incrowd_protocol::Closes::Count { grace: u32::from(choice & 3) };
    for (stage, size) in config.schedule.iter_mut().zip(u32::from(choice >> 2) % 4 + 1..) {
        (stage.size, stage.rounds, stage.window) = (size, stage.rounds.min(3), None);
    }
    Arc::new(config.check().expect("a valid mechanism"))
}

/// The bytes to send next: bits 0 to 1 of the first byte say how (as they come; put right; sent
/// before; sent before and changed), bits 2 to 3 how many rounds before the current one (3: one
/// after it), the second byte how long or which.
fn next_report(
    rest: &mut &[u8],
    mechanism: &Mechanism,
    sent: &[Vec<u8>],
    current: Option<Round>,
) -> Option<Vec<u8>> {
    let (&[how, which], after) = rest.split_first_chunk::<2>()?;
    *rest = after;
    let mut take = |length: usize| {
        let (taken, after) = rest.split_at(length.min(rest.len()));
        *rest = after;
        taken.to_vec()
    };
    let now = current.map_or(1, |round| round.number);
    let round =
        if how >> 2 & 3 == 3 { now + 1 } else { now.saturating_sub(u32::from(how >> 2 & 3)) };
    Some(match (how & 3, sent.len()) {
        (0, _) | (2 | 3, 0) => take(usize::from(which)),
        (1, _) => {
            // One of few ids, so that some come again; content within its range.
            let id = ReportId([which & 7; 16]);
            let mut raw = take(mechanism.coordinates().max(17));
            raw.resize(mechanism.coordinates().max(17), which);
            match mechanism.round(round) {
                Ok(round) => {
                    let payload = payload(round.law, mechanism, &raw);
                    let report = Report::new(mechanism, round.number, id, payload).unwrap();
                    report.encode(mechanism).unwrap()
                }
                Err(_) => raw,
            }
        }
        (2, n) => sent[usize::from(which) % n].clone(),
        (_, n) => {
            let mut bytes = sent[usize::from(which) % n].clone();
            for chunk in take(usize::from(how >> 4)).chunks_exact(2) {
                let length = bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(usize::from(chunk[0]) % length) {
                    *byte ^= chunk[1];
                }
            }
            if how & 0x80 != 0 {
                put_right(&mut bytes, mechanism);
            }
            bytes
        }
    })
}

impl Model {
    fn in_batch(&self, round: u32) -> impl Iterator<Item = &Counted> {
        self.counted.iter().filter(move |counted| counted.counted_in == round)
    }

    /// The batch after a restart of the shuffler, with the ids that may still come again.
    fn restarted(&self, batch: &Batch) -> Batch {
        let oldest = batch.oldest_remembered();
        let mut restarted = Batch::new(self.mechanism.clone());
        restarted.advance(&batch.snapshot()).expect("what was written");
        for Counted { report, .. } in &self.counted {
            if report.round() >= oldest {
                let mut ids = IdsEntry::default();
                ids.push(report.id());
                restarted.advance(&ids.into_entry(report.round())).expect("ids of this mechanism");
            }
        }
        restarted.settle().expect("a batch of this mechanism");
        restarted
    }

    fn check(&mut self, bytes: &[u8], outcome: &Outcome) {
        let now = self.released + 1;
        let Ok(round) = self.mechanism.round(now) else {
            return assert!(matches!(outcome, Outcome::Refused(_)), "the task is over");
        };
        let Ok(report) = Report::decode(bytes, &self.mechanism) else {
            return assert!(matches!(outcome, Outcome::Refused(_)), "not a report");
        };
        let made = self.mechanism.round(report.round()).unwrap();
        let oldest = now.saturating_sub(self.mechanism.grace());
        let in_window = (oldest..=now).contains(&made.number) && made.law == round.law;
        let seen = |counted: &Counted| {
            counted.report.id() == report.id() && counted.report.round() >= oldest
        };
        if !in_window {
            return assert!(matches!(outcome, Outcome::Refused(_)), "outside of the window");
        }
        if self.counted.iter().any(seen) {
            return assert_eq!(*outcome, Outcome::Duplicate);
        }
        // Never the same bytes twice, never an id twice in a batch.
        assert!(self.counted.iter().all(|counted| counted.report != report));
        assert!(self.in_batch(now).all(|counted| counted.report.id() != report.id()));
        self.counted.push(Counted { report, counted_in: now });
        let full = self.in_batch(now).count() == round.size as usize;
        match outcome {
            Outcome::Counted => assert!(!full, "a full batch is released"),
            Outcome::Released(sums) => {
                assert!(full, "only a full batch is released");
                assert_eq!((sums.round(), sums.size()), (now, round.size));
                let mut expected = vec![0; self.mechanism.coordinates()];
                for counted in self.in_batch(now) {
                    let added = said(counted.report.payload(), &self.mechanism);
                    expected.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
                }
                assert_eq!(sums.sums(), expected);
                self.released = now;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{Rng, SeedableRng};

    /// As many as it takes to find a batch that forgets an id, counts twice or ignores the window.
    #[test]
    fn random_inputs_find_nothing_wrong() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..20_000 {
            let mut data = [0; 200];
            rng.fill_bytes(&mut data);
            super::batch(&data);
        }
    }

    /// Logs as a shuffler writes them, some with a changed byte.
    #[test]
    fn random_logs_find_nothing_wrong() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut below = |limit: u32| rng.next_u32() % limit;
        for _ in 0..20_000 {
            let (mut data, mut before, mut round) = (Vec::new(), 0, 1);
            for _ in 0..below(6) {
                let kind = below(3);
                if kind == 0 {
                    (before, round) = (0, round + below(2));
                }
                let count = below(30);
                let bytes = if kind == 2 {
                    [vec![1], vec![below(256) as u8; 16]].concat()
                } else {
                    // Five sums of no more than the reports: as many bits each as the largest
                    // needs.
                    let sums = [(); 5].map(|()| u64::from(below(count + 1)));
                    let width = 64 - sums.iter().fold(0, |all, sum| all | sum).leading_zeros();
                    let packed = sums.iter().rev().fold(0, |packed, sum| packed << width | sum);
                    let mut bytes = vec![1];
                    [before, count, 5].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
                    bytes.push(width as u8);
                    bytes.extend(&packed.to_le_bytes()[..(5 * width as usize).div_ceil(8)]);
                    before += count;
                    bytes
                };
                // The first kind decides between both tasks.
                let words = if data.is_empty() { 129 * below(2) } else { 0 };
                data.extend([(kind + words) as u8, round as u8, 0, bytes.len() as u8]);
                data.extend(bytes);
            }
            if below(3) == 0 && !data.is_empty() {
                let place = below(data.len() as u32) as usize;
                data[place] ^= 1 << below(8);
            }
            super::snapshot(&data);
        }
    }
}
