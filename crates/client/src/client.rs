use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use incrowd_device::{Fields, InputProblem};
use incrowd_protocol::TaskId;
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet, time::Instant};

use crate::{
    Builder, ClientError, Decision, Phase, Problem, Status, chance,
    core::{Core, Progress, lock},
    reporter::Pending,
};

/// One person's device in one task. Clones are the same device.
///
/// # What becomes of a decision
/// It is due at its time plus the reward window plus the jitter. At that moment, with or without
/// network, a participation is spent, the report is randomized for the round that is open then
/// (with the default reward, if none came) and written to the state file. From then on the same
/// bytes are sent until the shuffler's last word, also after restarts. A report is never made twice
/// or for another round, and a participation never comes back.
///
/// Dropping the last clone stops the background work: a decision that is not due yet is forgotten
/// and spends nothing, a report that is not decided is sent at the next start with the same state
/// file. [`Client::flush`] waits for both.
///
/// # Privacy
/// So whether a report is made depends on the application's life until the decision is due, and
/// people who dislike what they see may close the application. Where batches close by time that is
/// one report of one batch, which the guarantee covers. Where they close by count it is not
/// covered: a missing report moves every later boundary, and the round must be asked for over the
/// network. Such tasks are for simulations and the paper; deploy `closes = "time"`.
#[derive(Clone)]
pub struct Client {
    pub(crate) core: Arc<Core>,
    pub(crate) decisions: mpsc::Sender<Pending>,
    pub(crate) runtime: Handle,
    /// Ended with the last clone.
    pub(crate) background: Arc<Mutex<JoinSet<()>>>,
}

impl Client {
    /// A client with the default settings: see [`Builder`].
    pub async fn connect(url: &str, task: TaskId) -> Result<Self, ClientError> {
        Self::builder(url, task).connect().await
    }

    /// Settings for a client of the task with this id, whose shuffler is at `url`.
    pub fn builder(url: &str, task: TaskId) -> Builder {
        Builder::new(url, task)
    }

    /// Chooses one of `actions` in a context, through the [feature map](Builder::features).
    ///
    /// # Privacy
    /// No network: the fields do not leave the device. At most one randomized report of one
    /// decision does, later.
    pub fn rank(&self, context: &Fields, actions: &[Fields]) -> Result<Decision, ClientError> {
        let map = self.core.settings.features.as_ref().ok_or(ClientError::NoFeatureMap)?;
        let (features, problems) = map.features_of_all(context, actions);
        let mut decision = self.rank_features(&features)?;
        if !problems.is_empty() {
            decision.problems.push(Problem::Fields(problems));
        }
        Ok(decision)
    }

    /// Chooses one of the actions with these features.
    ///
    /// # Privacy
    /// As [`Client::rank`]. Features that are not as they should be give
    /// [problems](Decision::problems), never silence.
    pub fn rank_features<X: AsRef<[f64]>>(&self, actions: &[X]) -> Result<Decision, ClientError> {
        if actions.is_empty() {
            return Err(ClientError::NoActions);
        }
        let settings = &self.core.settings;
        let held_out = chance::unit()? < settings.hold_out;
        let mut problems = Vec::new();
        let action = if held_out {
            chance::index(actions.len())?
        } else {
            self.choose(actions, &mut problems)?
        };
        let x = actions[action].as_ref();
        problems.extend(InputProblem::of(x, self.core.task.mechanism()).map(Problem::Input));

        // Drawn before there is a reward.
        let jitter = settings.jitter.mul_f64(chance::unit()?);
        let _context = self.runtime.enter();
        let deadline = Instant::now() + settings.reward_window;
        let reward = Arc::default();
        self.submit(Pending { x: x.to_vec(), due: deadline + jitter, reward: Arc::clone(&reward) });
        Ok(Decision { action, held_out, problems, deadline, reward })
    }

    /// The best action under the model; without a model, or if it cannot score the actions, the
    /// default one.
    fn choose<X: AsRef<[f64]>>(
        &self,
        actions: &[X],
        problems: &mut Vec<Problem>,
    ) -> Result<usize, ClientError> {
        let model = lock(&self.core.live).model.clone();
        if let Some(model) = model {
            let arms = actions.iter().map(AsRef::as_ref);
            match lock(&self.core.device).choose(Some(&model), arms) {
                Ok(action) => return Ok(action),
                Err(error) => problems.push(Problem::Choice(error)),
            }
        }
        match self.core.settings.default_action {
            Some(default) if default < actions.len() => return Ok(default),
            Some(default) => {
                problems.push(Problem::DefaultAction { default, actions: actions.len() });
            }
            None => {}
        }
        chance::index(actions.len())
    }

    /// Makes a decision the one that is reported, if the next one is.
    fn submit(&self, pending: Pending) {
        let taken = self.core.progress.send_if_modified(|progress| {
            let open = progress.phase == Phase::Open;
            if open {
                progress.phase = Phase::Busy;
            }
            open
        });
        if taken {
            // There is room: only one decision at a time is taken.
            let _ = self.decisions.try_send(pending);
        }
    }

    /// Fetches a newer model now; whether there was one. It happens in the background anyway.
    pub async fn refresh(&self) -> Result<bool, ClientError> {
        self.core.fetch_model(Duration::ZERO).await
    }

    /// Waits until no report is pending or on its way. Without network that takes until there is:
    /// use a timeout.
    pub async fn flush(&self) {
        // The sender lives as long as the client does, so there is no error.
        let idle = |progress: &Progress| progress.phase != Phase::Busy && progress.uploads == 0;
        let _ = self.core.progress.subscribe().wait_for(idle).await;
    }

    /// Stops the background work and sets the state file free. Dropping does the same, a moment
    /// later.
    pub async fn close(self) {
        let mut background = std::mem::take(&mut *lock(&self.background));
        background.shutdown().await;
        self.core.store.settle().await;
    }

    /// How the client is doing.
    pub fn status(&self) -> Status {
        self.core.status()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("status", &self.status()).finish_non_exhaustive()
    }
}
