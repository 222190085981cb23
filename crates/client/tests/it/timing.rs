//! R19: when a report leaves has the same law for every reward, and for none.

use std::time::Duration;

use crate::common::{ACTIONS, Frozen, Server, Shape, settle};
use incrowd_client::{Client, ClientError, Decision, Phase};
use tokio::time::{Instant, advance};

const WINDOW: u64 = 10;
const STEP: Duration = Duration::from_millis(500);

/// What a person does about a decision; the time since then is given in steps.
type Conduct = fn(Decision, u32) -> Option<Decision>;

/// Rewards of every kind, at every time.
const CONDUCTS: [(&str, Conduct); 6] = [
    ("none", |_, _| None),
    ("one at once", |decision, _| {
        decision.reward(1.0).unwrap();
        None
    }),
    ("zero at once", |decision, _| {
        decision.reward(0.0).unwrap();
        None
    }),
    ("late", |decision, step| {
        if step == 15 {
            decision.reward(0.5).unwrap();
        }
        Some(decision)
    }),
    ("too late", |decision, step| {
        if step > 20 {
            assert_eq!(decision.reward(1.0), Err(ClientError::WindowOver));
        }
        Some(decision)
    }),
    ("bad", |decision, step| {
        if step < 20 {
            assert!(decision.reward(f64::NAN).is_err());
        }
        Some(decision)
    }),
];

/// A device with a server of its own: when it decided, and the decision that is open with its age
/// in steps.
type Person = (Server, Client, Vec<Instant>, Option<(Decision, u32)>);

/// Delays from decision to arrival, `reports` for each conduct, all on one clock that goes in
/// steps.
async fn delays(jitter: u64, reports: u32) -> Vec<Vec<Duration>> {
    let _frozen = Frozen::new();
    let mut devices: Vec<Person> = Vec::new();
    for _ in CONDUCTS {
        let shape = Shape { participations: reports, rounds: reports + 1, ..Shape::default() };
        let server = Server::start(shape).await;
        let builder = server
            .client()
            .reward_window(Duration::from_secs(WINDOW))
            .jitter(Duration::from_secs(jitter));
        devices.push((server, builder.connect().await.unwrap(), Vec::new(), None));
    }
    while devices.iter().any(|(_, client, ..)| client.status().phase != Phase::Done) {
        for ((_, client, starts, open), (_, conduct)) in devices.iter_mut().zip(CONDUCTS) {
            if client.status().phase == Phase::Open {
                *open = Some((client.rank_features(&ACTIONS).unwrap(), 0));
                starts.push(Instant::now());
            }
            if let Some((decision, step)) = open.take() {
                *open = conduct(decision, step).map(|decision| (decision, step + 1));
            }
        }
        settle(3).await;
        advance(STEP).await;
        settle(3).await;
    }
    let delays = |(server, _, starts, _): &Person| {
        let arrivals = server.arrivals();
        assert_eq!(arrivals.len(), reports as usize);
        arrivals.iter().zip(starts).map(|(arrival, start)| arrival.at - *start).collect()
    };
    devices.iter().map(delays).collect()
}

#[tokio::test(start_paused = true)]
async fn r19_without_jitter_every_report_leaves_at_the_end_of_the_window() {
    for (delays, (conduct, _)) in delays(0, 2).await.iter().zip(CONDUCTS) {
        // Up to the step in which the sockets get to it.
        let window = Duration::from_secs(WINDOW);
        for delay in delays {
            assert!((window..=window + 2 * STEP).contains(delay), "{conduct}: {delay:?}");
        }
    }
}

/// n = 60 reports for each of 6 conducts. Two-sample Kolmogorov-Smirnov: the distance is above
/// sqrt(ln(2 / a) / n) with probability at most about a; with a = 1e-10 for each of the 5
/// comparisons the false alarm is below 1e-9. It must catch a shift by the whole jitter, or reports
/// that leave with their reward.
#[tokio::test(start_paused = true)]
async fn r19_the_law_of_the_delay_is_the_same_for_every_reward() {
    let n = 60;
    let limit = ((2.0f64 / 1e-10).ln() / f64::from(n)).sqrt();
    assert!(limit < 0.65);
    let all = delays(10, n).await;
    for (delays, (conduct, _)) in all.iter().zip(CONDUCTS) {
        let (shortest, longest) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(*shortest >= Duration::from_secs(WINDOW), "{conduct}: {shortest:?}");
        assert!(*longest <= Duration::from_secs(WINDOW + 10) + 2 * STEP, "{conduct}: {longest:?}");
        // All of 60 uniform draws in one half: 2 * 2^-60.
        let middle = Duration::from_secs(WINDOW + 5);
        assert!(*shortest < middle && *longest > middle, "{conduct}: jitter is used");
        let share = |sample: &[Duration], t: Duration| {
            sample.iter().filter(|delay| **delay <= t).count() as f64 / f64::from(n)
        };
        let points = all[0].iter().chain(delays);
        let distance =
            points.map(|t| (share(&all[0], *t) - share(delays, *t)).abs()).fold(0.0, f64::max);
        assert!(distance <= limit, "{conduct}: {distance}");
    }
}
