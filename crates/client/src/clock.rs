//! The time of the shuffler, as a device knows it: its own clock, corrected by signed notices.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A notice's time is cut to whole seconds.
const CUT: i64 = 1000;
/// How old a notice may be when it comes, because of caches on the way.
const OLDEST: i64 = 2000;

/// The device's own clock, in milliseconds since 1970.
#[derive(Clone)]
pub(crate) struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    #[cfg(feature = "test-clock")]
    pub(crate) fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(clock))
    }

    pub(crate) fn now(&self) -> u64 {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The system's. A clock before 1970 is as wrong as one that stands at 1970.
    fn default() -> Self {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Self(Arc::new(move || u64::try_from(now()).unwrap_or(u64::MAX)))
    }
}

/// Milliseconds that the shuffler's clock is ahead of the device's.
///
/// # Privacy
/// Only signed notices change it, never a context or a reward. A notice that is held back and
/// replayed can set the clock back, so that the next report comes late and is dropped, which
/// whoever carries reports can do anyway; that no round gets two reports does not depend on the
/// clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Correction(i64);

impl Correction {
    /// The shuffler's time when the device's clock says `wall`.
    pub(crate) fn apply(self, wall: u64) -> u64 {
        wall.saturating_add_signed(self.0)
    }

    /// The correction after a signed notice with this `time`, which was asked for at `sent` and
    /// came at `received` by the device's clock.
    ///
    /// The shuffler signed it before it came, and after it was asked for, or a cache's age earlier:
    /// that leaves a range of corrections. One within the range stays, so that notices do not make
    /// a clock that is right jitter; another becomes the nearest in the range.
    pub(crate) fn heard(self, time: u64, sent: u64, received: u64) -> Self {
        let least = difference(time, received);
        let most = difference(time, sent).saturating_add(CUT + OLDEST);
        // The device's clock may have been set back in between: then the range is empty, and what
        // is newer counts.
        Self(self.0.min(most).max(least))
    }
}

fn difference(a: u64, b: u64) -> i64 {
    let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    signed(a).saturating_sub(signed(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_800_000_000_000;
    const HOUR: i64 = 3_600_000;

    /// What the shuffler signs at a time.
    fn cut(time: u64) -> u64 {
        time / 1000 * 1000
    }

    #[test]
    fn a_clock_that_is_right_is_left_alone() {
        // Asked for at noon plus some milliseconds, answered 300 ms later, from a cache or not.
        for at in [0, 1, 500, 999] {
            for age in [0, 700, 2000] {
                let (sent, signed) = (NOON + at, cut(NOON + at + 150 - age));
                let kept = Correction(0).heard(signed, sent, sent + 300);
                assert_eq!(kept, Correction(0), "{at} {age}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_wrong_is_right_within_seconds() {
        for skew in [-10 * HOUR, -HOUR, -5000, 5000, HOUR, 1000 * HOUR] {
            for age in [0, 2000] {
                let wall = |true_time: u64| true_time.saturating_add_signed(skew);
                let signed = cut(NOON + 150 - age);
                let found = Correction(0).heard(signed, wall(NOON), wall(NOON + 300));
                let error = i128::from(found.apply(wall(NOON))) - i128::from(NOON);
                assert!(error.abs() <= 3300, "{skew} {age}: {error}");
                // Another notice leaves it there.
                let later = NOON + 60_000;
                let again = found.heard(cut(later), wall(later), wall(later + 10));
                let error = i128::from(again.apply(wall(later))) - i128::from(later);
                assert!(error.abs() <= 3300, "{skew} {age}: {error}");
            }
        }
    }

    #[test]
    fn numbers_at_the_end_of_their_range_do_not_overflow() {
        for time in [0, NOON, u64::MAX] {
            for wall in [0, NOON, u64::MAX] {
                let _ = Correction(i64::MIN).heard(time, wall, wall).apply(wall);
                let _ = Correction(i64::MAX).heard(time, wall, 0).apply(wall);
            }
        }
        // Set back by an hour while it was asking.
        let found = Correction(0).heard(NOON, NOON, NOON.saturating_add_signed(-HOUR));
        assert_eq!(found, Correction(HOUR));
    }
}
