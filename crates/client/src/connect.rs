//! From settings to a client: the tasks, checked, and their background work.

use std::sync::{Arc, Mutex};

use incrowd_device::Device;
use incrowd_privacy::certify;
use incrowd_protocol::{Task, TaskNotice};
use incrowd_transport::{Address, BanditApi, Route, ShufflerApi, Trust, documents};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    Builder, Client, ClientError, Group, Phase,
    builder::Settings,
    core::{Core, Live, Progress, lock},
    models,
    reporter::{self, Pending},
    state::Store,
    uploads,
};

impl Builder {
    /// Fetches and checks the task, and starts to follow its models. Without network, or behind a
    /// proxy that answers in the shuffler's place, the notice in the state file will do.
    ///
    /// # Privacy
    /// Refuses a task that is not the pinned one or not signed by its shuffler, and one whose
    /// certificate, computed here, is above the [`Limits`](crate::Limits). In a comparison group
    /// both tasks are checked.
    pub async fn connect(self) -> Result<Client, ClientError> {
        self.check()?;
        let share = self.hold_out.map_or(0.0, |(share, _)| share);
        let store = Store::open(self.state_file.as_deref(), self.task, || Group::draw(share))?;
        // Before anything is asked or sent: if a failed start drew again, groups would differ in
        // more than chance.
        store.keep().await?;
        let group = store.read().await.group;
        let core = self.open(store).await?;
        let (group, reports) = self.reports(group, &core).await?;
        let mut background = JoinSet::new();
        let (decisions, queue) = mpsc::channel(1);
        if let Some(core) = &reports {
            start_reports(core, queue, &mut background).await;
        } else {
            core.enter(Phase::Done);
        }
        background.spawn(models::run(Arc::clone(&core)));
        let reports = reports.unwrap_or_else(|| Arc::clone(&core));
        let (runtime, background) = (Handle::current(), Arc::new(Mutex::new(background)));
        Ok(Client { core, group, reports, decisions, runtime, background })
    }

    /// The task that a device of this group reports to. Who was in a comparison that is over, or in
    /// another one, chooses like everybody and reports to none.
    async fn reports(
        &self,
        group: Group,
        core: &Arc<Core>,
    ) -> Result<(Group, Option<Arc<Core>>), ClientError> {
        if group == Group::Main {
            return Ok((group, Some(Arc::clone(core))));
        }
        let Some(comparison) = self.comparison() else { return Ok((Group::Main, None)) };
        let path = comparison.state_file.as_deref();
        match Store::open(path, comparison.task, || Ok(group)) {
            Err(ClientError::StateTask) => Ok((Group::Main, None)),
            store => {
                let core = comparison.open(store?).await?;
                if !core.task.config().is_comparison() {
                    core.store.discard().await?;
                    return Err(ClientError::NotComparison);
                }
                Ok((group, Some(core)))
            }
        }
    }

    /// The settings of a device in the comparison task, if there is one.
    fn comparison(&self) -> Option<Self> {
        let (_, task) = self.hold_out?;
        let state_file = self.state_file.as_ref();
        Some(Self {
            task,
            state_file: state_file.map(|path| incrowd_files::beside(path, ".comparison")),
            hold_out: None,
            settings: Settings { features: None, ..self.settings.clone() },
            ..self.clone()
        })
    }

    /// The task, checked, as the state knows it.
    async fn open(&self, store: Store) -> Result<Arc<Core>, ClientError> {
        let address = Address::new(&self.url, "url", self.plain_http)?;
        let route = match &self.relay {
            None => Route::Direct(address.clone()),
            Some(url) => Route::Oblivious {
                relay: Address::new(url, "relay", self.plain_http)?,
                target: address.clone(),
            },
        };
        let shuffler = ShufflerApi::new(route, self.token.clone(), &Trust::System)?;

        let (notice, last_error) = self.notice(&shuffler, &store).await?;
        let task = notice.0.task.clone();
        self.agree(&task).await?;
        let bandit = match &notice.0.model_url {
            Some(url) if self.relay.is_none() => {
                let models = Address::new(url, "model url", self.plain_http)?;
                BanditApi::new(models, &Trust::System)?
            }
            // Behind a relay also where the shuffler says where models are: whoever serves them
            // would see the device's address.
            _ => BanditApi::behind(&shuffler),
        };

        let state = store.read().await;
        let model = state.model.as_ref().map(|signed| documents::model(signed, &task));
        let model = model.transpose()?.map(Arc::new);
        for upload in &state.uploads {
            upload.check(task.mechanism())?;
        }
        let device = Device::resume(Arc::new(task.config().clone()), state.participation)?;
        Ok(Arc::new(Core {
            settings: self.settings.clone(),
            bandit,
            shuffler,
            store,
            task,
            device: Mutex::new(device),
            progress: watch::Sender::new(Progress {
                phase: Phase::Waiting,
                uploads: state.uploads.len(),
            }),
            live: Arc::new(Mutex::new(Live {
                model,
                fetched: None,
                notice,
                round: state.newest_round,
                clock: (state.clock, None),
                reports_sent: 0,
                last_error,
            })),
        }))
    }

    /// The task's notice from the shuffler; or, if nobody answers for it, the one that was kept,
    /// and the error. Checked either way.
    async fn notice(
        &self,
        shuffler: &ShufflerApi,
        store: &Store,
    ) -> Result<((TaskNotice, Option<Instant>), Option<ClientError>), ClientError> {
        match shuffler.notice(&self.task).await.map_err(ClientError::from) {
            Ok((signed, notice)) => {
                store
                    .update(|state| {
                        state.notice = Some(signed);
                        Ok(())
                    })
                    .await?;
                Ok(((notice, Some(Instant::now())), None))
            }
            Err(error) if error.is_hearsay() => {
                let kept = store.read().await.notice.ok_or_else(|| error.clone())?;
                let notice = documents::notice(&kept, &self.task)?;
                shuffler.adopt(&notice)?;
                Ok(((notice, None), Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the caller's limits, settings and features go with the task.
    async fn agree(&self, task: &Task) -> Result<(), ClientError> {
        // A long schedule takes a moment.
        let mechanism = task.mechanism().clone();
        let certificate = tokio::task::spawn_blocking(move || certify(&mechanism))
            .await
            .map_err(|_| ClientError::Runtime(std::io::ErrorKind::Interrupted))??;
        // A limit that is no number allows nothing.
        let within = |found: f64, limit: f64| found <= limit;
        let (found, limit) = (certificate.epsilon_local(), self.limits.epsilon_local);
        if !within(found, limit) {
            return Err(ClientError::EpsilonLocal { found, limit });
        }
        if let Some(limit) = self.limits.epsilon_central {
            let found = certificate.epsilon_central();
            if !within(found, limit) {
                return Err(ClientError::EpsilonCentral { found, limit });
            }
        }
        if self.settings.plain && !task.config().policy().plain_reports() {
            return Err(ClientError::SealedOnly);
        }
        if self.settings.features.as_ref().is_some_and(|map| !map.fits(task.mechanism())) {
            return Err(ClientError::FeatureMap);
        }
        Ok(())
    }
}

/// Starts to report decisions to a task, and to deliver what was made before.
async fn start_reports(
    core: &Arc<Core>,
    decisions: mpsc::Receiver<Pending>,
    background: &mut JoinSet<()>,
) {
    let reached = lock(&core.live).notice.1.is_some();
    // Without network this would only take time.
    if core.by_time()
        && reached
        && let Err(error) = core.ask_time().await
    {
        // Until there is an answer, the clock is what it was.
        core.note(error);
    }
    let kept = core.store.read().await.uploads;
    let phase = match core.turn().await {
        _ if !core.by_time() && !kept.is_empty() => Phase::Busy,
        phase => phase,
    };
    core.enter(phase);
    let (made, to_deliver) = mpsc::unbounded_channel();
    background.spawn(uploads::run(Arc::clone(core), kept, to_deliver));
    background.spawn(reporter::run(Arc::clone(core), decisions, made, phase == Phase::Open));
}
