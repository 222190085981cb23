//! The stores' promises: one suite for every store of a role (R1, R2, R3, R4, R6, R24), and what a file must survive (R25).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{contains, hot, id, mechanism, one_hot, orphan, plain, sums};
use incrowd_bandit::Bandit;
use incrowd_node::{
    StoreError,
    store::{
        BanditStore, MemoryBanditStore, MemoryShufflerStore, Progress, Receipt, ShufflerStore,
        SqliteBanditStore, SqliteShufflerStore, Step, StoredModel, Upload, backup, verify,
    },
};
use incrowd_protocol::{BatchSums, Mechanism, Report, Task};
use incrowd_shuffler::Refusal;
use proptest::prelude::*;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// A shuffler's store that can be dropped and opened again.
struct Shelf {
    folder: Option<TempDir>,
    store: Option<Box<dyn ShufflerStore>>,
}

impl Shelf {
    fn memory() -> Self {
        Self { folder: None, store: Some(Box::<MemoryShufflerStore>::default()) }
    }

    fn sqlite() -> Self {
        let mut shelf = Self { folder: Some(TempDir::new().unwrap()), store: None };
        shelf.restart();
        shelf
    }

    fn path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("shuffler.db")
    }

    /// What is in memory only has nothing to come back from, so it stays.
    fn restart(&mut self) {
        if self.folder.is_some() {
            self.store = None;
            self.store = Some(Box::new(SqliteShufflerStore::open(&self.path()).unwrap()));
        }
    }

    fn store(&self) -> &dyn ShufflerStore {
        self.store.as_deref().unwrap()
    }
}

/// What a device or an operator does.
#[derive(Debug, Clone)]
enum Act {
    /// Uploads in one step; each is the numbers of the reports. A new report is made for the current round plus the second number, minus 3.
    Upload(Vec<Vec<(u32, u32)>>),
    Restart,
    Read(u32),
    Tidy,
    Close,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let request = prop::collection::vec((0u32..27, 0u32..=4), 0..7);
    let act = prop_oneof![
        12 => prop::collection::vec(request, 1..4).prop_map(Act::Upload),
        4 => Just(Act::Restart),
        4 => (1u32..7).prop_map(Act::Read),
        2 => Just(Act::Tidy),
        1 => Just(Act::Close),
    ];
    prop::collection::vec(act, 1..30)
}

const SIZE: u32 = 4;
const ROUNDS: u32 = 5;

/// What must hold, told in the simplest way: everything that ever counted is kept.
struct Expected {
    mechanism: Mechanism,
    grace: u32,
    /// Number and round it was made for, in the order in which they counted.
    counted: Vec<(u32, u32)>,
    closed: bool,
}

impl Expected {
    fn round(&self) -> Option<u32> {
        let round = self.counted.len() as u32 / SIZE + 1;
        (round <= ROUNDS && !self.closed).then_some(round)
    }

    fn upload(&mut self, number: u32, made_for: u32) -> Receipt {
        let Some(current) = self.round() else { return Receipt::Refused(Refusal::Finished) };
        if made_for > current {
            return Receipt::Refused(Refusal::Early { round: made_for, current });
        }
        if made_for + self.grace < current {
            let oldest = current.saturating_sub(self.grace).max(1);
            return Receipt::Refused(Refusal::Late { round: made_for, oldest, current });
        }
        if self.counted.iter().any(|(known, _)| *known == number) {
            return Receipt::Duplicate;
        }
        self.counted.push((number, made_for));
        Receipt::Counted
    }

    fn release(&self, round: u32) -> Option<Vec<u64>> {
        let batch = self.counted.chunks_exact(SIZE as usize).nth(round as usize - 1)?;
        Some(hot(&self.mechanism, batch.iter().map(|(number, _)| *number)))
    }

    fn progress(&self) -> Progress {
        let Some(round) = self.round() else {
            return Progress { round: None, count: 0, remembered: 0, closed: self.closed };
        };
        let remembered = self.counted.iter().filter(|(_, made)| made + self.grace >= round);
        let (count, remembered) = (self.counted.len() as u32 % SIZE, remembered.count());
        Progress { round: Some(round), count, remembered, closed: false }
    }
}

/// R1 to R4 on any store: the same acts on the store and on the simplest telling of what must hold.
fn conforms(mut shelf: Shelf, grace: u32, acts: Vec<Act>) -> Result<(), TestCaseError> {
    let task = orphan(plain(mechanism(6, grace, &[(ROUNDS, SIZE, 1)])));
    let id = task.id();
    let mechanism = task.mechanism().clone();
    let mut expected =
        Expected { mechanism: mechanism.clone(), grace, counted: Vec::new(), closed: false };
    let mut made: BTreeMap<u32, u32> = BTreeMap::new();
    let mut seen: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    shelf.store().open(&task).unwrap();
    for act in acts {
        match act {
            Act::Upload(requests) => {
                let (mut uploads, mut receipts) = (Vec::new(), Vec::new());
                for request in requests {
                    let (mut reports, mut outcomes) = (Vec::new(), Vec::new());
                    for (number, age) in request {
                        let now = expected.round().unwrap_or(ROUNDS);
                        // A device makes its report once and may send it again later.
                        let made_for = *made
                            .entry(number)
                            .or_insert((now + age).saturating_sub(3).clamp(1, ROUNDS));
                        reports.push(one_hot(&mechanism, made_for, number));
                        outcomes.push(expected.upload(number, made_for));
                    }
                    uploads.push(Upload { task: id, reports });
                    receipts.push(outcomes);
                }
                prop_assert_eq!(shelf.store().accept(&uploads).unwrap(), receipts);
            }
            Act::Restart => {
                shelf.restart();
                shelf.store().open(&task).unwrap();
            }
            Act::Read(round) => {
                let bytes = shelf.store().release(&id, round).unwrap();
                prop_assert_eq!(bytes.as_deref().map(sums), expected.release(round));
            }
            Act::Tidy => prop_assert!(shelf.store().tidy().unwrap()),
            Act::Close => {
                prop_assert!(shelf.store().close(&id).unwrap().closed);
                expected.closed = true;
                // What was in the unfinished batch is in no release.
                let kept = expected.counted.len() / SIZE as usize * SIZE as usize;
                expected.counted.truncate(kept);
            }
        }
        // A store that was never restarted remembers ids of a finished task; nobody can send those again.
        let mut progress = shelf.store().progress(&id).unwrap();
        if progress.round.is_none() {
            progress.remembered = 0;
        }
        prop_assert_eq!(progress, expected.progress());
        for round in 1..=ROUNDS {
            let Some(bytes) = shelf.store().release(&id, round).unwrap() else { continue };
            prop_assert_eq!(seen.entry(round).or_insert_with(|| bytes.clone()), &bytes, "R2");
        }
        let mut totals = vec![0; mechanism.coordinates()];
        for bytes in seen.values() {
            let sums = sums(bytes);
            prop_assert_eq!(sums.iter().sum::<u64>(), u64::from(SIZE), "R1");
            totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
        prop_assert!(totals.iter().all(|total| *total <= 1), "R3: {:?}", totals);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn r1_r2_r3_r4_the_memory_store_keeps_its_promises_whatever_happens(grace in 0u32..3, acts in acts()) {
        conforms(Shelf::memory(), grace, acts)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn r1_r2_r3_r4_the_sqlite_store_keeps_its_promises_whatever_happens(grace in 0u32..3, acts in acts()) {
        conforms(Shelf::sqlite(), grace, acts)?;
    }
}

fn upload(task: &Task, reports: Vec<Report>) -> [Upload; 1] {
    [Upload { task: task.id(), reports }]
}

#[test]
fn tasks_in_one_store_do_not_touch_each_other() {
    for mut shelf in [Shelf::memory(), Shelf::sqlite()] {
        let [one, other] = [1, 2].map(|grace| orphan(plain(mechanism(3, grace, &[(2, 2, 1)]))));
        for task in [&one, &other] {
            shelf.store().open(task).unwrap();
        }
        let uploads = [(&one, 0), (&other, 0), (&other, 1)].map(|(task, number)| Upload {
            task: task.id(),
            reports: vec![one_hot(task.mechanism(), 1, number)],
        });
        let receipts = shelf.store().accept(&uploads).unwrap();
        assert_eq!(receipts, vec![vec![Receipt::Counted]; 3], "the same id in two tasks");
        shelf.store().close(&one.id()).unwrap();
        shelf.restart();
        assert!(shelf.store().open(&one).unwrap().closed);
        assert_eq!(shelf.store().open(&other).unwrap().round, Some(2));
        assert_eq!(shelf.store().release(&one.id(), 1).unwrap(), None);
        let release = shelf.store().release(&other.id(), 1).unwrap().unwrap();
        assert_eq!(sums(&release), hot(other.mechanism(), [0, 1]));
    }
}

#[test]
fn r1_an_upload_with_an_unknown_task_changes_nothing() {
    for shelf in [Shelf::memory(), Shelf::sqlite()] {
        let [known, unknown] = [1, 2].map(|grace| orphan(plain(mechanism(3, grace, &[(2, 2, 1)]))));
        shelf.store().open(&known).unwrap();
        let reports = |task: &Task| upload(task, vec![one_hot(task.mechanism(), 1, 0)]);
        let [first] = reports(&known);
        let [second] = reports(&unknown);
        let result = shelf.store().accept(&[first, second]);
        assert!(matches!(result, Err(StoreError::UnknownTask(id)) if id == unknown.id()));
        assert_eq!(shelf.store().progress(&known.id()).unwrap().count, 0);
        let receipts = shelf.store().accept(&reports(&known)).unwrap();
        assert_eq!(receipts, [[Receipt::Counted]], "it did not count before");
    }
}

/// A bandit's store that can be dropped and opened again.
struct BanditShelf {
    folder: Option<TempDir>,
    store: Option<Box<dyn BanditStore>>,
}

impl BanditShelf {
    fn memory() -> Self {
        Self { folder: None, store: Some(Box::<MemoryBanditStore>::default()) }
    }

    fn sqlite() -> Self {
        let mut shelf = Self { folder: Some(TempDir::new().unwrap()), store: None };
        shelf.restart();
        shelf
    }

    fn path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("bandit.db")
    }

    fn restart(&mut self) {
        if self.folder.is_some() {
            self.store = None;
            self.store = Some(Box::new(SqliteBanditStore::open(&self.path()).unwrap()));
        }
    }

    fn store(&self) -> &dyn BanditStore {
        self.store.as_deref().unwrap()
    }
}

/// The releases of a task whose sums are all different, and for each the statistics and the model that follow.
struct History {
    task: Task,
    steps: Vec<(Vec<u8>, Bandit, Option<StoredModel>)>,
}

fn history(rounds: u32) -> History {
    let task = orphan(plain(mechanism(2, 0, &[(rounds, 9, 1)])));
    let mut bandit = Bandit::new(Arc::new(task.config().clone()));
    let mut steps = Vec::new();
    for round in 1..=rounds {
        let counts = (0..5).map(|j| u64::from((round * 7 + j * 3) % 10)).collect();
        let sums = BatchSums::new(task.mechanism(), round, counts).unwrap();
        let model = bandit.absorb(&sums).unwrap().map(|model| StoredModel {
            version: model.version(),
            bytes: serde_json::to_vec(&model).unwrap(),
        });
        steps.push((serde_json::to_vec(&sums).unwrap(), bandit.clone(), model));
    }
    History { task, steps }
}

impl History {
    fn absorb(&self, store: &dyn BanditStore, round: u32) -> Result<(), StoreError> {
        let (release, bandit, model) = &self.steps[round as usize - 1];
        let (statistics, model) = (bandit.statistics(), model.as_ref());
        store.absorb(&self.task.id(), &Step { round, release, statistics, model })
    }
}

/// R24 on any store: rounds that come again, too early or in order, with restarts in between.
fn bandit_conforms(mut shelf: BanditShelf, acts: Vec<Option<u32>>) -> Result<(), TestCaseError> {
    let history = history(6);
    let id = history.task.id();
    shelf.store().open(&history.task).unwrap();
    let mut absorbed = 0;
    for act in acts {
        match act {
            None => shelf.restart(),
            Some(round) => {
                let result = history.absorb(shelf.store(), round);
                if round == absorbed + 1 {
                    prop_assert!(result.is_ok());
                    absorbed = round;
                } else {
                    let expected = (round, absorbed + 1);
                    let Err(StoreError::Order { found, next }) = result else {
                        return Err(TestCaseError::fail("out of order"));
                    };
                    prop_assert_eq!((found, next), expected);
                }
            }
        }
        let steps = &history.steps[..absorbed as usize];
        let statistics = shelf.store().open(&history.task).unwrap();
        prop_assert_eq!(
            statistics.as_ref(),
            steps.last().map(|(_, bandit, _)| bandit.statistics())
        );
        let releases: Vec<(u32, Vec<u8>)> =
            (1..).zip(steps.iter().map(|(release, ..)| release.clone())).collect();
        prop_assert_eq!(shelf.store().releases(&id).unwrap(), releases);
        let models: Vec<StoredModel> =
            steps.iter().filter_map(|(_, _, model)| model.clone()).collect();
        let newest = shelf.store().model(&id).unwrap();
        prop_assert_eq!(newest.as_ref(), models.last());
        prop_assert_eq!(shelf.store().models(&id).unwrap(), models);
    }
    Ok(())
}

fn bandit_acts() -> impl Strategy<Value = Vec<Option<u32>>> {
    // Mostly in order: each number is tried a few times among others.
    let act = prop_oneof![3 => (1u32..=6).prop_map(Some), 1 => Just(None)];
    prop::collection::vec(act, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(15) })]

    #[test]
    fn r24_every_bandit_store_takes_each_release_once_and_in_order(acts in bandit_acts()) {
        bandit_conforms(BanditShelf::memory(), acts.clone())?;
        bandit_conforms(BanditShelf::sqlite(), acts)?;
    }
}

fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    [bytes, &Sha256::digest(bytes)[..8]].concat()
}

fn snapshot(round: u32, count: u32, sums: &[u64]) -> Vec<u8> {
    let mut bytes = [round.to_be_bytes(), count.to_be_bytes()].concat();
    sums.iter().for_each(|sum| bytes.extend(sum.to_be_bytes()));
    bytes
}

/// The tables as the first version had them.
const FIRST_VERSION: &str = "
    CREATE TABLE task (number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, batch BLOB NOT NULL);
    CREATE TABLE ids (task INTEGER NOT NULL REFERENCES task, round INTEGER NOT NULL, ids BLOB NOT NULL);
    CREATE INDEX ids_by_round ON ids (task, round);
    CREATE TABLE release (task INTEGER NOT NULL REFERENCES task, round INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (task, round)) WITHOUT ROWID;
    PRAGMA application_id = 477261687;
    PRAGMA user_version = 1;";

/// A file of the first version: round 1 is released, two reports of round 2 are counted, one of them made for round 1.
fn first_version(path: &Path, task: &Task) -> Vec<u8> {
    let mechanism = task.mechanism();
    let file = Connection::open(path).unwrap();
    file.execute_batch(FIRST_VERSION).unwrap();
    let batch = with_checksum(&snapshot(2, 2, &hot(mechanism, [3, 4])));
    file.execute(
        "INSERT INTO task (number, id, batch) VALUES (7, ?1, ?2)",
        params![task.id().bytes(), batch],
    )
    .unwrap();
    for (round, ids) in [(1, vec![0, 1, 2, 3]), (2, vec![4])] {
        let ids: Vec<u8> = ids.into_iter().flat_map(|number| id(number).0).collect();
        let insert = "INSERT INTO ids (task, round, ids) VALUES (7, ?1, ?2)";
        file.execute(insert, params![round, with_checksum(&ids)]).unwrap();
    }
    let release = BatchSums::new(mechanism, 1, hot(mechanism, [0, 1, 2])).unwrap();
    let release = serde_json::to_vec(&release).unwrap();
    let insert = "INSERT INTO release (task, round, bytes) VALUES (7, 1, ?1)";
    file.execute(insert, params![with_checksum(&release)]).unwrap();
    release
}

#[test]
fn r25_a_file_of_the_first_version_keeps_its_batch_ids_and_releases() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("shuffler.db");
    let task = orphan(plain(mechanism(3, 1, &[(3, 3, 1)])));
    let release = first_version(&path, &task);
    let store = SqliteShufflerStore::open(&path).unwrap();
    let progress = store.open(&task).unwrap();
    assert_eq!(progress, Progress { round: Some(2), count: 2, remembered: 5, closed: false });
    assert_eq!(store.release(&task.id(), 1).unwrap().unwrap(), release);
    let again = [(1, 0), (1, 3), (2, 4)].map(|(round, n)| one_hot(task.mechanism(), round, n));
    let receipts = store.accept(&upload(&task, again.to_vec())).unwrap();
    assert_eq!(receipts, [vec![Receipt::Duplicate; 3]], "R3 holds over the upgrade");
    store.accept(&upload(&task, vec![one_hot(task.mechanism(), 2, 5)])).unwrap();
    let second = store.release(&task.id(), 2).unwrap().unwrap();
    assert_eq!(sums(&second), hot(task.mechanism(), [3, 4, 5]), "the batch went on");
    drop(store);
    let version: i64 = Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 2);
    let store = SqliteShufflerStore::open(&path).unwrap();
    assert_eq!(store.open(&task).unwrap().round, Some(3), "an upgraded file opens again");
}

/// What opening a file says, and whether the file was left as it was.
fn refused(path: &Path) -> (StoreError, bool) {
    let before = fs::read(path).unwrap();
    let error = SqliteShufflerStore::open(path).err().expect("it was opened");
    (error, fs::read(path).unwrap() == before)
}

#[test]
fn r25_a_file_of_a_newer_version_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("shuffler.db");
    drop(SqliteShufflerStore::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let (error, same) = refused(&path);
    assert!(matches!(error, StoreError::Newer { found: 99, known: 2 }), "{error}");
    assert!(same);
    assert!(matches!(verify(&path), Err(StoreError::Newer { .. })));
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1);")
        .unwrap();
    let bandit = folder.path().join("bandit.db");
    drop(SqliteBanditStore::open(&bandit).unwrap());
    for path in [&foreign, &bandit] {
        let (error, same) = refused(path);
        assert!(matches!(&error, StoreError::Foreign(named) if named == path), "{error}");
        assert!(same, "{} was changed", path.display());
    }
    assert!(matches!(verify(&foreign), Err(StoreError::Foreign(_))));
    let shuffler = folder.path().join("shuffler.db");
    drop(SqliteShufflerStore::open(&shuffler).unwrap());
    let error = SqliteBanditStore::open(&shuffler).err().unwrap();
    assert!(matches!(error, StoreError::Foreign(_)), "{error}");
    let noise = folder.path().join("noise.db");
    let bytes: Vec<u8> =
        (0u32..3000).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&noise, bytes).unwrap();
    let (error, same) = refused(&noise);
    assert!(error.to_string().contains("not a"), "{error}");
    assert!(same);
    assert!(verify(&noise).is_err());
}

/// Flips one bit where the bytes are in the file.
fn flip(path: &Path, bytes: &[u8]) {
    let mut file = fs::read(path).unwrap();
    let place = file.windows(bytes.len()).position(|window| window == bytes).expect("not there");
    file[place + bytes.len() / 2] ^= 1;
    fs::write(path, file).unwrap();
}

#[test]
fn r25_a_flipped_bit_in_what_is_stored_is_noticed() {
    let task = orphan(plain(mechanism(3, 1, &[(3, 3, 1)])));
    let damaged = |what: &[u8]| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("shuffler.db");
        first_version(&path, &task);
        flip(&path, what);
        let store = SqliteShufflerStore::open(&path).unwrap();
        let opened = store.open(&task);
        (opened.map(|_| ()), store.release(&task.id(), 1).map(|_| ()))
    };
    let batch = snapshot(2, 2, &hot(task.mechanism(), [3, 4]));
    assert!(matches!(damaged(&batch).0, Err(StoreError::Damaged(_))), "the batch");
    assert!(matches!(damaged(&id(2).0).0, Err(StoreError::Damaged(_))), "the ids");
    let (opened, release) = damaged(b"\"sums\":[\"1\"");
    assert!(opened.is_ok());
    assert!(matches!(release, Err(StoreError::Damaged(_))), "the release");
}

#[test]
fn r25_a_flipped_bit_in_the_bandits_store_is_noticed() {
    let history = history(2);
    for (what, bytes) in [
        ("statistics", b"published_log_det".as_slice()),
        ("release", b"\"sums\":"),
        ("model", b"confidence_width"),
    ] {
        let mut shelf = BanditShelf::sqlite();
        shelf.store().open(&history.task).unwrap();
        history.absorb(shelf.store(), 1).unwrap();
        shelf.store = None;
        flip(&shelf.path(), bytes);
        shelf.restart();
        let (store, id) = (shelf.store(), history.task.id());
        let noticed = match what {
            "statistics" => matches!(store.open(&history.task), Err(StoreError::Damaged(_))),
            "release" => matches!(store.releases(&id), Err(StoreError::Damaged(_))),
            _ => matches!(store.model(&id), Err(StoreError::Damaged(_))),
        };
        assert!(noticed, "{what}");
    }
}

#[test]
fn r3_a_second_process_cannot_open_the_file() {
    let shelf = Shelf::sqlite();
    assert!(matches!(SqliteShufflerStore::open(&shelf.path()), Err(StoreError::InUse(_))));
    let path = shelf.path();
    let Shelf { folder: _folder, store } = shelf;
    drop(store);
    assert!(SqliteShufflerStore::open(&path).is_ok());
    let shelf = BanditShelf::sqlite();
    assert!(matches!(SqliteBanditStore::open(&shelf.path()), Err(StoreError::InUse(_))));
}

/// Every file of a folder in one.
fn everything(folder: &Path) -> Vec<u8> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().flat_map(|file| fs::read(file).unwrap()).collect()
}

#[test]
fn r6_after_tidying_no_file_has_a_report_or_an_earlier_state_of_the_sums() {
    // Counts of eight bits: a report's counts are its last 27 bytes, and no two states have the same sums.
    let task = orphan(plain(mechanism(6, 0, &[(2, 6, 255)])));
    let mechanism = task.mechanism();
    let shelf = Shelf::sqlite();
    let folder = shelf.folder.as_ref().unwrap().path();
    shelf.store().open(&task).unwrap();
    let (mut states, mut payloads, mut sum) = (Vec::new(), Vec::new(), vec![0u64; 27]);
    let mut count = |round: u32, number: u32| {
        let counts: Vec<u16> =
            (0..27u32).map(|j| ((number + 3) * 37 + j * 11) as u16 % 251).collect();
        sum.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += u64::from(*count));
        let report = Report::new(mechanism, round, id(number), counts).unwrap();
        payloads.push(report.encode(mechanism).unwrap()[29..].to_vec());
        let encoded: Vec<u8> = sum.iter().flat_map(|sum| sum.to_be_bytes()).collect();
        states.push(encoded);
        shelf.store().accept(&upload(&task, vec![report])).unwrap();
        if number == 5 {
            sum.fill(0);
        }
        (states.clone(), payloads.clone())
    };

    (0..3).for_each(|number| drop(count(1, number)));
    let (states, payloads) = count(1, 3);
    let (current, earlier) = states.split_last().unwrap();
    let before = everything(folder);
    assert!(earlier.iter().any(|state| contains(&before, state)), "this test would see one");
    assert!(shelf.store().tidy().unwrap());
    let after = everything(folder);
    assert!(contains(&after, current), "the unfinished batch is kept");
    assert!(!earlier.iter().any(|state| contains(&after, state)));
    assert!(!payloads.iter().any(|payload| contains(&after, payload)));
    let log = fs::metadata(folder.join("shuffler.db-wal")).map_or(0, |file| file.len());
    assert_eq!(log, 0);

    (4..8).for_each(|number| drop(count(if number < 6 { 1 } else { 2 }, number)));
    let (states, payloads) = count(2, 8);
    assert!(shelf.store().tidy().unwrap());
    let after = everything(folder);
    let (_, earlier) = states.split_last().unwrap();
    assert!(!earlier.iter().any(|state| contains(&after, state)));
    assert!(!payloads.iter().any(|payload| contains(&after, payload)));
    let id_of = |number| contains(&after, &id(number).0);
    assert!((0..6).all(|number| !id_of(number)), "R4: ids are kept for the window only");
    assert!((6..9).all(id_of), "this test would see one");

    shelf.store().close(&task.id()).unwrap();
    let after = everything(folder);
    assert!(!states.iter().any(|state| contains(&after, state)), "R1: closing destroys the batch");
    assert!((0..9).all(|number| !contains(&after, &id(number).0)));
}

#[test]
fn r6_a_reader_in_the_way_delays_tidying_but_nobody_else() {
    let task = orphan(plain(mechanism(6, 0, &[(2, 6, 1)])));
    let shelf = Shelf::sqlite();
    shelf.store().open(&task).unwrap();
    let reader = Connection::open(shelf.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task;").unwrap();
    let report = one_hot(task.mechanism(), 1, 0);
    shelf.store().accept(&upload(&task, vec![report])).unwrap();
    let began = Instant::now();
    assert!(!shelf.store().tidy().unwrap(), "it says that something is left");
    assert!(began.elapsed() < Duration::from_secs(1), "reports do not wait for a reader");
    drop(reader);
    assert!(shelf.store().tidy().unwrap());
    let log = fs::metadata(shelf.path().with_extension("db-wal")).map_or(0, |file| file.len());
    assert_eq!(log, 0);
}

#[test]
fn r25_a_backup_made_while_reports_come_is_a_consistent_task() {
    // 119 coordinates: as many one-hot reports, in batches of 4.
    let task = orphan(plain(mechanism(14, 0, &[(29, 4, 1)])));
    let mechanism = task.mechanism();
    let shelf = Shelf::sqlite();
    let copies = TempDir::new().unwrap();
    shelf.store().open(&task).unwrap();
    let stop = AtomicBool::new(false);
    let backups: Vec<PathBuf> = thread::scope(|scope| {
        let copier = scope.spawn(|| {
            let mut made = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let to = copies.path().join(format!("{}.db", made.len()));
                backup(&shelf.path(), &to).unwrap();
                made.push(to);
                thread::sleep(Duration::from_millis(25));
            }
            made
        });
        for number in 0..116 {
            let report = one_hot(mechanism, number / 4 + 1, number);
            shelf.store().accept(&upload(&task, vec![report])).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
        copier.join().unwrap()
    });
    let mut in_the_middle = 0;
    for path in &backups {
        verify(path).unwrap();
        let store = SqliteShufflerStore::open(path).unwrap();
        let progress = store.open(&task).unwrap();
        let Some(round) = progress.round else { continue };
        let counted = (round - 1) * 4 + progress.count;
        in_the_middle += u32::from((1..116).contains(&counted));
        // What it says to have counted it knows, and the rest completes it to what it would have been.
        for number in (round - 1) * 4..116 {
            let report = one_hot(mechanism, number / 4 + 1, number);
            let receipts = store.accept(&upload(&task, vec![report])).unwrap();
            let known = if number < counted { Receipt::Duplicate } else { Receipt::Counted };
            assert_eq!(receipts, [[known]], "report {number} of {counted}");
        }
        for round in 1..=29 {
            let release = store.release(&task.id(), round).unwrap().unwrap();
            assert_eq!(sums(&release), hot(mechanism, (round - 1) * 4..round * 4));
        }
    }
    assert!(in_the_middle > 0, "no backup was made while reports came");
    let existing = backup(&shelf.path(), &backups[0]);
    assert!(matches!(existing, Err(StoreError::File { .. })), "a backup overwrites nothing");
}

#[test]
fn r25_a_backup_of_a_large_busy_store_ends() {
    let task = orphan(plain(mechanism(1, 0, &[(1_000_000, 2, 1)])));
    let mechanism = task.mechanism();
    let shelf = Shelf::sqlite();
    shelf.store().open(&task).unwrap();
    // Ballast, so that a copy takes longer than a commit.
    let ballast = vec![7u8; 1 << 20];
    let file = Connection::open(shelf.path()).unwrap();
    file.pragma_update(None, "synchronous", "OFF").unwrap();
    for round in 0..48 {
        let sql = "INSERT INTO release (task, round, bytes) VALUES (1, ?1, ?2)";
        file.execute(sql, params![2_000_000 + round, ballast]).unwrap();
    }
    drop(file);
    assert!(shelf.store().tidy().unwrap());
    let (ended, end) = mpsc::channel();
    let to = shelf.folder.as_ref().unwrap().path().join("copy.db");
    let from = shelf.path();
    thread::spawn(move || ended.send(backup(&from, &to).is_ok()));
    let begun = Instant::now();
    let mut number = 0;
    let result = loop {
        let report = one_hot(mechanism, number / 2 + 1, number);
        shelf.store().accept(&upload(&task, vec![report])).unwrap();
        number += 1;
        match end.try_recv() {
            Ok(result) => break result,
            Err(_) => assert!(begun.elapsed().as_secs() < 15, "the copy begins again and again"),
        }
    };
    assert!(result && number > 1);
}

#[test]
fn the_stores_files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let shelf = Shelf::sqlite();
    let task = orphan(plain(mechanism(1, 0, &[(1, 2, 1)])));
    shelf.store().open(&task).unwrap();
    let folder = shelf.folder.as_ref().unwrap().path();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        let empty = entry.metadata().unwrap().len() == 0;
        assert!(mode == 0o600 || empty, "{} has mode {mode:o}", entry.path().display());
    }
}
