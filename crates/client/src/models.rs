//! Following the published models, at times that depend on nothing the device does.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{chance, core::Core};

/// Upper bound of a pause that a server asks for.
const LONGEST: Duration = Duration::from_secs(3600);

/// Fetches models for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        // Failures are tried again with growing pauses, so there is an answer in the end.
        let fresh_for = core.retry(|| core.fetch_model(), |_| true).await.map(|(_, time)| time);
        let share = chance::unit().unwrap_or(1.0);
        sleep(pause(core.settings.model_interval, fresh_for.unwrap_or_default(), share)).await;
    }
}

/// From one to two times what is asked for: never before caches let go of the last answer, and
/// spread, so that devices that began together do not stay together.
fn pause(least: Duration, fresh_for: Duration, share: f64) -> Duration {
    least.max(fresh_for.min(LONGEST)).mul_f64(1.0 + share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_fetch_is_when_caches_let_go_and_at_most_twice_as_late() {
        let seconds = Duration::from_secs;
        let least = seconds(30);
        for (fresh_for, from) in [(0, 30), (5, 30), (30, 30), (60, 60), (3600, 3600), (99999, 3600)]
        {
            assert_eq!(pause(least, seconds(fresh_for), 0.0), seconds(from), "{fresh_for}");
            assert_eq!(pause(least, seconds(fresh_for), 1.0), seconds(2 * from), "{fresh_for}");
        }
        assert_eq!(pause(least, Duration::MAX, 1.0), 2 * LONGEST);
    }
}
