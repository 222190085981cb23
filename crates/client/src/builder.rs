use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use incrowd_device::{Device, FeatureMap};
use incrowd_privacy::certify;
use incrowd_protocol::{Task, TaskId, TaskNotice};
use incrowd_transport::{Address, BanditApi, Route, ShufflerApi, Trust, documents};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    Client, ClientError, Phase, blocking,
    clock::WallClock,
    core::{Core, Live, Progress},
    models, reporter,
    state::Store,
    uploads,
};

/// The privacy loss a person agrees to. The device computes the task's own certificate and refuses
/// what is above.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Of one report, against everyone.
    pub epsilon_local: f64,
    /// Of all releases and models together, against whoever reads them.
    pub epsilon_central: Option<f64>,
}

impl Default for Limits {
    /// Local 8, and no limit of its own for the central one.
    fn default() -> Self {
        Self { epsilon_local: 8.0, epsilon_central: None }
    }
}

/// Settings of a [`Client`].
///
/// | setting | default |
/// |---|---|
/// | `limits` | local epsilon 8 |
/// | `reward_window`, `jitter` | 10 minutes each |
/// | `default_reward` | 0 |
/// | `default_action` | any, by lot |
/// | `hold_out` | 0 |
/// | `poll_interval` | 1 minute |
/// | `state_file`, `token`, `relay`, `features` | none |
/// | `plain`, `allow_plain_http` | off |
#[derive(Clone)]
#[must_use]
pub struct Builder {
    url: String,
    task: TaskId,
    limits: Limits,
    token: Option<String>,
    relay: Option<String>,
    state_file: Option<PathBuf>,
    plain_http: bool,
    settings: Settings,
}

/// What a connected client still needs of its settings.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) features: Option<FeatureMap>,
    pub(crate) default_action: Option<usize>,
    pub(crate) default_reward: f64,
    pub(crate) reward_window: Duration,
    pub(crate) jitter: Duration,
    pub(crate) hold_out: f64,
    pub(crate) poll_interval: Duration,
    pub(crate) plain: bool,
    pub(crate) wall: WallClock,
}

impl Builder {
    pub(crate) fn new(url: &str, task: TaskId) -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let settings = Settings {
            features: None,
            default_action: None,
            default_reward: 0.0,
            reward_window: minutes(10),
            jitter: minutes(10),
            hold_out: 0.0,
            poll_interval: minutes(1),
            plain: false,
            wall: WallClock::default(),
        };
        Self {
            url: url.to_owned(),
            task,
            limits: Limits::default(),
            token: None,
            relay: None,
            state_file: None,
            plain_http: false,
            settings,
        }
    }

    /// The privacy loss to agree to.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The token of devices, sent with reports only.
    ///
    /// # Privacy
    /// One token for all devices: one of its own would tell the shuffler who reports.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Where the device remembers its participation, its last notice and model, how far its clock
    /// is off, and unfinished uploads.
    ///
    /// # Privacy
    /// Without it they are in memory only: after a restart the device may send a second report for
    /// a batch and more than k in all, and the central guarantee is void. One client at a time can
    /// use a file.
    pub fn state_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.state_file = Some(path.into());
        self
    }

    /// From named fields to features.
    pub fn features(mut self, map: FeatureMap) -> Self {
        self.settings.features = Some(map);
        self
    }

    /// The action before the first model, and when actions cannot be scored.
    pub fn default_action(mut self, action: usize) -> Self {
        self.settings.default_action = Some(action);
        self
    }

    /// How long a decision takes rewards.
    pub fn reward_window(mut self, window: Duration) -> Self {
        self.settings.reward_window = window;
        self
    }

    /// A report leaves this long after its window, times a uniform draw from 0 to 1.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.settings.jitter = jitter;
        self
    }

    /// The reward of a decision that got none, from 0 to 1.
    pub fn default_reward(mut self, reward: f64) -> Self {
        self.settings.default_reward = reward;
        self
    }

    /// Share of the decisions whose action is the incumbent's, or drawn uniformly if there is none,
    /// to measure against.
    pub fn hold_out(mut self, share: f64) -> Self {
        self.settings.hold_out = share;
        self
    }

    /// How often, about, to ask for the round while the last report may still be counted. Where
    /// batches close by time the clock tells, and only a task that is over by a clock nobody has
    /// confirmed is asked for.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// An Oblivious HTTP relay for all requests to the shuffler.
    ///
    /// # Privacy
    /// The shuffler does not see the device's address then, the relay does not see its requests.
    /// Models are the same for everyone and are fetched directly, from the bandit.
    pub fn relay(mut self, url: impl Into<String>) -> Self {
        self.relay = Some(url.into());
        self
    }

    /// Reports that are not sealed, if the task takes them.
    ///
    /// # Privacy
    /// Whoever carries a plain report reads it; it is still `epsilon_local`-differentially private.
    pub fn plain(mut self) -> Self {
        self.settings.plain = true;
        self
    }

    /// A wall clock in place of the system's, in milliseconds since 1970: for tests.
    #[cfg(feature = "test-clock")]
    pub fn test_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.settings.wall = WallClock::new(clock);
        self
    }

    /// Allows http to other machines.
    pub fn allow_plain_http(mut self) -> Self {
        self.plain_http = true;
        self
    }

    /// The client, on a runtime of its own.
    pub fn connect_blocking(self) -> Result<blocking::Client, ClientError> {
        blocking::Client::start(self)
    }

    /// Fetches and checks the task, and starts to follow its models. Without network, or behind a
    /// proxy that answers in the shuffler's place, the notice in the state file will do.
    ///
    /// # Privacy
    /// Refuses a task that is not the pinned one or not signed by its shuffler, and one whose
    /// certificate, computed here, is above the [`Limits`].
    pub async fn connect(self) -> Result<Client, ClientError> {
        self.check()?;
        let address = Address::new(&self.url, "url", self.plain_http)?;
        let route = match &self.relay {
            None => Route::Direct(address.clone()),
            Some(url) => Route::Oblivious {
                relay: Address::new(url, "relay", self.plain_http)?,
                target: address.clone(),
            },
        };
        let store = Store::open(self.state_file.as_deref(), self.task)?;
        let shuffler = ShufflerApi::new(route, self.token.clone(), &Trust::System)?;

        let (notice, last_error) = self.notice(&shuffler, &store).await?;
        let (task, reached) = (notice.0.task.clone(), notice.1.is_some());
        self.agree(&task).await?;
        let models = match &notice.0.model_url {
            Some(url) => Address::new(url, "model url", self.plain_http)?,
            None => address,
        };

        let state = store.read().await;
        let model = state.model.as_ref().map(|signed| documents::model(signed, &task));
        let model = model.transpose()?.map(Arc::new);
        for upload in &state.uploads {
            upload.check(task.mechanism())?;
        }
        let device = Device::resume(Arc::new(task.config().clone()), state.participation)?;
        let core = Arc::new(Core {
            settings: self.settings,
            bandit: BanditApi::new(models, &Trust::System)?,
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
                notice,
                round: state.newest_round,
                clock: (state.clock, None),
                reports_sent: 0,
                last_error,
            })),
        });
        // Without network this would only take time.
        if core.by_time()
            && reached
            && let Err(error) = core.ask_time().await
        {
            // Until there is an answer, the clock is what it was.
            core.note(error);
        }
        let phase = match core.turn().await {
            _ if !core.by_time() && !state.uploads.is_empty() => Phase::Busy,
            phase => phase,
        };
        core.enter(phase);
        let (decisions, queue) = mpsc::channel(1);
        let (made, to_deliver) = mpsc::unbounded_channel();
        let mut background = JoinSet::new();
        background.spawn(models::run(Arc::clone(&core)));
        background.spawn(uploads::run(Arc::clone(&core), state.uploads, to_deliver));
        background.spawn(reporter::run(Arc::clone(&core), queue, made, phase == Phase::Open));
        let background = Arc::new(Mutex::new(background));
        Ok(Client { core, decisions, runtime: Handle::current(), background })
    }

    /// Settings within their ranges.
    fn check(&self) -> Result<(), ClientError> {
        let settings = &self.settings;
        for (name, value) in
            [("hold_out", settings.hold_out), ("default_reward", settings.default_reward)]
        {
            if !(0.0..=1.0).contains(&value) {
                return Err(ClientError::Setting { name, value, allowed: "from 0 to 1" });
            }
        }
        let year = Duration::from_secs(366 * 24 * 3600);
        for (name, value) in [
            ("reward_window", settings.reward_window),
            ("jitter", settings.jitter),
            ("poll_interval", settings.poll_interval),
        ] {
            if value > year {
                let value = value.as_secs_f64();
                return Err(ClientError::Setting { name, value, allowed: "at most a year" });
            }
        }
        Ok(())
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
