//! A store whose entries are under the keys of their rounds, and whose releases are written down in
//! a second place.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::SystemTime,
};

use incrowd_protocol::{Mechanism, TaskId};
use incrowd_shuffler::{Batch, Entry};
use sha2::{Digest, Sha256};

use super::{RoundKey, RoundKeyError, RoundKeys, seal};
use crate::{
    heads::{Heads, WentBack, Witnessed},
    store::{
        Change, CommitError, Head, Log, Seq, Shared, ShufflerStore, SignedRelease, StoreError,
        TaskState, Turn,
    },
};

/// Bytes of a log that are read at once.
const CHUNK: usize = 16 << 20;

const BANDIT: &str = "the bandit";

/// What was discarded because the key of a round is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The newest round whose key is gone.
    pub round: u32,
    /// Acknowledged reports that were made for it or an earlier round, and are forgotten.
    pub reports: usize,
    /// Whether the sums of the open round are gone: it begins anew.
    pub sums: bool,
}

/// A store that seals what is appended under the key of the entry's round, opens what is read, and
/// destroys keys that no entry needs.
///
/// Ids are under the key of the round their reports were made for, sums under that of the round
/// being filled. After a commit that drops the ids of earlier rounds their keys are destroyed: at a
/// release, for the rounds before the grace window.
///
/// # Privacy
/// Whoever reads the medium of the store, or what it kept of deleted blocks, reads nothing of a
/// round whose key is destroyed, and nothing of an open one without the keys' medium.
pub struct GuardedStore {
    store: Arc<dyn ShufflerStore>,
    keys: Arc<dyn RoundKeys>,
    /// Keys that were used.
    cache: Mutex<HashMap<TaskId, BTreeMap<u32, RoundKey>>>,
    /// Keys of earlier rounds are still to be destroyed.
    owed: Mutex<BTreeMap<TaskId, u32>>,
    /// Changes that may or may not be durable, and up to which round they make keys unneeded.
    uncertain: Mutex<Vec<(TaskId, Head, u32)>>,
    heads: Mutex<Heads>,
    /// A release that somebody has seen and the store does not have: nothing is committed any more.
    missing: OnceLock<Box<WentBack>>,
    /// Of tasks in a store that other nodes use too: the mechanism, and the server on which the
    /// last release that this node knows was found.
    elsewhere: Mutex<HashMap<TaskId, Elsewhere>>,
    /// Whoever looks if the medium has the keys.
    checking: Mutex<()>,
}

#[derive(Clone)]
struct Elsewhere {
    mechanism: Arc<Mechanism>,
    incarnation: u64,
    /// Whether it was noticed that the task has ended here.
    ended: bool,
}

impl GuardedStore {
    /// Guards a store.
    pub fn new(store: Arc<dyn ShufflerStore>, keys: Arc<dyn RoundKeys>, heads: Heads) -> Self {
        Self {
            store,
            keys,
            cache: Mutex::default(),
            owed: Mutex::default(),
            uncertain: Mutex::default(),
            heads: Mutex::new(heads),
            missing: OnceLock::new(),
            elsewhere: Mutex::default(),
            checking: Mutex::default(),
        }
    }

    /// Makes sure that all nodes that use the store have the same medium of round keys: one with
    /// another medium would take the others' reports for lost. `service` names the shuffler, since
    /// several may have one medium. With `accept` the medium is another one from now on.
    pub fn share_keys(&self, service: &TaskId, accept: bool) -> Result<(), StoreError> {
        let Some(shared) = self.store.shared() else { return Ok(()) };
        // Round 0 is none: its key is never destroyed by a release.
        let mark = self.keys.get_or_create(service, 0)?;
        let mark = Sha256::digest([b"incrowd/round-keys/v1\0", mark.bytes().as_slice()].concat());
        if shared.agree("round-keys", &mark, accept)? == mark.as_slice() {
            return Ok(());
        }
        Err(StoreError::OtherNodes {
            what: "the medium of round keys",
            rule: "all nodes of a database need the same one outside of it (shuffler.round_keys: a shared folder or a command). If the medium is lost for all of them, for example by a reboot, accept with shuffler.accept_lost_round_keys = true that the unfinished batches are discarded",
        })
    }

    /// Holds the store against a release that the bandit has seen. If it does not have that, it
    /// went back in time, and from now on commits nothing.
    pub fn witness(&self, task: &TaskId, seen: Witnessed) -> Result<(), StoreError> {
        self.compare(task, seen, BANDIT)
    }

    /// Whether somebody has seen a release that the store does not have.
    pub fn went_back(&self) -> bool {
        self.missing.get().is_some()
    }

    /// Whether the medium still has the keys that are in use: without one of them the next start
    /// would discard acknowledged reports.
    pub fn check_keys(&self) -> Result<(), StoreError> {
        // A medium that does not answer must not get more and more questions.
        let _one = self.checking.try_lock().map_err(|_| RoundKeyError::Silent)?;
        let used: Vec<_> = lock(&self.cache)
            .iter()
            .flat_map(|(task, keys)| keys.iter().map(|(round, key)| (*task, *round, key.clone())))
            .collect();
        for (task, round, key) in used {
            let found = self.keys.get(&task, round)?;
            if found != Some(key) && self.needs(&task, round)? {
                return Err(StoreError::RoundKeyLost { task, round });
            }
        }
        Ok(())
    }

    /// Whether a key is still in use. It may be destroyed by now, because its round is over, also
    /// by another node.
    fn needs(&self, task: &TaskId, round: u32) -> Result<bool, StoreError> {
        self.observe(task)?;
        Ok(lock(&self.cache).get(task).is_some_and(|keys| keys.contains_key(&round)))
    }

    /// Whether the store still has what this node knows of a task's releases. Whether there is
    /// something that it does not know yet.
    fn check(&self, task: &TaskId, head: Head) -> Result<bool, StoreError> {
        let Some(ended) = lock(&self.elsewhere).get(task).map(|of| of.ended) else {
            return Ok(false);
        };
        let (known, seen) = (lock(&self.heads).get(task), last_of(head));
        if let Some(known) = known
            && seen.is_none_or(|seen| seen.round <= known.round)
            && seen != Some(known)
        {
            self.compare(task, known, "this node")?;
            return Ok(false);
        }
        Ok(seen != known || ended != (head.state != TaskState::Open))
    }

    /// Takes note of where another node may have brought a task: what it released is remembered,
    /// and keys that no entry needs any more are forgotten here too. Only of what is as durable as
    /// a commit of this node's own: a server that takes over may not have more.
    fn observe(&self, task: &TaskId) -> Result<Head, StoreError> {
        let incarnation = self.store.incarnation();
        let head = self.store.head(task)?;
        if !self.check(task, head)? {
            return Ok(head);
        }
        let Some(Elsewhere { mechanism, .. }) = lock(&self.elsewhere).get(task).cloned() else {
            return Ok(head);
        };
        self.confirm(incarnation)?;
        if let Some(seen) = last_of(head) {
            lock(&self.heads).learn(*task, seen);
        }
        let oldest = oldest(&mechanism, head);
        self.owe(*task, oldest);
        if let Some(keys) = lock(&self.cache).get_mut(task) {
            keys.retain(|of, _| *of >= oldest);
        }
        if let Some(of) = lock(&self.elsewhere).get_mut(task) {
            of.ended = head.state != TaskState::Open;
        }
        Ok(head)
    }

    /// Waits until what was read from a store that other nodes use too is durable there.
    fn confirm(&self, read_from: u64) -> Result<(), StoreError> {
        let Some(shared) = self.store.shared() else { return Ok(()) };
        shared.confirm()?;
        if self.store.incarnation() == read_from { Ok(()) } else { Err(StoreError::Unreachable) }
    }

    /// Caches the keys that a commit may need, of the open round and the next one, so that the
    /// medium is not asked while a task is locked for other nodes.
    fn fetch_keys(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        for task in tasks {
            let Some(of) = lock(&self.elsewhere).get(task).filter(|of| !of.ended).cloned() else {
                continue;
            };
            let open = lock(&self.heads).get(task).map_or(0, |last| last.round) + 1;
            for round in [open, open + 1] {
                if of.mechanism.round(round).is_ok() && self.key(task, round)?.is_none() {
                    let key = self.keys.get_or_create(task, round)?;
                    self.keep(task, round, &key);
                }
            }
        }
        Ok(())
    }

    /// Keys of earlier rounds of a task are to be destroyed.
    fn owe(&self, task: TaskId, round: u32) {
        let mut owed = lock(&self.owed);
        let known = owed.entry(task).or_default();
        *known = round.max(*known);
    }

    /// After another server has begun to answer: whether it has the last release of each task.
    fn recognise(&self, tasks: &[TaskId]) -> Result<u64, StoreError> {
        let incarnation = self.store.incarnation();
        for task in tasks {
            let last = lock(&self.elsewhere).get(task).cloned();
            if last.is_none_or(|last| last.incarnation == incarnation) {
                continue;
            }
            let known = lock(&self.heads).get(task);
            if let Some(known) = known {
                self.compare(task, known, "this node")?;
            }
            if let Some(of) = lock(&self.elsewhere).get_mut(task) {
                of.incarnation = incarnation;
            }
        }
        Ok(incarnation)
    }

    /// Holds the store against a release that somebody has seen.
    fn compare(&self, task: &TaskId, seen: Witnessed, witness: &str) -> Result<(), StoreError> {
        let checked = seen.check(&*self.store, task, witness);
        if let Err(StoreError::WentBack(error)) = &checked
            && self.missing.set(error.clone()).is_ok()
        {
            tracing::error!(%error, "nothing is counted or released any more");
        }
        checked
    }

    fn has_its_history(&self) -> Result<(), StoreError> {
        self.missing.get().map_or(Ok(()), |error| Err(StoreError::WentBack(error.clone())))
    }

    /// Commits that were acknowledged and that the store of a task does not have: its log was cut
    /// or damaged, or an older one was put in its place.
    pub fn lost_commits(&self, task: &TaskId) -> Result<u64, StoreError> {
        let noted = self.keys.noted_commit(task).map_or(0, |noted| noted.0);
        Ok(noted.saturating_sub(self.store.head(task)?.seq.0))
    }

    /// Before a task is opened: refuses a store that went back in time, destroys keys that a crash
    /// left, and discards what no key opens any more.
    ///
    /// Without a grace window the ids of the open round are lost together with its sums, so nothing
    /// can count twice. With one, ids of released rounds are lost too: that must be accepted.
    pub fn prepare(
        &self,
        task: &TaskId,
        mechanism: &Arc<Mechanism>,
        accept_loss: bool,
    ) -> Result<Option<Loss>, StoreError> {
        let incarnation = self.store.incarnation();
        let head = self.store.open(task)?;
        head.state.is_here(task)?;
        lock(&self.heads).check(&*self.store, task)?;
        // What another node released must not be taken back by a standby.
        self.confirm(incarnation)?;
        let oldest = oldest(mechanism, head);
        self.keys.destroy_before(task, oldest)?;
        // None, if the task is over.
        let lost = || self.lost(task, oldest..=head.round, head.round);
        let mut loss = lost()?;
        if self.store.shared().is_some() {
            if loss.is_some() {
                // Another node may have made the key between the two looks, for keys and entries.
                loss = lost()?;
            }
            let incarnation = self.store.incarnation();
            let of = Elsewhere { mechanism: mechanism.clone(), incarnation, ended: false };
            lock(&self.elsewhere).insert(*task, of);
        }
        if let Some(Loss { round, .. }) = loss {
            // Other nodes may have the key.
            let must_be_accepted = mechanism.grace() > 0 || self.store.shared().is_some();
            if must_be_accepted && !accept_loss {
                return Err(StoreError::RoundKeyLost { task: *task, round });
            }
            self.discard(task, mechanism, head, round)?;
        }
        let mut heads = lock(&self.heads);
        if let Some(last) = last_of(head) {
            heads.learn(*task, last);
        }
        heads.save()?;
        Ok(loss)
    }

    /// What of a task's log no key opens.
    fn lost(
        &self,
        task: &TaskId,
        rounds: impl IntoIterator<Item = u32>,
        filling: u32,
    ) -> Result<Option<Loss>, StoreError> {
        let mut missing = BTreeSet::new();
        for round in rounds {
            if self.key(task, round)?.is_none() {
                missing.insert(round);
            }
        }
        let (mut seq, mut loss) = (Seq(0), None);
        while !missing.is_empty() {
            let entries = self.store.tail(task, seq, CHUNK)?;
            let Some((last, _)) = entries.last() else { break };
            seq = *last;
            for (_, entry) in &entries {
                if missing.contains(&entry.round) && !seal::is_clear(entry) {
                    let found = loss.get_or_insert(Loss { round: 0, reports: 0, sums: false });
                    found.round = found.round.max(entry.round);
                    found.reports += seal::ids(entry);
                    found.sums |= entry.round == filling;
                }
            }
        }
        Ok(loss)
    }

    /// Drops what was made for a round and those before it. If it is the open one it begins anew.
    fn discard(
        &self,
        task: &TaskId,
        mechanism: &Arc<Mechanism>,
        head: Head,
        round: u32,
    ) -> Result<(), StoreError> {
        let mut change = Change::to(Head { seq: head.seq.next(), ..head });
        change.drop_ids_before = round.saturating_add(1);
        if round == head.round {
            let empty = Batch::new(mechanism.clone()).snapshot();
            change.append.push(Entry { round, ..empty });
            change.drop_sums_before = change.head.seq;
        }
        let turn = self.store.lock(&[*task])?;
        Ok(turn.commit(vec![(*task, change)])?)
    }

    /// The key of a round, if there is one.
    fn key(&self, task: &TaskId, round: u32) -> Result<Option<RoundKey>, StoreError> {
        if let Some(key) = lock(&self.cache).get(task).and_then(|keys| keys.get(&round)) {
            return Ok(Some(key.clone()));
        }
        let found = self.keys.get(task, round)?;
        if let Some(key) = &found {
            self.keep(task, round, key);
        }
        Ok(found)
    }

    fn keep(&self, task: &TaskId, round: u32, key: &RoundKey) {
        lock(&self.cache).entry(*task).or_default().insert(round, key.clone());
    }

    fn seal(&self, task: &TaskId, change: &mut Change) -> Result<(), StoreError> {
        for entry in &mut change.append {
            if seal::is_clear(entry) {
                continue;
            }
            let round = entry.round;
            let key = match self.key(task, round)? {
                Some(key) => key,
                None => {
                    let key = self.keys.get_or_create(task, round)?;
                    self.keep(task, round, &key);
                    key
                }
            };
            seal::seal(&key, task, change.head.seq, entry)?;
        }
        Ok(())
    }

    fn open_all(
        &self,
        task: &TaskId,
        mut entries: Vec<(Seq, Entry)>,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        for (seq, entry) in &mut entries {
            if seal::is_clear(entry) {
                continue;
            }
            let (task_id, round) = (*task, entry.round);
            let lost = || StoreError::RoundKeyLost { task: task_id, round };
            let key = self.key(task, round)?.ok_or_else(lost)?;
            seal::open(&key, task, *seq, entry)?;
        }
        Ok(entries)
    }

    /// Destroys the keys that no entry needs any more. Nobody who commits waits for that.
    fn destroy(&self) -> Result<(), StoreError> {
        let uncertain = std::mem::take(&mut *lock(&self.uncertain));
        let mut destroyed = Ok(());
        if !uncertain.is_empty()
            && let Err(error) = self.decide(&uncertain)
        {
            lock(&self.uncertain).extend(uncertain);
            destroyed = Err(error);
        }
        let owed = std::mem::take(&mut *lock(&self.owed));
        for (task, round) in owed {
            if let Some(keys) = lock(&self.cache).get_mut(&task) {
                keys.retain(|of, _| *of >= round);
            }
            if let Err(error) = self.keys.destroy_before(&task, round) {
                self.owe(task, round);
                destroyed = Err(error.into());
            }
        }
        destroyed
    }

    /// Which changes are durable of those of which that was not known.
    fn decide(&self, uncertain: &[(TaskId, Head, u32)]) -> Result<(), StoreError> {
        let incarnation = self.store.incarnation();
        let heads = uncertain.iter().map(|(task, ..)| self.store.head(task));
        let heads = heads.collect::<Result<Vec<_>, _>>()?;
        self.confirm(incarnation)?;
        for ((task, head, round), now) in uncertain.iter().zip(heads) {
            // Rounds only grow. If another commit began this one, its limit is the same.
            let happened = match head.state {
                TaskState::Open | TaskState::Moving | TaskState::Moved => now.round >= head.round,
                TaskState::Closed => now.state == TaskState::Closed,
            };
            if happened {
                self.owe(*task, *round);
            }
        }
        Ok(())
    }
}

impl Log for GuardedStore {
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        self.observe(task)
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        self.open_all(task, self.store.tail(task, after, max_bytes)?)
    }

    fn now(&self) -> SystemTime {
        self.store.now()
    }

    fn incarnation(&self) -> u64 {
        self.store.incarnation()
    }
}

impl ShufflerStore for GuardedStore {
    fn open(&self, task: &TaskId) -> Result<Head, StoreError> {
        self.store.open(task)
    }

    fn lock<'a>(&'a self, tasks: &[TaskId]) -> Result<Box<dyn Turn + 'a>, StoreError> {
        self.has_its_history()?;
        // A release whose head is not written down must not become visible.
        lock(&self.heads).save()?;
        self.fetch_keys(tasks)?;
        let incarnation = self.recognise(tasks)?;
        let turn = self.store.lock(tasks)?;
        if turn.incarnation() != incarnation {
            return Err(StoreError::Unreachable);
        }
        Ok(Box::new(GuardedTurn { turn, store: self }))
    }

    fn release(&self, task: &TaskId, round: u32) -> Result<Option<SignedRelease>, StoreError> {
        self.store.release(task, round)
    }

    fn forget(&self) -> Result<bool, StoreError> {
        let destroyed = self.destroy();
        let forgotten = self.store.forget()?;
        destroyed.map(|()| forgotten)
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.has_its_history()?;
        self.store.check_writable()
    }

    fn tasks(&self) -> Result<Vec<(TaskId, Head)>, StoreError> {
        self.store.tasks()
    }

    fn purge(&self, task: &TaskId) -> Result<bool, StoreError> {
        self.store.purge(task)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        self.store.shared()
    }
}

struct GuardedTurn<'a> {
    turn: Box<dyn Turn + 'a>,
    store: &'a GuardedStore,
}

impl Log for GuardedTurn<'_> {
    /// Nothing is learned from it yet: others wait.
    fn head(&self, task: &TaskId) -> Result<Head, StoreError> {
        let head = self.turn.head(task)?;
        self.store.check(task, head)?;
        Ok(head)
    }

    fn tail(
        &self,
        task: &TaskId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<(Seq, Entry)>, StoreError> {
        self.store.open_all(task, self.turn.tail(task, after, max_bytes)?)
    }

    fn now(&self) -> SystemTime {
        self.turn.now()
    }

    fn incarnation(&self) -> u64 {
        self.turn.incarnation()
    }
}

impl Turn for GuardedTurn<'_> {
    fn commit(self: Box<Self>, mut changes: Vec<(TaskId, Change)>) -> Result<(), CommitError> {
        let Self { turn, store } = *self;
        // Releases to write down; rounds whose keys nothing needs afterwards.
        let (mut witnessed, mut unneeded) = (Vec::new(), Vec::new());
        for (task, change) in &mut changes {
            store.seal(task, change)?;
            let Head { round, last, .. } = change.head;
            let last = last.filter(|_| !change.releases.is_empty());
            witnessed.extend(last.map(|release| (*task, Witnessed { round: round - 1, release })));
            if change.drop_ids_before > 0 {
                unneeded.push((*task, change.head, change.drop_ids_before));
            }
        }
        let commits: Vec<_> = changes.iter().map(|(task, to)| (*task, to.head)).collect();
        if let Err(error) = turn.commit(changes) {
            if matches!(error, CommitError::Unknown(_)) {
                lock(&store.uncertain).extend(unneeded);
            }
            return Err(error);
        }
        for (task, head) in commits {
            store.keys.note_commit(&task, head.seq);
            if let Some(of) = lock(&store.elsewhere).get_mut(&task) {
                of.ended = head.state != TaskState::Open;
            }
        }
        unneeded.into_iter().for_each(|(task, _, round)| store.owe(task, round));
        let mut heads = lock(&store.heads);
        witnessed.into_iter().for_each(|(task, last)| heads.learn(task, last));
        // Before anybody can see the releases. The commit itself is durable, which a retry tells.
        heads.save().map_err(CommitError::Unknown)?;
        drop(heads);
        // What fails here is tried again when the store forgets, and told there.
        let _ = store.destroy();
        Ok(())
    }
}

/// The last release before a head.
fn last_of(head: Head) -> Option<Witnessed> {
    head.last.map(|release| Witnessed { round: head.round - 1, release })
}

/// The oldest round whose key something in the log of a task needs.
fn oldest(mechanism: &Mechanism, head: Head) -> u32 {
    if head.state == TaskState::Closed || mechanism.round(head.round).is_err() {
        return u32::MAX;
    }
    head.round.saturating_sub(mechanism.grace()).max(1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
