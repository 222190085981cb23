//! One report at a time, at a moment that was drawn before any reward.

use std::sync::{Arc, Mutex};

use incrowd_envelope::seal;
use incrowd_protocol::{ReportId, Round, TaskNotice};
use incrowd_transport::TransportError;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    ClientError, Phase, chance,
    core::{Core, lock},
    state::Upload,
};

/// A decision that will be reported.
///
/// # Privacy
/// `due` is drawn when the decision is made and never changes, so that the time of sending has the
/// same law for every reward.
pub(crate) struct Pending {
    pub(crate) x: Vec<f64>,
    pub(crate) due: Instant,
    /// The last reward that was given within the window.
    pub(crate) reward: Arc<Mutex<Option<f64>>>,
}

/// Reports decisions for as long as the client lives and may report. `open` says that decisions are
/// taken already.
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
    let Some((round, notice)) = core.retry(|| ask(core), |_| true).await? else {
        return Ok(None);
    };
    let reward = lock(&pending.reward).unwrap_or(core.settings.default_reward);
    let (report, participation) = {
        let mut device = lock(&core.device);
        // What was wrong with the input, the application has already learnt from the decision.
        let answer = device.report(round.number, &pending.x, reward)?;
        (answer.report, device.participation())
    };
    let bytes = report.encode(core.task.mechanism())?;
    let (id, round) = (report.id(), report.round());
    let upload = if core.settings.plain {
        Upload::plain(id, round, bytes)
    } else {
        sealed(core, &notice, id, round, bytes)?
    };
    // The report is made and its participation spent: it is written down, however long that takes.
    let write = || {
        core.store.update(|state| {
            state.participation = participation;
            state.upload = Some(upload.clone());
            Ok(())
        })
    };
    core.retry(write, |_| true).await?;
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
    id: ReportId,
    round: u32,
    report: Vec<u8>,
) -> Result<Upload, ClientError> {
    let key = notice.sealing_key().ok_or(ClientError::NoSealingKey)?;
    let body = seal(&core.task.id(), key, round, id, &report)?;
    Ok(Upload::sealed(id, round, body, report))
}

/// Sends a report until it is acknowledged, or the shuffler has refused it for good.
async fn deliver(core: &Core, upload: Upload) {
    let mut outcome = send(core, &upload).await;
    if let (Err(error), Some(report)) = (&outcome, upload.inside())
        && error.is_unknown_key()
    {
        core.note(error.clone());
        if let Ok(again) = core.retry(|| reseal(core, &upload, report), |_| true).await {
            outcome = send(core, &again).await;
        }
    }
    match outcome {
        Ok(()) => lock(&core.live).reports_sent += 1,
        Err(error) => core.note(error),
    }
    let done = core.store.update(|state| {
        state.upload = None;
        Ok(())
    });
    if let Err(error) = done.await {
        core.note(error);
    }
}

/// Sends the same bytes until there is an answer that is the shuffler's last word: no proxy's error
/// and no revoked token ends this.
async fn send(core: &Core, upload: &Upload) -> Result<(), ClientError> {
    core.retry(|| attempt(core, upload), |error| !error.is_final()).await
}

async fn attempt(core: &Core, upload: &Upload) -> Result<(), ClientError> {
    let body = upload.body().to_vec();
    let sealed = upload.inside().is_some();
    let sent = core.shuffler.put(&core.task.id(), upload.id(), sealed, body).await;
    if sent.as_ref().is_err_and(TransportError::is_oblivious)
        && let Err(error) = core.fetch_notice().await
    {
        // The gateway's keys may have changed: a new notice has them.
        core.note(error);
    }
    Ok(sent?)
}

/// The same report, sealed to the key that the shuffler has now. It has the same id, so it counts
/// once.
async fn reseal(core: &Core, upload: &Upload, report: &[u8]) -> Result<Upload, ClientError> {
    let notice = core.fetch_notice().await?;
    let again = sealed(core, &notice, upload.id(), upload.round(), report.to_vec())?;
    core.store
        .update(|state| {
            state.upload = Some(again.clone());
            Ok(())
        })
        .await?;
    Ok(again)
}
