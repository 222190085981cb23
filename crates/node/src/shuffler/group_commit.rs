//! Group commit: one thread takes the uploads that have arrived, commits them in one step, and only
//! then answers. It also closes rounds when their time is over, and takes note of what other nodes
//! commit to the same tasks.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use incrowd_protocol::{Task, TaskId};
use incrowd_shuffler::Outcome;
use tokio::sync::{oneshot, watch};

use super::{
    open_tasks::{OpenTasks, Progress, Upload},
    windows::{Watch, due, milliseconds},
};
use crate::{
    Metrics,
    problem::{Kind, kind_of},
    readiness::RecentFailure,
    store::{CommitError, StoreError},
};

/// Requests that may wait for a commit; more are answered [`Busy`].
const LENGTH: usize = 4096;
/// Reports after which a commit begins even if more are waiting.
const GROUP: usize = 50_000;
/// Idle time after which deltas and the write-ahead log are dropped.
const IDLE: Duration = Duration::from_millis(200);
/// Longest time between two such drops under load, and the pause after one that failed.
const FORGET: Duration = Duration::from_secs(2);
/// How often a commit is tried again that was in the way of another one.
const RETRIES: u32 = 3;

enum Job {
    Upload(Upload, oneshot::Sender<Result<Vec<Outcome>, Busy>>),
    /// Asks what other nodes have committed.
    Refresh(oneshot::Sender<Result<(), Busy>>),
    Close(TaskId, oneshot::Sender<Result<(), Busy>>),
    CheckWritable(oneshot::Sender<Result<(), Busy>>, Checking),
    Stop,
}

/// The one question at a time whether the store can be written. Dropped when it is answered, and
/// with a job that does not reach the thread.
struct Checking(Arc<AtomicBool>);

impl Checking {
    /// None while there is another one.
    fn begin(flag: &Arc<AtomicBool>) -> Option<Self> {
        (!flag.swap(true, Relaxed)).then(|| Self(flag.clone()))
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Nothing is acknowledged: the store failed, or too much is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy;

/// A task's progress as the last commit left it.
pub(crate) type Watched = HashMap<TaskId, (Arc<Task>, watch::Sender<Progress>)>;

/// Where reports wait for their commit.
pub(crate) struct GroupCommit {
    jobs: SyncSender<Job>,
    metrics: Arc<Metrics>,
    /// When reports could last not be committed.
    failed: Arc<RecentFailure>,
    /// Whether the store is being asked if it can be written.
    checking: Arc<AtomicBool>,
}

impl GroupCommit {
    /// Starts the thread that owns the open tasks. It ends after [`GroupCommit::stop`].
    pub fn start(
        open: OpenTasks,
        tasks: Watched,
        metrics: Arc<Metrics>,
        release_delay: u64,
    ) -> (Self, JoinHandle<()>) {
        let (jobs, waiting) = mpsc::sync_channel(LENGTH);
        let forgot = Instant::now();
        let clock = Watch::new(open.now());
        let (remains, failing) = (true, false);
        let failed = Arc::new(RecentFailure::default());
        let commits = Self {
            jobs,
            metrics: metrics.clone(),
            failed: failed.clone(),
            checking: Arc::default(),
        };
        let writer =
            Writer { open, tasks, metrics, release_delay, clock, forgot, remains, failing, failed };
        let thread = thread::spawn(move || writer.run(&waiting));
        (commits, thread)
    }

    /// Counts reports; answers when the outcome is durable.
    pub async fn accept(&self, upload: Upload) -> Result<Vec<Outcome>, Busy> {
        let (task, number) = (upload.task, upload.reports.len() as u64);
        let (reply, answer) = oneshot::channel();
        if self.send(Job::Upload(upload, reply)).is_err() {
            self.metrics.outcomes(&task, Kind::Unavailable.name()).inc_by(number);
            return Err(Busy);
        }
        answer.await.unwrap_or(Err(Busy))
    }

    /// Takes note of what other nodes have committed.
    pub async fn refresh(&self) -> Result<(), Busy> {
        self.ask(Job::Refresh).await
    }

    /// Ends a task.
    pub async fn close(&self, task: TaskId) -> Result<(), Busy> {
        self.ask(|reply| Job::Close(task, reply)).await
    }

    /// Whether a report could be stored now. While one such question waits for the store there is
    /// no second one.
    pub async fn check_writable(&self) -> Result<(), Busy> {
        let checking = Checking::begin(&self.checking).ok_or(Busy)?;
        self.ask(|reply| Job::CheckWritable(reply, checking)).await
    }

    /// Whether reports could not be committed a moment ago. A small commit that works does not
    /// show that a large one would.
    pub fn failed_lately(&self) -> bool {
        self.failed.is_recent()
    }

    /// Ends the thread after what is waiting.
    pub fn stop(&self) {
        // Fails only if the thread has ended.
        self.metrics.commit_queue().inc();
        let _ = self.jobs.send(Job::Stop);
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, Busy>>) -> Job,
    ) -> Result<T, Busy> {
        let (reply, answer) = oneshot::channel();
        self.send(job(reply))?;
        answer.await.unwrap_or(Err(Busy))
    }

    fn send(&self, job: Job) -> Result<(), Busy> {
        // Before the thread can take it out.
        self.metrics.commit_queue().inc();
        self.jobs.try_send(job).map_err(|_| {
            self.metrics.commit_queue().dec();
            Busy
        })
    }
}

struct Writer {
    open: OpenTasks,
    tasks: Watched,
    metrics: Arc<Metrics>,
    /// Milliseconds from the closing of a round until its release is shown.
    release_delay: u64,
    clock: Watch,
    /// When deltas and the write-ahead log were last dropped, or could not be.
    forgot: Instant,
    /// Whether there is something to drop.
    remains: bool,
    failing: bool,
    failed: Arc<RecentFailure>,
}

impl Writer {
    fn run(mut self, waiting: &Receiver<Job>) {
        loop {
            let wait = self.close_rounds();
            match waiting.recv_timeout(wait) {
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(job) => {
                    if !self.group(job, waiting) {
                        break;
                    }
                    if self.forgot.elapsed() > FORGET {
                        self.forget();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    // A store that fails is not asked five times a second, and a round whose time
                    // is over is closed first.
                    if (!self.failing && wait == IDLE) || self.forgot.elapsed() > FORGET {
                        match self.refresh() {
                            Ok(()) => self.forget(),
                            Err(Busy) => self.forgot = Instant::now(),
                        }
                    }
                }
            }
        }
        self.forget();
    }

    /// Closes rounds whose time is over, as many as one commit may have. How long to wait for work:
    /// until the next round's time is over, not at all when more rounds are due.
    fn close_rounds(&mut self) -> Duration {
        if let Some(seconds) = self.clock.jump(self.open.now()) {
            self.metrics.clock_jumped();
            tracing::warn!(seconds, "the clock jumped: rounds close by it, and none opens again");
        }
        if self.failing && self.forgot.elapsed() <= FORGET {
            return IDLE;
        }
        match self.retry(OpenTasks::close_due) {
            Ok(closed) if closed.is_empty() => {}
            result => {
                self.remains = true;
                if let Ok(closed) = self.record_failure(result) {
                    self.failed.clear();
                    self.publish(closed);
                } else {
                    // Nobody may be uploading, who would notice it.
                    self.failed.record();
                    self.forgot = Instant::now();
                    return IDLE;
                }
            }
        }
        self.open.until_next_closing().map_or(IDLE, |time| time.min(IDLE))
    }

    /// Commits everything that has arrived. False when it is time to stop.
    fn group(&mut self, first: Job, waiting: &Receiver<Job>) -> bool {
        let (mut uploads, mut replies, mut reports) = (Vec::new(), Vec::new(), 0);
        let mut curious = Vec::new();
        let mut next = Some(first);
        let mut last = None;
        while let Some(job) = next {
            self.metrics.commit_queue().dec();
            match job {
                Job::Upload(upload, reply) => {
                    reports += upload.reports.len();
                    uploads.push(upload);
                    replies.push(reply);
                }
                Job::Refresh(reply) => curious.push(reply),
                // Anything else waits until the uploads before it are durable.
                other => {
                    last = Some(other);
                    break;
                }
            }
            next = if reports < GROUP { waiting.try_recv().ok() } else { None };
        }
        // A commit takes note of what is before it.
        let mut noted = Err(Busy);
        if !uploads.is_empty() {
            noted = self.commit(&uploads, replies, reports);
        }
        if !curious.is_empty() && noted.is_err() {
            noted = self.refresh();
        }
        for reply in curious {
            let _ = reply.send(noted);
        }
        match last {
            None => true,
            Some(Job::Close(task, reply)) => {
                let result = self.retry(|open| open.close(&task));
                self.remains = true;
                let result = self.record_failure(result);
                self.publish([task]);
                self.forget();
                let _ = reply.send(result);
                true
            }
            Some(Job::CheckWritable(reply, checking)) => {
                let result = self.open.check_writable();
                // Whoever has the answer may ask again.
                drop(checking);
                self.remains = true;
                let _ = reply.send(self.record_failure(result));
                true
            }
            Some(Job::Stop | Job::Upload(..) | Job::Refresh(_)) => false,
        }
    }

    fn commit(
        &mut self,
        uploads: &[Upload],
        replies: Vec<oneshot::Sender<Result<Vec<Outcome>, Busy>>>,
        reports: usize,
    ) -> Result<(), Busy> {
        let started = Instant::now();
        let result = self.retry(|open| open.accept(uploads));
        self.remains = true;
        if result.is_err() {
            self.failed.record();
        } else {
            self.failed.clear();
        }
        match self.record_failure(result) {
            Ok(outcomes) => {
                self.metrics.committed(started.elapsed().as_secs_f64(), reports);
                self.publish(uploads.iter().map(|upload| upload.task).collect::<HashSet<_>>());
                for ((upload, outcomes), reply) in uploads.iter().zip(outcomes).zip(replies) {
                    self.count(&upload.task, &outcomes);
                    // The sender may have gone. The report counts all the same, and a retry is
                    // answered so.
                    let _ = reply.send(Ok(outcomes));
                }
                Ok(())
            }
            Err(busy) => {
                for (upload, reply) in uploads.iter().zip(replies) {
                    let counter = self.metrics.outcomes(&upload.task, Kind::Unavailable.name());
                    counter.inc_by(upload.reports.len() as u64);
                    let _ = reply.send(Err(busy));
                }
                Err(busy)
            }
        }
    }

    /// A commit that was in the way of another one is tried again a few times.
    fn retry<T>(
        &mut self,
        mut commit: impl FnMut(&mut OpenTasks) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let mut tries = 0;
        loop {
            match commit(&mut self.open) {
                Err(CommitError::NotCommitted(StoreError::Conflict(error))) if tries < RETRIES => {
                    tries += 1;
                    self.metrics.store_retried();
                    tracing::debug!(%error, tries, "the commit is tried again");
                }
                result => return result,
            }
        }
    }

    /// Counts what became of reports, whether their senders still wait or not.
    fn count(&self, task: &TaskId, outcomes: &[Outcome]) {
        let mut counts: HashMap<&'static str, u64> = HashMap::new();
        for outcome in outcomes {
            let name = match outcome {
                Outcome::Counted | Outcome::Released(_) => "counted",
                Outcome::Surplus => "surplus",
                Outcome::Duplicate => "duplicate",
                Outcome::Refused(refusal) => kind_of(refusal).name(),
            };
            *counts.entry(name).or_default() += 1;
        }
        for (name, number) in counts {
            self.metrics.outcomes(task, name).inc_by(number);
        }
    }

    fn publish(&self, tasks: impl IntoIterator<Item = TaskId>) {
        for id in tasks {
            if let (Some((task, watched)), Some(progress)) =
                (self.tasks.get(&id), self.open.progress(&id))
            {
                self.metrics.progress(task, &progress);
                let before = watched.send_replace(progress);
                self.tell_releases(&id, before, progress);
                let shown = milliseconds(self.open.now()).saturating_sub(self.release_delay);
                // Of the rounds that are released now, those that closed before that time.
                let late = |round: Option<u32>| {
                    round.map_or(0, |round| due(task.mechanism(), round, shown))
                };
                let late = late(before.round).saturating_sub(late(progress.round));
                self.metrics.released_late(&id, late);
            }
        }
    }

    /// Logs what was released, and the end of a task.
    fn tell_releases(&self, task: &TaskId, before: Progress, now: Progress) {
        let Some(first) = before.round.filter(|_| before.round != now.round) else { return };
        if now.closed {
            tracing::info!(%task, round = first, "the task is closed");
            return;
        }
        self.metrics.released(task, self.open.now());
        match now.round {
            Some(next) if next == first + 1 => tracing::info!(%task, round = first, "released"),
            Some(next) => tracing::info!(%task, from = first, to = next - 1, "released"),
            None => tracing::info!(%task, "the last round is released: the task is over"),
        }
    }

    /// Takes note of what other nodes have committed.
    fn refresh(&mut self) -> Result<(), Busy> {
        let result = self.open.refresh();
        if result.is_err() {
            self.failed.record();
        }
        let moved = self.record_failure(result)?;
        // Keys of rounds that others have released are to be forgotten here too.
        self.remains |= !moved.is_empty();
        self.publish(moved);
        Ok(())
    }

    fn forget(&mut self) {
        if self.remains {
            self.forgot = Instant::now();
            let result = self.open.forget();
            self.remains = self.record_failure(result) != Ok(true);
        }
    }

    /// Logs when the store begins and ends to fail, not every time.
    fn record_failure<T>(&mut self, result: Result<T, CommitError>) -> Result<T, Busy> {
        match &result {
            Err(error) => {
                self.metrics.store_failed();
                if !self.failing {
                    tracing::error!(%error, "the store fails: reports are not acknowledged");
                }
            }
            Ok(_) if self.failing => tracing::info!("the store works again"),
            Ok(_) => {}
        }
        self.failing = result.is_err();
        result.map_err(|_| Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_that_finds_the_queue_full_does_not_keep_out_later_ones() {
        let (jobs, waiting) = mpsc::sync_channel(1);
        let metrics = Arc::new(Metrics::default());
        let (failed, checking) = (Arc::default(), Arc::default());
        let commits = GroupCommit { jobs, metrics, failed, checking };
        commits.stop();
        assert_eq!(commits.check_writable().await, Err(Busy), "the queue is full");
        assert!(matches!(waiting.recv(), Ok(Job::Stop)));
        let answer = async {
            let job = waiting.recv().unwrap();
            assert_eq!(commits.check_writable().await, Err(Busy), "one question at a time");
            let Job::CheckWritable(reply, checking) = job else { panic!("another job") };
            drop(checking);
            reply.send(Ok(())).unwrap();
        };
        let (found, ()) = tokio::join!(commits.check_writable(), answer);
        assert_eq!(found, Ok(()));
        // A thread that ends without an answer.
        let (found, ()) = tokio::join!(commits.check_writable(), async { drop(waiting.recv()) });
        assert_eq!(found, Err(Busy));
        drop(waiting);
        assert!(!commits.checking.load(Relaxed));
    }
}
