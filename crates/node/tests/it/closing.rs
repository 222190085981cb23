//! Rounds that close by time, on every store and with a clock that jumps: R1 (exactly the capacity),
//! R2 (once), R3, R4 (the open round only), R5, R26 (nothing depends on how full a batch is).

use std::collections::{BTreeMap, BTreeSet};

use incrowd_node::{
    Progress, Upload,
    store::{Log, ReleaseHash},
};
use incrowd_protocol::{Mechanism, Release, Task, Window};
use incrowd_shuffler::{Outcome, Refusal};
use proptest::prelude::*;

use crate::{
    common::{four_hot, is_padded, orphan, plain, timed},
    conformance::{fault, with_fault},
    shelf::{FakeClock, Fault, Shelf},
};

const OPENS: u64 = 1_000_000;
const WINDOW: u64 = 100;
const ROUNDS: u32 = 5;
const SIZE: u32 = 3;

/// What happens.
#[derive(Debug, Clone)]
enum Deed {
    /// Uploads in one step. A new report is made for the open round plus the second number, less 2.
    /// Whether the process ends right after them.
    Upload(Vec<Vec<(u32, u32)>>, Option<Fault>, bool),
    /// The clock moves, also back.
    Time(i64),
    /// The timer fires, and perhaps the process ends right after it.
    Timer(Option<Fault>, bool),
    /// The process ends without any notice.
    Crash,
    Forget(Option<Fault>),
    Close,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let request = prop::collection::vec((0u32..27, prop_oneof![4 => Just(2), 1 => 0u32..5]), 0..5);
    let requests = prop::collection::vec(request, 1..3);
    let time = prop_oneof![8 => 0i64..120, 1 => -250i64..0, 1 => 0i64..400];
    let deed = prop_oneof![
        12 => (requests, fault(), any::<bool>())
            .prop_map(|(requests, fault, crash)| Deed::Upload(requests, fault, crash)),
        8 => time.prop_map(Deed::Time),
        4 => (fault(), any::<bool>()).prop_map(|(fault, crash)| Deed::Timer(fault, crash)),
        4 => Just(Deed::Crash),
        2 => fault().prop_map(Deed::Forget),
        1 => Just(Deed::Close),
    ];
    prop::collection::vec(deed, 1..40)
}

/// What must hold, told in the simplest way.
#[derive(Clone)]
struct Model {
    now: u64,
    /// The round of the batch, one more than the last when all are released.
    round: u32,
    /// The reports that counted, by round, in order.
    counted: BTreeMap<u32, Vec<u32>>,
    /// Rounds that are released.
    released: BTreeSet<u32>,
    closed: bool,
}

impl Model {
    fn closes(round: u32) -> u64 {
        OPENS + u64::from(round) * WINDOW
    }

    /// What every commit does first.
    fn close_rounds(&mut self) {
        while !self.closed && self.round <= ROUNDS && Self::closes(self.round) <= self.now {
            self.released.insert(self.round);
            self.round += 1;
        }
    }

    fn upload(&mut self, number: u32, made_for: u32) -> Outcome {
        let current = self.round;
        if self.closed || current > ROUNDS {
            return Outcome::Refused(Refusal::Finished);
        }
        if current == 1 && self.now < OPENS {
            return Outcome::Refused(Refusal::Early { round: made_for, current: 0 });
        }
        if made_for > current {
            return Outcome::Refused(Refusal::Early { round: made_for, current });
        }
        if made_for < current {
            return Outcome::Refused(Refusal::Late { round: made_for, oldest: current, current });
        }
        let counted = self.counted.entry(current).or_default();
        if counted.contains(&number) {
            Outcome::Duplicate
        } else if counted.len() as u32 == SIZE {
            Outcome::Surplus
        } else {
            counted.push(number);
            Outcome::Counted
        }
    }

    fn progress(&self) -> Progress {
        let open = !self.closed && self.round <= ROUNDS;
        let count = self.counted.get(&self.round).map_or(0, Vec::len);
        let count = if open { count } else { 0 };
        let closes = Self::closes(self.round);
        Progress {
            round: open.then_some(self.round),
            window: open.then_some(Window { opens: closes - WINDOW, closes }),
            count: count as u32,
            remembered: count,
            closed: self.closed,
        }
    }

    fn release(&self, round: u32) -> Option<&[u32]> {
        self.released
            .contains(&round)
            .then(|| self.counted.get(&round).map_or(&[][..], Vec::as_slice))
    }
}

fn task(rounds: u32) -> Task {
    orphan(plain(timed(6, OPENS, WINDOW as u32, rounds, SIZE)))
}

fn released_as_told(
    shelf: &Shelf,
    task: &Task,
    model: &Model,
    seen: &mut BTreeMap<u32, Vec<u8>>,
) -> Result<(), TestCaseError> {
    let mut previous = None;
    for round in 1..=ROUNDS {
        let body = shelf.release(&task.id(), round);
        prop_assert_eq!(body.is_some(), model.release(round).is_some(), "round {}", round);
        let (Some(body), Some(numbers)) = (body, model.release(round)) else { continue };
        prop_assert!(is_padded(task.mechanism(), &body, numbers), "R1, R3: round {}", round);
        let release: Release = serde_json::from_slice(&body).unwrap();
        prop_assert_eq!(release.previous(), previous);
        previous = Some(ReleaseHash::of(&body));
        prop_assert_eq!(seen.entry(round).or_insert_with(|| body.clone()), &body, "R2");
    }
    Ok(())
}

fn keeps_its_rounds(
    mut shelf: Shelf,
    clock: &FakeClock,
    deeds: Vec<Deed>,
) -> Result<(), TestCaseError> {
    let task = task(ROUNDS);
    let id = task.id();
    let mechanism: Mechanism = task.mechanism().clone();
    let (counted, released) = (BTreeMap::new(), BTreeSet::new());
    let mut model = Model { now: clock.get(), round: 1, counted, released, closed: false };
    let mut made: BTreeMap<u32, u32> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    shelf.open(&task);
    for deed in deeds {
        match deed {
            Deed::Upload(requests, fault, crash) => {
                let mut after = model.clone();
                after.close_rounds();
                let (mut uploads, mut outcomes) = (Vec::new(), Vec::new());
                for request in requests {
                    let (mut reports, mut expected) = (Vec::new(), Vec::new());
                    for (number, age) in request {
                        let made_for = *made
                            .entry(number)
                            .or_insert((after.round + age).saturating_sub(2).clamp(1, ROUNDS));
                        reports.push(four_hot(&mechanism, made_for, number));
                        expected.push(after.upload(number, made_for));
                    }
                    uploads.push(Upload { task: id, reports });
                    outcomes.push(expected);
                }
                let (answer, happened) =
                    with_fault(&mut shelf, fault, |shelf| shelf.tasks.accept(&uploads))?;
                if let Some(answer) = answer {
                    prop_assert_eq!(answer, outcomes);
                }
                if happened {
                    model = after;
                }
                if crash {
                    shelf.crash();
                    shelf.open(&task);
                }
            }
            Deed::Time(by) => {
                model.now = model.now.saturating_add_signed(by);
                clock.set(model.now);
                // What is due now is closed by the next deed, with its fault.
                continue;
            }
            Deed::Timer(fault, crash) => {
                let (_, happened) = with_fault(&mut shelf, fault, |shelf| shelf.tasks.close_due())?;
                if happened {
                    model.close_rounds();
                }
                if crash {
                    shelf.crash();
                    shelf.open(&task);
                }
            }
            Deed::Crash => {
                shelf.crash();
                shelf.open(&task);
            }
            Deed::Forget(fault) => {
                with_fault(&mut shelf, fault, |shelf| shelf.tasks.forget())?;
            }
            Deed::Close => {
                shelf.tasks.close(&id).unwrap();
                model.closed = true;
            }
        }
        released_as_told(&shelf, &task, &model, &mut seen)?;
        // Whatever failed is read again by the next one who needs it.
        shelf.tasks.accept(&[Upload { task: id, reports: Vec::new() }]).unwrap();
        model.close_rounds();
        prop_assert_eq!(shelf.progress(&task), model.progress());
        prop_assert_eq!(shelf.tasks.due(&id), Some(0));
        released_as_told(&shelf, &task, &model, &mut seen)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn r1_r2_r4_r26_rounds_close_once_in_order_and_full_in_memory(start in OPENS - 100..OPENS + 100, deeds in deeds()) {
        let clock = FakeClock::at(start);
        keeps_its_rounds(Shelf::memory_at(&clock), &clock, deeds)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]

    #[test]
    fn r1_r2_r4_r26_rounds_close_once_in_order_and_full_in_sqlite(start in OPENS - 100..OPENS + 100, deeds in deeds()) {
        let clock = FakeClock::at(start);
        keeps_its_rounds(Shelf::sqlite_at(&clock), &clock, deeds)?;
    }

    #[test]
    fn r1_r2_r4_r26_r27_rounds_close_once_in_order_and_full_under_round_keys(start in OPENS - 100..OPENS + 100, deeds in deeds()) {
        let clock = FakeClock::at(start);
        keeps_its_rounds(Shelf::guarded_at(&clock), &clock, deeds)?;
    }
}

/// Reports of the open round that change nothing take a commit like the others, so that the time of
/// an answer does not tell how full the batch is.
#[test]
fn r26_a_surplus_or_repeated_report_takes_the_same_commit_as_a_counted_one() {
    use Outcome::{Counted, Duplicate, Surplus};
    let clock = FakeClock::at(OPENS);
    for mut shelf in [Shelf::memory_at(&clock), Shelf::sqlite_at(&clock), Shelf::guarded_at(&clock)]
    {
        let task = task(ROUNDS);
        shelf.open(&task);
        let mut outcomes = Vec::new();
        for (commit, number) in [0, 1, 1, 2, 3, 4, 0].into_iter().enumerate() {
            outcomes.extend(shelf.accept(&task, vec![four_hot(task.mechanism(), 1, number)]));
            let head = shelf.store.head(&task.id()).unwrap();
            assert_eq!(head.seq.0, commit as u64 + 1, "one commit for each");
        }
        let expected = [Counted, Counted, Duplicate, Counted, Surplus, Surplus, Duplicate];
        assert_eq!(outcomes, expected);
        shelf.crash();
        assert_eq!(shelf.open(&task).count, SIZE);
        let again = shelf.accept(&task, vec![four_hot(task.mechanism(), 1, 4)]);
        assert_eq!(again, [Surplus], "the same after a restart");
    }
}

/// A closing that fails, or of which nobody knows, and then a crash: the round has its reports, and
/// its release is the one that was committed.
#[test]
fn r2_r5_r27_a_crash_after_a_closing_that_failed_loses_no_report_and_releases_nothing_twice() {
    let clock = FakeClock::at(OPENS);
    let stores = [Shelf::memory_at, Shelf::sqlite_at, Shelf::guarded_at];
    for fault in [Fault::NotCommitted, Fault::UnknownWithoutEffect, Fault::UnknownWithEffect] {
        for mut shelf in stores.map(|shelf| shelf(&clock)) {
            clock.set(OPENS);
            let task = task(ROUNDS);
            shelf.open(&task);
            let reports = [0, 1].map(|number| four_hot(task.mechanism(), 1, number));
            assert_eq!(shelf.accept(&task, reports.to_vec()), [Outcome::Counted, Outcome::Counted]);
            clock.set(OPENS + WINDOW);
            shelf.store.arm(Some(fault));
            assert!(shelf.tasks.close_due().is_err());
            let committed = shelf.release(&task.id(), 1);
            assert_eq!(committed.is_some(), fault == Fault::UnknownWithEffect);
            shelf.crash();
            shelf.open(&task);
            shelf.tasks.close_due().unwrap();
            let body = shelf.release(&task.id(), 1).unwrap();
            assert!(is_padded(task.mechanism(), &body, &[0, 1]), "after {fault:?}");
            assert!(committed.is_none_or(|committed| committed == body), "R2");
            assert_eq!(shelf.progress(&task).round, Some(2));
        }
    }
}

/// A long downtime is worked off in commits of a bounded size, and nothing is lost meanwhile.
#[test]
fn r2_many_missed_rounds_are_released_in_bounded_commits() {
    const MANY: u32 = 200;
    let clock = FakeClock::at(OPENS);
    for mut shelf in [Shelf::memory_at(&clock), Shelf::sqlite_at(&clock), Shelf::guarded_at(&clock)]
    {
        clock.set(OPENS);
        let task = task(MANY);
        let id = task.id();
        shelf.open(&task);
        let first = four_hot(task.mechanism(), 1, 7);
        assert_eq!(shelf.accept(&task, vec![first]), [Outcome::Counted]);
        shelf.crash();
        clock.set(OPENS + WINDOW * u64::from(MANY) - 1);
        shelf.open(&task);
        assert_eq!(shelf.tasks.due(&id), Some(MANY - 1));
        // An upload while the task is behind: its round is the clock's, and it may come again.
        let report = four_hot(task.mechanism(), MANY, 9);
        let early = Refusal::Early { round: MANY, current: 65 };
        let outcomes = shelf.accept(&task, vec![report.clone()]);
        assert_eq!(outcomes, [Outcome::Refused(early)]);
        let of_the_past = shelf.accept(&task, vec![four_hot(task.mechanism(), 129, 3)]);
        assert!(matches!(of_the_past[..], [Outcome::Refused(Refusal::Late { .. })]));
        assert_eq!(shelf.progress(&task).round, Some(129));
        assert_eq!(shelf.tasks.close_due().unwrap(), [id]);
        assert_eq!(shelf.progress(&task).round, Some(193));
        assert_eq!(shelf.tasks.close_due().unwrap(), [id]);
        assert_eq!(shelf.progress(&task).round, Some(MANY));
        assert_eq!(shelf.tasks.close_due().unwrap(), []);
        assert_eq!(shelf.accept(&task, vec![report]), [Outcome::Counted]);
        clock.set(u64::MAX >> 22);
        assert_eq!(shelf.tasks.close_due().unwrap(), [id]);
        assert_eq!(shelf.progress(&task).round, None);
        let mut previous = None;
        for round in 1..=MANY {
            let body = shelf.release(&id, round).unwrap();
            let numbers: &[u32] = match round {
                1 => &[7],
                MANY => &[9],
                _ => &[],
            };
            assert!(is_padded(task.mechanism(), &body, numbers), "round {round}");
            let release: Release = serde_json::from_slice(&body).unwrap();
            assert_eq!(release.previous(), previous);
            previous = Some(ReleaseHash::of(&body));
        }
        let over = shelf.accept(&task, vec![four_hot(task.mechanism(), MANY, 11)]);
        assert_eq!(over, [Outcome::Refused(Refusal::Finished)]);
    }
}
