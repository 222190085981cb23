//! One report at a time, at a moment that was drawn before any reward.

use std::sync::{Arc, Mutex};

use incrowd_envelope::seal;
use incrowd_protocol::{Report, Round, TaskNotice};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    ClientError, Phase,
    backoff::Backoff,
    chance,
    core::{Core, lock},
    state::Upload,
};

/// A decision that will be reported.
///
/// # Privacy
/// `due` is drawn when the decision is made and never changes, so that the time of sending has the same law for every reward.
pub(crate) struct Pending {
    pub(crate) x: Vec<f64>,
    pub(crate) due: Instant,
    /// The last reward that was given within the window.
    pub(crate) reward: Arc<Mutex<Option<f64>>>,
}

/// Reports decisions for as long as the client lives and may report. `open` says that decisions are taken already.
pub(crate) async fn run(core: Arc<Core>, mut decisions: mpsc::Receiver<Pending>, mut open: bool) {
    loop {
        if !open {
            if let Some(upload) = core.store.read().await.upload {
                deliver(&core, upload).await;
            }
            if !wait_for_turn(&core).await {
                break;
            }
            core.phase.send_replace(Phase::Open);
        }
        // Whoever sends a decision has made the phase `Busy`: there is no second one.
        let Some(pending) = decisions.recv().await else { return };
        sleep_until(pending.due).await;
        match report(&core, &pending).await {
            Ok(Some(upload)) => deliver(&core, upload).await,
            Ok(None) => break,
            // Such errors do not depend on the context or the reward.
            Err(error) => core.note(error),
        }
        open = false;
    }
    core.phase.send_replace(Phase::Done);
}

/// Waits until the last report's grace window is over. Whether there will be a next report.
async fn wait_for_turn(core: &Core) -> bool {
    loop {
        match core.turn().await {
            Phase::Done => return false,
            Phase::Waiting => {}
            _ => return true,
        }
        core.phase.send_replace(Phase::Waiting);
        match core.fetch_round().await {
            Ok(None) => return false,
            Ok(Some(_)) if core.turn().await == Phase::Open => return true,
            Ok(Some(_)) => {}
            Err(error) => core.note(error),
        }
        let share = chance::unit().unwrap_or(1.0);
        sleep(core.settings.poll_interval.mul_f64(0.5 + share)).await;
    }
}

/// Makes the report of a decision and writes it down; none when the task is over.
async fn report(core: &Core, pending: &Pending) -> Result<Option<Upload>, ClientError> {
    let mut backoff = Backoff::new();
    let (round, notice) = loop {
        match ask(core).await {
            Ok(Some(answers)) => break answers,
            Ok(None) => return Ok(None),
            Err(error) => {
                let asked = error.retry_after();
                core.note(error);
                backoff.wait(asked).await;
            }
        }
    };
    let mechanism = core.task.mechanism();
    let reward = lock(&pending.reward).unwrap_or(core.settings.default_reward);
    let (report, participation) = {
        let mut device = lock(&core.device);
        // What was wrong with the input, the application has already learnt from the decision.
        let answer = device.report(round.number, &pending.x, reward)?;
        (answer.report, device.participation())
    };
    let bytes = report.encode(mechanism)?;
    let upload = if core.settings.plain {
        Upload { body: bytes.clone(), report: bytes, sealed: false }
    } else {
        sealed(core, &notice, &report, bytes)?
    };
    core.store
        .update(|state| {
            state.participation = participation;
            state.upload = Some(upload.clone());
            Ok(())
        })
        .await?;
    Ok(Some(upload))
}

/// The round and a notice to seal with; none when the task is over.
async fn ask(core: &Core) -> Result<Option<(Round, TaskNotice)>, ClientError> {
    let mut notice = core.fresh_notice().await?;
    if !core.settings.plain && notice.sealing_key().is_none() {
        // A key may have become active since.
        notice = core.fetch_notice().await?;
        notice.sealing_key().ok_or(ClientError::NoSealingKey)?;
    }
    Ok(core.fetch_round().await?.map(|round| (round, notice)))
}

/// The report, ready to be sent to the notice's key.
fn sealed(
    core: &Core,
    notice: &TaskNotice,
    report: &Report,
    bytes: Vec<u8>,
) -> Result<Upload, ClientError> {
    let key = notice.sealing_key().ok_or(ClientError::NoSealingKey)?;
    let body = seal(&core.task.id(), key, report.round(), report.id(), &bytes)?;
    Ok(Upload { body, report: bytes, sealed: true })
}

/// Sends the same bytes until they are acknowledged, or refused for good.
async fn deliver(core: &Core, mut upload: Upload) {
    let mut backoff = Backoff::new();
    let mut resealed = false;
    loop {
        match attempt(core, &upload).await {
            Ok(()) => {
                lock(&core.live).reports_sent += 1;
                break;
            }
            Err(error) if error.is_unknown_key() && upload.sealed && !resealed => {
                core.note(error);
                match reseal(core, &upload).await {
                    Ok(again) => (upload, resealed) = (again, true),
                    Err(error) => {
                        let asked = error.retry_after();
                        core.note(error);
                        backoff.wait(asked).await;
                    }
                }
            }
            Err(error) => {
                let (passing, asked) = (error.is_passing(), error.retry_after());
                core.note(error);
                if !passing {
                    break;
                }
                backoff.wait(asked).await;
            }
        }
    }
    let done = core.store.update(|state| {
        state.upload = None;
        Ok(())
    });
    if let Err(error) = done.await {
        core.note(error);
    }
}

async fn attempt(core: &Core, upload: &Upload) -> Result<(), ClientError> {
    let report = upload.decode(core.task.mechanism())?;
    core.shuffler.put(report.id(), upload.sealed, upload.body.clone()).await
}

/// The same report, sealed to the key that the shuffler has now. It has the same id, so it counts once.
async fn reseal(core: &Core, upload: &Upload) -> Result<Upload, ClientError> {
    let notice = core.fetch_notice().await?;
    let report = upload.decode(core.task.mechanism())?;
    let again = sealed(core, &notice, &report, upload.report.clone())?;
    core.store
        .update(|state| {
            state.upload = Some(again.clone());
            Ok(())
        })
        .await?;
    Ok(again)
}
