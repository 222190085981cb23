use std::time::Duration;

use crate::chance;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// A server that asks for more is not believed.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// Exponential backoff with full jitter: the n-th wait is uniform from 0 to 2^n seconds, at most five minutes.
pub(crate) struct Backoff {
    limit: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { limit: FIRST }
    }

    /// The next wait, after what the server asked for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        // Without randomness the longest wait is the safe one.
        let share = chance::unit().unwrap_or(1.0);
        let wait = self.limit.mul_f64(share) + asked.unwrap_or_default().min(LONGEST_ASKED);
        self.limit = (self.limit * 2).min(LONGEST);
        wait
    }

    pub(crate) async fn wait(&mut self, asked: Option<Duration>) {
        tokio::time::sleep(self.next(asked)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_honour_the_server() {
        let mut backoff = Backoff::new();
        for n in 0..20 {
            let limit = Duration::from_secs(1 << n.min(9)).min(LONGEST);
            assert!(backoff.next(None) <= limit, "wait {n}");
        }
        assert_eq!(backoff.limit, LONGEST);
        let asked = Duration::from_secs(7);
        assert!(Backoff::new().next(Some(asked)) >= asked);
        assert!(Backoff::new().next(Some(Duration::MAX)) <= LONGEST_ASKED + FIRST);
    }
}
