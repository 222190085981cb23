//! The shuffler over HTTP: takes reports, releases sums.

mod content;
mod gateway;
mod group_commit;
mod handlers;
mod lanes;
mod models;
mod open_task;
mod open_tasks;
mod windows;

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use axum::Router;
use incrowd_envelope::{Document, SigningKey};
use incrowd_privacy::Certificate;
use incrowd_protocol::{Closes, Mechanism, OpenRound, RoundNotice, Task, TaskId, TaskNotice};
use serde::Serialize;
use tokio::sync::watch;

use crate::{
    Admission, Files, Heads, KeyError, KeyRole, Keys, Metrics, NodeConfig, ServiceError,
    ShufflerConfig, Witnessed,
    access::Access,
    admission,
    http::{Signed, Stopping},
    newest::Newest,
    nodes,
    problem::{Kind, Problem},
    rates::Rates,
    readiness::Probe,
    role::{Change, Later, NO_STORE, Reload, Role, Service},
    round_keys::{self, GuardedStore, Loss},
    store::{Log, ReleaseHash, ShufflerStore, SignedRelease, StoreError},
};
use gateway::Gateway;
use group_commit::{GroupCommit, Watched};
use lanes::Lanes;
pub(crate) use models::{bandit, router as models_elsewhere};
pub use open_tasks::{OpenTasks, Progress, Upload};
use windows::{milliseconds, open_round};

/// A running shuffler.
pub struct Shuffler {
    tasks: HashMap<TaskId, Arc<TaskHandle>>,
    store: Arc<GuardedStore>,
    commits: Lanes,
    writers: Mutex<Vec<JoinHandle<()>>>,
    keys: RwLock<Arc<Keys>>,
    key_file: PathBuf,
    gateway: Option<RwLock<Arc<Gateway>>>,
    access: Arc<Access>,
    model_url: Option<String>,
    /// The path of models, behind the gateway.
    models: OnceLock<Router>,
    admission: Arc<dyn Admission>,
    /// Milliseconds from the closing of a round until its release is shown.
    release_delay: u64,
    rates: Rates,
    metrics: Arc<Metrics>,
    /// For open requests.
    stopping: Stopping,
    probe: Probe,
}

/// A task that is served.
struct TaskHandle {
    task: Arc<Task>,
    certificate: Certificate,
    progress: watch::Receiver<Progress>,
    newest: Newest,
    notice: RwLock<Signed>,
    /// The newest notice of the round.
    round: Mutex<Option<(RoundNotice, Signed)>>,
}

/// The notice with what is only for people.
#[derive(Serialize)]
struct PublicNotice<'a> {
    #[serde(flatten)]
    notice: TaskNotice,
    certificate: &'a Certificate,
}

impl Shuffler {
    /// Opens every task in the store and starts the thread that commits. Tasks whose guarantee is
    /// beyond the operator's limits are an error.
    pub fn start(
        service: &Service<'_>,
        store: Arc<dyn ShufflerStore>,
        keys: Keys,
        key_file: PathBuf,
    ) -> Result<Arc<Self>, ServiceError> {
        let &Service { config, tasks, certificates, access, metrics } = service;
        let gateway = config.shuffler.gateway.then(|| Gateway::new(&keys)).transpose()?;
        let store = guarded(config, store)?;
        if let Some(shared) = store.shared() {
            nodes::agree(shared, &keys, access)?;
            let service = round_keys::service(&keys.verification_key());
            store.share_keys(&service, config.shuffler.accept_lost_round_keys)?;
        }
        let open_tasks = || {
            // The thread that signs must not keep sealing keys that are expired meanwhile.
            OpenTasks::new(store.clone(), SigningKey::from_bytes(&keys.signing().to_bytes()))
        };
        let mut lanes = vec![(open_tasks(), Watched::new())];
        let mut opened = Vec::new();
        for (task, certificate) in tasks.iter().cloned().zip(certificates.iter().cloned()) {
            if task.keys().shuffler != keys.verification_key() {
                return Err(ServiceError::OtherKey { task: task.id(), role: "shuffler" });
            }
            metrics.certified(&task.id(), &certificate);
            metrics.shuffles(&task.id());
            prepare(&store, &task, config, metrics)?;
            if store.shared().is_some() && !lanes[0].1.is_empty() {
                lanes.push((open_tasks(), Watched::new()));
            }
            let (open, watched) = lanes.last_mut().expect("invariant: there is at least one");
            open.open(task.id(), Arc::new(task.mechanism().clone())).map_err(StoreError::from)?;
            let missed = open.due(&task.id()).expect("invariant: it was opened");
            if missed > 0 {
                metrics.missed(&task.id(), missed);
                let task = task.id();
                tracing::warn!(%task, rounds = missed, "rounds closed while the shuffler was down: they are released now, in order");
            }
            let progress = open.progress(&task.id()).expect("invariant: it was opened");
            metrics.progress(&task, &progress);
            let (sender, receiver) = watch::channel(progress);
            let task = Arc::new(task);
            watched.insert(task.id(), (task.clone(), sender));
            opened.push((task, certificate, receiver));
        }
        let model_url = config.shuffler.model_url.clone();
        let mut handles = HashMap::new();
        for (task, certificate, progress) in opened {
            let notice = notice(&task, &certificate, &keys, gateway.as_ref(), model_url.as_ref());
            let handle = TaskHandle {
                notice: RwLock::new(notice),
                round: Mutex::new(None),
                newest: Newest::default(),
                certificate,
                progress,
                task,
            };
            handles.insert(handle.task.id(), Arc::new(handle));
        }
        let ShufflerConfig { admission, reports_per_round, .. } = config.shuffler;
        let admission = admission::new(admission, reports_per_round, access);
        for handle in handles.values() {
            tokio::spawn(forget(admission.clone(), handle.clone()));
        }
        let release_delay = config.shuffler.release_delay_milliseconds;
        let started = lanes.into_iter().map(|(open, watched)| {
            let tasks: Vec<TaskId> = watched.keys().copied().collect();
            let (lane, thread) = GroupCommit::start(open, watched, metrics.clone(), release_delay);
            ((lane, tasks), thread)
        });
        let (lanes, writers): (Vec<_>, Vec<_>) = started.unzip();
        Ok(Arc::new(Self {
            tasks: handles,
            store,
            commits: Lanes::new(lanes),
            writers: Mutex::new(writers),
            keys: RwLock::new(Arc::new(keys)),
            key_file,
            gateway: gateway.map(|gateway| RwLock::new(Arc::new(gateway))),
            access: access.clone(),
            model_url,
            models: OnceLock::new(),
            admission,
            release_delay,
            rates: Rates::new(&config.http),
            metrics: metrics.clone(),
            stopping: Stopping::default(),
            probe: Probe::default(),
        }))
    }

    /// Answers for models behind the gateway: with the routes of this process's bandit, or those of
    /// [`models_elsewhere`].
    pub(crate) fn answer_models(&self, routes: Router) {
        // Only set once, before anything is answered.
        let _ = self.models.set(routes);
    }

    /// Takes a changed key file into use: new sealing keys are published, expired ones do not open
    /// any more.
    fn take_keys(&self, keys: Keys, gateway: Option<Gateway>) {
        let (keys, gateway) = (Arc::new(keys), gateway.map(Arc::new));
        // First what opens, then what is published.
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.clone();
        if let (Some(place), Some(gateway)) = (&self.gateway, &gateway) {
            *place.write().unwrap_or_else(PoisonError::into_inner) = gateway.clone();
        }
        for handle in self.tasks.values() {
            let (gateway, url) = (gateway.as_deref(), self.model_url.as_ref());
            let fresh = notice(&handle.task, &handle.certificate, &keys, gateway, url);
            *handle.notice.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }

    /// The key file as it is now, if it can take the place of the one that is in use.
    fn changed_keys(&self) -> Result<(Keys, Option<Gateway>), ServiceError> {
        let keys = Keys::load(&self.key_file, KeyRole::Shuffler)?;
        if keys.verification_key() != self.keys().verification_key() {
            let rule =
                "the signing key is another one: it is part of the task's id and cannot change";
            return Err(KeyError::Rotation(rule).into());
        }
        let gateway = self.gateway.as_ref().map(|_| Gateway::new(&keys)).transpose()?;
        if let Some(shared) = self.store.shared() {
            nodes::agree_on_sealing(shared, &keys)?;
        }
        Ok((keys, gateway))
    }

    fn gateway(&self) -> Option<Arc<Gateway>> {
        let gateway = self.gateway.as_ref()?;
        Some(gateway.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The tasks and how far they are.
    pub fn progress(&self) -> Vec<(TaskId, Progress)> {
        let mut all: Vec<_> =
            self.tasks.iter().map(|(id, handle)| (*id, *handle.progress.borrow())).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Ends a task for good: its unfinished batch is destroyed.
    pub async fn close(&self, task: &TaskId) -> Result<(), Problem> {
        self.task(task)?;
        self.commits.close(*task).await.map_err(|_| unavailable())
    }

    /// A round's release; none until its batch is full, or until it is to be shown, for which it
    /// waits. If the store has another release before it than `after`, nothing is counted or
    /// released any more.
    ///
    /// # Privacy
    /// Where batches close by time, a release is shown at its closing time and a constant later,
    /// however full its batch was.
    pub async fn release(
        &self,
        task: &TaskId,
        round: u32,
        after: Option<ReleaseHash>,
        wait: Duration,
    ) -> Result<Option<SignedRelease>, Problem> {
        let handle = self.task(task)?;
        let unknown = |_| Problem::new(Kind::NotFound, "the task does not have this round");
        handle.mechanism().round(round).map_err(unknown)?;
        self.has_its_history()?;
        if let Some(release) = after {
            self.compare(*task, round, release).await?;
        }
        self.catch_up(handle).await?;
        let mut progress = handle.progress.clone();
        let shown = async {
            let over = |now: &Progress| now.closed || now.round.is_none_or(|now| now > round);
            let _ = progress.wait_for(over).await;
            while let Some(time) = self.until_shown(handle, round) {
                // Not longer: the clock may jump.
                tokio::time::sleep(time.min(Duration::from_secs(1))).await;
            }
        };
        self.stopping.or(shown, wait).await;
        if handle.progress.has_changed().is_err() {
            // The thread that commits is gone: nothing will ever be full.
            return Err(unavailable());
        }
        let now = *handle.progress.borrow();
        if !now.closed && now.round.is_some_and(|now| now <= round) {
            return Ok(None);
        }
        let (store, id) = (self.store.clone(), *task);
        match tokio::task::spawn_blocking(move || store.release(&id, round)).await {
            Ok(Ok(Some(_))) if self.until_shown(handle, round).is_some() => Ok(None),
            Ok(Ok(Some(release))) => Ok(Some(release)),
            Ok(Ok(None)) if now.closed => Err(Problem::new(
                Kind::Finished,
                "the task was closed before this round was released",
            )),
            Ok(Ok(None) | Err(_)) | Err(_) => Err(unavailable()),
        }
    }

    /// Makes sure that no node has told of a later round of a task than this one is about to.
    async fn catch_up(&self, handle: &TaskHandle) -> Result<(), Problem> {
        if self.store.shared().is_none() {
            return Ok(());
        }
        let refresh = async || self.commits.refresh(&handle.task.id()).await.is_ok();
        if handle.newest.read(refresh).await { Ok(()) } else { Err(unavailable()) }
    }

    /// Whether the store has the release that somebody else has seen before a round.
    async fn compare(&self, task: TaskId, round: u32, release: ReleaseHash) -> Result<(), Problem> {
        if round == 1 {
            return Err(Problem::new(Kind::BadRequest, "there is no release before round 1"));
        }
        let (store, seen) = (self.store.clone(), Witnessed { round: round - 1, release });
        match tokio::task::spawn_blocking(move || store.witness(&task, seen)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(StoreError::WentBack(_))) => Err(Problem::new(Kind::OtherHistory, WENT_BACK)),
            Ok(Err(_)) | Err(_) => Err(unavailable()),
        }
    }

    /// Whether nobody has seen a release that the store does not have.
    fn has_its_history(&self) -> Result<(), Problem> {
        let went_back = || Problem::new(Kind::Unavailable, WENT_BACK);
        if self.store.went_back() { Err(went_back()) } else { Ok(()) }
    }

    /// Whether the open rounds are those of the clock: one that is behind the last closing keeps a
    /// round open for too long, and one whose time is over must be closed.
    fn follows_the_clock(&self) -> Result<(), String> {
        let now = milliseconds(self.store.now());
        let seconds = |from: u64, to: u64| Duration::from_millis(to - from).as_secs();
        for handle in self.tasks.values() {
            let task = handle.task.id();
            let Progress { round: Some(round), window: Some(window), .. } =
                *handle.progress.borrow()
            else {
                continue;
            };
            if round > 1 && now < window.opens {
                let behind = seconds(now, window.opens);
                return Err(format!(
                    "the clock is {behind} s behind the last closing of task {task}: set it right"
                ));
            }
            if now > window.closes + OVERDUE {
                let late = seconds(window.closes, now);
                return Err(format!(
                    "round {round} of task {task} should have been closed {late} s ago: the log says why it is not"
                ));
            }
        }
        Ok(())
    }

    /// Whether a report could be stored now and would survive a restart.
    async fn find_out(&self) -> Result<(), String> {
        self.commits.check_writable().await.map_err(|_| NO_STORE.to_owned())?;
        let store = self.store.clone();
        match tokio::task::spawn_blocking(move || store.check_keys()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(StoreError::RoundKeyLost { task, round })) => Err(format!(
                "the key of round {round} of task {task} is gone from its medium: at the next start \
                 the open round would begin anew (shuffler.round_keys)"
            )),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the keys of rounds could not be looked at".into()),
        }
    }

    /// How long it is until a release may be shown; none where batches close by count, and when it
    /// may.
    fn until_shown(&self, handle: &TaskHandle, round: u32) -> Option<Duration> {
        let window = handle.mechanism().window(round).ok()??;
        let shown = window.closes + self.release_delay;
        let left = shown.saturating_sub(milliseconds(self.store.now()));
        (left > 0).then(|| Duration::from_millis(left))
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn task(&self, task: &TaskId) -> Result<&Arc<TaskHandle>, Problem> {
        let unknown = || Problem::new(Kind::NotFound, "this service does not have the task");
        self.tasks.get(task).ok_or_else(unknown)
    }
}

impl Reload for Shuffler {
    fn reload(&self) -> Result<Change<'_>, ServiceError> {
        let (keys, gateway) = self.changed_keys()?;
        Ok(Box::new(|| self.take_keys(keys, gateway)))
    }
}

impl Role for Shuffler {
    fn tags(&self) -> Vec<&'static str> {
        if self.gateway.is_some() { vec!["shuffler", "gateway"] } else { vec!["shuffler"] }
    }

    fn routes(self: Arc<Self>) -> Router {
        handlers::router(&self)
    }

    fn ready(&self) -> Later<'_, Result<(), String>> {
        Box::pin(async {
            if self.store.went_back() {
                return Err(WENT_BACK.into());
            }
            if self.tasks.values().any(|handle| handle.progress.has_changed().is_err()) {
                return Err("the thread that commits has ended: restart the service".into());
            }
            if self.commits.failed_lately() {
                return Err(NO_STORE.into());
            }
            self.follows_the_clock()?;
            self.probe.ask(self.find_out()).await
        })
    }

    fn stop_waiting(&self) {
        self.stopping.now();
    }

    /// Waits for the last commit.
    fn stop(&self) -> Later<'_, ()> {
        self.commits.stop();
        let writers =
            std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = tokio::task::spawn_blocking(|| {
            // Each is waited for, whatever became of the others.
            let ends: Vec<_> = writers.into_iter().map(JoinHandle::join).collect();
            ends.iter().all(Result::is_ok)
        });
        Box::pin(async {
            if !matches!(ended.await, Ok(true)) {
                tracing::error!("the thread that commits had failed");
            }
        })
    }
}

impl TaskHandle {
    fn mechanism(&self) -> &Mechanism {
        self.task.mechanism()
    }

    /// The rounds whose reports can count, now or when the next one has begun; none when the task
    /// is over.
    fn open_rounds(&self, now: SystemTime) -> Option<RangeInclusive<u32>> {
        let head = self.progress.borrow().round?;
        let current = match open_round(self.mechanism(), Some(head), milliseconds(now)) {
            Some(OpenRound::Open(round)) => round,
            _ => head,
        };
        Some(self.oldest(head)..=current.saturating_add(1))
    }

    /// The oldest round whose reports count while this one is filled.
    fn oldest(&self, head: u32) -> u32 {
        match self.mechanism().closes() {
            Closes::Count { grace } => head.saturating_sub(grace),
            Closes::Time { .. } => head,
        }
    }

    /// The signed notice of the current round, signed once for each; where batches close by time
    /// also once for each second, since it tells the time.
    fn round_notice(&self, keys: &Keys, now: SystemTime) -> Signed {
        let (head, now) = (self.progress.borrow().round, milliseconds(now));
        let open = open_round(self.mechanism(), head, now);
        let round = match open {
            None => head,
            Some(OpenRound::Open(round)) => Some(round),
            Some(OpenRound::NotYet | OpenRound::Over) => None,
        };
        let round = round.and_then(|number| self.mechanism().round(number).ok());
        let time = open.map(|_| now / 1000 * 1000);
        let notice = RoundNotice::new(self.task.id(), round, time);
        let mut cached = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, signed)) = &*cached
            && *known == notice
        {
            return signed.clone();
        }
        let bytes = serde_json::to_vec(&notice)
            .expect("invariant: a notice is plain data, which can always be written");
        let signed = Signed::new(bytes, keys.signing(), Document::Round, &self.task.id());
        *cached = Some((notice, signed.clone()));
        signed
    }
}

/// Lets admission forget the rounds of a task that are over, until the service ends.
async fn forget(admission: Arc<dyn Admission>, handle: Arc<TaskHandle>) {
    let mut progress = handle.progress.clone();
    while progress.changed().await.is_ok() {
        let head = progress.borrow_and_update().round;
        let oldest = head.map_or(u32::MAX, |head| handle.oldest(head));
        admission.forget_before(&handle.task.id(), oldest);
    }
}

/// The store with its entries under the keys of rounds.
pub(crate) fn guarded(
    config: &NodeConfig,
    store: Arc<dyn ShufflerStore>,
) -> Result<Arc<GuardedStore>, ServiceError> {
    let ShufflerConfig { round_keys, heads, .. } = &config.shuffler;
    let keys = round_keys::open(round_keys.as_ref(), &config.data).map_err(StoreError::from)?;
    tracing::info!("keys of rounds: {}", keys.describe());
    let heads = heads.clone().unwrap_or_else(|| Files::of(&config.data).heads);
    Ok(Arc::new(GuardedStore::new(store, keys, Heads::load(&heads)?)))
}

/// Makes sure that a task can go on from its store, and tells what of it is lost.
fn prepare(
    store: &GuardedStore,
    task: &Task,
    config: &NodeConfig,
    metrics: &Metrics,
) -> Result<(), ServiceError> {
    let (id, mechanism) = (task.id(), Arc::new(task.mechanism().clone()));
    store.open(&id)?;
    let commits = store.lost_commits(&id)?;
    metrics.lost_commits(&id, commits);
    if commits > 0 {
        tracing::error!(task = %id, commits, "the store does not have the last commits, whose reports were acknowledged: its log was cut or damaged, or an older store was put in its place. Those reports are lost, and none counts twice");
    }
    let accepted = config.shuffler.accept_lost_round_keys;
    if let Some(Loss { round, reports, sums }) = store.prepare(&id, &mechanism, accepted)? {
        let batch = if sums {
            "the unfinished batch is discarded and begins anew"
        } else {
            "late reports may count twice"
        };
        tracing::error!(task = %id, round, reports, "the key of the round is gone, and with it so many acknowledged reports: {batch}");
    }
    Ok(())
}

fn notice(
    task: &Task,
    certificate: &Certificate,
    keys: &Keys,
    gateway: Option<&Gateway>,
    model_url: Option<&String>,
) -> Signed {
    let notice = TaskNotice {
        id: task.id(),
        task: task.clone(),
        sealing_keys: keys.sealing_keys(),
        model_url: model_url.cloned(),
        gateway_keys: gateway.map(|gateway| hex::encode(gateway.key_configurations())),
    };
    let bytes = serde_json::to_vec(&PublicNotice { notice, certificate })
        .expect("invariant: a notice is plain data, which can always be written");
    Signed::new(bytes, keys.signing(), Document::Notice, &task.id())
}

/// Milliseconds after which a round that is not closed makes the service not ready.
const OVERDUE: u64 = 5000;

const WENT_BACK: &str = "the shuffler's store does not have a release that the bandit has: it went back in time, and nothing is counted or released until it is put right and the service started again";

fn unavailable() -> Problem {
    Problem::new(Kind::Unavailable, "the store cannot take anything now; nothing is acknowledged")
}
