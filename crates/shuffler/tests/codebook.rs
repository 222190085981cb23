//! Batches of codebook reports: signed sums, in memory, in the log and in a release.

use std::sync::Arc;

use incrowd_protocol::{
    CLIP, Closes, CodebookLaw, FlipProbability, Law, Layout, Mechanism, MechanismConfig,
    OutsideProbability, Payload, ProtocolError, Report, ReportId, Stage, Words,
};
use incrowd_shuffler::{
    Batch, CloseError, Entry, IdsEntry, Kind, Outcome, PartialSums, Refusal, Written,
};
use proptest::prelude::*;

const COORDINATES: usize = 5;

fn law() -> Law {
    let outside = OutsideProbability::new(1, 4).unwrap();
    Law::Codebook(CodebookLaw { words: 16, chosen: 5, outside, moment_weight: 128 })
}

/// Stages of (rounds, size, law), d = 2.
fn mechanism(closes: Closes, stages: &[(u32, u32, Law)]) -> Arc<Mechanism> {
    let window = matches!(closes, Closes::Time { .. }).then_some(10);
    let stage = |&(rounds, size, law)| Stage { rounds, size, window, law };
    let config = MechanismConfig {
        dimension: 2,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect(),
        layout: Layout::Shared,
        closes,
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(config.check().unwrap())
}

fn by_count(stages: &[(u32, u32, Law)]) -> Arc<Mechanism> {
    mechanism(Closes::Count { grace: 1 }, stages)
}

fn by_time(stages: &[(u32, u32, Law)]) -> Arc<Mechanism> {
    mechanism(Closes::Time { opens: 0 }, stages)
}

fn report(mechanism: &Mechanism, round: u32, id: u8) -> Report {
    let payload = Payload::Word { seed: [id; 16], index: id % 16 };
    Report::new(mechanism, round, ReportId([id; 16]), payload).unwrap()
}

/// What the reports with these ids add up to, entry by entry.
fn sums_of(ids: impl IntoIterator<Item = u8>) -> Vec<i64> {
    let mut sums = vec![0; COORDINATES];
    for id in ids {
        let mut words = Words::new(&[id; 16], COORDINATES + 1);
        for (entry, sum) in sums.iter_mut().enumerate() {
            *sum += i64::from(words.entry(usize::from(id % 16), entry));
        }
    }
    sums
}

fn ids(round: u32, ids: impl IntoIterator<Item = u8>) -> Entry {
    let mut entry = IdsEntry::default();
    ids.into_iter().for_each(|id| entry.push(ReportId([id; 16])));
    entry.into_entry(round)
}

fn resume(mechanism: &Arc<Mechanism>, entries: &[Entry]) -> Option<Batch> {
    let mut batch = Batch::new(mechanism.clone());
    entries.iter().try_for_each(|entry| batch.advance(entry)).ok()?;
    batch.settle().ok().map(|()| batch)
}

/// Version, reports before, reports, number of sums, width, then the sums above -136 for each
/// report, written by hand: at most 128 bits together.
fn entry(kind: Kind, round: u32, before: u32, count: u32, sums: &[i64]) -> Entry {
    let above: Vec<i64> = sums.iter().map(|sum| sum + 136 * i64::from(count)).collect();
    let width = 64 - above.iter().fold(0, |all, sum| all | sum).leading_zeros();
    let mut bytes = vec![1];
    [before, count, sums.len() as u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.push(width as u8);
    let packed = above.iter().rev().fold(0u128, |packed, &sum| packed << width | sum as u128);
    bytes.extend(&packed.to_le_bytes()[..(sums.len() * width as usize).div_ceil(8)]);
    Entry { round, kind, bytes }
}

#[test]
fn r1_a_release_is_the_sum_of_the_words_of_its_reports() {
    let mechanism = by_count(&[(2, 3, law())]);
    let mut batch = Batch::new(mechanism.clone());
    for id in 1..=2 {
        assert_eq!(batch.accept(&report(&mechanism, 1, id)), Outcome::Counted);
        assert_eq!(batch.accept(&report(&mechanism, 1, id)), Outcome::Duplicate);
    }
    let Outcome::Released(sums) = batch.accept(&report(&mechanism, 1, 3)) else { panic!("full") };
    assert_eq!(sums.sums(), sums_of(1..=3));
    assert!(sums.sums().iter().any(|&sum| sum < 0), "a test of signs: {sums:?}");
}

#[test]
fn r4_r8_words_count_in_rounds_of_their_own_law_only() {
    let bits = Law::bits(1, FlipProbability::new(1, 2).unwrap());
    let mechanism = by_count(&[(1, 2, law()), (1, 2, bits), (1, 2, law())]);
    let mut batch = Batch::new(mechanism.clone());
    let bytes = report(&mechanism, 1, 1).encode(&mechanism).unwrap();
    let mut bad = bytes.clone();
    bad[45] = 16;
    let refusal = ProtocolError::WordIndex { index: 16, words: 16 };
    assert_eq!(batch.accept_bytes(&bad), Outcome::Refused(Refusal::Invalid(refusal)));
    assert_eq!(batch.count(), 0);
    assert_eq!(batch.accept_bytes(&bytes), Outcome::Counted);
    assert!(matches!(batch.accept(&report(&mechanism, 1, 2)), Outcome::Released(_)));
    let late = batch.accept(&report(&mechanism, 1, 3));
    assert_eq!(late, Outcome::Refused(Refusal::OtherLaw { round: 1, current: 2 }));
}

/// R23: a report moves a sum by at most 136, and so do as many as the batch has.
#[test]
fn r23_no_sum_leaves_its_range() {
    let mechanism = by_count(&[(1, 200, law())]);
    let mut batch = Batch::new(mechanism.clone());
    let mut before = vec![0i64; COORDINATES];
    for id in 0..199 {
        assert_eq!(batch.accept(&report(&mechanism, 1, id)), Outcome::Counted);
        let after = sums_of(0..=id);
        assert!(before.iter().zip(&after).all(|(a, b)| a.abs_diff(*b) <= CLIP as u64));
        before = after;
    }
    let Outcome::Released(sums) = batch.accept(&report(&mechanism, 1, 199)) else { panic!("full") };
    assert_eq!(sums.sums(), sums_of(0..200));
}

#[test]
fn negative_sums_come_back_from_snapshots_and_deltas() {
    let mechanism = by_count(&[(2, 9, law())]);
    let mut batch = Batch::new(mechanism.clone());
    let mut written = Written::default();
    written.update(&batch);
    let empty = batch.snapshot();
    assert!(empty == entry(Kind::Snapshot, 1, 0, 0, &[0; COORDINATES]));
    let mut log = vec![empty];
    for group in [1..=3, 4..=4, 5..=7] {
        for id in group.clone() {
            assert_eq!(batch.accept(&report(&mechanism, 1, id)), Outcome::Counted);
        }
        let (before, count) = (u32::from(*group.start()) - 1, group.clone().count() as u32);
        let delta = batch.delta(&written).unwrap();
        assert!(delta == entry(Kind::Delta, 1, before, count, &sums_of(group.clone())));
        log.extend([delta, ids(1, group.clone())]);
        written.update(&batch);
        let end = *group.end();
        let whole = entry(Kind::Snapshot, 1, 0, u32::from(end), &sums_of(1..=end));
        assert!(batch.snapshot() == whole);
        for entries in [&log[..], &[whole.clone(), ids(1, 1..=end)]] {
            let mut read = resume(&mechanism, entries).unwrap();
            assert!(read.snapshot() == whole);
            assert_eq!((read.count(), read.remembered()), (u32::from(end), usize::from(end)));
            assert_eq!(read.accept(&report(&mechanism, 1, 1)), Outcome::Duplicate);
            // It goes on to the same release.
            for id in end + 1..9 {
                assert_eq!(read.accept(&report(&mechanism, 1, id)), Outcome::Counted);
            }
            let last = read.accept(&report(&mechanism, 1, 9));
            assert!(matches!(last, Outcome::Released(sums) if sums.sums() == sums_of(1..=9)));
        }
    }
}

#[test]
fn a_stored_sum_outside_of_its_range_is_refused() {
    let mechanism = by_count(&[(2, 9, law())]);
    let clip = i64::from(CLIP);
    for (count, sums, good) in [
        (2, [2 * clip, -2 * clip, 0, 0, 0], true),
        (2, [0, 0, 0, 0, 2 * clip], true),
        (2, [2 * clip + 1, 0, 0, 0, 0], false),
        (2, [0, 0, 0, 0, 2 * clip + 1], false),
        (1, [clip + 1, 0, 0, 0, 0], false),
        (0, [1, 0, 0, 0, 0], false),
    ] {
        for kind in [Kind::Snapshot, Kind::Delta] {
            let read = resume(&mechanism, &[entry(kind, 1, 0, count, &sums)]);
            assert_eq!(read.is_some(), good, "{count} {sums:?}");
            if let Some(read) = read {
                assert!(read.snapshot() == entry(Kind::Snapshot, 1, 0, count, &sums));
            }
        }
    }
    // The widest sums that a header allows do not overflow.
    let mut wide = entry(Kind::Snapshot, 1, 0, 8, &[0; COORDINATES]);
    wide.bytes.truncate(13);
    wide.bytes.extend([&[44u8][..], &[0xff; 27], &[0x0f]].concat());
    assert!(PartialSums::decode(&wide.bytes).is_ok());
    assert!(resume(&mechanism, &[wide]).is_none());
}

/// The largest batch: every sum that is in range has one way of being written and comes back.
#[test]
fn the_sums_of_the_largest_batch_are_written_and_read() {
    let mechanism = by_time(&[(1, u32::MAX, law())]);
    let most = i64::from(u32::MAX) * i64::from(CLIP);
    for sums in [[most, -most, 0, 1, -1], [-most; COORDINATES], [most; COORDINATES]] {
        let above: Vec<u64> = sums.iter().map(|sum| (sum + most) as u64).collect();
        let width = 64 - above.iter().fold(0, |all, sum| all | sum).leading_zeros();
        let mut bytes = vec![1];
        [0, u32::MAX, 5].iter().for_each(|word: &u32| bytes.extend(word.to_be_bytes()));
        bytes.push(width as u8);
        let bit = |place: u32| above[(place / width) as usize] >> (place % width) & 1;
        let places: Vec<u32> = (0..5 * width).collect();
        bytes.extend(places.chunks(8).map(|places| {
            places.iter().rev().fold(0, |byte, &place| byte << 1 | bit(place) as u8)
        }));
        let whole = Entry { round: 1, kind: Kind::Snapshot, bytes };
        let mut read = resume(&mechanism, std::slice::from_ref(&whole)).unwrap();
        assert!(read.snapshot() == whole);
        assert_eq!(read.close(&[0; COORDINATES]).unwrap().sums(), sums);
    }
}

#[test]
fn r26_pads_of_words_make_up_what_is_missing_and_others_are_refused() {
    let mechanism = by_time(&[(3, 3, law())]);
    let mut batch = Batch::new(mechanism.clone());
    assert_eq!(batch.accept(&report(&mechanism, 1, 1)), Outcome::Counted);
    let clip = i64::from(CLIP);
    for bad in [
        vec![2 * clip + 1, 0, 0, 0, 0],
        vec![0, 0, 0, 0, -2 * clip - 1],
        vec![i64::MIN, 0, 0, 0, 0],
        vec![0; COORDINATES - 1],
        vec![0; COORDINATES + 1],
    ] {
        assert_eq!(batch.close(&bad), Err(CloseError::Pads(2)), "{bad:?}");
    }
    assert_eq!((batch.next_round(), batch.count()), (1, 1), "nothing changed");
    let pads = sums_of(2..=3);
    assert_eq!(batch.close(&pads).unwrap().sums(), sums_of(1..=3));
    // Nothing but pads, up to the largest.
    let most = [3 * clip, -3 * clip, 0, 3 * clip, -3 * clip];
    assert_eq!(batch.close(&most).unwrap().sums(), most);
    // A full batch needs none, and takes none.
    for id in 1..=3 {
        assert_eq!(batch.accept(&report(&mechanism, 3, id)), Outcome::Counted);
    }
    assert_eq!(batch.accept(&report(&mechanism, 3, 4)), Outcome::Surplus);
    assert_eq!(batch.close(&[1, 0, 0, 0, 0]), Err(CloseError::Pads(0)));
    assert_eq!(batch.close(&[0; COORDINATES]).unwrap().sums(), sums_of(1..=3));
    assert_eq!(batch.round(), None);
}

proptest! {
    /// Groups written as deltas or snapshots, restarts at any moment: the same releases as a batch
    /// that never stopped, and R7: their order does not matter.
    #[test]
    fn a_batch_of_words_that_is_read_back_goes_on_as_if_nothing_had_happened(
        groups in prop::collection::vec((prop::collection::vec(0u8..20, 0..4), any::<bool>(), any::<bool>()), 0..12),
    ) {
        let mechanism = by_time(&[(1, 12, law())]);
        let (mut kept, mut batch) = (Batch::new(mechanism.clone()), Batch::new(mechanism.clone()));
        let (mut written, mut sums, mut counted) = (Written::default(), Vec::new(), Vec::new());
        written.update(&batch);
        for (arrivals, snapshot, restart) in groups {
            for id in arrivals {
                let outcome = batch.accept(&report(&mechanism, 1, id));
                prop_assert_eq!(&kept.accept(&report(&mechanism, 1, id)), &outcome);
                if outcome == Outcome::Counted {
                    counted.push(id);
                }
            }
            if snapshot {
                sums = vec![batch.snapshot()];
            } else {
                sums.push(batch.delta(&written).unwrap());
            }
            written.update(&batch);
            if restart {
                let mut log = sums.clone();
                log.push(ids(1, counted.iter().copied()));
                batch = resume(&mechanism, &log).unwrap();
                prop_assert!(batch.snapshot() == kept.snapshot());
            }
        }
        let pads = sums_of((100..).take(batch.missing() as usize));
        let release = batch.close(&pads).unwrap();
        prop_assert_eq!(&kept.close(&pads).unwrap(), &release);
        counted.reverse();
        counted.extend((100..).take(12 - counted.len()));
        prop_assert_eq!(release.sums(), &sums_of(counted)[..]);
    }
}
