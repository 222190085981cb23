//! Reports that are made and not decided yet: each is sent as the same bytes until the shuffler's
//! last word, beside the others, so that one that cannot be delivered holds up none.

use std::{convert::Infallible, future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use incrowd_protocol::ProblemKind;
use tokio::sync::mpsc;

use crate::{
    ClientError,
    core::{Core, lock},
    state::{State, Upload},
};

type Delivery = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Delivers what the state file kept, oldest first, and everything that is `made`.
pub(crate) async fn run(
    core: Arc<Core>,
    kept: Vec<Upload>,
    mut made: mpsc::UnboundedReceiver<Upload>,
) {
    let delivery = |upload| -> Delivery { Box::pin(deliver(Arc::clone(&core), upload)) };
    let mut on_the_way: Vec<Delivery> = kept.into_iter().map(delivery).collect();
    let forever = poll_fn(|context| {
        while let Poll::Ready(Some(upload)) = made.poll_recv(context) {
            on_the_way.push(delivery(upload));
        }
        on_the_way.retain_mut(|delivery| delivery.as_mut().poll(context).is_pending());
        Poll::<Infallible>::Pending
    });
    match forever.await {}
}

/// Sends a report until it is acknowledged, or the shuffler has refused it for good. Its
/// participation stays spent either way.
async fn deliver(core: Arc<Core>, upload: Upload) {
    let id = upload.id();
    match decide(&core, upload).await {
        Ok(()) => lock(&core.live).reports_sent += 1,
        Err(error) => core.note(error),
    }
    let done = core.store.update(|state| {
        state.uploads.retain(|upload| upload.id() != id);
        Ok(())
    });
    if let Err(error) = done.await {
        // It is sent again after a restart: the same bytes, which count once.
        core.note(error);
    }
    core.progress.send_modify(|progress| progress.uploads -= 1);
}

/// What the shuffler decides about a report. One that is sealed to a key it does not have is sealed
/// again, once.
async fn decide(core: &Core, mut upload: Upload) -> Result<(), ClientError> {
    if upload.needs_seal() {
        upload = core.retry(|| seal(core, &upload), |_| true).await?;
    }
    let outcome = send(core, &upload).await;
    match outcome {
        Err(error) if error.kind() == Some(ProblemKind::UnknownKey) && upload.is_sealed() => {
            core.note(error);
            let again = core.retry(|| seal(core, &upload), |_| true).await?;
            send(core, &again).await
        }
        outcome => outcome,
    }
}

/// Sends the same bytes until there is an answer that is the shuffler's last word: no proxy's error
/// and no revoked token ends this.
///
/// # Privacy
/// Refusals are not signed: who carries a report can make one up, as it can drop the report. The
/// guarantee holds for any reports that come in.
async fn send(core: &Core, upload: &Upload) -> Result<(), ClientError> {
    core.retry(|| attempt(core, upload), |error| !error.is_final()).await
}

async fn attempt(core: &Core, upload: &Upload) -> Result<(), ClientError> {
    let body = upload.body().to_vec();
    let sent = core.shuffler.put(&core.task.id(), upload.id(), upload.is_sealed(), body).await;
    let Err(error) = sent else { return Ok(()) };
    core.after_oblivious(&error).await;
    if error.kind() == Some(ProblemKind::Early)
        && core.by_time()
        // The device's clock is ahead.
        && let Err(error) = core.ask_time().await
    {
        core.note(error);
    }
    Err(error.into())
}

/// The same report, sealed to the key that the shuffler has now. It has the same id, so it counts
/// once.
async fn seal(core: &Core, upload: &Upload) -> Result<Upload, ClientError> {
    let notice = core.fetch_notice().await?;
    let key = notice.sealing_key().ok_or(ClientError::NoSealingKey)?;
    let sealed = upload.sealed_to(core.task.id(), key)?;
    let change = |state: &mut State| {
        let slot = state.uploads.iter_mut().find(|kept| kept.id() == sealed.id());
        slot.into_iter().for_each(|kept| *kept = sealed.clone());
        Ok(())
    };
    core.store.update(change).await?;
    Ok(sealed)
}
