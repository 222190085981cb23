//! R5, R24: shuffler and bandit are killed with SIGKILL at random moments, also while they start,
//! and nothing that was acknowledged is lost or counted twice. Here batches close by count, and
//! every report has one coordinate that no other has, so that the sum of all releases shows whether
//! it counted. In [`timed`] they close by time.
//!
//! `INCROWD_KILLS=200 cargo test --package incrowd --test it crash -- --nocapture` does it longer;
//! `INCROWD_SEED` takes other moments.

mod cluster;
mod timed;
mod uploads;
mod watch;
mod world;

use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::support::Site;
use uploads::{acknowledged, at_once, upload};
use watch::{check_releases_and_models, wait_for_the_last_model, watch_models, watch_releases};
use world::{OverAtEnd, World, below, number, restart, restart_all};

const UPLOADERS: usize = 6;
const SIZE: usize = 10;
/// Reports between two kills, on average.
const BETWEEN: usize = 12;
/// How long a service may be gone before a caller gives up.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn nothing_acknowledged_is_lost_or_counted_twice() {
    let (kills, seed) = (number("INCROWD_KILLS", 60), number("INCROWD_SEED", 1));
    let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
    killed_by_count(&World::new(site(kills)), kills, &mut rng, |_| ());
}

/// A task with rounds enough for so many kills.
fn site(kills: usize) -> Site {
    let rounds = (kills * BETWEEN).div_ceil(SIZE) + 10;
    // Some are refused because they are late: there are more coordinates than reports that fit.
    let needed = rounds * SIZE * 5 / 4 + 50;
    let dimension = (1..1000).find(|d| d * (d + 3) / 2 >= needed).unwrap();
    Site::new(dimension as u32, rounds as u32, SIZE as u32)
}

/// Kills nodes while rounds close by count, and does `between` before each kill, until every round
/// is released.
fn killed_by_count(
    world: &World,
    kills: usize,
    rng: &mut ChaCha8Rng,
    mut between: impl FnMut(usize),
) {
    let (started, rounds) = (Instant::now(), world.rounds() as usize);
    let mut running = world.start_all();
    under_load(world, rng, next, |rng| {
        for kill in 0..kills {
            between(kill);
            let more = 2 + below(rng, 2 * BETWEEN - 3);
            let last = rounds * SIZE - 3 * SIZE;
            world.allowed.store((world.allowed.load(SeqCst) + more).min(last), SeqCst);
            let seat = below(rng, running.len());
            world.kill(seat, running[seat].take().unwrap(), rng);
            running[seat] = Some(restart(world, seat, rng));
        }
        world.allowed.store(usize::MAX, SeqCst);
    });
    restart_all(world, &mut running);
    let acknowledged = check(world, rounds);
    world.print(kills, started, acknowledged);
}

/// Kills services while reports are sent and releases and models are read, until all reports are
/// answered and the last model is seen.
fn under_load(
    world: &World,
    rng: &mut ChaCha8Rng,
    next: fn(&World, u32, &mut ChaCha8Rng) -> Vec<usize>,
    kill: impl FnOnce(&mut ChaCha8Rng),
) {
    thread::scope(|scope| {
        let ends = OverAtEnd(&world.over);
        let uploaders: Vec<_> = (0..UPLOADERS)
            .map(|index| {
                let rng = ChaCha8Rng::seed_from_u64(rng.next_u64());
                scope.spawn(move || upload(world, index, rng, next))
            })
            .collect();
        scope.spawn(|| watch_releases(world));
        scope.spawn(|| watch_models(world));
        kill(rng);
        for uploader in uploaders {
            uploader.join().unwrap();
        }
        wait_for_the_last_model(world, PATIENCE);
        drop(ends);
    });
}

/// New reports, if they are allowed by now.
fn next(world: &World, _: u32, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let number = at_once(rng);
    let take = |taken: usize| (taken < world.allowed.load(SeqCst)).then_some(taken + number);
    let Ok(first) = world.taken.fetch_update(SeqCst, SeqCst, take) else { return Vec::new() };
    let coordinates = world.site.task.mechanism().coordinates();
    assert!(first + number <= coordinates, "more reports are refused than expected");
    (first..first + number).collect()
}

/// The releases and models against the logs of the uploaders and the library. How many reports were
/// acknowledged.
fn check(world: &World, rounds: usize) -> usize {
    let mut total = vec![0; world.site.task.mechanism().coordinates()];
    for release in check_releases_and_models(world) {
        let (round, sums) = (release.sums().round(), release.sums().sums());
        assert_eq!(sums.iter().sum::<i64>(), SIZE as i64, "round {round}");
        for (total, sum) in total.iter_mut().zip(sums) {
            *total += sum;
        }
    }
    for (coordinate, total) in total.iter().enumerate() {
        assert!(*total <= 1, "report {coordinate} counts {total} times");
    }
    let acknowledged = acknowledged(world);
    for number in acknowledged.keys() {
        assert_eq!(total[*number], 1, "report {number} was acknowledged and is lost");
    }
    assert!(total[world.taken.load(SeqCst)..].iter().all(|total| *total == 0), "nobody sent that");
    assert!(acknowledged.len() <= rounds * SIZE);
    acknowledged.len()
}
