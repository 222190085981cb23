use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use incrowd_device::{Device, Next};
use incrowd_envelope::Signed;
use incrowd_protocol::{Closes, EntityTag, Model, OpenRound, Round, RoundNotice, Task, TaskNotice};
use incrowd_transport::{BanditApi, ShufflerApi, TransportError, retry};
use tokio::{sync::watch, time::Instant};

use crate::{
    ClientError, Group, Phase, Status,
    builder::Settings,
    clock::Correction,
    state::{State, Store},
};

/// How long a notice is good for sealing: keys that are rotated stay open for longer than that. A
/// clock does not go wrong in that time either.
pub(crate) const FRESH: Duration = Duration::from_secs(60);

/// What ranking and the background tasks share.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) task: Task,
    pub(crate) shuffler: ShufflerApi,
    pub(crate) bandit: BanditApi,
    pub(crate) store: Store,
    pub(crate) device: Mutex<Device>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) live: Arc<Mutex<Live>>,
}

/// What [`Client::flush`](crate::Client::flush) waits for.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) phase: Phase,
    /// Reports that are made and not decided.
    pub(crate) uploads: usize,
}

/// What changes, and is read without waiting.
pub(crate) struct Live {
    pub(crate) model: Option<Arc<Model>>,
    /// The last model that came over the network, in this process.
    pub(crate) fetched: Option<EntityTag>,
    /// The last notice, and when it came over the network.
    pub(crate) notice: (TaskNotice, Option<Instant>),
    pub(crate) round: u32,
    /// From this device's clock to the shuffler's, and when that was heard.
    pub(crate) clock: (Correction, Option<Instant>),
    pub(crate) reports_sent: u64,
    pub(crate) last_error: Option<ClientError>,
}

/// The value, also after a panic elsewhere: none of the values here can be left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Whether the clock closes batches.
    pub(crate) fn by_time(&self) -> bool {
        matches!(self.task.mechanism().closes(), Closes::Time { .. })
    }

    /// The shuffler's time, as far as this device knows it.
    pub(crate) fn now(&self) -> u64 {
        lock(&self.live).clock.0.apply(self.settings.wall.now())
    }

    /// The round that is open by that time; none where batches close by count.
    pub(crate) fn open_round(&self) -> Option<OpenRound> {
        self.task.mechanism().round_at(self.now())
    }

    /// Whether the next decision can be reported. It looks at rounds and participation only.
    pub(crate) async fn turn(&self) -> Phase {
        let state = self.store.read().await;
        let mechanism = self.task.mechanism();
        let open_if = |open: bool| if open { Phase::Open } else { Phase::Waiting };
        match (state.participation.next(mechanism), self.open_round()) {
            (Next::Spent, _) => Phase::Done,
            (next, None) => open_if(next.allows(state.newest_round)),
            (Next::From(first), Some(_))
                if u64::from(mechanism.schedule().last_round()) < first =>
            {
                Phase::Done
            }
            (next, Some(OpenRound::Open(round))) => open_if(next.allows(round)),
            // A decision of now may be due when round 1 is open.
            (next, Some(OpenRound::NotYet)) => open_if(next == Next::Now),
            // The device's own clock alone does not end a task.
            (_, Some(OpenRound::Over)) if lock(&self.live).clock.1.is_none() => Phase::Waiting,
            (_, Some(OpenRound::Over)) => Phase::Done,
        }
    }

    /// When the first round opens in which this device may report again, where only that is waited
    /// for.
    pub(crate) async fn next_opening(&self) -> Option<u64> {
        if self.open_round()? == OpenRound::Over {
            return None;
        }
        let mechanism = self.task.mechanism();
        let Next::From(first) = self.store.read().await.participation.next(mechanism) else {
            return None;
        };
        Some(mechanism.window(u32::try_from(first).ok()?).ok()??.opens)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.progress.send_modify(|progress| progress.phase = phase);
    }

    /// Waits until all reports that were made are decided.
    pub(crate) async fn delivered(&self) {
        // The sender lives as long as the core does, so there is no error.
        let _ = self.progress.subscribe().wait_for(|progress| progress.uploads == 0).await;
    }

    /// How it is doing, for a device of this group.
    pub(crate) fn status(&self, group: Group) -> Status {
        let round = match self.open_round() {
            None => lock(&self.live).round,
            Some(OpenRound::Open(round)) => round,
            Some(_) => 0,
        };
        let Progress { phase, uploads } = *self.progress.borrow();
        let live = lock(&self.live);
        Status {
            group,
            phase,
            uploads,
            model_version: live.model.as_ref().map(|model| model.version()),
            round: (round > 0).then_some(round),
            reports_sent: live.reports_sent,
            last_error: live.last_error.as_ref().map(ToString::to_string),
        }
    }

    pub(crate) fn note(&self, error: ClientError) {
        lock(&self.live).last_error = Some(error);
    }

    /// Tries as long as the error is `passing`, and notes each error that is followed by another
    /// try.
    pub(crate) async fn retry<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        attempt: impl FnMut() -> F,
        passing: impl FnMut(&ClientError) -> bool,
    ) -> Result<T, ClientError> {
        retry::patiently(attempt, passing, |error| self.note(error.clone())).await
    }

    /// The notice of the round. After an error on the way through relay and gateway the next try is
    /// made with the keys of a new notice.
    async fn round_notice(&self) -> Result<RoundNotice, TransportError> {
        let notice = self.shuffler.round_notice(&self.task).await;
        if let Err(error) = &notice {
            self.after_oblivious(error).await;
        }
        notice
    }

    /// Fetches the current round, never one before the newest seen; none when the task is over.
    pub(crate) async fn fetch_round(&self) -> Result<Option<Round>, ClientError> {
        let round = self.round_notice().await?.round;
        let live = Arc::clone(&self.live);
        let change = |state: &mut State| {
            let newest = state.newest_round;
            let found = round.map_or(newest, |round| round.number);
            if found < newest {
                return Err(ClientError::RoundRollback { found, newest });
            }
            state.newest_round = found;
            Ok(round)
        };
        let believe = move |round: &Option<Round>| {
            if let Some(round) = round {
                lock(&live).round = round.number;
            }
        };
        self.store.update_then(change, believe).await
    }

    /// Asks the shuffler for its time, and corrects this device's clock by it.
    pub(crate) async fn ask_time(&self) -> Result<(), ClientError> {
        let sent = self.settings.wall.now();
        let notice = self.round_notice().await?;
        let received = self.settings.wall.now();
        let time = notice.time.ok_or(TransportError::Document("round"))?;
        let live = Arc::clone(&self.live);
        let change = |state: &mut State| {
            state.clock = state.clock.heard(time, sent, received);
            Ok((state.clock, Instant::now()))
        };
        let believe = move |(clock, heard): &(Correction, Instant)| {
            lock(&live).clock = (*clock, Some(*heard));
        };
        self.store.update_then(change, believe).await.map(drop)
    }

    /// Sees to it that the keys and the time are known as they are now.
    pub(crate) async fn fresh_notice_and_time(&self) -> Result<(), ClientError> {
        self.fresh_notice().await?;
        let heard = lock(&self.live).clock.1;
        if heard.is_some_and(|heard| heard.elapsed() < FRESH) {
            Ok(())
        } else {
            self.ask_time().await
        }
    }

    /// A notice that is fresh enough to seal with.
    pub(crate) async fn fresh_notice(&self) -> Result<TaskNotice, ClientError> {
        let (notice, fetched) = lock(&self.live).notice.clone();
        if fetched.is_some_and(|fetched| fetched.elapsed() < FRESH) {
            return Ok(notice);
        }
        self.fetch_notice().await
    }

    pub(crate) async fn fetch_notice(&self) -> Result<TaskNotice, ClientError> {
        let (signed, notice) = self.shuffler.notice(&self.task.id()).await?;
        let live = Arc::clone(&self.live);
        let change = |state: &mut State| {
            state.notice = Some(signed);
            Ok(notice)
        };
        let believe = move |notice: &TaskNotice| {
            lock(&live).notice = (notice.clone(), Some(Instant::now()));
        };
        self.store.update_then(change, believe).await
    }

    /// Fetches the notice after an error on the way through relay and gateway: their keys may have
    /// changed, and a new notice has them.
    pub(crate) async fn after_oblivious(&self, error: &TransportError) {
        if error.is_oblivious()
            && let Err(error) = self.fetch_notice().await
        {
            self.note(error);
        }
    }

    /// Fetches the newest model; whether it is newer, and how long the answer is good for. A cache
    /// on the way may give out an older one for a while, which changes nothing.
    ///
    /// # Privacy
    /// The device ranks with a model only once the state file has its version: otherwise a restart
    /// could accept an older one. Only a model that this process fetched is named in a request: one
    /// of an earlier life would tell how long the device was away.
    pub(crate) async fn fetch_model(&self) -> Result<(bool, Duration), ClientError> {
        let known = lock(&self.live).fetched.clone();
        let answer = self.bandit.model(&self.task, known.as_ref()).await;
        if let Err(error) = &answer {
            self.after_oblivious(error).await;
        }
        let answer = answer?;
        let fresh_for = answer.fresh_for;
        let Some((signed, model)) = answer.model else { return Ok((false, fresh_for)) };
        let tag = EntityTag::of(&signed.body);
        let newer = self.believe_model(signed, model).await?;
        // Only now: what could not be written down must come again.
        lock(&self.live).fetched = Some(tag);
        Ok((newer, fresh_for))
    }

    /// Takes a checked model into use, if it is newer; whether it was.
    async fn believe_model(&self, signed: Signed, model: Model) -> Result<bool, ClientError> {
        let model = Arc::new(model);
        let (live, believed) = (Arc::clone(&self.live), Arc::clone(&model));
        let change = |state: &mut State| {
            // The live model changes only inside updates, so no other fetch comes between.
            let newest = lock(&self.live).model.as_ref().map_or(0, |model| model.version());
            if model.version() < newest || state.model.as_ref() == Some(&signed) {
                return Ok(false);
            }
            if model.version() == newest {
                return Err(ClientError::ModelChanged { version: newest });
            }
            state.model = Some(signed);
            Ok(true)
        };
        let believe = move |newer: &bool| {
            if *newer {
                lock(&live).model = Some(believed);
            }
        };
        self.store.update_then(change, believe).await
    }
}
