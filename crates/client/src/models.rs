//! Following the published models, at times that depend on nothing the device does.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use crate::core::Core;

/// How long one request waits for a newer model.
const WAIT: Duration = Duration::from_secs(30);
/// Between two models that come at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Fetches models for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let asked = Instant::now();
        match core.retry(|| core.fetch_model(WAIT), |_| true).await {
            Ok(true) => sleep(PAUSE).await,
            // A server that does not wait is not asked more often for that.
            Ok(false) | Err(_) => sleep_until(asked + WAIT).await,
        }
    }
}
