use std::{
    fmt,
    sync::{Arc, Mutex},
};

use incrowd_device::{Arm, Fields, InputProblem};
use incrowd_protocol::{Model, TaskId};
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet, time::Instant};

use crate::{
    Action, Builder, ClientError, Decision, Group, Phase, Problem, Status, chance,
    core::{Core, Progress, lock},
    reporter::Pending,
};

/// An arm whose action has no slot. Its report says nothing.
const NO_SLOT: u32 = u32::MAX;

/// One person's device in one task. Clones are the same device.
///
/// # What becomes of a decision
/// It is due at its time plus the reward window plus the jitter. At that moment, with or without
/// network, a participation is spent, the report is randomized for the round that is open then
/// (with the default reward, if none came) and written to the state file. From then on the same
/// bytes are sent until the shuffler's last word, also after restarts. A report is never made twice
/// or for another round, and a participation never comes back.
///
/// Where there are [hold-outs](Builder::hold_out), a device of a comparison group does the same for
/// the comparison task instead, with its reward as the only thing it reports.
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
    /// The task whose model it ranks with.
    pub(crate) core: Arc<Core>,
    pub(crate) group: Group,
    /// The task that it reports to, which is another one in the groups of a comparison.
    pub(crate) reports: Arc<Core>,
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

    /// Chooses one of `actions` in a context, through the [feature map](Builder::features): names
    /// where actions have weights of their own, fields where features describe person and action
    /// together, or both ([`Action`]). Before there is a model it is the
    /// [default action](Builder::default_action).
    ///
    /// # Privacy
    /// No network: names and fields do not leave the device. At most one randomized report of one
    /// decision does, later.
    pub fn rank<'a, A: Into<Action<'a>>>(
        &self,
        context: &Fields,
        actions: impl IntoIterator<Item = A>,
    ) -> Result<Decision, ClientError> {
        self.rank_or(context, actions, self.core.settings.default_action)
    }

    /// The same with an incumbent: the index of the action that the application would take by
    /// itself. It is taken until there is a model, and by those who are held out.
    ///
    /// # Privacy
    /// As [`Client::rank`].
    pub fn rank_or<'a, A: Into<Action<'a>>>(
        &self,
        context: &Fields,
        actions: impl IntoIterator<Item = A>,
        incumbent: impl Into<Option<usize>>,
    ) -> Result<Decision, ClientError> {
        let map = self.core.settings.features.as_ref().ok_or(ClientError::NoFeatureMap)?;
        let actions: Vec<Action<'_>> = actions.into_iter().map(Into::into).collect();
        let fields = actions.iter().map(|action| action.fields);
        let (features, problems) = map.features_of_all(context, fields);
        let (slots, unknown) = self.slots(&actions);
        let arms = slots.iter().zip(&features).map(|(&slot, features)| Arm { slot, features });
        let mut decision = self.decide(&arms.collect::<Vec<_>>(), incumbent.into())?;
        decision.problems.extend(unknown.into_iter().map(Problem::UnknownAction));
        if !problems.is_empty() {
            decision.problems.push(Problem::Fields(problems));
        }
        Ok(decision)
    }

    /// The slot of each action, by the model or else by the task, and the names that have none.
    fn slots(&self, actions: &[Action<'_>]) -> (Vec<u32>, Vec<String>) {
        if self.core.task.mechanism().blocks().slots() == 0 {
            return (vec![0; actions.len()], Vec::new());
        }
        let model = lock(&self.core.live).model.clone();
        let names: Vec<Option<String>> = match &model {
            Some(model) => model.slots().iter().map(|slot| slot.action.clone()).collect(),
            None => self.core.task.config().actions(),
        };
        let mut unknown = Vec::new();
        let slot = |action: &Action<'_>| {
            let found = names.iter().position(|name| name.as_deref() == Some(action.name));
            if found.is_none() {
                unknown.push(action.name.to_owned());
            }
            found.map_or(NO_SLOT, |slot| slot as u32)
        };
        (actions.iter().map(slot).collect(), unknown)
    }

    /// Chooses one of the actions with these features, or [arms](Arm) where the task has slots.
    ///
    /// # Privacy
    /// As [`Client::rank`]. Features that are not as they should be give
    /// [problems](Decision::problems), never silence.
    pub fn rank_features<'a, A: Into<Arm<'a>>>(
        &self,
        actions: impl IntoIterator<Item = A>,
    ) -> Result<Decision, ClientError> {
        let arms: Vec<Arm<'_>> = actions.into_iter().map(Into::into).collect();
        self.decide(&arms, self.core.settings.default_action)
    }

    fn decide(&self, arms: &[Arm<'_>], incumbent: Option<usize>) -> Result<Decision, ClientError> {
        if arms.is_empty() {
            return Err(ClientError::NoActions);
        }
        let settings = &self.core.settings;
        let held_out = self.group == Group::HeldOut;
        let mut problems = Vec::new();
        let model = lock(&self.core.live).model.clone();
        let model = model.filter(|model| !held_out && !model.is_blank());
        let action = self.choose(model.as_deref(), arms, incumbent, &mut problems)?;
        let Arm { slot, features } = arms[action];
        let mechanism = self.core.task.mechanism();
        problems.extend(InputProblem::of(features, mechanism).map(Problem::Input));

        // Drawn before there is a reward.
        let jitter = settings.jitter.mul_f64(chance::unit()?);
        let _context = self.runtime.enter();
        let deadline = Instant::now() + settings.reward_window;
        let reward = Arc::default();
        let due = deadline + jitter;
        let (slot, x) = match self.group.slot() {
            None => (slot, features.to_vec()),
            Some(slot) => (slot.number(), vec![self.reports.task.mechanism().context_bound()]),
        };
        self.submit(Pending { slot, x, due, reward: Arc::clone(&reward) });
        Ok(Decision { action, held_out, problems, deadline, reward })
    }

    /// The best action under the model; without a model, or if it cannot score the actions, the
    /// incumbent. Actions that have no slot are left out.
    fn choose(
        &self,
        model: Option<&Model>,
        arms: &[Arm<'_>],
        incumbent: Option<usize>,
        problems: &mut Vec<Problem>,
    ) -> Result<usize, ClientError> {
        let known: Vec<usize> = (0..arms.len()).filter(|&arm| arms[arm].slot != NO_SLOT).collect();
        if let Some(model) = model.filter(|_| !known.is_empty()) {
            let scored = known.iter().map(|&arm| arms[arm]);
            match lock(&self.core.device).choose(Some(model), scored) {
                Ok(index) => return Ok(known[index]),
                Err(error) => problems.push(Problem::Choice(error)),
            }
        }
        match incumbent {
            Some(default) if default < arms.len() => return Ok(default),
            Some(default) => {
                problems.push(Problem::DefaultAction { default, actions: arms.len() });
            }
            None => {}
        }
        chance::index(arms.len())
    }

    /// Makes a decision the one that is reported, if the next one is.
    fn submit(&self, pending: Pending) {
        let taken = self.reports.progress.send_if_modified(|progress| {
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
        Ok(self.core.fetch_model().await?.0)
    }

    /// Waits until no report is pending or on its way. Without network that takes until there is:
    /// use a timeout.
    pub async fn flush(&self) {
        // The sender lives as long as the client does, so there is no error.
        let idle = |progress: &Progress| progress.phase != Phase::Busy && progress.uploads == 0;
        let _ = self.reports.progress.subscribe().wait_for(idle).await;
    }

    /// Stops the background work and sets the state file free. Dropping does the same, a moment
    /// later.
    pub async fn close(self) {
        let mut background = std::mem::take(&mut *lock(&self.background));
        background.shutdown().await;
        self.core.store.settle().await;
        self.reports.store.settle().await;
    }

    /// How the client is doing.
    pub fn status(&self) -> Status {
        let of_reports = self.reports.status(self.group);
        let Status { model_version, last_error, .. } = self.core.status(self.group);
        Status { model_version, last_error: of_reports.last_error.or(last_error), ..of_reports }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("status", &self.status()).finish_non_exhaustive()
    }
}
