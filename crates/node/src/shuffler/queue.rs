//! Group commit: one thread takes what has arrived, makes it durable in one step, and only then answers.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use incrowd_protocol::{Task, TaskId};
use tokio::sync::{oneshot, watch};

use crate::{
    Metrics,
    store::{Progress, Receipt, ShufflerStore, StoreError, Upload},
};

/// Requests that may wait for a commit; more are told to come again.
const LENGTH: usize = 4096;
/// Reports after which a commit begins even if more are waiting.
const GROUP: usize = 50_000;
/// Without work for so long, what is left of earlier states is destroyed.
const IDLE: Duration = Duration::from_millis(200);
/// And so often at most while there is work.
const TIDY: Duration = Duration::from_secs(2);

enum Job {
    Upload(Upload, oneshot::Sender<Result<Vec<Receipt>, Busy>>),
    Close(TaskId, oneshot::Sender<Result<Progress, Busy>>),
    Probe(oneshot::Sender<Result<(), Busy>>),
    Stop,
}

/// Nothing was stored: the store failed, or too much is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy;

/// A task's progress as the last commit left it.
pub(crate) type Watched = HashMap<TaskId, (Arc<Task>, watch::Sender<Progress>)>;

/// Where reports wait for their commit.
pub(crate) struct Queue {
    jobs: SyncSender<Job>,
}

impl Queue {
    /// Starts the thread that owns the writing side of the store. It ends after [`Queue::stop`].
    pub fn start(
        store: Arc<dyn ShufflerStore>,
        tasks: Watched,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinHandle<()>) {
        let (jobs, waiting) = mpsc::sync_channel(LENGTH);
        let tidied = Instant::now();
        let writer = Writer { store, tasks, metrics, tidied, untidy: true, failing: false };
        let thread = thread::spawn(move || writer.run(&waiting));
        (Self { jobs }, thread)
    }

    /// Counts reports; answers when the outcome is durable.
    pub async fn accept(&self, upload: Upload) -> Result<Vec<Receipt>, Busy> {
        self.ask(|reply| Job::Upload(upload, reply)).await
    }

    /// Ends a task.
    pub async fn close(&self, task: TaskId) -> Result<Progress, Busy> {
        self.ask(|reply| Job::Close(task, reply)).await
    }

    /// Whether a report could be stored now.
    pub async fn probe(&self) -> Result<(), Busy> {
        self.ask(Job::Probe).await
    }

    /// Ends the thread after what is waiting.
    pub fn stop(&self) {
        // A thread that is gone needs no stopping.
        let _ = self.jobs.send(Job::Stop);
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, Busy>>) -> Job,
    ) -> Result<T, Busy> {
        let (reply, answer) = oneshot::channel();
        match self.jobs.try_send(job(reply)) {
            Ok(()) => answer.await.unwrap_or(Err(Busy)),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Busy),
        }
    }
}

struct Writer {
    store: Arc<dyn ShufflerStore>,
    tasks: Watched,
    metrics: Arc<Metrics>,
    tidied: Instant,
    untidy: bool,
    failing: bool,
}

impl Writer {
    fn run(mut self, waiting: &Receiver<Job>) {
        loop {
            match waiting.recv_timeout(IDLE) {
                Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(job) => {
                    if !self.group(job, waiting) {
                        break;
                    }
                    if self.tidied.elapsed() > TIDY {
                        self.tidy();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.tidy(),
            }
        }
        self.tidy();
    }

    /// Commits everything that has arrived. False when it is time to stop.
    fn group(&mut self, first: Job, waiting: &Receiver<Job>) -> bool {
        let (mut uploads, mut replies, mut reports) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        let mut last = None;
        while let Some(job) = next {
            match job {
                Job::Upload(upload, reply) => {
                    reports += upload.reports.len();
                    uploads.push(upload);
                    replies.push(reply);
                }
                // What is not an upload waits until the ones before it are durable.
                other => {
                    last = Some(other);
                    break;
                }
            }
            next = if reports < GROUP { waiting.try_recv().ok() } else { None };
        }
        if !uploads.is_empty() {
            self.commit(&uploads, replies, reports);
        }
        match last {
            None => true,
            Some(Job::Close(task, reply)) => {
                let result = self.store.close(&task);
                self.untidy = true;
                let result = self.noticed(result);
                self.publish([task]);
                let _ = reply.send(result);
                true
            }
            Some(Job::Probe(reply)) => {
                let result = self.store.probe();
                let _ = reply.send(self.noticed(result));
                true
            }
            Some(Job::Stop | Job::Upload(..)) => false,
        }
    }

    fn commit(
        &mut self,
        uploads: &[Upload],
        replies: Vec<oneshot::Sender<Result<Vec<Receipt>, Busy>>>,
        reports: usize,
    ) {
        let started = Instant::now();
        let result = self.store.accept(uploads);
        self.untidy = true;
        match self.noticed(result) {
            Ok(receipts) => {
                self.metrics.committed(started.elapsed().as_secs_f64(), reports);
                self.publish(uploads.iter().map(|upload| upload.task).collect::<HashSet<_>>());
                for (receipts, reply) in receipts.into_iter().zip(replies) {
                    // Who asked may be gone: the report counts all the same, and a retry will say so.
                    let _ = reply.send(Ok(receipts));
                }
            }
            Err(busy) => replies.into_iter().for_each(|reply| {
                let _ = reply.send(Err(busy));
            }),
        }
    }

    fn publish(&self, tasks: impl IntoIterator<Item = TaskId>) {
        for id in tasks {
            if let (Some((task, watched)), Ok(progress)) =
                (self.tasks.get(&id), self.store.progress(&id))
            {
                self.metrics.progress(task, &progress);
                watched.send_replace(progress);
            }
        }
    }

    fn tidy(&mut self) {
        if self.untidy {
            self.tidied = Instant::now();
            let result = self.store.tidy();
            self.untidy = self.noticed(result) != Ok(true);
        }
    }

    /// Logs when the store begins and ends to fail, not every time.
    fn noticed<T>(&mut self, result: Result<T, StoreError>) -> Result<T, Busy> {
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
