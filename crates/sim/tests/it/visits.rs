//! People on a virtual clock, and reports that are never sent.

use std::sync::Arc;

use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy, Stage, TaskConfig,
};
use incrowd_sim::{
    ArrivalsConfig, DropConfig, Environment, Path, Person, Sblb, Simulation, SimulationError,
};

const DAY: u64 = 86_400_000;
const X: [f64; 2] = [0.8, -0.5];

/// A number of events of mean `mean` strays by more than this with probability at most 1e-11
/// (Bernstein for Poisson and binomial numbers); fewer than 50 are looked at.
fn bound(mean: f64) -> f64 {
    let log = (2.0f64 / 1e-11).ln();
    (2.0 * mean * log).sqrt() + log / 3.0
}

/// Arrivals in each quarter of the day, over 25 days.
fn quarters(swing: f64) -> [f64; 4] {
    let arrivals = ArrivalsConfig { swing, ..ArrivalsConfig::new(4000.0) };
    let mut clock = arrivals.check().unwrap().clock(7);
    let mut counts = [0.0; 4];
    loop {
        let time = clock.next_arrival();
        if time >= 25 * DAY {
            return counts;
        }
        counts[(time % DAY * 4 / DAY) as usize] += 1.0;
    }
}

/// The integral of 1 + a sin(2 pi t) over a quarter: 1/4 + a/(2 pi) in the first two, 1/4 - a/(2
/// pi) in the others.
#[test]
fn arrivals_follow_the_day() {
    for swing in [0.0, 0.5, 1.0] {
        for (quarter, found) in quarters(swing).into_iter().enumerate() {
            let sign = if quarter < 2 { 1.0 } else { -1.0 };
            let mean = 1e5 * (0.25 + sign * swing / std::f64::consts::TAU);
            assert!((found - mean).abs() < bound(mean), "{swing} {quarter}: {found} {mean}");
        }
    }
    assert!(bound(25_000.0) < 0.1 * 25_000.0, "a swing of 0.2 would be noticed");
}

/// The number of arrivals in a window varies like a Poisson number: the mean square over 4000
/// windows of mean 50 is off by a quarter with probability below 1e-14 (7.8 standard deviations).
#[test]
fn arrivals_are_random() {
    let (windows, mean) = (4000usize, 50.0);
    let mut clock = ArrivalsConfig::new(mean * 24.0).check().unwrap().clock(3);
    let mut counts = vec![0.0; windows];
    while let Some(count) = counts.get_mut((clock.next_arrival() / (DAY / 24)) as usize) {
        *count += 1.0;
    }
    let square = |count: &f64| (count - mean) * (count - mean);
    let dispersion = counts.iter().map(square).sum::<f64>() / (windows as f64 * mean);
    assert!((dispersion - 1.0).abs() < 0.25, "{dispersion}");
}

#[test]
fn reports_are_dropped_by_their_reward() {
    let drops = DropConfig { reward_0: 0.4, reward_1: 0.1 }.check().unwrap();
    for (reward, chance) in [(0.0, 0.4), (1.0, 0.1), (0.5, 0.25)] {
        let mut coins = drops.coins(1);
        let dropped = (0..100_000).filter(|_| coins.drops(reward)).count() as f64;
        let mean = 1e5 * chance;
        assert!((dropped - mean).abs() < bound(mean), "{reward}: {dropped}");
    }
}

#[test]
fn what_is_no_law_is_refused() {
    for per_day in [0.0, -1.0, 2e9, f64::NAN] {
        assert!(ArrivalsConfig::new(per_day).check().is_err());
    }
    let arrivals = ArrivalsConfig::new(1000.0);
    assert!(ArrivalsConfig { swing: 1.1, ..arrivals }.check().is_err());
    assert!(ArrivalsConfig { reward_window: -1.0, ..arrivals }.check().is_err());
    let error = DropConfig { reward_0: 0.5, reward_1: 1.5 }.check().unwrap_err();
    assert_eq!(error.to_string(), "drop.reward_1 is 1.5, must be from 0 to 1");
}

/// Everyone has the same single choice, and rewards 0 and 1 alternate.
struct Alternating(u64);

impl Environment for Alternating {
    fn dimension(&self) -> usize {
        2
    }

    fn next_person(&mut self, person: &mut Person) {
        self.0 += 1;
        *person = Person { arms: X.to_vec(), means: vec![0.5] };
    }

    fn reward(&mut self, _: usize) -> Option<f64> {
        Some((self.0 % 2) as f64)
    }
}

fn task(rounds: u32, size: u32, window: Option<u32>, bits: u32) -> Arc<TaskConfig> {
    let law = Law::bits(bits, FlipProbability::new(3, 10).unwrap());
    let closes = match window {
        Some(_) => Closes::Time { opens: 1_000_000 },
        None => Closes::Count { grace: 0 },
    };
    let mechanism = MechanismConfig {
        dimension: 2,
        context_bound: 1.0,
        schedule: vec![Stage { rounds, size, window, law }],
        layout: Layout::Shared,
        closes,
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    Arc::new(
        TaskConfig::new(mechanism.check().unwrap(), Learner::default(), Policy::default()).unwrap(),
    )
}

const HOUR: u32 = 3_600_000;

/// The estimator needs no count: whoever reports, the moment is estimated as n r x of those who
/// did, pads and drop-outs or not. An entry of the sums of N reports strays by more than sqrt(2 N/m
/// ln(2/a))/c with probability at most a (Hoeffding).
#[test]
fn pads_add_nothing_to_the_estimate() {
    let arrivals = ArrivalsConfig { swing: 0.8, ..ArrivalsConfig::new(48_000.0) }.check().unwrap();
    let drops = DropConfig { reward_0: 0.6, reward_1: 0.1 }.check().unwrap();
    for bits in [1, 64] {
        for path in [Path::Wire, Path::Bulk] {
            // A mean of 2000 people in an hour, at most 3600.
            let algorithm = Sblb::new(task(30, 5000, Some(HOUR), bits), path, 3);
            let mut simulation = Simulation::new(Alternating(0), algorithm)
                .unwrap()
                .with_arrivals(&arrivals, 3)
                .with_drops(&drops, 3);
            simulation.run(70_000).unwrap();
            let summary = simulation.summary();
            assert_eq!(summary.batches, 30);
            assert_eq!((summary.reports + summary.pads, summary.surplus), (150_000, 0));
            let sent = summary.users - summary.dropped;
            assert!((30_000..sent).contains(&summary.reports), "the last ones come too late");

            // 0.9 to 0.4 of the reports have the reward 1.
            let share = summary.reward_sent / sent as f64;
            assert!((share - 9.0 / 13.0).abs() < 0.03, "{share}");
            let statistics = simulation.algorithm().bandit().statistics();
            let n = summary.reports as f64;
            let bound = (2.0 * 150_000.0 / f64::from(bits) * (2.0 * 5.0 / 1e-11f64).ln()).sqrt();
            let found = statistics.sums().iter();
            let [x, y] = X;
            for (found, (truth, off)) in found.zip([
                // Rewards of the counted are not known exactly, only those of all who sent.
                (share * x, 0.01),
                (share * y, 0.01),
                (x * x, 0.0),
                (x * y, 0.0),
                (y * y, 0.0),
            ]) {
                let (bound, truth) = (bound / 0.7 + off * n, n * truth);
                assert!((found - truth).abs() < bound, "m={bits} {path:?}: {found} {truth}");
            }
        }
    }
}

/// Far too many people: every release has the size of the schedule, and the rest is surplus.
#[test]
fn a_round_takes_no_more_than_its_capacity() {
    let arrivals = ArrivalsConfig::new(24_000.0).check().unwrap();
    for path in [Path::Wire, Path::Bulk] {
        let algorithm = Sblb::new(task(5, 100, Some(HOUR), 16), path, 3);
        let simulation = Simulation::new(Alternating(0), algorithm).unwrap();
        let mut simulation = simulation.with_arrivals(&arrivals, 4);
        simulation.run(6000).unwrap();
        let summary = simulation.summary();
        assert_eq!((summary.batches, summary.reports, summary.pads), (5, 500, 0));
        // 900 of each 1000 people, and nobody after the last round.
        assert!((4500.0 - summary.surplus as f64).abs() < bound(5000.0), "{}", summary.surplus);
    }
}

/// A report belongs to the round that is open when it is due.
#[test]
fn a_reward_window_moves_reports_to_later_rounds() {
    let reports = |reward_window: f64| {
        let arrivals = ArrivalsConfig { reward_window, ..ArrivalsConfig::new(24_000.0) };
        let algorithm = Sblb::new(task(3, 5000, Some(HOUR), 16), Path::Bulk, 3);
        let simulation = Simulation::new(Alternating(0), algorithm).unwrap();
        let mut simulation = simulation.with_arrivals(&arrivals.check().unwrap(), 4);
        simulation.run(6000).unwrap();
        simulation.summary().reports as f64
    };
    // Three rounds of 1000 people; or two, and the first half of the third.
    for (reward_window, mean) in [(0.0, 3000.0), (1800.0, 2500.0), (3600.0, 2000.0)] {
        let found = reports(reward_window);
        assert!((found - mean).abs() < bound(mean), "{reward_window}: {found}");
    }
}

#[test]
fn rounds_that_close_by_time_need_a_clock() {
    let algorithm = Sblb::new(task(3, 5000, Some(HOUR), 16), Path::Bulk, 3);
    let mut simulation = Simulation::new(Alternating(0), algorithm).unwrap();
    assert_eq!(simulation.run(1), Err(SimulationError::NoClock));
}

/// Closing by count, drop-outs make batches late, and the last ones never full.
#[test]
fn drop_outs_move_the_boundaries_of_counted_batches() {
    let drops = DropConfig { reward_0: 0.4, reward_1: 0.1 }.check().unwrap();
    let algorithm = Sblb::new(task(10, 1000, None, 16), Path::Bulk, 3);
    let mut simulation = Simulation::new(Alternating(0), algorithm).unwrap().with_drops(&drops, 3);
    simulation.run(10_000).unwrap();
    let summary = simulation.summary();
    assert!((2500.0 - summary.dropped as f64).abs() < bound(2500.0));
    assert_eq!(summary.batches, (10_000 - summary.dropped) / 1000);
    assert_eq!((summary.reports, summary.pads), (1000 * summary.batches, 0));
}
