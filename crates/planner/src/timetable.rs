//! Rounds that close by time: windows from expected reports, and capacity with room for peaks.

use libm::{ceil, floor, log, round, sqrt};
use serde::Serialize;

use crate::sizes::Sizes;

/// Milliseconds in a day.
pub const DAY: f64 = 86_400_000.0;
/// Shortest window of a round, in milliseconds.
pub const SHORTEST_WINDOW: f64 = 10.0;
/// Peak rate over mean rate, if nothing is said.
pub const DEFAULT_PEAK: f64 = 2.0;
/// Seconds from the moment a report is due until it arrives, if nothing is said.
pub const DEFAULT_UPLOAD_SECONDS: f64 = 10.0;
/// Chance, at most, that a round at the peak rate has more reports than its capacity.
pub const SURPLUS_CHANCE: f64 = 1e-6;

/// When and how fast reports come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrivals {
    /// Reports per day, on average.
    pub users_per_day: f64,
    /// Peak rate over mean rate.
    pub peak: f64,
    /// Reports of the busiest 24 hours over those of the mean day, from 1 to `peak`.
    pub busiest_day: f64,
    /// When round 1 opens, in milliseconds since 1970.
    pub opens: u64,
    /// Seconds from the moment a report is due until it arrives, at most.
    pub upload_seconds: f64,
}

/// A run of equal batches, before their reports have a law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batches {
    pub rounds: u32,
    /// Reports that are released together, pads included.
    pub size: u32,
    pub window: Option<u32>,
}

impl Batches {
    /// Batches that close when they are full.
    pub fn counted(sizes: &Sizes) -> Vec<Self> {
        let batches = |&(rounds, size)| Self { rounds, size, window: None };
        sizes.iter().map(batches).collect()
    }
}

impl Arrivals {
    /// Reports expected in a window.
    pub fn expected(&self, window: u32) -> f64 {
        f64::from(window) / DAY * self.users_per_day
    }

    /// Reports expected in the shortest window.
    pub fn least_expected(&self) -> f64 {
        SHORTEST_WINDOW / DAY * self.users_per_day
    }

    /// Reports expected in the longest window, or in one that is full.
    pub fn most_expected(&self) -> f64 {
        // A twentieth is more than the margin of a batch of that size.
        let full = f64::from(u32::MAX) / (1.05 * self.peak);
        self.expected(u32::MAX).min(full)
    }

    /// Reports expected in the busiest window of this length: whole days are at most the busiest
    /// one, and what is left at most that and at most at the peak rate.
    pub fn most_in(&self, window: u32) -> f64 {
        let days = f64::from(window) / DAY;
        let whole = floor(days);
        let rest = ((days - whole) * self.peak).min(self.busiest_day);
        self.users_per_day * (whole * self.busiest_day + rest)
    }

    /// Reports that a round of this window has room for: as many as come in the busiest one, but
    /// for [`SURPLUS_CHANCE`].
    ///
    /// # Reference
    /// Bernstein's inequality for a Poisson number X with mean a: P(X >= a + t) <= exp(-t^2/(2 (a +
    /// t/3))).
    pub fn capacity(&self, window: u32) -> Option<u32> {
        let mean = self.most_in(window);
        let size = ceil(mean + margin(mean));
        (size <= f64::from(u32::MAX)).then_some(size as u32)
    }

    /// Windows in which as many reports are expected as `sizes` says; sizes that differ by one
    /// report are one stage. None if a window or a capacity is out of range.
    pub fn timed(&self, sizes: &Sizes) -> Option<Vec<Batches>> {
        let mut runs: Vec<(u32, u32, f64)> = Vec::new();
        for &(rounds, size) in sizes {
            let reports = f64::from(rounds) * f64::from(size);
            match runs.last_mut() {
                Some(last) if last.1 + 1 == size => {
                    *last = (last.0 + rounds, size, last.2 + reports);
                }
                _ => runs.push((rounds, size, reports)),
            }
        }
        let batches = |(rounds, _, reports): (u32, u32, f64)| {
            let window = round(reports / f64::from(rounds) / self.users_per_day * DAY);
            let range = SHORTEST_WINDOW..=f64::from(u32::MAX);
            let window = range.contains(&window).then_some(window as u32)?;
            Some(Batches { rounds, size: self.capacity(window)?, window: Some(window) })
        };
        runs.into_iter().map(batches).collect()
    }
}

/// The t of [`Arrivals::capacity`].
fn margin(mean: f64) -> f64 {
    let third = log(1.0 / SURPLUS_CHANCE) / 3.0;
    third + sqrt(third * third + 6.0 * third * mean)
}

/// At least the expected surplus of a round with this mean: the exponent of Bernstein's inequality
/// is convex in t, so that the tail falls at least like an exponential from its beginning.
fn surplus(mean: f64) -> f64 {
    let t = margin(mean);
    let slope = t * (mean + t / 6.0) / ((mean + t / 3.0) * (mean + t / 3.0));
    // A whole number of reports above the capacity costs at most the integral and its first term.
    SURPLUS_CHANCE * (1.0 + 1.0 / slope)
}

/// What a plan by time expects.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timetable {
    /// When round 1 opens, in milliseconds since 1970-01-01T00:00:00Z.
    pub opens: u64,
    /// When the last round closes.
    pub closes: u64,
    /// Stage by stage.
    pub stages: Vec<TimedStage>,
    /// Peak rate that the capacity has room for, over the mean rate.
    pub peak: f64,
    /// Reports of the busiest day that it has room for, over those of the mean day.
    pub busiest_day: f64,
    /// Share of the released reports that are pads, at the mean rate.
    pub padding_share: f64,
    /// Chance that a round as busy as that has more reports than its capacity, at most.
    pub surplus_chance: f64,
    /// Share of the reports that are surplus if all rounds are as busy as that, at most.
    pub surplus_share: f64,
    /// Share of the reports that are under way when their round closes, at most.
    pub in_flight_share: f64,
    /// Days from a decision until its report is in a model, at most: reward window and round. The
    /// shortest and the longest round.
    pub latency_days: (f64, f64),
}

/// Windows of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TimedStage {
    /// Batches in this stage.
    pub rounds: u32,
    /// How long each is open, in milliseconds.
    pub window: u32,
    /// Reports expected in each.
    pub expected: f64,
    /// Reports released together, pads included.
    pub capacity: u32,
}

impl Timetable {
    /// What to expect of rounds with these windows, after decisions that wait so long for their
    /// rewards.
    pub fn new(arrivals: &Arrivals, stages: Vec<TimedStage>, reward_window_days: f64) -> Self {
        let sum = |of: fn(&TimedStage) -> f64| -> f64 {
            stages.iter().map(|stage| f64::from(stage.rounds) * of(stage)).sum()
        };
        let expected = sum(|stage| stage.expected);
        let released = sum(|stage| f64::from(stage.capacity));
        let busiest: Vec<(f64, f64)> = stages
            .iter()
            .map(|stage| (f64::from(stage.rounds), arrivals.most_in(stage.window)))
            .collect();
        let most: f64 = busiest.iter().map(|&(rounds, most)| rounds * most).sum();
        let surplus: f64 = busiest.iter().map(|&(rounds, most)| rounds * surplus(most)).sum();
        let duration: u64 =
            stages.iter().map(|stage| u64::from(stage.rounds) * u64::from(stage.window)).sum();
        let upload = arrivals.upload_seconds * 1000.0;
        let in_flight: f64 = stages
            .iter()
            .map(|stage| f64::from(stage.rounds) * upload.min(f64::from(stage.window)))
            .sum();
        let windows = || stages.iter().map(|stage| f64::from(stage.window) / DAY);
        let latency_days = (
            reward_window_days + windows().fold(f64::INFINITY, f64::min),
            reward_window_days + windows().fold(0.0, f64::max),
        );
        Self {
            opens: arrivals.opens,
            closes: arrivals.opens + duration,
            peak: arrivals.peak,
            busiest_day: arrivals.busiest_day,
            padding_share: (1.0 - expected / released).max(0.0),
            surplus_chance: SURPLUS_CHANCE,
            surplus_share: surplus / most,
            in_flight_share: in_flight / duration as f64,
            latency_days,
            stages,
        }
    }

    /// Share of the reports that do not count, at most: surplus, and under way at a closing.
    pub fn lost_share(&self) -> f64 {
        (self.surplus_share + self.in_flight_share).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(users_per_day: f64, peak: f64) -> Arrivals {
        Arrivals { users_per_day, peak, busiest_day: peak, opens: 0, upload_seconds: 10.0 }
    }

    /// Rates that repeat every day: none, a sine, and all reports in half of the day. The busiest
    /// window, by a sum over minutes at every start, is never above what there is room for.
    #[test]
    fn no_window_is_busier_than_its_room() {
        use std::f64::consts::TAU;
        const MINUTES: usize = 1440;
        let sine = |minute: usize| 1.0 + 0.8 * libm::sin(minute as f64 / 1440.0 * TAU);
        let half = |minute: usize| if minute < MINUTES / 2 { 2.0 } else { 0.0 };
        let rates: [(f64, &dyn Fn(usize) -> f64); 3] =
            [(1.0, &|_| 1.0), (1.8, &sine), (2.0, &half)];
        for (peak, rate) in rates {
            // The second day is busier than the others.
            for busiest_day in [1.0, 1.0 + 0.5 * (peak - 1.0)] {
                let peak = peak * busiest_day;
                let arrivals = Arrivals { busiest_day, ..arrivals(1440.0, peak) };
                let at = |minute: usize| {
                    let day = if minute / MINUTES == 1 { busiest_day } else { 1.0 };
                    day * rate(minute % MINUTES)
                };
                for length in [30, 700, 720, 1000, 1439, 1440, 1500, 2160, 2880, 4000] {
                    let busiest = (0..2 * MINUTES)
                        .step_by(10)
                        .map(|start| (start..start + length).map(at).sum::<f64>())
                        .fold(0.0, f64::max);
                    let most = arrivals.most_in(length as u32 * 60_000);
                    let name = format!("{peak} {busiest_day} {length}: {busiest} {most}");
                    assert!(busiest <= most * (1.0 + 1e-9), "{name}");
                    if peak > 1.9 && busiest_day < 1.1 {
                        assert!(busiest >= most * (1.0 - 1e-9), "{name}, more room than needed");
                    }
                }
            }
        }
    }

    /// P(X > capacity) and E (X - capacity)+ of Poisson numbers, summed term by term.
    #[test]
    fn a_round_at_the_peak_has_room() {
        for (expected, peak) in [(1.0, 1.0), (20.0, 2.0), (100.0, 2.0), (500.0, 1.3)] {
            let arrivals = arrivals(expected, peak);
            let capacity = arrivals.capacity(DAY as u32).unwrap();
            let mean = peak * expected;
            let mut term = libm::exp(-mean);
            let (mut above, mut surplus_exact) = (0.0, 0.0);
            for count in 0..20_000_u32 {
                if count > capacity {
                    above += term;
                    surplus_exact += term * f64::from(count - capacity);
                }
                term *= mean / f64::from(count + 1);
            }
            assert!(above <= SURPLUS_CHANCE, "{mean} {capacity}: {above}");
            assert!(above > 1e-12, "{mean} {capacity}: {above}, more room than needed");
            assert!(surplus_exact <= surplus(mean), "{surplus_exact} {}", surplus(mean));
        }
    }

    #[test]
    fn sizes_that_differ_by_one_report_are_one_stage() {
        let arrivals = arrivals(1000.0, 2.0);
        let timed = arrivals.timed(&vec![(233, 300), (100, 301)]).unwrap();
        assert_eq!(timed.len(), 1);
        assert_eq!((timed[0].rounds, timed[0].window), (333, Some(25_945_946)));
        assert_eq!(arrivals.timed(&vec![(1, 60_000)]), None, "longer than 49.7 days");
    }
}
