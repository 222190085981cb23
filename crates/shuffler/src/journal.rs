//! A batch as a log: what to append after a group of reports, and how the batch comes back from the
//! entries.

use incrowd_protocol::{Closes, Law, Mechanism, Round};

use crate::{Accumulator, Batch, Entry, IdsEntry, Kind, PartialSums, ResumeError};

/// The sums of a batch as its log has them, to tell what a group of reports added. It cannot be
/// printed.
#[derive(Default)]
pub struct Written {
    round: u32,
    count: u32,
    sums: Vec<i64>,
}

impl Written {
    /// Everything that the batch has by now is in the log.
    pub fn update(&mut self, batch: &Batch) {
        self.round = batch.next_round();
        self.count = batch.count();
        self.sums.clear();
        if let Some((_, sums)) = &batch.current {
            self.sums.extend_from_slice(sums.partial());
        }
    }
}

impl Batch {
    /// The number of the round being filled, or of the one that would follow the last.
    pub fn next_round(&self) -> u32 {
        self.round().map_or(self.mechanism.schedule().last_round() + 1, |round| round.number)
    }

    /// The whole unfinished batch, without its ids.
    pub fn snapshot(&self) -> Entry {
        let bytes = match &self.current {
            Some((round, sums)) => {
                let above = above(round.law, self.count(), sums.partial().iter().copied());
                PartialSums::write(0, self.count(), above)
            }
            None => PartialSums::write(0, 0, [].into_iter()),
        };
        Entry { round: self.next_round(), kind: Kind::Snapshot, bytes }
    }

    /// What was added to the sums since they were written down; none if another round has begun,
    /// which only a snapshot can tell.
    pub fn delta(&self, written: &Written) -> Option<Entry> {
        let (round, sums) = self.current.as_ref()?;
        if round.number != written.round || sums.partial().len() != written.sums.len() {
            return None;
        }
        let added = sums.partial().iter().zip(&written.sums).map(|(now, then)| now - then);
        let count = sums.count() - written.count;
        let bytes = PartialSums::write(written.count, count, above(round.law, count, added));
        Some(Entry { round: round.number, kind: Kind::Delta, bytes })
    }

    /// Goes on by one entry of the log. [`Batch::settle`] must follow the last one; after an error
    /// the batch must be dropped.
    pub fn advance(&mut self, entry: &Entry) -> Result<(), ResumeError> {
        match entry.kind {
            Kind::Snapshot => self.replace(entry.round, &PartialSums::decode(&entry.bytes)?),
            Kind::Delta => self.add(entry.round, &PartialSums::decode(&entry.bytes)?),
            Kind::Ids => {
                self.ids.extend(IdsEntry::decode(&entry.bytes)?, entry.round);
                Ok(())
            }
        }
    }

    /// Ends a series of [`Batch::advance`]: the ids outside of the grace window are forgotten.
    /// Entries of ids may come before the snapshot that begins their round, so this cannot be
    /// checked earlier.
    pub fn settle(&mut self) -> Result<(), ResumeError> {
        if self.ids.newest() > self.next_round() {
            return Err(ResumeError("an id of a round that has not begun"));
        }
        self.ids.forget_before(self.oldest_remembered());
        Ok(())
    }

    fn replace(&mut self, number: u32, whole: &PartialSums) -> Result<(), ResumeError> {
        if number < self.next_round() {
            return Err(ResumeError("a round that is over"));
        }
        if whole.before != 0 {
            return Err(ResumeError("a snapshot of a part of a batch"));
        }
        let Ok(round) = self.mechanism.round(number) else {
            let finished = number == self.mechanism.schedule().last_round() + 1;
            if !finished || whole.count != 0 || !whole.sums.is_empty() {
                return Err(ResumeError("no such round"));
            }
            self.current = None;
            return Ok(());
        };
        let mut sums = Accumulator::new(self.mechanism.coordinates(), round.size);
        fits(&self.mechanism, &round, &sums, whole)?;
        sums.add_sums(&signed(round.law, whole), whole.count);
        self.current = Some((round, sums));
        Ok(())
    }

    fn add(&mut self, number: u32, added: &PartialSums) -> Result<(), ResumeError> {
        match &mut self.current {
            Some((round, sums)) if round.number == number => {
                fits(&self.mechanism, round, sums, added)?;
                sums.add_sums(&signed(round.law, added), added.count);
                Ok(())
            }
            _ => Err(ResumeError("a delta of another round")),
        }
    }
}

/// Sums of `count` reports as they are written: above the least that so many reports add up to.
fn above(
    law: Law,
    count: u32,
    sums: impl ExactSizeIterator<Item = i64> + Clone,
) -> impl ExactSizeIterator<Item = u64> + Clone {
    let least = i64::from(count) * law.range().0;
    sums.map(move |sum| sum.wrapping_sub(least) as u64)
}

/// The sums that were written so.
fn signed(law: Law, written: &PartialSums) -> Vec<i64> {
    let least = i64::from(written.count) * law.range().0;
    written.sums.iter().map(|&sum| sum as i64 + least).collect()
}

/// Whether these sums can follow those of a batch and leave it open: where the last report closes
/// it, it must lack one at least.
fn fits(
    mechanism: &Mechanism,
    round: &Round,
    sums: &Accumulator,
    added: &PartialSums,
) -> Result<(), ResumeError> {
    if added.before != sums.count() {
        return Err(ResumeError("a delta is missing"));
    }
    let left = round.size - sums.count();
    let room = match mechanism.closes() {
        Closes::Count { .. } => left - 1,
        Closes::Time { .. } => left,
    };
    if added.count > room {
        return Err(ResumeError("more reports than an open batch can have"));
    }
    if added.sums.len() != sums.partial().len() {
        return Err(ResumeError("wrong number of sums"));
    }
    let (low, high) = round.law.range();
    let limit = u64::from(added.count) * high.abs_diff(low);
    if added.sums.iter().any(|&sum| sum > limit) {
        return Err(ResumeError("a sum above what its reports can make"));
    }
    Ok(())
}
