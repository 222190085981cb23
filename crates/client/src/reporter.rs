//! From a decision to a report that is written down, at a moment that was drawn before any reward.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use incrowd_device::Arm;
use incrowd_protocol::{OpenRound, TaskNotice};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use crate::{
    ClientError, Phase, chance,
    core::{Core, FRESH, lock},
    state::Upload,
};

/// How long to sleep at most before the device's clock is read again: it may be set, or the device
/// suspended.
const LONGEST_NAP: Duration = Duration::from_secs(60);

/// A decision that will be reported.
///
/// # Privacy
/// `due` is drawn when the decision is made and never changes, so that the time of sending has the
/// same law for every reward.
pub(crate) struct Pending {
    pub(crate) slot: u32,
    pub(crate) x: Vec<f64>,
    pub(crate) due: Instant,
    /// The last reward that was given within the window.
    pub(crate) reward: Arc<Mutex<Option<f64>>>,
}

/// Reports decisions for as long as the client lives and may report. `open` says that decisions are
/// taken already; `made` is where reports are delivered from.
pub(crate) async fn run(
    core: Arc<Core>,
    mut decisions: mpsc::Receiver<Pending>,
    made: mpsc::UnboundedSender<Upload>,
    mut open: bool,
) {
    loop {
        if !open {
            if !core.by_time() {
                // The next round is asked for when the last report is decided.
                core.delivered().await;
            }
            if !wait_for_turn(&core).await {
                break;
            }
            core.enter(Phase::Open);
        }
        // Whoever sends a decision has made the phase `Busy`: there is no second one.
        let Some(pending) = decisions.recv().await else { return };
        match report(&core, &pending).await {
            Ok(Some(upload)) => {
                core.progress.send_modify(|progress| progress.uploads += 1);
                // The receiver lives as long as the client does.
                let _ = made.send(upload);
            }
            // Without a report: the task is over, or no round was open at that moment.
            Ok(None) if !core.by_time() => break,
            Ok(None) => {}
            // Such errors do not depend on the context or the reward.
            Err(error) => core.note(error),
        }
        open = false;
    }
    core.enter(Phase::Done);
}

/// Waits until the device may report again. Whether there will be a next report.
async fn wait_for_turn(core: &Core) -> bool {
    loop {
        match core.turn().await {
            Phase::Done => return false,
            Phase::Waiting => {}
            _ => return true,
        }
        core.enter(Phase::Waiting);
        if let Some(opening) = core.next_opening().await {
            let wait = Duration::from_millis(opening.saturating_sub(core.now()).max(1));
            sleep(wait.min(LONGEST_NAP)).await;
            continue;
        }
        let asked = if core.by_time() {
            core.fresh_notice_and_time().await.map(|()| true)
        } else {
            core.fetch_round().await.map(|round| round.is_some())
        };
        match asked {
            Ok(false) => return false,
            Ok(true) if core.turn().await == Phase::Open => return true,
            Ok(true) => {}
            Err(error) => core.note(error),
        }
        let share = chance::unit().unwrap_or(1.0);
        sleep(core.settings.poll_interval.mul_f64(0.5 + share)).await;
    }
}

/// Waits until the decision is due and makes its report, if there is a round for it.
///
/// # Privacy
/// Where batches close by time, the report belongs to the round that is open when the decision is
/// due, with or without network, and to no other one ever. If none is open, or this device has
/// reported in it, there is no report. Where they close by count the round must be asked for, as
/// long as that takes: such a task does not survive closed apps and lost networks, so `time` is
/// what is deployed.
async fn report(core: &Core, pending: &Pending) -> Result<Option<Upload>, ClientError> {
    if core.by_time() {
        prepare(core, pending.due).await;
        sleep_until(pending.due).await;
        let Some(OpenRound::Open(round)) = core.open_round() else { return Ok(None) };
        if !lock(&core.device).participation().next(core.task.mechanism()).allows(round) {
            return Ok(None);
        }
        make(core, round, pending).await.map(Some)
    } else {
        sleep_until(pending.due).await;
        match core.retry(|| ask(core), |_| true).await? {
            Some(round) => make(core, round, pending).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Asks for the time and the keys shortly before the decision is due, and not any longer.
async fn prepare(core: &Core, due: Instant) {
    if let Some(ahead) = due.checked_sub(FRESH) {
        sleep_until(ahead).await;
    }
    if Instant::now() < due {
        let asked = core.retry(|| core.fresh_notice_and_time(), |_| true);
        // Without an answer what is known is good enough.
        let _ = timeout_at(due, asked).await;
    }
}

/// The round, once there is a key to seal with; none when the task is over.
async fn ask(core: &Core) -> Result<Option<u32>, ClientError> {
    let notice = core.fresh_notice().await?;
    if !core.settings.plain && notice.sealing_key().is_none() {
        // A key may have become active since.
        let notice = core.fetch_notice().await?;
        notice.sealing_key().ok_or(ClientError::NoSealingKey)?;
    }
    Ok(core.fetch_round().await?.map(|round| round.number))
}

/// Spends the participation, randomizes, seals if there is a key, and writes all that down.
async fn make(core: &Core, round: u32, pending: &Pending) -> Result<Upload, ClientError> {
    let reward = lock(&pending.reward).unwrap_or(core.settings.default_reward);
    let (report, participation) = {
        let mut device = lock(&core.device);
        // What was wrong with the input, the application has already learnt from the decision.
        let arm = Arm { slot: pending.slot, features: &pending.x };
        let answer = device.report(round, arm, reward)?;
        (answer.report, device.participation())
    };
    let bytes = report.encode(core.task.mechanism())?;
    let upload = if core.settings.plain {
        Upload::plain(report.id(), round, bytes)
    } else {
        let upload = Upload::unsealed(report.id(), round, bytes);
        seal_now(core, upload)
    };
    // The report is made and its participation spent: it is written down, however long that takes.
    let write = || {
        core.store.update(|state| {
            state.participation = participation;
            state.uploads.push(upload.clone());
            Ok(())
        })
    };
    core.retry(write, |_| true).await?;
    Ok(upload)
}

/// The upload, sealed to the key of the last notice. Without one it is sealed when it is delivered.
fn seal_now(core: &Core, upload: Upload) -> Upload {
    let notice: TaskNotice = lock(&core.live).notice.0.clone();
    match notice.sealing_key().map(|key| upload.sealed_to(core.task.id(), key)) {
        Some(Ok(sealed)) => sealed,
        Some(Err(error)) => {
            core.note(error);
            upload
        }
        None => upload,
    }
}
