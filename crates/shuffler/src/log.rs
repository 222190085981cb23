//! What a shuffler writes down of its batches: entries of a log that only grows, as bytes. Each has
//! a version and one way of being written.

use incrowd_protocol::{ReportId, coordinates};
use thiserror::Error;

const VERSION: u8 = 1;
/// Version, reports before, reports, number of sums, width.
const HEADER: usize = 14;
/// Bits of the largest sum: 2^32 - 1 reports of at most 4095.
const WIDEST: u32 = 44;

/// What an entry of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The sums of the unfinished batch. Replaces every earlier snapshot and delta.
    Snapshot,
    /// What a group of reports added to the sums.
    Delta,
    /// Ids of counted reports that were made for the entry's round. Kept until that round's grace
    /// window is over.
    Ids,
}

/// One entry of a task's log. It cannot be printed.
///
/// # Privacy
/// Partial sums are the shuffler's secret, as the reports were: they go to its own store and
/// nowhere else. The delta of a single report is that report's randomized content; a snapshot
/// replaces it within the time that `docs/threat-model.md` states.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The round being filled; of ids, the round their reports were made for.
    pub round: u32,
    /// What the bytes are.
    pub kind: Kind,
    /// What [`crate::Batch`] wrote.
    pub bytes: Vec<u8>,
}

/// Why a batch cannot go on from what was written down.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the stored batch is not one of this task: {0}")]
pub struct ResumeError(pub(crate) &'static str);

/// Sums over `count` reports that follow `before` others of the same batch, above the least that
/// so many reports add up to: none is negative. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PartialSums {
    pub(crate) before: u32,
    pub(crate) count: u32,
    pub(crate) sums: Vec<u64>,
}

impl PartialSums {
    /// Version (1), reports before, reports and number of sums (u32 each, big-endian), bits of the
    /// largest sum (u8), then the sums of so many bits each, lowest bit first, and zero bits up to
    /// a whole byte. The length is proportionate to the logarithm of the reports.
    pub fn encode(&self) -> Vec<u8> {
        Self::write(self.before, self.count, self.sums.iter().copied())
    }

    pub(crate) fn write(
        before: u32,
        count: u32,
        sums: impl ExactSizeIterator<Item = u64> + Clone,
    ) -> Vec<u8> {
        let width = u64::BITS - sums.clone().fold(0, |bits, sum| bits | sum).leading_zeros();
        debug_assert!(width <= WIDEST, "a sum has at most 44 bits");
        let number = sums.len();
        let mut bytes = Vec::with_capacity(HEADER + (number * width as usize).div_ceil(8));
        bytes.push(VERSION);
        for word in [before, count, number as u32] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.push(width as u8);
        if width == 0 {
            return bytes;
        }
        let (mut buffer, mut filled) = (0u64, 0);
        for sum in sums {
            buffer |= sum << filled;
            filled += width;
            while filled >= 8 {
                bytes.push(buffer as u8);
                buffer >>= 8;
                filled -= 8;
            }
        }
        if filled > 0 {
            bytes.push(buffer as u8);
        }
        bytes
    }

    /// The sums that these bytes are, if they were written in the one way.
    pub fn decode(bytes: &[u8]) -> Result<Self, ResumeError> {
        let Some((header, packed)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(ResumeError("sums without a header"));
        };
        let &[version, rest @ .., width] = header;
        if version != VERSION {
            return Err(ResumeError("sums of another version"));
        }
        let (words, _) = rest.as_chunks::<4>();
        let [before, count, number] =
            [0, 1, 2].map(|index: usize| u32::from_be_bytes(words[index]));
        let (width, number) = (u32::from(width), number as usize);
        // Before anything is allocated.
        if width > WIDEST || number > coordinates(1000) {
            return Err(ResumeError("sums that no mechanism has"));
        }
        if packed.len() != (number * width as usize).div_ceil(8) {
            return Err(ResumeError("sums of another length"));
        }
        let sums = unpack(packed, number, width)?;
        let all = sums.iter().fold(0, |bits, sum| bits | sum);
        if u64::BITS - all.leading_zeros() != width {
            return Err(ResumeError("sums that are wider than needed"));
        }
        Ok(Self { before, count, sums })
    }
}

fn unpack(packed: &[u8], number: usize, width: u32) -> Result<Vec<u64>, ResumeError> {
    let mask = (1u64 << width) - 1;
    let mut bytes = packed.iter();
    let (mut buffer, mut filled) = (0u64, 0);
    let mut sums = Vec::with_capacity(number);
    for _ in 0..number {
        while filled < width {
            let byte = bytes.next().ok_or(ResumeError("sums of another length"))?;
            buffer |= u64::from(*byte) << filled;
            filled += 8;
        }
        sums.push(buffer & mask);
        buffer >>= width;
        filled -= width;
    }
    if buffer != 0 {
        return Err(ResumeError("padding that is not zero"));
    }
    Ok(sums)
}

/// Ids of counted reports of one round, as they are written down: the version (1) and 16 bytes
/// each.
#[derive(Clone)]
pub struct IdsEntry(Vec<u8>);

impl Default for IdsEntry {
    fn default() -> Self {
        Self(vec![VERSION])
    }
}

impl IdsEntry {
    /// Adds an id.
    pub fn push(&mut self, id: ReportId) {
        self.0.extend_from_slice(&id.0);
    }

    /// The entry of these ids, whose reports were made for `round`.
    pub fn into_entry(self, round: u32) -> Entry {
        Entry { round, kind: Kind::Ids, bytes: self.0 }
    }

    /// The ids that these bytes are.
    pub fn decode(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = ReportId>, ResumeError> {
        let Some((&VERSION, ids)) = bytes.split_first() else {
            return Err(ResumeError("ids of another version"));
        };
        let (ids, []) = ids.as_chunks::<16>() else {
            return Err(ResumeError("half an id"));
        };
        Ok(ids.iter().map(|id| ReportId(*id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(before: u32, count: u32, sums: &[u64]) -> Vec<u8> {
        PartialSums { before, count, sums: sums.to_vec() }.encode()
    }

    #[test]
    fn sums_come_back_and_take_no_more_room_than_their_largest_needs() {
        let largest = (1 << WIDEST) - 1;
        for (sums, bytes) in [
            (vec![], 0),
            (vec![0; 100], 0),
            (vec![1; 9], 2),
            (vec![1, 0, 5, 2, 7, 7], 3),
            (vec![largest, 0, largest, 1, 1 << 43], 28),
        ] {
            let written = encode(3, 4, &sums);
            assert_eq!(written.len(), HEADER + bytes, "{sums:?}");
            let PartialSums { before, count, sums: read } = PartialSums::decode(&written).unwrap();
            assert_eq!((before, count, read), (3, 4, sums));
        }
    }

    #[test]
    fn there_is_one_way_of_writing_sums() {
        let good = encode(0, 2, &[1, 2, 3]);
        assert!(PartialSums::decode(&good).is_ok());
        let changed = |place: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[place] = to;
            bytes
        };
        for (what, bytes) in [
            ("another version", changed(0, 2)),
            ("another number", changed(12, 9)),
            ("far too many", changed(9, 1)),
            ("wider", changed(13, 45)),
            ("wider than needed", [&encode(0, 2, &[1, 2, 4])[..14], &[0b0100_0001, 0]].concat()),
            ("padding", changed(14, good[14] | 0b0100_0000)),
            ("too short", good[..14].to_vec()),
            ("too long", [good.as_slice(), &[0]].concat()),
            ("no header", good[..13].to_vec()),
            ("nothing", Vec::new()),
        ] {
            assert!(PartialSums::decode(&bytes).is_err(), "{what}");
        }
    }

    #[test]
    fn ids_come_back_and_halves_do_not() {
        let mut entry = IdsEntry::default();
        let ids = [ReportId([1; 16]), ReportId([2; 16])];
        ids.into_iter().for_each(|id| entry.push(id));
        let bytes = entry.into_entry(7).bytes;
        assert!(IdsEntry::decode(&bytes).unwrap().eq(ids));
        for bad in [&bytes[..20], &bytes[1..], &[], &[2]] {
            assert!(IdsEntry::decode(bad).is_err());
        }
    }
}
