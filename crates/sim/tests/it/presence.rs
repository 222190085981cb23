//! One person more, less, or at another time: what of a run may differ.

use std::sync::Arc;

use crate::shared;
use incrowd_device::Arm;
use incrowd_protocol::{
    BatchSums, Blocks, Closes, FlipProbability, Law, Layout, Learner, MechanismConfig, Policy,
    Stage, TaskConfig,
};
use incrowd_sim::{
    Algorithm, ArrivalsConfig, Choice, Path, Progress, Random, Rewards, Rounds, Simulation,
    SimulationError, Synthetic,
};

const PEOPLE: u64 = 4000;
/// The person in question, of 100 in a round on average.
const PERSON: u64 = 1234;
const HOUR: u32 = 3_600_000;

/// What the person does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Strategy {
    Reports,
    /// Closes the app, and no report is ever made.
    IsAway,
    /// The report is due three hours later.
    IsLate,
    /// Reports another reward.
    Lies,
}

/// Uniform choices, so that nobody's behaviour depends on a release, and all releases.
struct Fixed {
    choices: Random,
    rounds: Rounds,
    releases: Vec<BatchSums>,
    strategy: Strategy,
    people: u64,
    now: u64,
    late: Option<(u64, Vec<f64>, f64)>,
}

impl Fixed {
    fn add(&mut self, context: &[f64], reward: f64) -> Result<(), SimulationError> {
        self.releases.extend(self.rounds.add(Arm::from(context), reward)?);
        Ok(())
    }

    fn close(&mut self, now: u64) -> Result<(), SimulationError> {
        while let Some(sums) = self.rounds.close(now)? {
            self.releases.push(sums);
        }
        Ok(())
    }
}

impl Algorithm for Fixed {
    fn blocks(&self) -> Option<Blocks> {
        Some(shared(3))
    }

    fn choose(&mut self, arms: &[f64]) -> Result<Choice, SimulationError> {
        self.choices.choose(arms)
    }

    fn learn(&mut self, arm: Arm<'_>, reward: f64) -> Result<(), SimulationError> {
        let context = arm.features;
        self.people += 1;
        match self.strategy {
            Strategy::IsAway if self.people == PERSON => Ok(()),
            Strategy::IsLate if self.people == PERSON => {
                let due = self.now + 3 * u64::from(HOUR);
                self.late = Some((due, context.to_vec(), reward));
                Ok(())
            }
            Strategy::Lies if self.people == PERSON => self.add(context, 1.0 - reward),
            _ => self.add(context, reward),
        }
    }

    fn wait_until(&mut self, now: u64) -> Result<(), SimulationError> {
        if let Some((due, context, reward)) = self.late.take_if(|(due, ..)| *due <= now) {
            self.close(due)?;
            self.add(&context, reward)?;
        }
        self.now = now;
        self.close(now)
    }

    fn progress(&self) -> Progress {
        self.rounds.progress()
    }

    fn noise_std(&self) -> Option<f64> {
        None
    }
}

fn task(by_time: bool, flip: FlipProbability) -> Arc<TaskConfig> {
    let (size, window) = if by_time { (250, Some(HOUR)) } else { (100, None) };
    let closes = if by_time { Closes::Time { opens: 0 } } else { Closes::Count { grace: 0 } };
    let mechanism = MechanismConfig {
        dimension: 3,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 40, size, window, law: Law::bits(64, flip) }],
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

/// All releases, with the same seeds for everything.
fn releases(task: &Arc<TaskConfig>, path: Path, strategy: Strategy) -> Vec<BatchSums> {
    let algorithm = Fixed {
        choices: Random::new(shared(3), 5),
        rounds: Rounds::new(task.clone(), path, 5),
        releases: Vec::new(),
        strategy,
        people: 0,
        now: 0,
        late: None,
    };
    let people = Synthetic::new(3, 10, Rewards::Bernoulli, 5).unwrap();
    let arrivals = ArrivalsConfig { swing: 0.7, ..ArrivalsConfig::new(2400.0) }.check().unwrap();
    let mut simulation = Simulation::new(people, algorithm).unwrap().with_arrivals(&arrivals, 5);
    simulation.run(PEOPLE).unwrap();
    simulation.algorithm().releases.clone()
}

/// Numbers of the rounds that differ, from 1.
fn differing(a: &[BatchSums], b: &[BatchSums]) -> Vec<usize> {
    assert_eq!(a.len(), b.len(), "as many releases");
    (0..a.len()).filter(|&i| a[i] != b[i]).map(|i| i + 1).collect()
}

#[test]
fn presence_moves_nothing_but_its_own_round_where_rounds_close_by_time() {
    let task = task(true, FlipProbability::new(3, 10).unwrap());
    for path in [Path::Wire, Path::Bulk] {
        let with = releases(&task, path, Strategy::Reports);
        assert!(with.len() >= 30, "{}", with.len());
        assert_eq!(differing(&with, &releases(&task, path, Strategy::Reports)), [0usize; 0]);
        let own = differing(&with, &releases(&task, path, Strategy::IsAway));
        assert_eq!(own.len(), 1, "{path:?}: {own:?}");
        assert_eq!(differing(&with, &releases(&task, path, Strategy::Lies)), own);
        let both = differing(&with, &releases(&task, path, Strategy::IsLate));
        assert_eq!(both, [own[0], own[0] + 3], "{path:?}");
    }
}

/// The same where batches close by count. A flip is seen about once in 1e9 coins, so it is not the
/// coins that differ but who is in which batch: from the person on, all of them.
#[test]
fn absence_moves_every_later_boundary_where_batches_close_by_count() {
    let task = task(false, FlipProbability::new(1, 1 << 30).unwrap());
    for path in [Path::Wire, Path::Bulk] {
        let mut with = releases(&task, path, Strategy::Reports);
        assert_eq!(with.len(), 40);
        // Without the person the last batch never gets full.
        with.truncate(39);
        let own = PERSON.div_ceil(100) as usize;
        let later: Vec<usize> = (own..=39).collect();
        assert_eq!(differing(&with, &releases(&task, path, Strategy::IsAway)), later, "{path:?}");
    }
}
