//! Rounds that close by time: which one is open, and closing those whose time is over.

use std::time::{Duration, Instant, SystemTime};

use incrowd_device::{DeviceError, pads};
use incrowd_protocol::{Law, Mechanism, OpenRound};
use incrowd_shuffler::{Batch, Refusal};

/// Rounds of a task that one commit closes at most.
const ROUNDS: u32 = 64;
/// Coins of pads after which a commit closes no more of them.
const COINS: u64 = 1 << 31;
/// The wall clock jumped if it differs by more than this from the time that passed.
const JUMP: Duration = Duration::from_secs(1);

/// Milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The round that is open at a time for a task whose batch is at round `head` (none: the last round
/// is released); none where batches close by count. It is never behind the batch: when the clock
/// jumps back, the batch's round stays open until its time is over again.
pub(super) fn open_round(
    mechanism: &Mechanism,
    head: Option<u32>,
    milliseconds: u64,
) -> Option<OpenRound> {
    let by_clock = mechanism.round_at(milliseconds)?;
    Some(match (by_clock, head) {
        (OpenRound::Over, _) | (_, None) => OpenRound::Over,
        (OpenRound::NotYet, Some(1)) => OpenRound::NotYet,
        (OpenRound::NotYet, Some(head)) => OpenRound::Open(head),
        (OpenRound::Open(now), Some(head)) => OpenRound::Open(now.max(head)),
    })
}

/// Whether a report made for `round` may count at all while this is open.
///
/// # Privacy
/// It depends on the clock and on the report, not on the batch.
pub(super) fn check_open(open: OpenRound, round: u32) -> Result<(), Refusal> {
    match open {
        OpenRound::Over => Err(Refusal::Finished),
        OpenRound::NotYet => Err(Refusal::Early { round, current: 0 }),
        OpenRound::Open(current) if round > current => Err(Refusal::Early { round, current }),
        OpenRound::Open(current) if round < current => {
            Err(Refusal::Late { round, oldest: current, current })
        }
        OpenRound::Open(_) => Ok(()),
    }
}

/// Rounds whose time is over and that a task, which is at round `head`, has not released yet.
pub(super) fn due(mechanism: &Mechanism, head: u32, milliseconds: u64) -> u32 {
    let open = match mechanism.round_at(milliseconds) {
        None | Some(OpenRound::NotYet) => return 0,
        Some(OpenRound::Open(round)) => round,
        Some(OpenRound::Over) => mechanism.schedule().last_round() + 1,
    };
    open.saturating_sub(head)
}

/// Closes the rounds of a batch whose time is over, in order, with fresh pads; `release` gets their
/// sums. At most so many that a commit stays short.
pub(super) fn close_due(
    mechanism: &Mechanism,
    batch: &mut Batch,
    milliseconds: u64,
    mut release: impl FnMut(incrowd_protocol::BatchSums),
) -> Result<(), DeviceError> {
    let mut coins = 0;
    for _ in 0..due(mechanism, batch.next_round(), milliseconds).min(ROUNDS) {
        let Some(round) = batch.round() else { break };
        if coins > COINS {
            break;
        }
        coins += u64::from(round.size) * coins_of(round.law) * mechanism.coordinates() as u64;
        let missing = batch.missing();
        let drawn = pads(mechanism, &round, missing)?;
        // As many coins are drawn whatever came, so that the time of a release does not tell it.
        std::hint::black_box(pads(mechanism, &round, round.size - missing)?);
        let sums = batch.close(&drawn);
        release(sums.expect("invariant: the pads are those of the missing reports"));
    }
    Ok(())
}

/// How many coins take as long as one coordinate of a pad.
fn coins_of(law: Law) -> u64 {
    match law {
        Law::Bits(law) => u64::from(law.bits),
        Law::Codebook(_) => 32,
    }
}

/// Watches the wall clock for jumps.
pub(super) struct Watch {
    wall: SystemTime,
    at: Instant,
}

impl Watch {
    pub fn new(now: SystemTime) -> Self {
        Self { wall: now, at: Instant::now() }
    }

    /// By how much, in seconds, the clock has jumped since the last look, if it has.
    pub fn jump(&mut self, now: SystemTime) -> Option<i64> {
        let passed = self.at.elapsed();
        let before = self.wall;
        *self = Self::new(now);
        let expected = before + passed;
        let (off, sign) = match now.duration_since(expected) {
            Ok(ahead) => (ahead, 1),
            Err(behind) => (behind.duration(), -1),
        };
        (off > JUMP).then(|| sign * i64::try_from(off.as_secs()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use incrowd_protocol::{
        Closes, FlipProbability, Law, Layout, MechanismConfig, OpenRound::*, Stage,
    };

    use super::*;

    /// Three rounds of 100 ms from 1000 on.
    fn mechanism() -> Mechanism {
        let law = Law::bits(1, FlipProbability::new(1, 2).unwrap());
        let config = MechanismConfig {
            dimension: 1,
            context_bound: 1.0,
            layout: Layout::Shared,
            schedule: vec![Stage { rounds: 3, size: 2, window: Some(100), law }],
            closes: Closes::Time { opens: 1000 },
            central_delta: 1e-6,
            participations: 1,
            honest_fraction: 1.0,
        };
        config.check().unwrap()
    }

    #[test]
    fn the_open_round_follows_the_clock_but_never_goes_back() {
        let mechanism = mechanism();
        for (head, time, open, due_by_then) in [
            (Some(1), 999, NotYet, 0),
            (Some(1), 1000, Open(1), 0),
            (Some(1), 1099, Open(1), 0),
            (Some(1), 1100, Open(2), 1),
            (Some(2), 1100, Open(2), 0),
            (Some(2), 1050, Open(2), 0),
            (Some(2), 999, Open(2), 0),
            (Some(3), 0, Open(3), 0),
            (Some(3), 1300, Over, 1),
            (Some(1), 1300, Over, 3),
            (None, 1050, Over, 0),
        ] {
            assert_eq!(open_round(&mechanism, head, time), Some(open), "{head:?} at {time}");
            let head = head.unwrap_or(4);
            assert_eq!(due(&mechanism, head, time), due_by_then, "{head} at {time}");
        }
    }

    #[test]
    fn a_jump_is_noticed_and_the_passing_of_time_is_not() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut watch = Watch::new(start);
        assert_eq!(watch.jump(start + Duration::from_millis(900)), None);
        assert_eq!(watch.jump(start), None, "less than a second back");
        assert_eq!(watch.jump(start + Duration::from_secs(3600)), Some(3599));
        assert_eq!(watch.jump(start), Some(-3600));
        assert_eq!(watch.jump(start), None, "it is the clock now");
    }
}
