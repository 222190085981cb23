use std::{path::PathBuf, time::Duration};

use incrowd_device::FeatureMap;
use incrowd_protocol::TaskId;

#[cfg(doc)]
use crate::{Client, Group};
use crate::{ClientError, blocking, clock::WallClock};

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
/// | `hold_out` | nobody |
/// | `poll_interval` | 1 minute |
/// | `model_interval` | 30 seconds |
/// | `state_file`, `token`, `relay`, `features` | none |
/// | `plain`, `allow_plain_http` | off |
#[derive(Clone)]
#[must_use]
pub struct Builder {
    pub(crate) url: String,
    pub(crate) task: TaskId,
    pub(crate) limits: Limits,
    pub(crate) token: Option<String>,
    pub(crate) relay: Option<String>,
    pub(crate) state_file: Option<PathBuf>,
    pub(crate) plain_http: bool,
    /// Share of the held out and of the compared, and the task that they report to.
    pub(crate) hold_out: Option<(f64, TaskId)>,
    pub(crate) settings: Settings,
}

/// What a connected client still needs of its settings.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) features: Option<FeatureMap>,
    pub(crate) default_action: Option<usize>,
    pub(crate) default_reward: f64,
    pub(crate) reward_window: Duration,
    pub(crate) jitter: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) model_interval: Duration,
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
            poll_interval: minutes(1),
            model_interval: Duration::from_secs(30),
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
            hold_out: None,
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

    /// Where the device remembers its group, its participation, its last notice and model, how far
    /// its clock is off, and unfinished uploads. A device of a comparison group has a second file
    /// beside it for the comparison task, with `.comparison` at the end of the name.
    ///
    /// # Privacy
    /// Without it they are in memory only: after a restart the device may send a second report for
    /// a batch and more than k in all, and the central guarantee is void. One client at a time can
    /// use a file. Delete both files or none.
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

    /// Lets lots decide what this device is for as long as it has its state file: with probability
    /// `share`, from 0 to 0.5, it is [held out](Group::HeldOut) and takes the incumbent's action,
    /// or any if there is none; with probability `share` it is [compared](Group::Compared) and
    /// chooses by the model. Both report to the comparison task with this id, at the same service,
    /// and not to the task of the model. `incrowd task uplift` tells what personalization is worth.
    ///
    /// The lot is drawn when the state file is made: one that exists stays in its group. When the
    /// comparison is over (no hold-outs any more, or another comparison task), those who were in it
    /// choose by the model and report to nobody.
    ///
    /// # Privacy
    /// The lot depends on no context and no reward, and a device reports to one task for good. So
    /// the guarantee against whoever reads the releases of both tasks is the larger of their two
    /// certificates, not the sum. A share above 0 needs a [state file](Self::state_file): after a
    /// restart without one the device could report to both.
    pub fn hold_out(mut self, share: f64, comparison: TaskId) -> Self {
        self.hold_out = Some((share, comparison));
        self
    }

    /// How often, about, to ask for the round while the last report may still be counted. Where
    /// batches close by time the clock tells, and only a task that is over by a clock nobody has
    /// confirmed is asked for.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// The least time between two fetches of the model. A server or cache that gives the model out
    /// for longer is asked when that is over; the next fetch is at a time drawn uniformly from one
    /// to two times the longer of both, whatever the device does.
    pub fn model_interval(mut self, interval: Duration) -> Self {
        self.settings.model_interval = interval;
        self
    }

    /// An Oblivious HTTP relay for all requests: notices, rounds, models and reports.
    ///
    /// # Privacy
    /// Neither the shuffler nor the bandit sees the device's address then, and the relay sees
    /// neither its requests nor which task they are about. Nothing is asked for directly.
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

    /// Settings within their ranges.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let settings = &self.settings;
        if !(0.0..=1.0).contains(&settings.default_reward) {
            let (name, value) = ("default_reward", settings.default_reward);
            return Err(ClientError::Setting { name, value, allowed: "from 0 to 1" });
        }
        if let Some((share, comparison)) = self.hold_out {
            if !(0.0..=0.5).contains(&share) {
                let (name, value) = ("hold_out", share);
                return Err(ClientError::Setting { name, value, allowed: "from 0 to 0.5" });
            }
            if share > 0.0 && self.state_file.is_none() {
                return Err(ClientError::HoldOutWithoutState);
            }
            if comparison == self.task {
                return Err(ClientError::NotComparison);
            }
        }
        let year = Duration::from_secs(366 * 24 * 3600);
        for (name, value) in [
            ("reward_window", settings.reward_window),
            ("jitter", settings.jitter),
            ("poll_interval", settings.poll_interval),
            ("model_interval", settings.model_interval),
        ] {
            if value > year {
                let value = value.as_secs_f64();
                return Err(ClientError::Setting { name, value, allowed: "at most a year" });
            }
        }
        Ok(())
    }
}
