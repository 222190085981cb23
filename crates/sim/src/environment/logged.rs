use std::{path::PathBuf, sync::Arc};

use incrowd_protocol::Layout;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::{Deserialize, Serialize};

use super::{
    DataError, Environment, Person,
    classification::projection_seed,
    draw,
    table::{self, Table},
    vectors::ArmVectors,
};

const ACTION: &str = "action";
const REWARD: &str = "reward";
const PROPENSITY: &str = "pscore";

/// A file of logged bandit feedback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedConfig {
    /// A CSV file with the columns `action` (an integer from 0), `reward` (from 0 to 1), `pscore`
    /// (the probability with which the logging policy chose that action for that context) and the
    /// context.
    pub file: PathBuf,
    /// The columns of the context. Without it: all other columns that have a name and do not begin
    /// with text in the first row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<String>>,
    /// Random projection to this many dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<u32>,
    /// Draws the projection; the same for all runs.
    #[serde(default = "projection_seed")]
    pub projection_seed: u64,
}

/// A mean with its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error: the sample's standard deviation by the root of its size. Infinite for a
    /// single event.
    pub standard_error: f64,
}

impl Estimate {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
        let standard_error =
            if count > 1.0 { (squares / (count - 1.0) / count).sqrt() } else { f64::INFINITY };
        Self { mean, standard_error }
    }
}

/// Logged bandit feedback, replayed: a person counts only if the chosen arm is the logged one, and
/// then with probability p_min/pscore.
///
/// p_min is the smallest `pscore` of the file. Given a context x and a choice a, an event counts
/// with probability pscore(a|x) p_min/pscore(a|x) = p_min, whatever x and a are. So the people who
/// count, with their rewards, are distributed as if the algorithm had been used on people of the
/// logged population, at the price of the fraction 1 - p_min of the events.
///
/// This is unbiased if
/// - events are independent draws of the same law (order does not matter; it is shuffled by the
///   run's seed),
/// - `pscore` is the true probability of the logged action given all of the context that the reward
///   depends on, never zero for any arm, and p_min is the smallest probability that the logging
///   policy ever uses, not just the smallest that happened to be logged,
/// - the choice does not depend on the event's own reward. This holds in the first pass over the
///   file, [`Logged::people_per_pass`] people on average. Later passes show rewards again that the
///   learner has learned from, so they flatter it.
///
/// Features are those of a [`Classification`](super::Classification) with shared features: the
/// standardised context and a bias in the block of the arm, then the projection, if any. Nobody
/// knows the mean rewards, so [`Person::means`] is empty.
///
/// # Privacy
/// As for a classification, scales come from the data itself and are not private.
///
/// # Reference
/// Li, Chu, Langford, Wang, "Unbiased Offline Evaluation of Contextual-bandit-based News Article
/// Recommendation Algorithms" (WSDM 2011), for uniform logging; with propensities by rejection
/// sampling as in Dudik, Erhan, Langford, Li, "Sample-efficient Nonstationary Policy Evaluation for
/// Contextual Bandits" (UAI 2012). The columns are those of the Open Bandit data (Saito, Aihara,
/// Matsutani, Narita, 2021).
#[derive(Debug)]
pub struct Logged {
    actions: Vec<usize>,
    rewards: Vec<f64>,
    propensities: Vec<f64>,
    smallest: f64,
    vectors: ArmVectors,
}

impl Logged {
    /// Reads and checks the file.
    pub fn load(config: &LoggedConfig) -> Result<Self, DataError> {
        Self::parse(config, &table::read(&config.file)?)
    }

    /// Checks the file's bytes.
    pub(super) fn parse(config: &LoggedConfig, bytes: &[u8]) -> Result<Self, DataError> {
        let table = Table::parse(&config.file, bytes)?;
        let (actions, arms) = read_actions(&table, table.find(ACTION)?)?;
        let rewards = read_within(&table, REWARD, |number| (0.0..=1.0).contains(&number))?;
        let propensities = read_within(&table, PROPENSITY, |p| p > 0.0 && p <= 1.0)?;
        let smallest = propensities.iter().copied().fold(1.0, f64::min);
        let columns = context(&table, config.context.as_deref())?;
        let columns = columns.into_iter().map(|column| table.numbers(column));
        let vectors = ArmVectors::blocks(columns.collect::<Result<_, _>>()?, table.rows(), arms)
            .project(config.project, config.projection_seed, table.place())?;
        Ok(Self { actions, rewards, propensities, smallest, vectors })
    }

    /// Number of features.
    pub fn dimension(&self) -> usize {
        self.vectors.dimension()
    }

    /// How features are weighted.
    pub fn layout(&self) -> Layout {
        self.vectors.layout()
    }

    /// Number of arms.
    pub fn arms(&self) -> usize {
        self.vectors.arms()
    }

    /// Events in the file.
    pub fn events(&self) -> usize {
        self.actions.len()
    }

    /// People who count in one pass over the file, on average: events times p_min.
    pub fn people_per_pass(&self) -> f64 {
        self.events() as f64 * self.smallest
    }

    /// Mean reward of the policy that wrote the log.
    pub fn logging_policy(&self) -> Estimate {
        Estimate::of(self.rewards.iter().copied())
    }

    /// Mean reward of choosing uniformly, by inverse propensities: the mean of reward/(arms
    /// pscore). Unbiased if `pscore` is right and never zero for any arm.
    ///
    /// # Reference
    /// Horvitz and Thompson (1952).
    pub fn uniform_policy(&self) -> Estimate {
        let arms = self.arms() as f64;
        let weighted = self.rewards.iter().zip(&self.propensities);
        Estimate::of(weighted.map(|(reward, propensity)| reward / (arms * propensity)))
    }

    /// The events in an order drawn from `seed`, over and over again, in a new order each time.
    pub fn people(self: &Arc<Self>, seed: u64) -> LoggedPeople {
        LoggedPeople {
            log: Arc::clone(self),
            order: (0..self.events()).collect(),
            next: 0,
            event: None,
            coin: 0.0,
            counted: self.smallest,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }
}

/// The events of a [`Logged`], one after the other as people.
#[derive(Debug, Clone)]
pub struct LoggedPeople {
    log: Arc<Logged>,
    order: Vec<usize>,
    next: usize,
    event: Option<usize>,
    coin: f64,
    /// An event whose action was chosen counts with this probability over its propensity.
    counted: f64,
    rng: ChaCha8Rng,
}

impl Environment for LoggedPeople {
    fn dimension(&self) -> usize {
        self.log.dimension()
    }

    fn next_person(&mut self, person: &mut Person) {
        if self.next == 0 {
            for last in (1..self.order.len()).rev() {
                self.order.swap(last, draw::index(&mut self.rng, last + 1));
            }
        }
        let event = self.order[self.next];
        self.next = (self.next + 1) % self.order.len();
        self.event = Some(event);
        // Before the choice: asking twice for a reward gives the same answer.
        self.coin = draw::uniform(&mut self.rng);
        self.log.vectors.write(event, &mut person.arms);
        person.means.clear();
    }

    fn reward(&mut self, arm: usize) -> Option<f64> {
        let event = self.event?;
        let counts = self.log.actions[event] == arm
            && self.coin * self.log.propensities[event] < self.counted;
        counts.then(|| self.log.rewards[event])
    }
}

/// The action of every event, and the number of arms.
fn read_actions(table: &Table, column: usize) -> Result<(Vec<usize>, usize), DataError> {
    let read = |row| {
        let text = table.text(row, column);
        text.parse().ok().filter(|&action: &usize| action < 100_000).ok_or_else(|| {
            DataError::Action { at: table.field_place(row, column), found: text.to_owned() }
        })
    };
    let actions = (0..table.rows()).map(read).collect::<Result<Vec<usize>, _>>()?;
    let largest = actions.iter().copied().max().unwrap_or(0);
    let at = || table.column_place(ACTION);
    if largest == 0 {
        return Err(DataError::OneAction(at()));
    }
    let mut logged = vec![false; largest + 1];
    actions.iter().for_each(|&action| logged[action] = true);
    match logged.iter().position(|&logged| !logged) {
        Some(missing) => Err(DataError::ActionNeverLogged { at: at(), missing, largest }),
        None => Ok((actions, largest + 1)),
    }
}

/// The numbers of the column of rewards or propensities.
fn read_within(
    table: &Table,
    name: &str,
    allowed: impl Fn(f64) -> bool,
) -> Result<Vec<f64>, DataError> {
    let column = table.find(name)?;
    let numbers = table.numbers(column)?;
    let Some(row) = numbers.iter().position(|&number| !allowed(number)) else {
        return Ok(numbers);
    };
    let (at, found) = (table.field_place(row, column), table.text(row, column).to_owned());
    Err(if name == REWARD {
        DataError::Reward { at, found }
    } else {
        DataError::Propensity { at, found }
    })
}

/// The columns of the context.
fn context(table: &Table, listed: Option<&[String]>) -> Result<Vec<usize>, DataError> {
    let reserved = |name: &str| [ACTION, REWARD, PROPENSITY].contains(&name);
    let Some(listed) = listed else {
        let text = |column| {
            let first = table.text(0, column);
            !first.is_empty() && first.parse::<f64>().is_err()
        };
        let names = table.columns().iter().enumerate();
        let fits = |&(column, name): &(usize, &String)| {
            !name.is_empty() && !reserved(name) && !text(column)
        };
        return Ok(names.filter(fits).map(|(column, _)| column).collect());
    };
    let mut columns = Vec::new();
    for name in listed {
        let column = table.find(name)?;
        if reserved(name) || columns.contains(&column) {
            return Err(DataError::NoContext(table.column_place(name)));
        }
        columns.push(column);
    }
    Ok(columns)
}
