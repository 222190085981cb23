//! Rounds that close by time, at library level: R1 (exactly the capacity, pads included), R3, R4
//! (the open round only), R5 and R26 (surplus changes nothing).

use std::sync::Arc;

use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Mechanism, MechanismConfig, Report, ReportId, Stage,
};
use incrowd_shuffler::{Batch, CloseError, Entry, IdsEntry, Kind, Outcome, Refusal, Written};
use proptest::prelude::*;

/// Stages of (rounds, size, bits).
fn mechanism(stages: &[(u32, u32, u32)]) -> Arc<Mechanism> {
    let flip = FlipProbability::new(1, 2).unwrap();
    let stage = |&(rounds, size, bits)| Stage {
        rounds,
        size,
        window: Some(10),
        law: Law::bits(bits, flip),
    };
    let config = MechanismConfig {
        dimension: 1,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect(),
        layout: Layout::Shared,
        closes: Closes::Time { opens: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(config.check().unwrap())
}

fn report(mechanism: &Mechanism, round: u32, id: u8) -> Report {
    Report::new(mechanism, round, ReportId([id; 16]), vec![1, 0]).unwrap()
}

/// Pads that can be told from [`report`]: (0, 1) each.
fn pads(batch: &Batch) -> [i64; 2] {
    [0, i64::from(batch.missing())]
}

fn close(batch: &mut Batch) -> Vec<i64> {
    let pads = pads(batch);
    batch.close(&pads).unwrap().sums().to_vec()
}

#[test]
fn r1_r26_only_closing_releases_and_pads_make_up_what_is_missing() {
    let mechanism = mechanism(&[(4, 3, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    for id in 1..=3 {
        let outcome = batch.accept(&report(&mechanism, 1, id));
        assert_eq!(outcome, Outcome::Counted, "the last one as the others");
    }
    assert_eq!((batch.count(), batch.missing(), batch.remembered()), (3, 0, 3));
    let before = batch.snapshot();
    assert_eq!(batch.accept(&report(&mechanism, 1, 4)), Outcome::Surplus);
    assert_eq!(batch.accept(&report(&mechanism, 1, 4)), Outcome::Surplus, "again");
    assert_eq!(batch.accept(&report(&mechanism, 1, 2)), Outcome::Duplicate);
    assert!(batch.snapshot() == before && batch.remembered() == 3, "nothing changed");
    assert_eq!(close(&mut batch), [3, 0]);
    assert_eq!((batch.next_round(), batch.count(), batch.remembered()), (2, 0, 0));
    let surplus = batch.accept(&report(&mechanism, 1, 4));
    let late = Refusal::Late { round: 1, oldest: 2, current: 2 };
    assert_eq!(surplus, Outcome::Refused(late), "nothing is carried over");
    let early = batch.accept(&report(&mechanism, 3, 4));
    assert_eq!(early, Outcome::Refused(Refusal::Early { round: 3, current: 2 }));
    assert_eq!(batch.accept(&report(&mechanism, 2, 5)), Outcome::Counted);
    assert_eq!(close(&mut batch), [1, 2], "one report, two pads");
    assert_eq!(close(&mut batch), [0, 3], "nothing but pads");
    assert_eq!(close(&mut batch), [0, 3]);
    assert_eq!(batch.round(), None);
    assert_eq!(batch.close(&[0, 3]), Err(CloseError::Finished));
    let over = batch.accept(&report(&mechanism, 4, 9));
    assert_eq!(over, Outcome::Refused(Refusal::Finished));
}

#[test]
fn pads_that_cannot_be_those_of_the_missing_reports_change_nothing() {
    let mechanism = mechanism(&[(2, 3, 2)]);
    let mut batch = Batch::new(mechanism.clone());
    assert_eq!(batch.accept(&report(&mechanism, 1, 1)), Outcome::Counted);
    for bad in [&[0, 5][..], &[0], &[0, 0, 0], &[i64::MAX, 0]] {
        assert_eq!(batch.close(bad), Err(CloseError::Pads(2)), "{bad:?}");
    }
    assert_eq!((batch.next_round(), batch.count()), (1, 1));
    assert_eq!(batch.close(&[4, 4]).unwrap().sums(), [5, 4]);
}

#[test]
fn a_batch_that_closes_by_count_is_not_closed_by_anything_else() {
    let timed = mechanism(&[(2, 3, 1)]);
    let mut config = MechanismConfig::from((*timed).clone());
    config.closes = Closes::Count { grace: 0 };
    config.schedule.iter_mut().for_each(|stage| stage.window = None);
    let mut batch = Batch::new(Arc::new(config.check().unwrap()));
    assert_eq!(batch.close(&[0, 0]), Err(CloseError::Count));
}

#[test]
fn a_full_batch_comes_back_from_the_log_and_more_than_full_does_not() {
    let mechanism = mechanism(&[(2, 3, 1)]);
    let mut batch = Batch::new(mechanism.clone());
    let mut written = Written::default();
    written.update(&batch);
    let mut ids = IdsEntry::default();
    for id in 1..=3 {
        assert_eq!(batch.accept(&report(&mechanism, 1, id)), Outcome::Counted);
        ids.push(ReportId([id; 16]));
    }
    let (whole, ids) = (batch.snapshot(), ids.into_entry(1));
    let read = |entries: &[&Entry]| {
        let mut batch = Batch::new(mechanism.clone());
        entries.iter().try_for_each(|entry| batch.advance(entry))?;
        batch.settle().map(|()| batch)
    };
    for sums in [&whole, &batch.delta(&written).unwrap()] {
        let mut read = read(&[sums, &ids]).unwrap();
        assert!(read.snapshot() == whole);
        assert_eq!(read.accept(&report(&mechanism, 1, 4)), Outcome::Surplus, "still full");
        assert_eq!(read.accept(&report(&mechanism, 1, 1)), Outcome::Duplicate);
        assert_eq!(close(&mut read), [3, 0]);
    }
    // A group that changed nothing may be in the log too.
    written.update(&batch);
    let nothing = batch.delta(&written).unwrap();
    assert!(read(&[&whole, &nothing, &ids]).unwrap().snapshot() == whole);
    let mut more = whole.clone();
    more.bytes[8] = 4;
    assert!(read(&[&more, &ids]).is_err(), "four of three");
}

proptest! {
    /// Any sequence of uploads, closings and restarts from the log: every release has exactly the
    /// capacity, an id counts once and in its own round only, and the first ids of a round count.
    #[test]
    fn r1_r3_r4_every_release_has_the_capacity_and_the_first_ids_of_its_round(
        deeds in prop::collection::vec((0u8..4, 1u32..5, 0u8..9), 0..80),
    ) {
        let mechanism = mechanism(&[(2, 3, 1), (2, 2, 1)]);
        let mut batch = Batch::new(mechanism.clone());
        let mut first: Vec<Vec<u8>> = vec![Vec::new(); 5];
        let mut round = 1;
        for (deed, made_for, id) in deeds {
            let size = mechanism.round(round).map_or(0, |round| round.size);
            match deed {
                0 if batch.round().is_some() => {
                    let real = first[round as usize].len() as i64;
                    prop_assert_eq!(close(&mut batch), [real, i64::from(size) - real]);
                    round += 1;
                }
                1 => {
                    let mut ids = IdsEntry::default();
                    if let Some(known) = first.get(round as usize) {
                        known.iter().for_each(|id| ids.push(ReportId([*id; 16])));
                    }
                    let entries = [batch.snapshot(), ids.into_entry(round)];
                    batch = Batch::new(mechanism.clone());
                    entries.iter().try_for_each(|entry| batch.advance(entry)).unwrap();
                    batch.settle().unwrap();
                }
                _ => {
                    let outcome = batch.accept(&report(&mechanism, made_for, id));
                    let expected = if round > 4 {
                        Outcome::Refused(Refusal::Finished)
                    } else if made_for > round {
                        Outcome::Refused(Refusal::Early { round: made_for, current: round })
                    } else if made_for < round {
                        let (oldest, current) = (round, round);
                        Outcome::Refused(Refusal::Late { round: made_for, oldest, current })
                    } else if first[round as usize].contains(&id) {
                        Outcome::Duplicate
                    } else if first[round as usize].len() as u32 == size {
                        Outcome::Surplus
                    } else {
                        first[round as usize].push(id);
                        Outcome::Counted
                    };
                    prop_assert_eq!(outcome, expected);
                }
            }
            prop_assert!(batch.snapshot().kind == Kind::Snapshot);
        }
    }
}
