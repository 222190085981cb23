//! The shuffler's promises at library level: R1 (full batches only), R3 (once), R4 (window), R7
//! (order), R8 (valid only), R23 (bounded influence).

use std::sync::Arc;

use incrowd_protocol::{
    BatchSums, Closes, FlipProbability, Law, Layout, Mechanism, MechanismConfig, ProtocolError,
    Report, ReportId, Stage,
};
use incrowd_shuffler::{Batch, Entry, IdsEntry, Kind, Outcome, Refusal, Written};
use proptest::prelude::*;

fn mechanism(grace: u32, stages: &[(u32, u32, u32)]) -> Arc<Mechanism> {
    let flip = FlipProbability::new(1, 2).unwrap();
    let stage =
        |&(rounds, size, bits)| Stage { rounds, size, window: None, law: Law::bits(bits, flip) };
    let config = MechanismConfig {
        dimension: 1,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect(),
        layout: Layout::Shared,
        closes: Closes::Count { grace },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(config.check().unwrap())
}

fn report(mechanism: &Mechanism, round: u32, id: u8, counts: [u16; 2]) -> Report {
    Report::new(mechanism, round, ReportId([id; 16]), counts.to_vec()).unwrap()
}

/// All releases of a sequence of reports, and the outcomes' number.
fn releases(batch: &mut Batch, reports: &[Report]) -> Vec<BatchSums> {
    let release = |report| match batch.accept(report) {
        Outcome::Released(sums) => Some(sums),
        _ => None,
    };
    reports.iter().filter_map(release).collect()
}

/// R1 and R3 as numbers: reports that all have counts (1, 0) make a release whose first sum is its
/// size.
fn sizes_of_releases() -> Vec<i64> {
    let mechanism = mechanism(0, &[(2, 3, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    let mut sizes = Vec::new();
    for id in 1..=8 {
        let Some(round) = batch.round() else { break };
        for _ in 0..2 {
            if let Outcome::Released(sums) =
                batch.accept(&report(&mechanism, round.number, id, [1, 0]))
            {
                sizes.push(sums.sums()[0]);
                break;
            }
        }
    }
    sizes
}

#[test]
fn r1_r3_a_release_is_exactly_the_configured_number_of_distinct_reports() {
    assert_eq!(sizes_of_releases(), [3, 3]);
}

#[test]
fn r1_r3_a_batch_is_full_with_the_last_of_its_distinct_people() {
    assert_eq!(distinct_people(), 4);
}

/// How many different ids the first release is made of, when every report is sent twice.
fn distinct_people() -> u32 {
    let mechanism = mechanism(0, &[(2, 4, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    for id in 1..=4 {
        for _ in 0..2 {
            if let Outcome::Released(_) = batch.accept(&report(&mechanism, 1, id, [1, 0])) {
                return u32::from(id);
            }
        }
    }
    panic!("no release")
}

#[test]
fn r1_an_unfinished_batch_is_never_seen() {
    let mechanism = mechanism(0, &[(1, 3, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    assert_eq!(batch.accept(&report(&mechanism, 1, 1, [1, 1])), Outcome::Counted);
    assert_eq!(batch.accept(&report(&mechanism, 1, 2, [1, 1])), Outcome::Counted);
    assert_eq!((batch.count(), batch.remembered()), (2, 2));
    assert_eq!(batch.accept(&report(&mechanism, 1, 1, [0, 0])), Outcome::Duplicate);
    let printed = format!("{batch:?}");
    assert!(!printed.contains("sums") && printed.contains("count: 2"), "{printed}");
}

#[test]
fn a_finished_task_takes_nothing_more() {
    let mechanism = mechanism(3, &[(1, 1, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    assert!(matches!(batch.accept(&report(&mechanism, 1, 1, [1, 1])), Outcome::Released(_)));
    assert_eq!(batch.round(), None);
    let late = batch.accept(&report(&mechanism, 1, 2, [1, 1]));
    assert_eq!(late, Outcome::Refused(Refusal::Finished));
}

/// Fills the current round with fresh reports whose ids start at `id`.
fn fill(batch: &mut Batch, mechanism: &Mechanism, mut id: u8) {
    let round = batch.round().unwrap().number;
    while batch.round().is_some_and(|now| now.number == round) {
        let _ = batch.accept(&report(mechanism, round, id, [0, 0]));
        id += 1;
    }
}

#[test]
fn r4_a_report_counts_only_within_its_window_and_law() {
    // Rounds 1-3 with m = 1, round 4 with m = 2; grace 1.
    let mechanism = mechanism(1, &[(3, 2, 1), (1, 2, 2)]);
    let mut batch = Batch::new(mechanism.clone());
    let early = batch.accept(&report(&mechanism, 2, 1, [1, 1]));
    assert_eq!(early, Outcome::Refused(Refusal::Early { round: 2, current: 1 }));
    fill(&mut batch, &mechanism, 10);
    assert_eq!(batch.accept(&report(&mechanism, 1, 1, [1, 1])), Outcome::Counted, "one round late");
    fill(&mut batch, &mechanism, 20);
    let late = batch.accept(&report(&mechanism, 1, 2, [1, 1]));
    assert_eq!(late, Outcome::Refused(Refusal::Late { round: 1, oldest: 2, current: 3 }));
    fill(&mut batch, &mechanism, 30);
    let other = batch.accept(&report(&mechanism, 3, 3, [1, 1]));
    assert_eq!(other, Outcome::Refused(Refusal::OtherLaw { round: 3, current: 4 }));
    assert_eq!(batch.accept(&report(&mechanism, 4, 4, [2, 2])), Outcome::Counted);
}

#[test]
fn r4_ids_are_remembered_for_exactly_the_window() {
    let mechanism = mechanism(1, &[(9, 2, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    let first = report(&mechanism, 1, 1, [1, 1]);
    assert_eq!(batch.accept(&first), Outcome::Counted);
    fill(&mut batch, &mechanism, 10);
    assert_eq!(batch.accept(&first), Outcome::Duplicate, "within grace");
    fill(&mut batch, &mechanism, 20);
    let late = Outcome::Refused(Refusal::Late { round: 1, oldest: 2, current: 3 });
    assert_eq!(batch.accept(&first), late);
    // Rounds 1 and 2 had two reports each; in round 3 only round 2's ids are left.
    assert_eq!(batch.remembered(), 2);
}

#[test]
fn r8_a_report_of_another_mechanism_changes_nothing() {
    let (ours, other) = (mechanism(0, &[(2, 2, 1)]), mechanism(0, &[(2, 2, 3)]));
    let mut batch = Batch::new(ours);
    let outcome = batch.accept(&report(&other, 1, 1, [3, 3]));
    assert_eq!(outcome, Outcome::Refused(Refusal::Invalid(ProtocolError::Task)));
    assert_eq!((batch.count(), batch.remembered()), (0, 0));
}

#[test]
fn r8_bytes_that_are_no_report_change_nothing() {
    let mechanism = mechanism(0, &[(2, 2, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    let bytes = report(&mechanism, 1, 1, [1, 1]).encode(&mechanism).unwrap();
    for (index, refusal) in [
        (0, ProtocolError::Version(0)),
        (1, ProtocolError::Task),
        (12, ProtocolError::Round { round: 0, last: 2 }),
    ] {
        let mut bad = bytes.clone();
        bad[index] ^= 1;
        assert_eq!(batch.accept_bytes(&bad), Outcome::Refused(Refusal::Invalid(refusal)));
    }
    let mut padded = bytes.clone();
    *padded.last_mut().unwrap() |= 0b100;
    assert_eq!(
        batch.accept_bytes(&padded),
        Outcome::Refused(Refusal::Invalid(ProtocolError::Padding))
    );
    assert!(matches!(batch.accept_bytes(&bytes[..5]), Outcome::Refused(Refusal::Invalid(_))));
    assert_eq!((batch.count(), batch.remembered()), (0, 0));
    assert_eq!(batch.accept_bytes(&bytes), Outcome::Counted);
}

proptest! {
    /// R7: the releases of one round's reports do not depend on their order. R23: changing one
    /// report moves each sum by at most m.
    #[test]
    fn r7_r23_order_is_forgotten_and_one_report_moves_a_sum_by_at_most_m(
        counts in prop::collection::vec([0u16..=3, 0u16..=3], 12),
        order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
        changed in 0usize..12,
        to in [0u16..=3, 0u16..=3],
    ) {
        let mechanism = mechanism(0, &[(1, 12, 3)]);
        let make = |counts: &[[u16; 2]], order: &[usize]| {
            let reports: Vec<Report> =
                order.iter().map(|&i| report(&mechanism, 1, i as u8, counts[i])).collect();
            releases(&mut Batch::new(mechanism.clone()), &reports)
        };
        let in_order: Vec<usize> = (0..12).collect();
        let release = make(&counts, &in_order);
        prop_assert_eq!(&release, &make(&counts, &order));
        let expected: Vec<i64> = (0..2).map(|j| counts.iter().map(|c| i64::from(c[j])).sum()).collect();
        prop_assert_eq!(release[0].sums(), &expected[..]);

        let mut other = counts;
        other[changed] = to;
        let moved = make(&other, &in_order);
        for (a, b) in release[0].sums().iter().zip(moved[0].sums()) {
            prop_assert!(a.abs_diff(*b) <= 3);
        }
    }

    /// Any sequence of uploads, duplicates and stale reports: one-hot counts make a double count
    /// visible as a 2.
    #[test]
    fn every_id_counts_at_most_once(uploads in prop::collection::vec((0u8..30, 0u32..3), 0..200), grace in 0u32..3) {
        let mechanism = {
            let flip = FlipProbability::new(1, 2).unwrap();
            let config = MechanismConfig {
                dimension: 6, // 27 coordinates
                context_bound: 1.0,
                schedule: vec![Stage { rounds: 8, size: 4, window: None, law: Law::bits(1, flip) }],
                layout: Layout::Shared,
                closes: Closes::Count { grace },
                central_delta: 1e-6,
                participations: 1,
                honest_fraction: 1.0,
            };
            Arc::new(config.check().unwrap())
        };
        let mut batch = Batch::new(mechanism.clone());
        let mut totals = vec![0i64; 27];
        let mut made = std::collections::HashMap::new();
        for (id, age) in uploads {
            let Some(now) = batch.round() else { break };
            // A device makes its report once and may send it again later.
            let made_for = *made.entry(id).or_insert(now.number.saturating_sub(age).max(1));
            let mut counts = vec![0u16; 27];
            counts[usize::from(id) % 27] = u16::from(id < 27);
            let report = Report::new(&mechanism, made_for, ReportId([id; 16]), counts).unwrap();
            if let Outcome::Released(sums) = batch.accept(&report) {
                totals.iter_mut().zip(sums.sums()).for_each(|(total, sum)| *total += sum);
                prop_assert!(batch.remembered() <= 4 * (grace as usize + 1));
            }
        }
        prop_assert!(totals.iter().all(|&total| total <= 1), "{:?}", totals);
    }
}

/// A log as a store keeps it: numbered commits.
#[derive(Default)]
struct Log {
    commits: u64,
    entries: Vec<(u64, Entry)>,
}

impl Log {
    /// Appends what a group changed; a snapshot, if it is wanted or needed, drops the sums before
    /// it.
    fn commit(&mut self, batch: &Batch, written: &mut Written, ids: &[Report], snapshot: bool) {
        self.commits += 1;
        let oldest = batch.oldest_remembered();
        let delta = if snapshot { None } else { batch.delta(written) };
        let sums = delta.unwrap_or_else(|| batch.snapshot());
        let drops = sums.kind == Kind::Snapshot;
        self.entries.retain(|(_, entry)| match entry.kind {
            Kind::Ids => entry.round >= oldest,
            Kind::Snapshot | Kind::Delta => !drops,
        });
        self.entries.push((self.commits, sums));
        for report in ids.iter().filter(|report| report.round() >= oldest) {
            let mut ids = IdsEntry::default();
            ids.push(report.id());
            self.entries.push((self.commits, ids.into_entry(report.round())));
        }
        written.update(batch);
    }

    /// Brings a batch that has read up to commit `after` to the end of the log.
    fn catch_up(&self, batch: &mut Batch, after: u64) {
        for (_, entry) in self.entries.iter().filter(|(commit, _)| *commit > after) {
            batch.advance(entry).unwrap();
        }
        batch.settle().unwrap();
    }
}

fn same(one: &Batch, other: &Batch) -> bool {
    let of = |batch: &Batch| (batch.next_round(), batch.count(), batch.remembered());
    of(one) == of(other) && one.snapshot() == other.snapshot()
}

proptest! {
    /// Groups of reports written as deltas or snapshots: a batch that is read back at any moment,
    /// and one that follows the log with any lag, go on as if nothing had happened.
    #[test]
    fn a_batch_that_is_read_back_or_follows_the_log_goes_on_as_if_nothing_had_happened(
        grace in 0u32..3,
        groups in prop::collection::vec((prop::collection::vec((1u32..6, 0u8..12), 0..5), any::<bool>(), any::<bool>(), any::<bool>()), 0..30),
    ) {
        let mechanism = mechanism(grace, &[(2, 3, 1), (3, 2, 1)]);
        let new = || Batch::new(mechanism.clone());
        let (mut kept, mut counting, mut follower) = (new(), new(), new());
        let (mut log, mut written, mut followed) = (Log::default(), Written::default(), 0);
        written.update(&counting);
        for (arrivals, snapshot, restart, follow) in groups {
            let mut counted = Vec::new();
            for (round, id) in arrivals {
                let report = report(&mechanism, round, id, [1, 0]);
                let mut outcome = counting.accept(&report);
                prop_assert_eq!(&kept.accept(&report), &outcome);
                let _ = outcome.take_release();
                if outcome == Outcome::Counted {
                    counted.push(report);
                }
            }
            if snapshot || !counted.is_empty() {
                log.commit(&counting, &mut written, &counted, snapshot);
            }
            if follow {
                log.catch_up(&mut follower, followed);
                followed = log.commits;
                prop_assert!(same(&follower, &kept));
            }
            if restart {
                counting = new();
                log.catch_up(&mut counting, 0);
                prop_assert!(same(&counting, &kept));
            }
        }
    }
}

fn sums_entry(kind: Kind, round: u32, before: u32, count: u32, sums: &[u64]) -> Entry {
    // One byte of sums is enough here: the width is that of the largest.
    let width = 64 - sums.iter().fold(0, |all, sum| all | sum).leading_zeros();
    let packed = sums.iter().rev().fold(0u64, |packed, sum| packed << width | sum);
    let mut bytes = vec![1];
    [before, count, sums.len() as u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.push(width as u8);
    let length = (sums.len() * width as usize).div_ceil(8);
    bytes.extend(&packed.to_le_bytes()[..length]);
    Entry { round, kind, bytes }
}

#[test]
fn a_batch_does_not_go_on_from_what_it_cannot_have_written() {
    use Kind::{Delta, Snapshot};
    let mechanism = mechanism(1, &[(3, 3, 1)]);
    let ids = |round: u32| {
        let mut ids = IdsEntry::default();
        ids.push(ReportId([round as u8; 16]));
        ids.into_entry(round)
    };
    let resume = |entries: &[Entry]| {
        let mut batch = Batch::new(mechanism.clone());
        entries.iter().try_for_each(|entry| batch.advance(entry))?;
        batch.settle().map(|()| batch)
    };
    let whole = |round, count, sums: &[u64]| sums_entry(Snapshot, round, 0, count, sums);
    let part = |round, before, count, sums: &[u64]| sums_entry(Delta, round, before, count, sums);
    let resumed = resume(&[ids(1), whole(2, 1, &[1, 0]), ids(2), part(2, 1, 1, &[1, 1])]).unwrap();
    assert_eq!((resumed.next_round(), resumed.count(), resumed.remembered()), (2, 2, 2));
    assert!(resumed.snapshot() == whole(2, 2, &[2, 1]));
    assert_eq!(resume(&[whole(4, 0, &[])]).unwrap().round(), None, "the end of the task");
    let forgotten = resume(&[ids(1), ids(2), whole(3, 1, &[1, 0])]).unwrap();
    assert_eq!(forgotten.remembered(), 1, "an id outside the window");
    let mut half = whole(2, 1, &[1, 0]);
    half.bytes.pop();
    for (what, entries) in [
        ("a full batch", vec![whole(2, 3, &[2, 1])]),
        ("a delta that fills a batch", vec![whole(2, 1, &[1, 1]), part(2, 1, 2, &[1, 1])]),
        ("a round the schedule does not have", vec![whole(5, 0, &[])]),
        ("a round 0", vec![whole(0, 0, &[])]),
        ("a round that is over", vec![whole(2, 1, &[1, 1]), whole(1, 1, &[1, 1])]),
        ("too few sums", vec![whole(2, 1, &[1])]),
        ("a sum above its reports", vec![whole(2, 1, &[2, 0])]),
        ("a delta above its reports", vec![part(1, 0, 1, &[2, 0])]),
        ("a delta of another round", vec![part(2, 0, 1, &[1, 0])]),
        ("a missing delta", vec![part(1, 0, 1, &[1, 0]), part(1, 2, 0, &[0, 0])]),
        ("a delta twice", vec![part(1, 0, 1, &[1, 0]), part(1, 0, 1, &[1, 0])]),
        ("a part as a whole", vec![sums_entry(Snapshot, 1, 1, 1, &[1, 0])]),
        ("an id of a later round", vec![whole(2, 1, &[1, 0]), ids(3)]),
        ("sums of a finished task", vec![whole(4, 0, &[0, 0])]),
        ("half of the sums", vec![half]),
        ("nothing", vec![Entry { round: 1, kind: Snapshot, bytes: Vec::new() }]),
        ("ids as sums", vec![Entry { kind: Delta, ..ids(1) }]),
    ] {
        assert!(resume(&entries).is_err(), "{what}");
    }
}
