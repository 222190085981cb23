//! How long to wait before the same request is sent again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder, Retryable};

/// A server that asks for more is not believed.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// Pauses that double up to a limit, without end and without jitter: for a service that asks
/// another one.
#[derive(Debug)]
pub struct Pauses(ExponentialBackoff);

impl Pauses {
    /// From `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self(doubling(first, longest).build())
    }

    /// How long to wait now.
    pub fn next_pause(&mut self) -> Duration {
        self.0.next().expect("invariant: the number of pauses is not limited")
    }
}

fn doubling(first: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_factor(2.0)
        .with_min_delay(first.min(longest))
        .with_max_delay(longest)
        .without_max_times()
}

/// An error after which a server may have asked to wait.
pub trait Asks {
    /// How long.
    fn retry_after(&self) -> Option<Duration>;
}

impl Asks for crate::TransportError {
    fn retry_after(&self) -> Option<Duration> {
        Self::retry_after(self)
    }
}

/// Tries as a device does, as long as the error is `passing`, and tells each error that is followed
/// by another try.
///
/// Exponential backoff with full jitter: before the n-th retry the wait is uniform from 0 to
/// 2^(n-1) seconds, at most five minutes, after what the server asked for.
pub async fn patiently<T, E: Asks, F: Future<Output = Result<T, E>>>(
    attempt: impl FnMut() -> F,
    passing: impl FnMut(&E) -> bool,
    mut tell: impl FnMut(&E),
) -> Result<T, E> {
    attempt
        .retry(doubling(FIRST, LONGEST))
        .sleep(tokio::time::sleep)
        .when(passing)
        .adjust(|error, limit| limit.map(|limit| wait(limit, error.retry_after())))
        .notify(|error, _| tell(error))
        .await
}

/// Uniform up to the limit, after what the server asked for.
fn wait(limit: Duration, asked: Option<Duration>) -> Duration {
    // Without randomness the longest wait is the safe one.
    let share = getrandom::u64().map_or(1.0, |word| (word >> 11) as f64 / (1u64 << 53) as f64);
    limit.mul_f64(share) + asked.unwrap_or_default().min(LONGEST_ASKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_honour_the_server() {
        let limits: Vec<Duration> = doubling(FIRST, LONGEST).build().take(20).collect();
        for (n, limit) in limits.into_iter().enumerate() {
            assert_eq!(limit, Duration::from_secs(1 << n.min(9)).min(LONGEST), "wait {n}");
            assert!(wait(limit, None) <= limit);
        }
        // All of 60 uniform draws in one half: 2 * 2^-60.
        let waits: Vec<Duration> = (0..60).map(|_| wait(LONGEST, None)).collect();
        assert!(waits.iter().any(|wait| *wait < LONGEST / 2));
        assert!(waits.iter().any(|wait| *wait > LONGEST / 2));
        let asked = Duration::from_secs(7);
        assert!(wait(FIRST, Some(asked)) >= asked);
        assert!(wait(FIRST, Some(Duration::MAX)) <= LONGEST_ASKED + FIRST);
    }

    #[test]
    fn a_limit_below_the_first_wait_holds() {
        let short = Duration::from_millis(10);
        let mut pauses = Pauses::new(FIRST, short);
        assert_eq!([(); 3].map(|()| pauses.next_pause()), [short; 3]);
    }
}
