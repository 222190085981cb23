//! R2, R5, R24, R26: the same kills while rounds close by time, also at the moment of a closing and
//! with services that stay away over several closings.
//!
//! A report has a 4 at its own coordinate, and a pad is a 2 everywhere, so a release tells which
//! reports it has and how many pads. A coin that flips by chance moves a sum by 1 and is allowed
//! for; two at one sum have a chance below 1e-9 in 1000 rounds.

use std::{
    collections::BTreeSet,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use incrowd_node::ShufflerConfig;
use incrowd_protocol::{OpenRound, Release};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::{
    under_load,
    uploads::{acknowledged, at_once},
    watch::check_releases_and_models,
    world::{Role, Sent, World, below, number, restart, restart_all},
};
use crate::support::{Service, Site, now};

/// Capacity and window of the rounds before and after the middle.
const STAGES: [(u32, u32); 2] = [(10, 300), (7, 450)];
/// 170 coordinates: far more than the reports that are sent in a few rounds.
const DIMENSION: u32 = 17;

#[test]
fn by_time_everything_acknowledged_is_counted_once_or_surplus_and_every_round_released_once() {
    let (kills, seed) = (number("INCROWD_KILLS", 10), number("INCROWD_SEED", 1));
    let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
    killed_by_time(&World::new(site(kills)), kills, &mut rng, |_| ());
}

/// A task with rounds enough for so many kills.
pub(super) fn site(kills: usize) -> Site {
    // What takes longer than the rounds do happens to a task that is over.
    let stage = |(size, window)| (kills as u32 * 5 / 8 + 4, size, window);
    Site::timed(DIMENSION, &STAGES.map(stage))
}

/// Kills nodes while rounds close by time, and does `between` before each kill, until every round
/// is released.
pub(super) fn killed_by_time(
    world: &World,
    kills: usize,
    rng: &mut ChaCha8Rng,
    mut between: impl FnMut(usize),
) {
    let started = Instant::now();
    let mut running = world.start_all();
    let (mut at_closings, mut away) = (0, 0);

    under_load(world, rng, next, |rng| {
        for kill_number in 0..kills {
            between(kill_number);
            let seat = below(rng, running.len());
            at_closings += usize::from(kill(world, seat, running[seat].take().unwrap(), rng));
            if below(rng, 6) == 0 {
                away += 1;
                let windows = 1.0 + below(rng, 3000) as f64 / 1000.0;
                thread::sleep(Duration::from_millis(u64::from(STAGES[0].1)).mul_f64(windows));
            }
            running[seat] = Some(restart(world, seat, rng));
        }
    });
    restart_all(world, &mut running);
    let (acknowledged, surplus) = check(world);
    world.print(kills, started, acknowledged);
    println!(
        "{at_closings} at a closing, {away} away over one to four windows; \
         {surplus} acknowledged reports were surplus"
    );
}

/// Kills a service at any moment of a window, when it has just told somebody something, or when a
/// round is being closed: then true.
fn kill(world: &World, seat: usize, service: Service, rng: &mut ChaCha8Rng) -> bool {
    let mechanism = world.site.task.mechanism();
    let window = Duration::from_millis(u64::from(STAGES[0].1));
    match below(rng, 4) {
        0 => thread::sleep(window.mul_f64(below(rng, 1000) as f64 / 1000.0)),
        1 => {
            world.kill_when_learned(seat, service, window);
            return false;
        }
        _ => {
            let time = now();
            if let Some(OpenRound::Open(round)) = mechanism.round_at(time) {
                let closes = mechanism.window(round).unwrap().unwrap().closes;
                // The bandit has work when the release is shown.
                let delay = match world.seats[seat].role {
                    Role::Shuffler => 0,
                    Role::Bandit => ShufflerConfig::default().release_delay_milliseconds,
                };
                let until = Duration::from_millis(closes + delay - time);
                let off = Duration::from_micros(below(rng, 15_000) as u64);
                thread::sleep((until + off).saturating_sub(Duration::from_millis(2)));
                service.kill();
                return true;
            }
        }
    }
    service.kill();
    false
}

/// New reports, up to a number of each round: none in some, more than its capacity in others. They
/// come all over the window.
fn next(world: &World, round: u32, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let size = world.site.task.mechanism().round(round).unwrap().size;
    let most = match round % 5 {
        0 => 0,
        4 => 2 * size as usize,
        share => size as usize * share as usize / 3,
    };
    thread::sleep(Duration::from_millis(below(rng, 50) as u64));
    let mut sent = world.sent.lock().unwrap();
    let before = sent.values().filter(|sent| sent.round == round).count();
    if before >= most {
        return Vec::new();
    }
    let (number, at) = (at_once(rng), world.tick());
    let first = world.taken.fetch_add(number, SeqCst);
    sent.extend((first..first + number).map(|number| (number, Sent { round, at })));
    (first..first + number).collect()
}

/// The coordinates of the reports that a release has, and how many pads.
fn contents(release: &Release) -> (BTreeSet<usize>, u32) {
    let (round, sums) = (release.sums().round(), release.sums().sums());
    let mut sorted = sums.to_vec();
    sorted.sort_unstable();
    // Most coordinates have no report.
    let pads = sorted[sorted.len() / 2];
    assert!(pads >= 0 && pads % 2 == 0, "round {round}");
    let mut reports = BTreeSet::new();
    for (coordinate, sum) in sums.iter().enumerate() {
        match sum - pads {
            -1..=1 => {}
            3..=5 => assert!(reports.insert(coordinate)),
            other => panic!("round {round}: {other} at coordinate {coordinate} is no report"),
        }
    }
    (reports, (pads / 2) as u32)
}

/// The releases against the logs of the uploaders: how many reports were acknowledged, and how many
/// of them were surplus.
fn check(world: &World) -> (usize, usize) {
    let coordinates = world.site.task.mechanism().coordinates();
    let (sent, acknowledged) = (world.sent.lock().unwrap(), acknowledged(world));
    let mut surplus = 0;
    for release in check_releases_and_models(world) {
        let (round, size) = (release.sums().round(), release.sums().size());
        let (reports, pads) = contents(&release);
        assert_eq!(reports.len() as u32 + pads, size, "round {round}: reports and pads");
        let mine: Vec<_> = sent.iter().filter(|(_, sent)| sent.round == round).collect();
        let own: BTreeSet<usize> = mine.iter().map(|(number, _)| *number % coordinates).collect();
        assert_eq!(own.len(), mine.len(), "invariant: coordinates of a round differ");
        assert!(reports.is_subset(&own), "round {round} has a report that was not made for it");
        let counted = |number: usize| reports.contains(&(number % coordinates));
        let newest = mine.iter().filter(|(number, _)| counted(**number)).map(|(_, sent)| sent.at);
        let newest = newest.max().unwrap_or(0);
        for (number, _) in &mine {
            let Some(at) = acknowledged.get(number).filter(|_| !counted(**number)) else {
                continue;
            };
            // Surplus: the batch was full before it was acknowledged, and all that count had come.
            assert_eq!(pads, 0, "round {round}: report {number} was acknowledged and is lost");
            assert!(newest < *at, "round {round}: report {number} was lost, another one counts");
            surplus += 1;
        }
    }
    (acknowledged.len(), surplus)
}
