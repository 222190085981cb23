//! The shuffler's promises at library level: R1 (full batches only), R3 (once), R4 (window), R7 (order), R8 (valid only), R23 (bounded influence).

use std::sync::Arc;

use incrowd_protocol::{
    BatchSums, FlipProbability, Mechanism, MechanismConfig, ProtocolError, Report, ReportId, Stage,
};
use incrowd_shuffler::{Batch, Outcome, Refusal, Snapshot};
use proptest::prelude::*;

fn mechanism(grace: u32, stages: &[(u32, u32, u32)]) -> Arc<Mechanism> {
    let flip = FlipProbability::new(1, 2).unwrap();
    let stage = |&(rounds, size, bits)| Stage { rounds, size, bits, flip };
    let config = MechanismConfig {
        dimension: 1,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect(),
        grace,
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

/// R1 and R3 as numbers: reports that all have counts (1, 0) make a release whose first sum is its size.
fn sizes_of_releases() -> Vec<u64> {
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
    /// R7: the releases of one round's reports do not depend on their order. R23: changing one report moves each sum by at most m.
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
        let expected: Vec<u64> = (0..2).map(|j| counts.iter().map(|c| u64::from(c[j])).sum()).collect();
        prop_assert_eq!(release[0].sums(), &expected[..]);

        let mut other = counts;
        other[changed] = to;
        let moved = make(&other, &in_order);
        for (a, b) in release[0].sums().iter().zip(moved[0].sums()) {
            prop_assert!(a.abs_diff(*b) <= 3);
        }
    }

    /// Any sequence of uploads, duplicates and stale reports: one-hot counts make a double count visible as a 2.
    #[test]
    fn every_id_counts_at_most_once(uploads in prop::collection::vec((0u8..30, 0u32..3), 0..200), grace in 0u32..3) {
        let mechanism = {
            let flip = FlipProbability::new(1, 2).unwrap();
            let config = MechanismConfig {
                dimension: 6, // 27 coordinates
                context_bound: 1.0,
                schedule: vec![Stage { rounds: 8, size: 4, bits: 1, flip }],
                grace,
                central_delta: 1e-6,
                participations: 1,
                honest_fraction: 1.0,
            };
            Arc::new(config.check().unwrap())
        };
        let mut batch = Batch::new(mechanism.clone());
        let mut totals = vec![0u64; 27];
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

proptest! {
    /// Writing down and going on, at any moment and as often as one likes, changes nothing.
    #[test]
    fn a_resumed_batch_goes_on_as_if_nothing_had_happened(
        grace in 0u32..3,
        arrivals in prop::collection::vec((1u32..6, 0u8..12, any::<bool>()), 0..60),
    ) {
        let mechanism = mechanism(grace, &[(2, 3, 1), (3, 2, 1)]);
        let (mut kept, mut resumed) = (Batch::new(mechanism.clone()), Batch::new(mechanism.clone()));
        let mut counted: Vec<(ReportId, u32)> = Vec::new();
        for (round, id, restart) in arrivals {
            let report = report(&mechanism, round, id, [1, 0]);
            let outcome = kept.accept(&report);
            prop_assert_eq!(&resumed.accept(&report), &outcome);
            if matches!(outcome, Outcome::Counted | Outcome::Released(_)) {
                counted.push((report.id(), round));
            }
            if restart {
                let written = Snapshot::decode(&resumed.snapshot().encode()).unwrap();
                counted.retain(|(_, made_for)| *made_for >= resumed.oldest_remembered());
                resumed = Batch::resume(mechanism.clone(), written, counted.clone()).unwrap();
                prop_assert_eq!(resumed.remembered(), if kept.round().is_some() { kept.remembered() } else { 0 });
            }
        }
    }
}

#[test]
fn a_batch_does_not_resume_from_what_it_cannot_have_written() {
    let mechanism = mechanism(1, &[(3, 3, 1)]);
    let words = |round: u32, count: u32, sums: &[u64]| {
        let mut bytes = [round.to_be_bytes(), count.to_be_bytes()].concat();
        sums.iter().for_each(|sum| bytes.extend(sum.to_be_bytes()));
        bytes
    };
    let resume = |bytes: &[u8], ids: &[u32]| {
        let ids: Vec<_> = ids.iter().map(|&round| (ReportId([round as u8; 16]), round)).collect();
        Snapshot::decode(bytes).and_then(|s| Batch::resume(mechanism.clone(), s, ids)).is_ok()
    };
    assert!(resume(&words(2, 2, &[2, 1]), &[1, 2]));
    assert!(resume(&words(0, 0, &[]), &[]));
    for (what, bytes, ids) in [
        ("a full batch", words(2, 3, &[2, 1]), vec![]),
        ("a round the schedule does not have", words(4, 1, &[1, 1]), vec![]),
        ("too few sums", words(2, 1, &[1]), vec![]),
        ("a sum above its reports", words(2, 1, &[2, 0]), vec![]),
        ("an id of a later round", words(2, 1, &[1, 0]), vec![3]),
        ("an id outside the window", words(3, 1, &[1, 0]), vec![1]),
        ("sums of a finished task", words(0, 0, &[0, 0]), vec![]),
        ("half a word", words(2, 1, &[1, 0])[..20].to_vec(), vec![]),
        ("nothing", vec![], vec![]),
    ] {
        assert!(!resume(&bytes, &ids), "{what}");
    }
}
