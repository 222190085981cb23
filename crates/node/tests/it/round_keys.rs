//! R27, R6, R36: what the log says of a round is under a key that is elsewhere and is destroyed at
//! the release; a key that is gone is told apart from a wrong one.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use incrowd_envelope::SigningKey;
use incrowd_node::{
    OpenTasks, Roles, RoundKeyError, RoundKeysConfig, ServiceError, StoreError, Upload,
    round_keys::{self, Loss, RoundKey, RoundKeys},
    store::{Log, Seq, ShufflerStore},
};
use incrowd_protocol::{Report, Task, TaskId};
use incrowd_shuffler::{Kind, Outcome};
use tempfile::TempDir;

use crate::{
    common::{Place, contains, hot, id, mechanism, memory_folder, one_hot, orphan, plain, sums},
    database::Database,
    shelf::Shelf,
};

/// A helper of the kind `command` that keeps its keys in a folder.
fn helper(folder: &Path) -> Vec<String> {
    let script = folder.join("helper");
    let text = r#"#!/bin/sh
set -e
folder=$1; shift
case $1 in
get) cat "$folder/$2.$3" 2>/dev/null || true ;;
get-or-create)
    test -e "$folder/$2.$3" || od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > "$folder/$2.$3"
    cat "$folder/$2.$3" ;;
destroy-before)
    for file in "$folder/$2".*; do
        test -e "$file" || continue
        test "${file##*.}" -ge "$3" || rm "$file"
    done ;;
*) exit 1 ;;
esac
"#;
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let keys = folder.join("keys");
    fs::create_dir(&keys).unwrap();
    vec![script.display().to_string(), keys.display().to_string()]
}

fn task(number: u8) -> TaskId {
    hex::encode([number; 32]).parse().unwrap()
}

#[test]
fn r27_every_medium_keeps_keys_until_they_are_destroyed() {
    let (memory, in_memory) = memory_folder();
    let disk = TempDir::new().unwrap();
    let on_disk = RoundKeysConfig::File { path: None };
    let asked = TempDir::new().unwrap();
    let command = RoundKeysConfig::Command { command: helper(asked.path()) };
    for setting in [in_memory, on_disk, command] {
        let open = || round_keys::open(Some(&setting), disk.path()).unwrap();
        let (keys, [one, other]) = (open(), [task(1), task(2)]);
        assert!(keys.get(&one, 1).unwrap().is_none());
        let made: Vec<_> = (1..=4).map(|round| keys.get_or_create(&one, round).unwrap()).collect();
        let strange = keys.get_or_create(&other, 1).unwrap();
        for (index, key) in made.iter().enumerate() {
            assert!(made.iter().skip(index + 1).all(|next| next != key) && *key != strange);
        }
        // Another process.
        let keys = open();
        assert!(keys.get_or_create(&one, 2).unwrap() == made[1]);
        keys.destroy_before(&one, 3).unwrap();
        let left: Vec<_> = (1..=4).map(|round| keys.get(&one, round).unwrap().is_some()).collect();
        assert_eq!(left, [false, false, true, true], "{setting:?}");
        assert!(keys.get(&other, 1).unwrap() == Some(strange));
        assert!(keys.get_or_create(&one, 2).unwrap() != made[1], "a new one");
        keys.destroy_before(&one, u32::MAX).unwrap();
        assert!((1..=4).all(|round| keys.get(&one, round).unwrap().is_none()));
    }
    for folder in [memory.path().join("keys"), disk.path().join("round-keys")] {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        let files: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "the other task's");
        assert_eq!(mode(&files[0]), 0o600);
        fs::write(&files[0], b"half a key").unwrap();
        let setting = RoundKeysConfig::File { path: Some(folder.clone()) };
        let keys = round_keys::open(Some(&setting), &folder).unwrap();
        let error = keys.get(&task(2), 1).err().unwrap();
        assert!(matches!(error, RoundKeyError::Format { .. }), "{error}");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
        let error = round_keys::open(Some(&setting), &folder).err().unwrap();
        assert!(matches!(error, RoundKeyError::Permissions { .. }), "{error}");
    }
}

#[test]
fn r27_a_disk_is_not_taken_for_memory() {
    let folder = TempDir::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let setting = RoundKeysConfig::MemoryFile { path: Some(folder.path().join("keys")) };
    let error = round_keys::open(Some(&setting), folder.path()).err().unwrap();
    assert!(matches!(error, RoundKeyError::NotInMemory { .. }), "{error}");
    assert!(error.to_string().contains("memory-file"));
}

/// Every place where a key of a task could be.
fn destroyed(shelf: &Shelf, task: &Task, round: u32) -> bool {
    let (keys, _) = shelf.keys.as_ref().unwrap();
    keys.get(&task.id(), round).unwrap().is_none()
}

fn files_of(path: &Path) -> Vec<u8> {
    let wal = PathBuf::from(format!("{}-wal", path.display()));
    [fs::read(path).unwrap(), fs::read(wal).unwrap_or_default()].concat()
}

#[test]
fn r27_r6_sums_and_ids_are_in_no_file_of_the_store_and_their_key_goes_at_the_release() {
    let mut shelf = Shelf::guarded();
    let task = orphan(plain(mechanism(6, 0, &[(3, 4, 1)])));
    shelf.open(&task);
    let report = |number: u32| one_hot(task.mechanism(), 1 + number / 4, number);
    let mut bare = Shelf::sqlite();
    bare.open(&task);
    for number in 0..3 {
        let outcome = shelf.accept(&task, vec![report(number)]);
        let _ = bare.accept(&task, vec![report(number)]);
        assert_eq!(outcome.len(), 1);
    }
    let secret = id(1).0;
    assert!(contains(&files_of(&bare.path()), &secret), "without keys it is found");
    assert!(!contains(&files_of(&shelf.path()), &secret));
    let entries = shelf.store.tail(&task.id(), Seq(0), usize::MAX).unwrap();
    let plain_text = bare.store.tail(&task.id(), Seq(0), usize::MAX).unwrap();
    assert_eq!(entries.len(), plain_text.len());
    for ((_, sealed), (_, clear)) in entries.iter().zip(&plain_text) {
        assert_eq!((sealed.kind, sealed.round), (clear.kind, clear.round));
        assert_eq!(sealed.bytes.len(), clear.bytes.len() + 41, "version, nonce, tag");
        assert_eq!(sealed.bytes[0], 2);
    }
    let nonces: Vec<_> = entries.iter().map(|(_, entry)| entry.bytes[1..25].to_vec()).collect();
    assert!(nonces.iter().enumerate().all(|(i, nonce)| !nonces[..i].contains(nonce)));
    assert!(!destroyed(&shelf, &task, 1));
    let outcome = shelf.accept(&task, vec![report(3), report(4)]);
    assert_eq!(outcome.len(), 2);
    assert!(destroyed(&shelf, &task, 1) && !destroyed(&shelf, &task, 2));
    // Finished: nothing needs a key, also after a restart.
    for number in 5..12 {
        let _ = shelf.accept(&task, vec![report(number)]);
    }
    assert!((1..=4).all(|round| destroyed(&shelf, &task, round)));
    shelf.crash();
    assert_eq!(shelf.open(&task).round, None);
}

#[test]
fn r27_r36_without_the_key_the_open_round_is_discarded_and_nothing_counts_twice() {
    let mut shelf = Shelf::guarded();
    let task = orphan(plain(mechanism(6, 0, &[(3, 4, 1)])));
    let (id, mechanism) = (task.id(), Arc::new(task.mechanism().clone()));
    let report = |number: u32| one_hot(&mechanism, 1 + number / 4, number);
    shelf.open(&task);
    for number in 0..6 {
        let _ = shelf.accept(&task, vec![report(number)]);
    }
    // A reboot.
    let (keys, _) = shelf.keys.as_ref().unwrap();
    keys.destroy_before(&id, u32::MAX).unwrap();
    shelf.crash();
    let guard = shelf.guard().unwrap();
    let loss = guard.prepare(&id, &mechanism, false).unwrap();
    assert_eq!(loss, Some(Loss { round: 2, reports: 2, sums: true }));
    let entries = shelf.store.tail(&id, Seq(0), usize::MAX).unwrap();
    let kinds: Vec<_> = entries.iter().map(|(_, entry)| entry.kind).collect();
    assert_eq!(kinds, [Kind::Snapshot], "an empty one, in clear");
    // Told once.
    assert_eq!(guard.prepare(&id, &mechanism, false).unwrap(), None);
    drop(guard);
    let progress = shelf.open(&task);
    assert_eq!((progress.round, progress.count, progress.remembered), (Some(2), 0, 0));
    let _ = shelf.accept(&task, (4..8).map(report).collect());
    assert_eq!(sums(&shelf.release(&id, 2).unwrap()), hot(&mechanism, 4..8));
    // An empty round loses nothing.
    shelf.crash();
    assert_eq!(shelf.guard().unwrap().prepare(&id, &mechanism, false).unwrap(), None);
}

/// Keys on a medium that may take its time: no task is locked meanwhile, so no node waits.
struct AskedWithoutLock(Arc<dyn RoundKeys>, Arc<Database>);

impl AskedWithoutLock {
    fn look(&self) {
        let sql = "SELECT count(*) FROM (SELECT FROM incrowd_shuffler.task FOR NO KEY UPDATE SKIP LOCKED) AS free";
        assert_eq!(self.1.sql(sql), "1", "the task is locked");
    }
}

impl RoundKeys for AskedWithoutLock {
    fn get_or_create(&self, task: &TaskId, round: u32) -> Result<RoundKey, RoundKeyError> {
        self.look();
        self.0.get_or_create(task, round)
    }

    fn get(&self, task: &TaskId, round: u32) -> Result<Option<RoundKey>, RoundKeyError> {
        self.look();
        self.0.get(task, round)
    }

    fn destroy_before(&self, task: &TaskId, round: u32) -> Result<(), RoundKeyError> {
        self.look();
        self.0.destroy_before(task, round)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[test]
fn r25_a_slow_medium_keeps_no_task_of_other_nodes_locked() {
    let database = Arc::new(Database::take());
    let mut shelf = Shelf::on(database.clone());
    let (keys, folder) = shelf.keys.take().unwrap();
    shelf.keys = Some((Arc::new(AskedWithoutLock(keys, database)), folder));
    let task = orphan(plain(mechanism(12, 1, &[(3, 4, 1)])));
    shelf.open(&task);
    for number in 0..12 {
        let report = one_hot(task.mechanism(), 1 + number / 4, number);
        // Each round begins at another node.
        shelf.accept(&task, vec![report]);
        if number % 4 == 3 {
            shelf.switch();
        }
    }
    assert!(shelf.release(&task.id(), 3).is_some());
}

#[test]
fn r27_with_a_grace_window_a_lost_key_is_an_error_unless_accepted() {
    lost_keys(Shelf::guarded());
    lost_keys(Shelf::postgres());
}

fn lost_keys(mut shelf: Shelf) {
    let task = orphan(plain(mechanism(6, 1, &[(4, 4, 1)])));
    let (id, mechanism) = (task.id(), Arc::new(task.mechanism().clone()));
    shelf.open(&task);
    for number in 0..6 {
        let _ = shelf.accept(&task, vec![one_hot(&mechanism, 1 + number / 4, number)]);
    }
    let (keys, _) = shelf.keys.as_ref().unwrap();
    // The ids of round 1 could still come: its key is kept for the grace window.
    assert!(keys.get(&id, 1).unwrap().is_some());
    keys.destroy_before(&id, 2).unwrap();
    shelf.crash();
    let guard = shelf.guard().unwrap();
    let error = guard.prepare(&id, &mechanism, false).unwrap_err();
    assert!(matches!(error, StoreError::RoundKeyLost { round: 1, .. }), "{error}");
    let loss = guard.prepare(&id, &mechanism, true).unwrap();
    assert_eq!(loss, Some(Loss { round: 1, reports: 4, sums: false }));
    drop(guard);
    let progress = shelf.open(&task);
    assert_eq!((progress.round, progress.count, progress.remembered), (Some(2), 2, 2));
    counts_once(&mut shelf, &task, &one_hot(&mechanism, 1, 7));
    let (keys, _) = shelf.keys.as_ref().unwrap();
    keys.destroy_before(&id, 3).unwrap();
    shelf.crash();
    let guard = shelf.guard().unwrap();
    let error = guard.prepare(&id, &mechanism, false).unwrap_err();
    assert!(matches!(error, StoreError::RoundKeyLost { round: 2, .. }), "{error}");
    let loss = guard.prepare(&id, &mechanism, true).unwrap();
    assert_eq!(loss, Some(Loss { round: 2, reports: 3, sums: true }));
    drop(guard);
    let progress = shelf.open(&task);
    assert_eq!((progress.round, progress.count, progress.remembered), (Some(2), 0, 0));
    counts_once(&mut shelf, &task, &one_hot(&mechanism, 2, 8));
    counts_once(&mut shelf, &task, &one_hot(&mechanism, 1, 9));
    assert!(shelf.store.forget().unwrap());
    let again = shelf.accept(&task, vec![one_hot(&mechanism, 2, 8)]);
    assert!(matches!(again[..], [Outcome::Duplicate]), "{again:?}");
}

/// It counts, and not again after a restart.
fn counts_once(shelf: &mut Shelf, task: &Task, report: &Report) {
    let counted = shelf.accept(task, vec![report.clone()]);
    assert!(matches!(counted[..], [Outcome::Counted]), "{counted:?}");
    shelf.crash();
    shelf.open(task);
    let again = shelf.accept(task, vec![report.clone()]);
    assert!(matches!(again[..], [Outcome::Duplicate]), "{again:?}");
}

/// A shelf with an open round, and what opening it says after a change.
fn opened_after(change: impl FnOnce(&Shelf, &Task)) -> Result<u32, StoreError> {
    let mut shelf = Shelf::guarded();
    let task = orphan(plain(mechanism(6, 0, &[(3, 4, 1)])));
    shelf.open(&task);
    for number in 0..3 {
        let _ = shelf.accept(&task, vec![one_hot(task.mechanism(), 1, number)]);
    }
    change(&shelf, &task);
    shelf.crash();
    let (guard, mechanism) = (shelf.guard().unwrap(), Arc::new(task.mechanism().clone()));
    guard.prepare(&task.id(), &mechanism, false)?;
    let mut tasks = OpenTasks::new(guard, SigningKey::from_bytes(&[7; 32]));
    tasks.open(task.id(), mechanism).map_err(|error| match error {
        incrowd_node::store::CommitError::NotCommitted(error)
        | incrowd_node::store::CommitError::Unknown(error) => error,
    })?;
    Ok(tasks.progress(&task.id()).unwrap().count)
}

#[test]
fn r25_r27_a_wrong_key_and_a_changed_entry_are_damage_never_a_discarded_round() {
    assert_eq!(opened_after(|_, _| {}).unwrap(), 3);
    let replaced = opened_after(|shelf, task| {
        let (keys, _) = shelf.keys.as_ref().unwrap();
        keys.destroy_before(&task.id(), 2).unwrap();
        keys.get_or_create(&task.id(), 1).unwrap();
    });
    assert!(matches!(replaced, Err(StoreError::Damaged(_))), "{replaced:?}");
    // The store's own checksum is made right again, so that only the seal can notice.
    for change in [
        |entry: &mut incrowd_shuffler::Entry| *entry.bytes.last_mut().unwrap() ^= 1,
        |entry: &mut incrowd_shuffler::Entry| entry.bytes[5] ^= 1,
        |entry: &mut incrowd_shuffler::Entry| entry.bytes[0] = 1,
        |entry: &mut incrowd_shuffler::Entry| entry.bytes.truncate(20),
        |entry: &mut incrowd_shuffler::Entry| entry.bytes.clear(),
    ] {
        let changed = opened_after(|shelf, task| {
            let (id, turn) = (task.id(), shelf.store.lock(&[task.id()]).unwrap());
            let (_, mut entry) = turn.tail(&id, Seq(0), usize::MAX).unwrap().pop().unwrap();
            change(&mut entry);
            let mut head = turn.head(&id).unwrap();
            head.seq = head.seq.next();
            let mut forged = incrowd_node::store::Change::to(head);
            forged.append.push(entry);
            turn.commit(vec![(id, forged)]).unwrap();
        });
        assert!(matches!(changed, Err(StoreError::Damaged(_))), "{changed:?}");
    }
    // An entry that is moved to another commit.
    let moved = opened_after(|shelf, task| {
        let (id, turn) = (task.id(), shelf.store.lock(&[task.id()]).unwrap());
        let (_, entry) = turn.tail(&id, Seq(0), usize::MAX).unwrap().pop().unwrap();
        let mut head = turn.head(&id).unwrap();
        head.seq = head.seq.next();
        let mut forged = incrowd_node::store::Change::to(head);
        forged.append.push(entry);
        turn.commit(vec![(id, forged)]).unwrap();
    });
    assert!(matches!(moved, Err(StoreError::Damaged(_))), "{moved:?}");
}

#[test]
fn r25_a_medium_that_fails_acknowledges_nothing_and_loses_nothing() {
    let mut shelf = Shelf::guarded();
    let task = orphan(plain(mechanism(6, 0, &[(3, 4, 1)])));
    shelf.open(&task);
    let report = |number: u32| one_hot(task.mechanism(), 1 + number / 4, number);
    let _ = shelf.accept(&task, (0..4).map(report).collect());
    // The next round needs a new key.
    let (_, folder) = shelf.keys.as_ref().unwrap();
    let (path, away) = (folder.path().join("keys"), folder.path().join("away"));
    fs::rename(&path, &away).unwrap();
    let upload = || [Upload { task: task.id(), reports: vec![report(4)] }];
    assert!(shelf.tasks.accept(&upload()).is_err());
    assert!(shelf.tasks.accept(&upload()).is_err());
    fs::rename(&away, &path).unwrap();
    assert_eq!(shelf.tasks.accept(&upload()).unwrap().len(), 1);
    assert_eq!(shelf.progress(&task).count, 1);
    shelf.crash();
    assert_eq!(shelf.open(&task).count, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r27_r36_a_reboot_discards_the_open_round_and_the_service_goes_on() {
    let place = Place::new(plain(mechanism(6, 0, &[(3, 3, 1)])));
    let report = |round, number| one_hot(place.mechanism(), round, number);
    let node = place.start(Roles::Shuffler);
    for number in 0..5 {
        assert_eq!(node.put(&report(1 + number / 3, number)).await.status(), 204);
    }
    let first = node.released(1).await;
    node.stop().await;
    for entry in fs::read_dir(place.round_keys.path().join("keys")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let node = place.start(Roles::Shuffler);
    assert_eq!(node.filled().await, (Some(2), Some(0)));
    assert_eq!(node.released(1).await, first);
    assert_eq!(node.bulk(&[report(2, 3), report(2, 6), report(2, 7)]).await.0, 3);
    assert_eq!(sums(&node.released(2).await), hot(place.mechanism(), [3, 6, 7]));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r27_a_task_with_grace_does_not_start_without_its_keys() {
    let mut place = Place::new(plain(mechanism(6, 1, &[(3, 3, 1)])));
    let node = place.start(Roles::Shuffler);
    assert_eq!(node.put(&one_hot(place.mechanism(), 1, 0)).await.status(), 204);
    node.stop().await;
    place.round_keys = memory_folder().0;
    let path = Some(place.round_keys.path().join("keys"));
    place.config.shuffler.round_keys = Some(RoundKeysConfig::File { path });
    let error = incrowd_node::Node::start(&place.config, Roles::Shuffler).err().unwrap();
    let lost = matches!(error, ServiceError::Store(StoreError::RoundKeyLost { round: 1, .. }));
    assert!(lost, "{error}");
    place.config.shuffler.accept_lost_round_keys = true;
    let node = place.start(Roles::Shuffler);
    assert_eq!(node.filled().await, (Some(1), Some(0)));
    node.stop().await;
}
