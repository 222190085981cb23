//! One open task: its batch in memory, and what of it is in the log.

use std::{collections::BTreeMap, sync::Arc};

use incrowd_envelope::{Document, SigningKey};
use incrowd_protocol::{BatchSums, Closes, Mechanism, Release, Report, TaskId};
use incrowd_shuffler::{Batch, IdsEntry, Kind, Outcome, Refusal, Written};

use super::{
    Progress,
    windows::{check_open, close_due, due, open_round},
};
use crate::store::{Change, Head, Log, ReleaseHash, SignedRelease, StoreError, TaskState};

/// Bytes of a log that are read at once.
const CHUNK: usize = 16 << 20;
/// Bytes of deltas after which a snapshot is written, if it is not larger itself. A restart reads
/// at most about twice that, and the ids.
const DELTAS: usize = 64 << 10;

pub(super) struct OpenTask {
    pub id: TaskId,
    pub mechanism: Arc<Mechanism>,
    /// None if it must be read from the log.
    pub state: Option<State>,
}

/// A task as of commit `head.seq`.
pub(super) struct State {
    pub head: Head,
    /// None when the task is closed.
    batch: Option<Batch>,
    written: Written,
    /// The server that it was read from.
    incarnation: u64,
    /// Bytes of the last snapshot, and of the deltas since.
    pub snapshot: usize,
    pub deltas: usize,
}

/// What a group of reports changes in a task.
#[derive(Default)]
pub(super) struct Additions {
    /// Counted ids by the round they were made for.
    pub ids: BTreeMap<u32, IdsEntry>,
    releases: Vec<(u32, SignedRelease)>,
    /// Whether to commit although nothing may have changed: a surplus or repeated report of a
    /// round that closes by time is answered after the same steps as one that counts, so that
    /// the time of the answer tells nothing. And where other nodes commit too, what a repeated
    /// report's answer relies on may not be durable yet.
    always: bool,
}

impl Additions {
    /// Whether there is something to commit.
    pub fn commits(&self) -> bool {
        self.always || !self.ids.is_empty() || !self.releases.is_empty()
    }

    /// Commits also where a report came again: what its answer relies on was another node's commit.
    pub fn confirm(&mut self, outcomes: &[Outcome]) {
        let repeated = |outcome| matches!(outcome, &Outcome::Surplus | &Outcome::Duplicate);
        self.always |= outcomes.iter().any(repeated);
    }

    /// Adds a release, signed, which follows the last one.
    fn release(
        &mut self,
        task: &TaskId,
        last: Option<ReleaseHash>,
        sums: BatchSums,
        signing: &SigningKey,
    ) {
        let previous = self.releases.last().map(|(_, last)| ReleaseHash::of(&last.body));
        let (round, previous) = (sums.round(), previous.or(last));
        let release = Release::new(sums, previous)
            .expect("invariant: the head has the last release, and there is one");
        let body = serde_json::to_vec(&release)
            .expect("invariant: sums are numbers, which can always be written");
        let signed = SignedRelease::new(body, signing, Document::Release, task);
        self.releases.push((round, signed));
    }
}

impl OpenTask {
    /// Whether a round's time is over, or that must be read from the log.
    pub fn is_due(&self, milliseconds: u64) -> bool {
        matches!(self.mechanism.closes(), Closes::Time { .. })
            && self.state.as_ref().is_none_or(|state| {
                state.batch.is_some() && due(&self.mechanism, state.head.round, milliseconds) > 0
            })
    }

    /// Brings the state to the end of the log. What is read without the lock may be behind again at
    /// once.
    pub fn catch_up(&mut self, log: &dyn Log) -> Result<(), StoreError> {
        let incarnation = log.incarnation();
        let head = log.head(&self.id)?;
        head.state.is_here(&self.id).inspect_err(|_| self.state = None)?;
        match &self.state {
            // What is in memory may be of a history that this server does not have.
            Some(state) if state.incarnation != incarnation => {
                let (task, before) = (self.id, state.head.seq.0);
                if before > head.seq.0 {
                    let commits = before - head.seq.0;
                    tracing::error!(%task, commits, "the database does not have the last commits, whose reports were acknowledged: a standby without them has taken over. Those reports are lost, and none counts twice");
                }
                self.state = None;
            }
            Some(state) if state.head == head => return Ok(()),
            Some(state) if state.head.seq > head.seq => {
                let (seq, last) = (state.head.seq.0, head.seq.0);
                return Err(StoreError::Damaged(format!(
                    "it went back from commit {seq} to {last}"
                )));
            }
            _ => {}
        }
        // After an error there is no state.
        let before = self.state.take();
        let mut state = before.unwrap_or_else(|| State::new(self.mechanism.clone(), incarnation));
        state.read(log, &self.id, head)?;
        self.state = Some(state);
        Ok(())
    }
}

impl State {
    fn new(mechanism: Arc<Mechanism>, incarnation: u64) -> Self {
        let batch = Batch::new(mechanism);
        let mut written = Written::default();
        written.update(&batch);
        let (head, batch) = (Head::default(), Some(batch));
        Self { head, batch, written, incarnation, snapshot: 0, deltas: 0 }
    }

    /// Reads what was appended since, and at least up to `head`.
    fn read(&mut self, log: &dyn Log, task: &TaskId, head: Head) -> Result<(), StoreError> {
        let mut seq = self.head.seq;
        if head.state == TaskState::Closed {
            self.batch = None;
        }
        if let Some(batch) = &mut self.batch {
            loop {
                let entries = log.tail(task, seq, CHUNK)?;
                let Some((last, _)) = entries.last() else { break };
                seq = *last;
                for (_, entry) in &entries {
                    batch.advance(entry)?;
                    match entry.kind {
                        Kind::Ids => {}
                        Kind::Delta => self.deltas += entry.bytes.len(),
                        Kind::Snapshot => (self.snapshot, self.deltas) = (entry.bytes.len(), 0),
                    }
                }
                // What comes later is read next time: who commits all the time keeps nobody here.
                if seq >= head.seq {
                    break;
                }
            }
            batch.settle()?;
            // Others may have committed since the head was read; then it is checked next time.
            if seq <= head.seq && batch.next_round() != head.round {
                let rule = format!("its log ends in round {}", batch.next_round());
                return Err(StoreError::Damaged(format!("{rule}, its head in {}", head.round)));
            }
            self.written.update(batch);
        }
        self.head = Head { seq: head.seq.max(seq), ..head };
        Ok(())
    }

    pub fn progress(&self, mechanism: &Mechanism) -> Progress {
        let batch = self.batch.as_ref();
        let round = batch.and_then(Batch::round).map(|round| round.number);
        Progress {
            round,
            window: round.and_then(|round| mechanism.window(round).ok().flatten()),
            count: batch.map_or(0, Batch::count),
            remembered: batch.map_or(0, Batch::remembered),
            closed: batch.is_none(),
        }
    }

    /// Closes the rounds whose time is over, as many as a commit may have. After an error the
    /// state must be dropped.
    pub fn close_rounds(
        &mut self,
        task: &TaskId,
        mechanism: &Mechanism,
        milliseconds: u64,
        added: &mut Additions,
        signing: &SigningKey,
    ) -> Result<(), StoreError> {
        let last = self.head.last;
        let Some(batch) = &mut self.batch else { return Ok(()) };
        let release = |sums| added.release(task, last, sums, signing);
        Ok(close_due(mechanism, batch, milliseconds, release)?)
    }

    /// Counts reports that arrived at this time.
    pub fn count(
        &mut self,
        task: &TaskId,
        mechanism: &Mechanism,
        milliseconds: u64,
        reports: &[Report],
        added: &mut Additions,
        signing: &SigningKey,
    ) -> Vec<Outcome> {
        let last = self.head.last;
        let Some(batch) = &mut self.batch else {
            return vec![Outcome::Refused(Refusal::Finished); reports.len()];
        };
        let head = batch.round().map(|round| round.number);
        let open = open_round(mechanism, head, milliseconds);
        let count = |report: &Report| {
            if let Some(open) = open
                && let Err(refusal) = check_open(open, report.round())
            {
                return Outcome::Refused(refusal);
            }
            let mut outcome = batch.accept(report);
            if let Some(sums) = outcome.take_release() {
                added.release(task, last, sums, signing);
            }
            match outcome {
                Outcome::Counted => {
                    added.ids.entry(report.round()).or_default().push(report.id());
                }
                Outcome::Surplus | Outcome::Duplicate => added.always |= open.is_some(),
                Outcome::Released(_) | Outcome::Refused(_) => {}
            }
            outcome
        };
        reports.iter().map(count).collect()
    }

    /// What to commit after a group, and the head that it leads to.
    pub fn change(&mut self, added: Additions) -> Change {
        let batch = self.batch.as_ref().expect("invariant: a closed task counts nothing");
        self.head.seq = self.head.seq.next();
        self.head.round = batch.next_round();
        if let Some((_, release)) = added.releases.last() {
            self.head.last = Some(ReleaseHash::of(&release.body));
        }
        let mut change = Change::to(self.head);
        let delta = batch.delta(&self.written);
        let room = DELTAS.max(self.snapshot);
        match delta.filter(|delta| self.deltas + delta.bytes.len() <= room) {
            Some(delta) => {
                self.deltas += delta.bytes.len();
                change.append.push(delta);
            }
            None => self.append_snapshot(&mut change),
        }
        let oldest = self.batch.as_ref().map_or(u32::MAX, Batch::oldest_remembered);
        let ids = added.ids.into_iter().filter(|(round, _)| *round >= oldest);
        change.append.extend(ids.map(|(round, ids)| ids.into_entry(round)));
        if !added.releases.is_empty() {
            change.drop_ids_before = oldest;
        }
        change.releases = added.releases;
        change
    }

    /// A snapshot in place of the deltas, if there are any.
    pub fn compaction(&mut self) -> Option<Change> {
        if self.deltas == 0 || self.batch.is_none() {
            return None;
        }
        self.head.seq = self.head.seq.next();
        let mut change = Change::to(self.head);
        self.append_snapshot(&mut change);
        Some(change)
    }

    fn append_snapshot(&mut self, change: &mut Change) {
        let batch = self.batch.as_ref().expect("invariant: a closed task has no sums");
        let snapshot = batch.snapshot();
        (self.snapshot, self.deltas) = (snapshot.bytes.len(), 0);
        change.append.push(snapshot);
        change.drop_sums_before = change.head.seq;
    }

    /// The last change is durable.
    pub fn committed(&mut self) {
        if let Some(batch) = &self.batch {
            self.written.update(batch);
        }
    }
}
