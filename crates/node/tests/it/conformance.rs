//! One suite for every store of the shuffler: what a store promises by itself, and what the open
//! tasks make of it (R1, R2, R3, R4, R5), also when commits fail or nobody knows whether they did.
//! A further store is one more line in [`stores`].

use std::{
    collections::BTreeMap,
    sync::Mutex,
    thread,
    time::{Duration, SystemTime},
};

use crate::{
    common::{hot, mechanism, one_hot, orphan, plain, sums},
    shelf::{Fault, Shelf},
};
use incrowd_envelope::{Document, SigningKey};
use incrowd_node::{
    Progress, StoreError, Upload,
    store::{
        Change, CommitError, Head, Log, ReleaseHash, Seq, ShufflerStore, SignedRelease, TaskState,
    },
};
use incrowd_protocol::{Mechanism, Task, TaskId};
use incrowd_shuffler::{Entry, Kind, Outcome, Refusal};
use proptest::prelude::*;

/// Every store.
fn stores() -> [Shelf; 3] {
    [Shelf::memory(), Shelf::sqlite(), Shelf::postgres()]
}

/// What a process does with a store.
#[derive(Debug, Clone)]
enum Act {
    /// Commits to one task or to both, in one step.
    Commit(Vec<Planned>),
    /// Takes a turn and drops it.
    GiveUp,
    /// Reads with this limit.
    Read(usize),
    Reopen,
    Forget,
}

#[derive(Debug, Clone)]
struct Planned {
    first_task: bool,
    /// What this adds to the last commit's number; 1 is right.
    step: u64,
    sums: Option<(bool, usize)>,
    ids: Vec<(u32, usize)>,
    drop_sums: Option<u64>,
    drop_ids: u32,
    release: Option<u32>,
    close: bool,
}

fn planned() -> impl Strategy<Value = Planned> {
    let step = prop_oneof![9 => Just(1u64), 1 => 0u64..4];
    let ids = prop::collection::btree_map(1u32..5, 0usize..40, 0..3);
    let sums = prop::option::of((any::<bool>(), 0usize..3000));
    let drops = (prop::option::of(0u64..4), prop_oneof![3 => Just(0u32), 1 => 0u32..6]);
    let rest = (prop::option::weighted(0.2, 1u32..5), prop::bool::weighted(0.05));
    (any::<bool>(), step, sums, ids, drops, rest).prop_map(
        |(first_task, step, sums, ids, (drop_sums, drop_ids), (release, close))| Planned {
            first_task,
            step,
            sums,
            ids: ids.into_iter().collect(),
            drop_sums,
            drop_ids,
            release,
            close,
        },
    )
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        10 => prop::collection::vec(planned(), 1..3).prop_map(Act::Commit),
        1 => Just(Act::GiveUp),
        3 => (0usize..5000).prop_map(Act::Read),
        1 => Just(Act::Reopen),
        1 => Just(Act::Forget),
    ];
    prop::collection::vec(act, 1..40)
}

/// What a store must have of a task.
#[derive(Clone, Default)]
struct Expected {
    head: Head,
    entries: Vec<(Seq, Entry)>,
    /// Ids of earlier rounds are dropped, and none come later.
    ids_from: u32,
    releases: BTreeMap<u32, SignedRelease>,
}

impl Expected {
    /// Why a commit is refused; the state after it otherwise.
    fn after(&self, change: &Change) -> Result<Self, &'static str> {
        if change.head.seq != self.head.seq.next() {
            return Err("stale");
        }
        if change.releases.iter().any(|(round, _)| self.releases.contains_key(round)) {
            return Err("released");
        }
        let mut next = self.clone();
        next.head = change.head;
        next.ids_from = next.ids_from.max(change.drop_ids_before);
        next.releases.extend(change.releases.iter().cloned());
        next.entries.extend(change.append.iter().map(|entry| (change.head.seq, entry.clone())));
        next.entries.retain(|(seq, entry)| {
            if entry.kind == Kind::Ids {
                entry.round >= change.drop_ids_before
            } else {
                *seq >= change.drop_sums_before
            }
        });
        Ok(next)
    }
}

impl Planned {
    fn change(&self, head: Head, ids_from: u32, signing: &SigningKey, task: &TaskId) -> Change {
        let seq = Seq(head.seq.0 + self.step);
        let mut change = Change::to(Head { seq, round: head.round, ..head });
        let byte = seq.0 as u8;
        if let Some((snapshot, length)) = self.sums {
            let kind = if snapshot { Kind::Snapshot } else { Kind::Delta };
            change.append.push(Entry { round: head.round, kind, bytes: vec![byte; length] });
        }
        for (round, length) in self.ids.iter().filter(|(round, _)| *round >= ids_from) {
            let bytes = vec![!byte; *length];
            change.append.push(Entry { round: *round, kind: Kind::Ids, bytes });
        }
        if let Some(round) = self.release {
            let body = format!("release {round} of commit {}", seq.0).into_bytes();
            let signature = signing.sign(Document::Release, task, &body);
            change.head.last = Some(ReleaseHash::of(&body));
            change.head.round = round + 1;
            change.releases.push((round, SignedRelease { body, signature }));
        }
        if self.close {
            change.head.state = TaskState::Closed;
        }
        change.drop_sums_before = Seq(self.drop_sums.map_or(0, |back| seq.0.saturating_sub(back)));
        change.drop_ids_before = if self.drop_ids > 0 { self.drop_ids.max(ids_from) } else { 0 };
        change
    }
}

/// Everything after a commit, read in pieces of whole commits.
fn read(log: &dyn Log, task: &TaskId, limit: usize) -> Result<Vec<(Seq, Entry)>, TestCaseError> {
    let mut found: Vec<(Seq, Entry)> = Vec::new();
    loop {
        let after = found.last().map_or(Seq(0), |(seq, _)| *seq);
        let piece = log.tail(task, after, limit).unwrap();
        let Some((last, _)) = piece.last() else { return Ok(found) };
        let before_last: usize =
            piece.iter().filter(|(seq, _)| seq < last).map(|(_, entry)| entry.bytes.len()).sum();
        // Stores may count a few bytes of their own.
        prop_assert!(before_last <= limit + 64 * piece.len(), "{before_last} above {limit}");
        prop_assert!(piece.iter().all(|(seq, _)| *seq > after));
        found.extend(piece);
    }
}

/// The same acts on a store and on the simplest telling of what a store is.
fn keeps_what_it_is_given(mut shelf: Shelf, acts: Vec<Act>) -> Result<(), TestCaseError> {
    let signing = SigningKey::generate().unwrap();
    let mut tasks = [1, 2].map(|grace| orphan(plain(mechanism(3, grace, &[(2, 2, 1)]))).id());
    tasks.sort();
    let mut expected: BTreeMap<TaskId, Expected> = BTreeMap::new();
    for task in tasks {
        prop_assert!(matches!(shelf.store.head(&task), Err(StoreError::UnknownTask(_))));
        prop_assert_eq!(shelf.store.open(&task).unwrap(), Head::default());
        expected.insert(task, Expected::default());
    }
    for act in acts {
        match act {
            Act::Commit(plans) => {
                let turn = shelf.store.lock(&tasks).unwrap();
                let mut changes: BTreeMap<TaskId, Change> = BTreeMap::new();
                for plan in plans {
                    let task = tasks[usize::from(!plan.first_task)];
                    let head = turn.head(&task).unwrap();
                    let ids_from = expected[&task].ids_from;
                    changes.insert(task, plan.change(head, ids_from, &signing, &task));
                }
                let mut next = expected.clone();
                let mut refused = None;
                for (task, change) in &changes {
                    match expected[task].after(change) {
                        Ok(after) => drop(next.insert(*task, after)),
                        Err(why) => refused = refused.or(Some(why)),
                    }
                }
                match (turn.commit(changes.into_iter().collect()), refused) {
                    (Ok(()), None) => expected = next,
                    (Err(CommitError::NotCommitted(error)), Some(why)) => {
                        let stale = matches!(error, StoreError::Stale { .. });
                        prop_assert!(stale || matches!(error, StoreError::Released(_)), "{}", why);
                    }
                    (result, refused) => {
                        return Err(TestCaseError::fail(format!("{result:?} but {refused:?}")));
                    }
                }
            }
            Act::GiveUp => drop(shelf.store.lock(&tasks).unwrap()),
            Act::Read(limit) => {
                for (task, expected) in &expected {
                    let found = read(&*shelf.store, task, limit)?;
                    prop_assert!(found == expected.entries, "the tail without the lock");
                }
            }
            Act::Reopen => shelf.crash(),
            Act::Forget => prop_assert!(shelf.store.forget().unwrap()),
        }
        let turn = shelf.store.lock(&tasks).unwrap();
        for (task, expected) in &expected {
            prop_assert_eq!(turn.head(task).unwrap(), expected.head);
            prop_assert!(read(&*turn, task, 100)? == expected.entries, "the tail with the lock");
        }
        drop(turn);
        for (task, expected) in &expected {
            prop_assert_eq!(shelf.store.head(task).unwrap(), expected.head);
            prop_assert_eq!(shelf.store.open(task).unwrap(), expected.head);
            for round in 1..5 {
                let found = shelf.store.release(task, round).unwrap();
                prop_assert_eq!(found.as_ref(), expected.releases.get(&round));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]

    #[test]
    fn every_store_keeps_what_it_is_given_and_nothing_else(acts in acts()) {
        for shelf in stores() {
            keeps_what_it_is_given(shelf, acts.clone())?;
        }
    }
}

#[test]
fn a_turn_keeps_others_out_until_it_is_dropped_or_committed() {
    const EACH: u64 = 40;
    for shelf in stores() {
        let task = orphan(plain(mechanism(3, 0, &[(2, 2, 1)]))).id();
        shelf.store.open(&task).unwrap();
        let inside = Mutex::new(());
        let (store, inside) = (&shelf.store, &inside);
        thread::scope(|scope| {
            for number in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..EACH {
                        let turn = store.lock(&[task]).unwrap();
                        let alone = inside.try_lock().expect("two turns at once");
                        let head = turn.head(&task).unwrap();
                        let moved = Head { seq: head.seq.next(), ..head };
                        if (number + round) % 4 == 0 {
                            drop(alone);
                            continue;
                        }
                        drop(alone);
                        turn.commit(vec![(task, Change::to(moved))]).unwrap();
                    }
                });
            }
        });
        assert_eq!(shelf.store.head(&task).unwrap().seq, Seq(3 * EACH));
    }
}

#[test]
fn a_store_has_a_clock() {
    for shelf in stores() {
        let turn = shelf.store.lock(&[]).unwrap();
        for now in [turn.now(), shelf.store.now()] {
            let off = SystemTime::now().duration_since(now);
            let off = off.unwrap_or_else(|error| error.duration());
            assert!(off < Duration::from_secs(60));
        }
    }
}

/// What a device or an operator does.
#[derive(Debug, Clone)]
enum Deed {
    /// Uploads in one step; each is the numbers of the reports. A new report is made for the
    /// current round plus the second number, minus 3.
    Upload(Vec<Vec<(u32, u32)>>, Option<Fault>),
    /// The process ends without any notice.
    Crash,
    /// Another process is asked from now on, where several have one store.
    Switch,
    Read(u32),
    Forget(Option<Fault>),
    Close(Option<Fault>),
}

pub fn fault() -> impl Strategy<Value = Option<Fault>> {
    let faults = [
        Fault::Lock,
        Fault::Read,
        Fault::NotCommitted,
        Fault::UnknownWithoutEffect,
        Fault::UnknownWithEffect,
    ];
    prop_oneof![3 => Just(None), 1 => prop::sample::select(faults.to_vec()).prop_map(Some)]
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let request = prop::collection::vec((0u32..27, 0u32..=4), 0..7);
    let requests = prop::collection::vec(request, 1..4);
    let deed = prop_oneof![
        12 => (requests, fault()).prop_map(|(requests, fault)| Deed::Upload(requests, fault)),
        4 => Just(Deed::Crash),
        6 => Just(Deed::Switch),
        4 => (1u32..7).prop_map(Deed::Read),
        2 => fault().prop_map(Deed::Forget),
        1 => fault().prop_map(Deed::Close),
    ];
    prop::collection::vec(deed, 1..30)
}

const SIZE: u32 = 4;
const ROUNDS: u32 = 5;

/// What must hold, told in the simplest way: everything that ever counted is kept.
#[derive(Clone)]
struct Model {
    mechanism: Mechanism,
    grace: u32,
    /// Number and round it was made for, in the order in which they counted.
    counted: Vec<(u32, u32)>,
    closed: bool,
}

impl Model {
    fn round(&self) -> Option<u32> {
        let round = self.counted.len() as u32 / SIZE + 1;
        (round <= ROUNDS && !self.closed).then_some(round)
    }

    fn upload(&mut self, number: u32, made_for: u32) -> Outcome {
        let Some(current) = self.round() else { return Outcome::Refused(Refusal::Finished) };
        if made_for > current {
            return Outcome::Refused(Refusal::Early { round: made_for, current });
        }
        if made_for + self.grace < current {
            let oldest = current.saturating_sub(self.grace).max(1);
            return Outcome::Refused(Refusal::Late { round: made_for, oldest, current });
        }
        if self.counted.iter().any(|(known, _)| *known == number) {
            return Outcome::Duplicate;
        }
        self.counted.push((number, made_for));
        Outcome::Counted
    }

    fn close(&mut self) {
        self.closed = true;
        // What was in the unfinished batch is in no release.
        self.counted.truncate(self.counted.len() / SIZE as usize * SIZE as usize);
    }

    fn release(&self, round: u32) -> Option<Vec<i64>> {
        let batch = self.counted.chunks_exact(SIZE as usize).nth(round as usize - 1)?;
        Some(hot(&self.mechanism, batch.iter().map(|(number, _)| *number)))
    }

    fn progress(&self) -> Progress {
        let Some(round) = self.round() else {
            let closed = self.closed;
            return Progress { round: None, window: None, count: 0, remembered: 0, closed };
        };
        let remembered = self.counted.iter().filter(|(_, made)| made + self.grace >= round);
        let (count, remembered) = (self.counted.len() as u32 % SIZE, remembered.count());
        Progress { round: Some(round), window: None, count, remembered, closed: false }
    }
}

/// Does something that may fail as armed. What it answers, and whether it must be taken to have
/// happened.
pub fn with_fault<T>(
    shelf: &mut Shelf,
    fault: Option<Fault>,
    what: impl FnOnce(&mut Shelf) -> Result<T, CommitError>,
) -> Result<(Option<T>, bool), TestCaseError> {
    shelf.store.arm(fault);
    let result = what(shelf);
    let happened = fault.filter(|_| !shelf.store.is_armed());
    shelf.store.arm(None);
    match (result, happened) {
        // What cannot be read ahead is read again under the lock.
        (Ok(answer), None | Some(Fault::Read)) => Ok((Some(answer), true)),
        (Err(CommitError::Unknown(_)), Some(Fault::UnknownWithEffect)) => Ok((None, true)),
        (Err(CommitError::Unknown(_)), Some(Fault::UnknownWithoutEffect))
        | (Err(CommitError::NotCommitted(_)), Some(_)) => Ok((None, false)),
        (result, fault) => {
            let error = result.err().map(|error| error.to_string());
            Err(TestCaseError::fail(format!("{error:?} after {fault:?}")))
        }
    }
}

/// R1 to R5 on any store: the same deeds on the open tasks and on the simplest telling of what must
/// hold.
fn counts(mut shelf: Shelf, grace: u32, deeds: Vec<Deed>) -> Result<(), TestCaseError> {
    let task = orphan(plain(mechanism(6, grace, &[(ROUNDS, SIZE, 1)])));
    let id = task.id();
    let mechanism = task.mechanism().clone();
    let mut expected =
        Model { mechanism: mechanism.clone(), grace, counted: Vec::new(), closed: false };
    let mut made: BTreeMap<u32, u32> = BTreeMap::new();
    let mut seen: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut settled = true;
    shelf.open(&task);
    for deed in deeds {
        match &deed {
            Deed::Upload(_, fault) | Deed::Close(fault) => settled &= fault.is_none(),
            Deed::Crash | Deed::Forget(None) => settled = true,
            Deed::Read(_) | Deed::Forget(_) | Deed::Switch => {}
        }
        match deed {
            Deed::Upload(requests, fault) => {
                let mut after = expected.clone();
                let (mut uploads, mut outcomes) = (Vec::new(), Vec::new());
                for request in requests {
                    let (mut reports, mut expected) = (Vec::new(), Vec::new());
                    for (number, age) in request {
                        let now = after.round().unwrap_or(ROUNDS);
                        // A device makes its report once and may send it again later.
                        let made_for = *made
                            .entry(number)
                            .or_insert((now + age).saturating_sub(3).clamp(1, ROUNDS));
                        reports.push(one_hot(&mechanism, made_for, number));
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
                    expected = after;
                }
            }
            Deed::Crash => {
                shelf.crash();
                shelf.open(&task);
            }
            Deed::Switch => shelf.switch(),
            Deed::Read(round) => {
                let body = shelf.release(&id, round);
                prop_assert_eq!(body.as_deref().map(sums), expected.release(round));
            }
            Deed::Forget(fault) => {
                let (answer, _) = with_fault(&mut shelf, fault, |shelf| shelf.tasks.forget())?;
                prop_assert!(answer.unwrap_or(true));
            }
            Deed::Close(fault) => {
                let was_closed = expected.closed;
                let (_, happened) = with_fault(&mut shelf, fault, |shelf| shelf.tasks.close(&id))?;
                // Reading back what was committed may fail as well.
                let closed = shelf.store.head(&id).unwrap().state == TaskState::Closed;
                prop_assert!(closed || !(happened || was_closed));
                if closed {
                    expected.close();
                }
            }
        }
        // Whatever failed is read again by the next one who needs it.
        shelf.tasks.accept(&[Upload { task: id, reports: Vec::new() }]).unwrap();
        prop_assert_eq!(shelf.progress(&task), expected.progress());
        for round in 1..=ROUNDS {
            let Some(body) = shelf.release(&id, round) else { continue };
            prop_assert_eq!(seen.entry(round).or_insert_with(|| body.clone()), &body, "R2");
        }
        let mut totals = vec![0; mechanism.coordinates()];
        for body in seen.values() {
            let sums = sums(body);
            prop_assert_eq!(sums.iter().sum::<i64>(), i64::from(SIZE), "R1");
            totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
        prop_assert!(totals.iter().all(|total| *total <= 1), "R3: {:?}", totals);
        let head = shelf.store.head(&id).unwrap();
        if let Some((keys, _)) = &shelf.keys {
            let oldest = head.round.saturating_sub(grace);
            for round in (1..=ROUNDS).filter(|round| expected.closed || *round < oldest) {
                // After a commit that nobody knows of, they go when the store forgets.
                let gone = keys.get(&id, round).unwrap().is_none();
                prop_assert!(gone || !settled, "R27: {}", round);
            }
        }
        prop_assert_eq!(head.round, seen.len() as u32 + 1);
        prop_assert_eq!(head.last, seen.values().next_back().map(|body| ReleaseHash::of(body)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn r1_r2_r3_r4_the_memory_store_keeps_its_promises_whatever_happens(grace in 0u32..3, deeds in deeds()) {
        counts(Shelf::memory(), grace, deeds)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn r1_r2_r3_r4_the_sqlite_store_keeps_its_promises_whatever_happens(grace in 0u32..3, deeds in deeds()) {
        counts(Shelf::sqlite(), grace, deeds)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn r1_r2_r3_r4_r27_the_guarded_store_keeps_its_promises_whatever_happens(grace in 0u32..3, deeds in deeds()) {
        counts(Shelf::guarded(), grace, deeds)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn r1_r2_r3_r4_r27_two_nodes_on_a_database_keep_their_promises_whatever_happens(grace in 0u32..3, deeds in deeds()) {
        counts(Shelf::postgres(), grace, deeds)?;
    }
}

#[test]
fn tasks_in_one_store_do_not_touch_each_other() {
    for mut shelf in stores() {
        let [one, other] = [1, 2].map(|grace| orphan(plain(mechanism(3, grace, &[(2, 2, 1)]))));
        for task in [&one, &other] {
            shelf.open(task);
        }
        let uploads = [(&one, 0), (&other, 0), (&other, 1)].map(|(task, number)| Upload {
            task: task.id(),
            reports: vec![one_hot(task.mechanism(), 1, number)],
        });
        let outcomes = shelf.tasks.accept(&uploads).unwrap();
        assert_eq!(outcomes, vec![vec![Outcome::Counted]; 3], "the same id in two tasks");
        shelf.tasks.close(&one.id()).unwrap();
        shelf.crash();
        assert!(shelf.open(&one).closed);
        assert_eq!(shelf.open(&other).round, Some(2));
        assert_eq!(shelf.release(&one.id(), 1), None);
        let release = shelf.release(&other.id(), 1).unwrap();
        assert_eq!(sums(&release), hot(other.mechanism(), [0, 1]));
    }
}

#[test]
fn r1_an_upload_with_an_unknown_task_changes_nothing() {
    for mut shelf in stores() {
        let [known, unknown] = [1, 2].map(|grace| orphan(plain(mechanism(3, grace, &[(2, 2, 1)]))));
        shelf.open(&known);
        let upload = |task: &Task| {
            let reports = vec![one_hot(task.mechanism(), 1, 0)];
            Upload { task: task.id(), reports }
        };
        let result = shelf.tasks.accept(&[upload(&known), upload(&unknown)]);
        let Err(CommitError::NotCommitted(StoreError::UnknownTask(id))) = result else {
            panic!("{:?}", result.err());
        };
        assert_eq!(id, unknown.id());
        assert_eq!(shelf.progress(&known).count, 0);
        let outcomes = shelf.tasks.accept(&[upload(&known)]).unwrap();
        assert_eq!(outcomes, [[Outcome::Counted]], "it did not count before");
        let locked = shelf.store.lock(&[unknown.id()]).map(drop);
        assert!(matches!(locked, Err(StoreError::UnknownTask(_))));
        assert!(matches!(shelf.tasks.close(&unknown.id()), Err(CommitError::NotCommitted(_))));
    }
}

#[test]
fn a_restart_reads_a_bounded_number_of_bytes_besides_the_ids() {
    for mut shelf in stores() {
        // 5150 sums of a report each: a delta has 658 bytes, a snapshot of some thousand reports 8
        // KB.
        let task = orphan(plain(mechanism(100, 0, &[(1, 4_000_000, 1)])));
        shelf.open(&task);
        let mut longest = 0;
        for number in 0..310 {
            shelf.accept(&task, vec![one_hot(task.mechanism(), 1, number)]);
            let tail = shelf.store.tail(&task.id(), Seq(0), usize::MAX).unwrap();
            let sums = tail.iter().filter(|(_, entry)| entry.kind != Kind::Ids);
            let bytes: usize = sums.map(|(_, entry)| entry.bytes.len()).sum();
            assert!(bytes < 80_000, "{bytes} bytes after {number} reports");
            longest = longest.max(bytes);
        }
        assert!(longest > 60_000, "deltas are not replaced too often either: {longest}");
        let tail = shelf.store.tail(&task.id(), Seq(0), usize::MAX).unwrap();
        assert!(tail.iter().any(|(_, entry)| entry.kind == Kind::Delta), "this test would see one");
        assert!(shelf.tasks.forget().unwrap());
        let tail = shelf.store.tail(&task.id(), Seq(0), usize::MAX).unwrap();
        let mut sums = tail.iter().filter(|(_, entry)| entry.kind != Kind::Ids);
        // A database keeps what was dropped anyway.
        let kept = shelf.store.shared().is_some();
        assert!(kept || sums.all(|(_, entry)| entry.kind == Kind::Snapshot), "no delta is left");
        shelf.crash();
        assert_eq!(shelf.open(&task).count, 310);
    }
}

/// A task that cannot be read keeps another one neither from being forgotten nor from counting.
#[test]
fn r6_r25_a_task_that_cannot_be_read_does_not_disturb_the_others() {
    for mut shelf in stores() {
        let mut tasks = [2, 3].map(|d| orphan(plain(mechanism(d, 0, &[(3, 5, 1)]))));
        tasks.sort_by_key(Task::id);
        for (well, ill) in [(0, 1), (1, 0)] {
            let (well, ill) = (&tasks[well], &tasks[ill]);
            for task in [well, ill] {
                shelf.open(task);
            }
            let count = shelf.progress(well).count;
            let report = |task: &Task, number| one_hot(task.mechanism(), 1, number);
            assert_eq!(shelf.accept(well, vec![report(well, count)]), [Outcome::Counted]);
            // A commit that fails: the task must be read again, and that fails too.
            shelf.store.arm(Some(Fault::NotCommitted));
            let upload = Upload { task: ill.id(), reports: vec![report(ill, 4)] };
            assert!(shelf.tasks.accept(&[upload]).is_err());
            shelf.store.arm(Some(Fault::Unreadable));
            // A database keeps its deltas: there is nothing to read.
            assert!(shelf.tasks.forget().is_err() || shelf.store.shared().is_some());
            shelf.store.arm(None);
            let deltas = |task: &Task| {
                let tail = shelf.store.tail(&task.id(), Seq(0), usize::MAX).unwrap();
                tail.into_iter().filter(|(_, entry)| entry.kind == Kind::Delta).count()
            };
            assert!(deltas(well) == 0 || shelf.store.shared().is_some());
            assert_eq!(shelf.accept(well, vec![report(well, count + 1)]), [Outcome::Counted]);
            assert!(shelf.tasks.forget().unwrap());
        }
    }
}

/// Millions of commits in a round: their ids are dropped with the release at once, removed in
/// bounded steps, and a gap in the log is no end of it.
#[test]
fn a_long_round_in_a_database_is_dropped_at_once_and_removed_in_steps() {
    let mut shelf = Shelf::postgres();
    shelf.unguard();
    let task = orphan(plain(mechanism(6, 0, &[(3, 4, 1)])));
    shelf.open(&task);
    let report = |round, number| one_hot(task.mechanism(), round, number);
    shelf.accept(&task, vec![report(1, 0)]);
    shelf.sql(
        "INSERT INTO incrowd_shuffler.entry (task, kind, seq, round, bytes)
             SELECT number, 0, -n, 1, '\\x00' FROM incrowd_shuffler.task, generate_series(1, 25000) AS n",
    );
    let ids = "SELECT count(*) FROM incrowd_shuffler.entry WHERE kind = 0 AND round = 1";
    assert_eq!(shelf.sql(ids), "25001");
    shelf.accept(&task, (1..5).map(|number| report(1 + number / 4, number)).collect());
    assert_eq!(shelf.progress(&task).round, Some(2));
    assert_eq!(shelf.sql(ids), "25001", "they are still there");
    assert_eq!([(); 3].map(|()| shelf.store.forget().unwrap()), [false, false, true]);
    assert_eq!(shelf.sql(ids), "0");
    // Commits that left nothing in the log.
    shelf.sql("UPDATE incrowd_shuffler.task SET seq = seq + 10000");
    shelf.crash();
    shelf.open(&task);
    shelf.accept(&task, vec![report(2, 5)]);
    shelf.crash();
    assert_eq!(shelf.open(&task).count, 2);
}
