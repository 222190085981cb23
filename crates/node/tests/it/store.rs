//! The bandit's stores (R24), what the shuffler's file forgets (R6), and what a file must survive
//! (R25).

use std::{
    collections::HashSet,
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

use crate::{
    common::{contains, hot, id, mechanism, one_hot, orphan, plain, sums},
    database::Database,
    shelf::{Shelf, again},
};
use incrowd_bandit::Bandit;
use incrowd_envelope::SigningKey;
use incrowd_node::{
    OpenTasks, StoreError, Upload,
    store::{
        Absorbed, BanditStore, Change, CommitError, Head, Log, MemoryBanditStore, ReleaseHash, Seq,
        ShufflerStore, SqliteBanditStore, SqliteShufflerStore, Step, StoredModel, backup, verify,
    },
};
use incrowd_protocol::{BatchSums, Release, Report, Task};
use incrowd_shuffler::{Entry, Kind, Outcome};
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use rusqlite::{Connection, params};
use tempfile::TempDir;

/// A bandit's store that can be dropped and opened again.
struct BanditShelf {
    folder: Option<TempDir>,
    store: Option<Arc<dyn BanditStore>>,
    database: Option<Database>,
}

impl BanditShelf {
    fn memory() -> Self {
        let store = Some(Arc::<MemoryBanditStore>::default() as Arc<dyn BanditStore>);
        Self { folder: None, store, database: None }
    }

    fn postgres() -> Self {
        let mut shelf = Self { folder: None, store: None, database: Some(Database::take()) };
        shelf.restart();
        shelf
    }

    /// Every store.
    fn all() -> [Self; 3] {
        [Self::memory(), Self::sqlite(), Self::postgres()]
    }

    fn sqlite() -> Self {
        let mut shelf = Self { folder: Some(TempDir::new().unwrap()), store: None, database: None };
        shelf.restart();
        shelf
    }

    fn path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("bandit.db")
    }

    fn restart(&mut self) {
        if self.folder.is_some() {
            self.store = None;
            self.store = Some(Arc::new(again(|| SqliteBanditStore::open(&self.path())).unwrap()));
        }
        if let Some(database) = &self.database {
            self.store = Some(database.bandit());
        }
    }

    fn store(&self) -> &dyn BanditStore {
        self.store.as_deref().unwrap()
    }
}

/// The releases of a task whose sums are all different, and for each the statistics and the model
/// that follow.
struct History {
    task: Task,
    steps: Vec<(Vec<u8>, Bandit, Option<StoredModel>)>,
}

fn history(rounds: u32) -> History {
    let task = orphan(plain(mechanism(2, 0, &[(rounds, 9, 1)])));
    let mut bandit = Bandit::new(Arc::new(task.config().clone()));
    let (mut steps, mut previous) = (Vec::new(), None);
    for round in 1..=rounds {
        let counts = (0..5).map(|j| i64::from((round * 7 + j * 3) % 10)).collect();
        let sums = BatchSums::new(task.mechanism(), round, counts).unwrap();
        let model = bandit.absorb(&sums).unwrap().map(|model| StoredModel {
            version: model.version(),
            bytes: serde_json::to_vec(&model).unwrap(),
        });
        let release = Release::new(sums, previous).unwrap();
        let body = serde_json::to_vec(&release).unwrap();
        previous = Some(ReleaseHash::of(&body));
        steps.push((body, bandit.clone(), model));
    }
    History { task, steps }
}

impl History {
    fn absorb(&self, store: &dyn BanditStore, round: u32) -> Result<(), StoreError> {
        self.absorb_after(store, round, self.release_before(round))
    }

    fn release_before(&self, round: u32) -> Option<ReleaseHash> {
        let before = (round as usize).checked_sub(2)?;
        Some(ReleaseHash::of(&self.steps[before].0))
    }

    /// With this one stated to be the release before.
    fn absorb_after(
        &self,
        store: &dyn BanditStore,
        round: u32,
        previous: Option<ReleaseHash>,
    ) -> Result<(), StoreError> {
        let (release, bandit, model) = &self.steps[round as usize - 1];
        let (statistics, model) = (bandit.statistics(), model.as_ref());
        store.absorb(&self.task.id(), &Step { round, previous, release, statistics, model })
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
        let absorbed = steps.last().map(|(release, bandit, _)| Absorbed {
            statistics: bandit.statistics().clone(),
            last: Some(ReleaseHash::of(release)),
        });
        prop_assert_eq!(shelf.store().open(&history.task).unwrap(), absorbed);
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
        for shelf in BanditShelf::all() {
            bandit_conforms(shelf, acts.clone())?;
        }
    }
}

#[test]
fn r24_a_release_that_follows_another_one_than_the_last_is_refused_and_changes_nothing() {
    for mut shelf in BanditShelf::all() {
        let history = history(3);
        shelf.store().open(&history.task).unwrap();
        let (first, second) = (history.release_before(2), history.release_before(3));
        for (round, wrong, right) in [(1, first, None), (2, None, first), (3, first, second)] {
            let before = shelf.store().open(&history.task).unwrap();
            let result = history.absorb_after(shelf.store(), round, wrong);
            let Err(StoreError::Predecessor { stated, stored }) = result else {
                panic!("round {round}: {result:?}");
            };
            assert_eq!((stated, stored), (wrong, right));
            assert_eq!(shelf.store().open(&history.task).unwrap(), before);
            history.absorb_after(shelf.store(), round, right).unwrap();
            shelf.restart();
        }
        assert_eq!(shelf.store().releases(&history.task.id()).unwrap().len(), 3);
    }
}

/// The open tasks of a store, and the key they sign with.
fn opened(store: SqliteShufflerStore, task: &Task) -> (Arc<SqliteShufflerStore>, OpenTasks) {
    let store = Arc::new(store);
    let mut tasks = OpenTasks::new(store.clone(), SigningKey::from_bytes(&[7; 32]));
    tasks.open(task.id(), Arc::new(task.mechanism().clone())).unwrap();
    (store, tasks)
}

fn accept(tasks: &mut OpenTasks, task: &Task, reports: &[Report]) -> Vec<Outcome> {
    let upload = Upload { task: task.id(), reports: reports.to_vec() };
    tasks.accept(&[upload]).unwrap().pop().unwrap()
}

/// What opening a file says, and whether the file was left as it was.
fn refused(path: &Path) -> (StoreError, bool) {
    let before = fs::read(path).unwrap();
    let error = again(|| SqliteShufflerStore::open(path)).err().expect("it was opened");
    (error, fs::read(path).unwrap() == before)
}

#[test]
fn r25_a_file_of_another_version_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("shuffler.db");
    drop(SqliteShufflerStore::open(&path).unwrap());
    let set = |version: i64| {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
    };
    set(99);
    let (error, same) = refused(&path);
    assert!(matches!(error, StoreError::Newer { found: 99, known: 4 }), "{error}");
    assert!(same);
    assert!(matches!(verify(&path), Err(StoreError::Newer { .. })));
    for old in [0, 1, 3] {
        set(old);
        let (error, same) = refused(&path);
        assert!(matches!(error, StoreError::Older { oldest: 4, .. }), "{old}: {error}");
        assert!(same);
        assert!(matches!(verify(&path), Err(StoreError::Older { .. })));
    }
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
    let error = again(|| SqliteBanditStore::open(&shuffler)).err().unwrap();
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
    let key = SigningKey::from_bytes(&[7; 32]);
    // Round 1 is released; round 2 has a snapshot of one report, a delta of another, and the ids of
    // all five.
    let damaged = |change: &dyn Fn(&Path)| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("shuffler.db");
        let (store, mut tasks) = opened(SqliteShufflerStore::open(&path).unwrap(), &task);
        for number in 0..5 {
            accept(&mut tasks, &task, &[one_hot(task.mechanism(), 1 + number / 3, number)]);
            if number == 3 {
                assert!(tasks.forget().unwrap());
            }
        }
        assert!(store.forget().unwrap());
        let tail = store.tail(&task.id(), Seq(0), usize::MAX).unwrap();
        let kinds = |kind| tail.iter().filter(|(_, entry)| entry.kind == kind).count();
        assert_eq!([Kind::Snapshot, Kind::Delta, Kind::Ids].map(kinds), [1, 1, 5]);
        drop((store, tasks));
        change(&path);
        let store = Arc::new(again(|| SqliteShufflerStore::open(&path)).unwrap());
        let mut tasks = OpenTasks::new(store.clone(), SigningKey::from_bytes(&key.to_bytes()));
        let opened = tasks.open(task.id(), Arc::new(task.mechanism().clone()));
        let opened = opened.map_err(|error| match error {
            CommitError::NotCommitted(error) | CommitError::Unknown(error) => error,
        });
        (opened, store.release(&task.id(), 1).map(|_| ()))
    };
    let sql = |sql: &'static str| {
        move |path: &Path| {
            assert_eq!(Connection::open(path).unwrap().execute(sql, []).unwrap(), 1);
        }
    };
    for (what, statement) in [
        ("a snapshot", "UPDATE sums SET bytes = zeroblob(length(bytes)) WHERE kind = 2"),
        ("a delta", "UPDATE sums SET bytes = zeroblob(length(bytes)) WHERE kind = 1"),
        ("a missing delta", "UPDATE sums SET seq = seq + 1 WHERE kind = 1"),
        ("a delta as a snapshot", "UPDATE sums SET kind = 2 WHERE kind = 1"),
        ("the round of ids", "UPDATE ids SET round = 2 WHERE seq = 3"),
        ("the round of the head", "UPDATE task SET round = 3"),
    ] {
        let (opened, _) = damaged(&sql(statement));
        assert!(matches!(opened, Err(StoreError::Damaged(_))), "{what}: {opened:?}");
    }
    let (opened, _) = damaged(&|path| flip(path, &id(2).0));
    assert!(matches!(opened, Err(StoreError::Damaged(_))), "the ids");
    let (opened, release) = damaged(&|path| flip(path, b"\"sums\":[\"1\""));
    assert!(opened.is_ok());
    assert!(matches!(release, Err(StoreError::Damaged(_))), "the release");
    let (opened, release) =
        damaged(&sql("UPDATE release SET signature = zeroblob(length(signature))"));
    assert!(opened.is_ok());
    assert!(matches!(release, Err(StoreError::Damaged(_))), "its signature");
}

#[test]
fn r25_a_flipped_bit_in_the_bandits_store_is_noticed() {
    let history = history(2);
    for (what, bytes) in [
        ("statistics", b"published_log_det".as_slice()),
        ("release", b"\"previous\":"),
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
    let Shelf { folder: _folder, store, tasks, .. } = shelf;
    drop((store, tasks));
    assert!(again(|| SqliteShufflerStore::open(&path)).is_ok());
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

/// Sums as a log has them: as many bits each as the largest needs, lowest bit first.
fn packed(sums: &[u64]) -> Vec<u8> {
    let width = 64 - sums.iter().fold(0, |all, sum| all | sum).leading_zeros() as usize;
    let mut bytes = vec![0; (sums.len() * width).div_ceil(8)];
    for (bit, place) in
        sums.iter().flat_map(|sum| (0..width).map(move |bit| sum >> bit & 1)).zip(0..)
    {
        bytes[place / 8] |= (bit as u8) << (place % 8);
    }
    bytes
}

/// A report with counts of eight bits, which no other number has: in a report and in a delta they
/// are the same 27 bytes.
pub fn wide(task: &Task, round: u32, number: u32) -> Report {
    let mut counts: Vec<u16> = (0..27u32)
        .map(|j| (((number + 3) * 37 + j * 11 + number / 251 * j) % 251) as u16)
        .collect();
    counts[0] = 200;
    counts[1..3].copy_from_slice(&[number as u16 / 200, number as u16 % 200]);
    Report::new(task.mechanism(), round, id(number), counts).unwrap()
}

/// The states of a batch's sums, and the payloads of its reports.
#[derive(Default)]
pub struct Traces {
    sum: Vec<u64>,
    pub states: Vec<Vec<u8>>,
    pub payloads: Vec<Vec<u8>>,
}

impl Traces {
    /// Counts a report in a commit of its own.
    pub fn count(&mut self, shelf: &mut Shelf, task: &Task, round: u32, number: u32) {
        let report = wide(task, round, number);
        self.sum.resize(27, 0);
        self.sum
            .iter_mut()
            .zip(report.payload().counts().unwrap())
            .for_each(|(sum, count)| *sum += u64::from(*count));
        self.payloads.push(report.encode(task.mechanism()).unwrap()[29..].to_vec());
        self.states.push(packed(&self.sum));
        shelf.accept(task, vec![report]);
    }

    /// No state but the last, and no report.
    fn assert_none_but_the_last(&self, files: &[u8]) {
        let (current, earlier) = self.states.split_last().unwrap();
        assert!(contains(files, current), "the unfinished batch is kept");
        self.assert_none(files, earlier);
    }

    fn assert_none(&self, files: &[u8], states: &[Vec<u8>]) {
        let left = |traces: &[Vec<u8>]| -> Vec<usize> {
            (0..traces.len()).filter(|&trace| contains(files, &traces[trace])).collect()
        };
        assert_eq!(left(states), [0usize; 0], "earlier states");
        // The first state is the first report.
        let single: Vec<Vec<u8>> = self
            .payloads
            .iter()
            .filter(|payload| Some(*payload) != self.states.last())
            .cloned()
            .collect();
        assert_eq!(left(&single), [0usize; 0], "single reports");
    }
}

#[test]
fn r6_after_forgetting_no_file_has_a_report_or_an_earlier_state_of_the_sums() {
    let task = orphan(plain(mechanism(6, 0, &[(2, 6, 255)])));
    let mut shelf = Shelf::sqlite();
    let folder = shelf.folder.as_ref().unwrap().path().to_owned();
    shelf.open(&task);
    let mut traces = Traces::default();
    (0..4).for_each(|number| traces.count(&mut shelf, &task, 1, number));
    let before = everything(&folder);
    assert!(traces.payloads.iter().any(|payload| contains(&before, payload)), "it would be seen");
    assert!(shelf.tasks.forget().unwrap());
    traces.assert_none_but_the_last(&everything(&folder));
    let log = fs::metadata(folder.join("shuffler.db-wal")).map_or(0, |file| file.len());
    assert_eq!(log, 0);

    (4..6).for_each(|number| traces.count(&mut shelf, &task, 1, number));
    traces.sum.fill(0);
    (6..9).for_each(|number| traces.count(&mut shelf, &task, 2, number));
    assert!(shelf.tasks.forget().unwrap());
    let after = everything(&folder);
    traces.assert_none_but_the_last(&after);
    let id_of = |number| contains(&after, &id(number).0);
    assert!((0..6).all(|number| !id_of(number)), "R4: ids are kept for the window only");
    assert!((6..9).all(id_of), "this test would see one");

    shelf.tasks.close(&task.id()).unwrap();
    assert!(shelf.tasks.forget().unwrap());
    let after = everything(&folder);
    traces.assert_none(&after, &traces.states);
    assert!(
        (0..9).all(|number| !contains(&after, &id(number).0)),
        "R1: closing destroys the batch"
    );
}

/// Sums of many lengths that come and go: SQLite moves rows from page to page and leaves pieces of
/// them behind, which only a few of these sequences show.
#[test]
fn r6_dropped_sums_leave_no_pieces_in_the_slack_of_the_files_pages() {
    const LENGTHS: [usize; 8] = [30, 35, 41, 60, 95, 150, 400, 900];
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    let mut below = |limit: usize| rng.next_u32() as usize % limit;
    let mut tasks = [1, 2, 3].map(|grace| orphan(plain(mechanism(3, grace, &[(2, 2, 1)]))).id());
    tasks.sort();
    for sequence in 0..30 {
        // A folder in memory, if there is one: this is about bytes, not about syncing.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let store = SqliteShufflerStore::open(&folder.path().join("shuffler.db")).unwrap();
        tasks.iter().for_each(|task| assert_eq!(store.open(task).unwrap(), Head::default()));
        let (mut kept, mut dropped) = (vec![Vec::new(); 3], Vec::new());
        for _ in 0..400 {
            let (which, length) = (below(3), LENGTHS[below(8)]);
            let turn = store.lock(&tasks).unwrap();
            let head = turn.head(&tasks[which]).unwrap();
            let mut change = Change::to(Head { seq: head.seq.next(), ..head });
            let bytes: Vec<u8> = (0..length).map(|_| below(256) as u8).collect();
            if below(50) == 0 {
                change.drop_sums_before = change.head.seq;
                dropped.append(&mut kept[which]);
            }
            kept[which].push(bytes.clone());
            change.append.push(Entry { round: 1, kind: Kind::Delta, bytes });
            turn.commit(vec![(tasks[which], change)]).unwrap();
        }
        assert!(store.forget().unwrap());
        let files = everything(folder.path());
        let pieces: HashSet<&[u8]> = files.windows(20).collect();
        let left = |bytes: &Vec<u8>| bytes.windows(20).any(|piece| pieces.contains(piece));
        assert!(kept.iter().flatten().all(left), "this test would see them");
        assert_eq!(dropped.iter().filter(|bytes| left(bytes)).count(), 0, "sequence {sequence}");
    }
}

#[test]
fn r6_a_reader_in_the_way_delays_forgetting_but_nobody_else() {
    let task = orphan(plain(mechanism(6, 0, &[(2, 6, 1)])));
    let mut shelf = Shelf::sqlite();
    shelf.open(&task);
    let reader = Connection::open(shelf.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task;").unwrap();
    shelf.accept(&task, vec![one_hot(task.mechanism(), 1, 0)]);
    let log = shelf.path().with_extension("db-wal");
    let log = || fs::metadata(&log).map_or(0, |file| file.len());
    let began = Instant::now();
    assert!(!shelf.tasks.forget().unwrap(), "it says that something is left");
    assert!(began.elapsed() < Duration::from_secs(1), "reports do not wait for a reader");
    let length = log();
    assert!(!shelf.tasks.forget().unwrap());
    assert_eq!(log(), length, "trying again does not make the log longer");
    drop(reader);
    assert!(shelf.tasks.forget().unwrap());
    assert_eq!(log(), 0);
}

#[test]
fn r25_a_backup_made_while_reports_come_is_a_consistent_task() {
    // 119 coordinates: as many one-hot reports, in batches of 4.
    let task = orphan(plain(mechanism(14, 0, &[(29, 4, 1)])));
    let mechanism = task.mechanism();
    let mut shelf = Shelf::sqlite();
    let copies = TempDir::new().unwrap();
    shelf.open(&task);
    let (stop, from) = (AtomicBool::new(false), shelf.path());
    let backups: Vec<PathBuf> = thread::scope(|scope| {
        let copier = scope.spawn(|| {
            let mut made = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let to = copies.path().join(format!("{}.db", made.len()));
                backup(&from, &to).unwrap();
                made.push(to);
                thread::sleep(Duration::from_millis(25));
            }
            made
        });
        for number in 0..116 {
            shelf.accept(&task, vec![one_hot(mechanism, number / 4 + 1, number)]);
            if number % 10 == 0 {
                shelf.tasks.forget().unwrap();
            }
            thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
        copier.join().unwrap()
    });
    let mut in_the_middle = 0;
    for path in &backups {
        verify(path).unwrap();
        let (store, mut tasks) = opened(again(|| SqliteShufflerStore::open(path)).unwrap(), &task);
        let progress = tasks.progress(&task.id()).unwrap();
        let Some(round) = progress.round else { continue };
        let counted = (round - 1) * 4 + progress.count;
        in_the_middle += u32::from((1..116).contains(&counted));
        // What it says to have counted it knows, and the rest completes it to what it would have
        // been.
        for number in (round - 1) * 4..116 {
            let report = one_hot(mechanism, number / 4 + 1, number);
            let outcomes = accept(&mut tasks, &task, &[report]);
            let known = if number < counted { Outcome::Duplicate } else { Outcome::Counted };
            assert_eq!(outcomes, [known], "report {number} of {counted}");
        }
        for round in 1..=29 {
            let release = store.release(&task.id(), round).unwrap().unwrap().body;
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
    let mut shelf = Shelf::sqlite();
    shelf.open(&task);
    // Ballast, so that a copy takes longer than a commit.
    let ballast = vec![7u8; 1 << 20];
    let file = Connection::open(shelf.path()).unwrap();
    file.pragma_update(None, "synchronous", "OFF").unwrap();
    for round in 0..48 {
        let sql = "INSERT INTO release (task, round, bytes, signature) VALUES (1, ?1, ?2, ?2)";
        file.execute(sql, params![2_000_000 + round, ballast]).unwrap();
    }
    drop(file);
    assert!(shelf.tasks.forget().unwrap());
    let (ended, end) = mpsc::channel();
    let to = shelf.folder.as_ref().unwrap().path().join("copy.db");
    let from = shelf.path();
    thread::spawn(move || ended.send(backup(&from, &to).is_ok()));
    let begun = Instant::now();
    let mut number = 0;
    let result = loop {
        shelf.accept(&task, vec![one_hot(mechanism, number / 2 + 1, number)]);
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
    let mut shelf = Shelf::sqlite();
    let task = orphan(plain(mechanism(1, 0, &[(1, 2, 1)])));
    shelf.open(&task);
    let folder = shelf.folder.as_ref().unwrap().path();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        let empty = entry.metadata().unwrap().len() == 0;
        assert!(mode == 0o600 || empty, "{} has mode {mode:o}", entry.path().display());
    }
}
