//! Parts of an experiment, for machines that share the work.

use std::{collections::HashSet, fmt, num::NonZeroU32, str::FromStr};

use thiserror::Error;

use super::{
    ExperimentError, cell, origin,
    runner::{Event, Line, Runner, Work},
};

/// What is run before tables can be drawn, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Every exploration that is tried, on the seeds for tuning.
    Tune,
    /// The runs that count, with the explorations that were best in the whole tuning phase.
    Run,
}

/// The i-th of n shards: of the runs of a phase, numbered from 1, number i, i + n, i + 2n, ...
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to the count.
    index: NonZeroU32,
    count: NonZeroU32,
}

/// Which runs of an experiment are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// All of them are of this phase.
    pub phase: Phase,
    /// All of them are of this shard.
    pub shard: Shard,
}

/// A text that is no shard.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShardError {
    /// No two numbers.
    #[error("a shard is i/n with whole numbers i and n, such as 1/4; this is {0:?}")]
    Form(String),
    /// No number of shards.
    #[error("n of a shard i/n is {0}, must be from 1 to {max}", max = Shard::MAX)]
    Count(u64),
    /// No shard of so many.
    #[error("i of a shard i/n is {index}, must be from 1 to n, which is {count}")]
    Index {
        /// Which of them.
        index: u64,
        /// How many there are.
        count: u64,
    },
}

impl Shard {
    /// The only one.
    pub const WHOLE: Self = Self { index: NonZeroU32::MIN, count: NonZeroU32::MIN };
    /// Most shards of one experiment.
    pub const MAX: u32 = 1_000_000;

    /// The shard of this index, from 1, among `count`.
    pub fn new(index: u64, count: u64) -> Result<Self, ShardError> {
        let number = |value| u32::try_from(value).ok().and_then(NonZeroU32::new);
        match number(count).filter(|count| count.get() <= Self::MAX) {
            None => Err(ShardError::Count(count)),
            Some(n) => match number(index).filter(|&index| index <= n) {
                None => Err(ShardError::Index { index, count }),
                Some(index) => Ok(Self { index, count: n }),
            },
        }
    }

    /// Whether a run is of this shard; runs are numbered from 0 here.
    pub(super) fn takes(self, number: u64) -> bool {
        number % u64::from(self.count.get()) == u64::from(self.index.get() - 1)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let numbers =
            text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        let (index, count) = numbers.ok_or_else(|| ShardError::Form(text.into()))?;
        Self::new(index, count)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.index, self.count)
    }
}

impl Runner<'_> {
    /// Every shard plans everything, so that what cannot be planned fails in all of them, and every
    /// shard that counts reads the whole tuning phase, so that all of them agree on its outcome.
    pub fn run_part(&mut self, part: Part, tuning_command: &str) -> Result<Work, ExperimentError> {
        let settings = self.experiment.settings();
        let mut lines = self.lines(&settings);
        let tried = self.tried(&lines);
        if part.phase == Phase::Run {
            // Planning may take minutes.
            let absent = self.absent(&tried);
            self.is_tuned(absent, &tried, tuning_command)?;
        }
        self.prepare(&lines)?;
        // Not before: what fails by then leaves the folder free for another experiment.
        origin::leave(self.experiment, self.directory)?;
        let seeds = self.tuning_seeds();
        match part.phase {
            Phase::Tune => {
                let missing = self.missing(&tried, &seeds, part.shard);
                self.finish(missing, Event::Tuning)?;
            }
            Phase::Run => {
                // Files may also be torn, or of another mechanism.
                let missing = self.missing(&tried, &seeds, Shard::WHOLE).len();
                self.is_tuned(missing, &tried, tuning_command)?;
                self.work.reused = 0;
                self.add_tuned(&mut lines, &tried);
                let missing = self.missing(&lines, &self.seeds(), part.shard);
                self.finish(missing, Event::Running)?;
            }
        }
        Ok(self.work)
    }

    /// Runs of the tuning phase without a file.
    fn absent(&self, tried: &[Line<'_>]) -> usize {
        let keys = self.tuning_keys(tried);
        keys.iter().filter(|key| !cell::path(self.directory, key).exists()).count()
    }

    fn is_tuned(
        &self,
        missing: usize,
        tried: &[Line<'_>],
        command: &str,
    ) -> Result<(), ExperimentError> {
        if missing == 0 {
            return Ok(());
        }
        let all = self.tuning_keys(tried).len();
        let (directory, command) = (self.directory.into(), command.into());
        Err(ExperimentError::Untuned { directory, missing, all, command })
    }

    fn tuning_keys(&self, tried: &[Line<'_>]) -> HashSet<String> {
        let seeds = self.tuning_seeds();
        let of_line = |line| seeds.iter().map(move |&seed| self.cell(line, seed).key());
        tried.iter().flat_map(of_line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_of_exactly_one_shard() {
        for count in 1..=7 {
            let shards: Vec<Shard> = (1..=count).map(|i| Shard::new(i, count).unwrap()).collect();
            for number in 0..50 {
                assert_eq!(shards.iter().filter(|shard| shard.takes(number)).count(), 1);
            }
        }
        assert!((0..50).all(|number| Shard::WHOLE.takes(number)));
        let second: Vec<u64> =
            (0..9).filter(|&k| "2/4".parse::<Shard>().unwrap().takes(k)).collect();
        assert_eq!(second, [1, 5]);
    }
}
