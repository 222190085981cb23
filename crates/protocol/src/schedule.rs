use serde::{Deserialize, Serialize};

use crate::{Bits, Dimension, FlipProbability, ProtocolError};

const MAX_COINS: u64 = 1 << 24;
const MAX_STAGES: usize = 10_000;
const HAS_STAGE: &str = "invariant: a schedule has at least one stage";

/// How reports are randomized.
///
/// # Privacy
/// A late report counts in another round only if that round has the same law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Law {
    /// Bits per coordinate (m).
    pub bits: u32,
    /// Flip parameter (p).
    pub flip: FlipProbability,
}

/// A run of equal batches. On the wire its law's two fields stand beside its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StageFields", into = "StageFields")]
pub struct Stage {
    /// Batches in this stage.
    pub rounds: u32,
    /// Reports in each batch (l).
    pub size: u32,
    /// What their reports are made with.
    pub law: Law,
}

/// One batch. On the wire its law's two fields stand beside its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RoundFields", into = "RoundFields")]
pub struct Round {
    /// Number of the round, from 1.
    pub number: u32,
    /// Reports in its batch (l).
    pub size: u32,
    /// What its reports are made with.
    pub law: Law,
}

/// A [`Stage`] as it is written. Serde cannot both flatten a law and refuse unknown fields.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Stage", deny_unknown_fields)]
struct StageFields {
    rounds: u32,
    size: u32,
    bits: u32,
    flip: FlipProbability,
}

impl From<StageFields> for Stage {
    fn from(StageFields { rounds, size, bits, flip }: StageFields) -> Self {
        Self { rounds, size, law: Law { bits, flip } }
    }
}

impl From<Stage> for StageFields {
    fn from(Stage { rounds, size, law: Law { bits, flip } }: Stage) -> Self {
        Self { rounds, size, bits, flip }
    }
}

/// A [`Round`] as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Round", deny_unknown_fields)]
struct RoundFields {
    number: u32,
    size: u32,
    bits: u32,
    flip: FlipProbability,
}

impl From<RoundFields> for Round {
    fn from(RoundFields { number, size, bits, flip }: RoundFields) -> Self {
        Self { number, size, law: Law { bits, flip } }
    }
}

impl From<Round> for RoundFields {
    fn from(Round { number, size, law: Law { bits, flip } }: Round) -> Self {
        Self { number, size, bits, flip }
    }
}

/// The public plan of all batches: one stage for the paper's fixed batches, several for growing
/// ones.
///
/// # Privacy
/// The plan is fixed before the first report, so no batch boundary can depend on anyone's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    stages: Vec<Stage>,
    /// Last round of each stage.
    ends: Vec<u32>,
}

impl Schedule {
    /// A schedule of `stages`, for reports of `dimension`.
    pub fn new(stages: Vec<Stage>, dimension: Dimension) -> Result<Self, ProtocolError> {
        if stages.is_empty() || stages.len() > MAX_STAGES {
            return Err(ProtocolError::Schedule("must have from 1 to 10000 stages"));
        }
        for stage in &stages {
            let bits = stage.law.bits;
            let coins = dimension.coordinates() as u64 * u64::from(bits);
            if Bits::new(bits).is_err() || coins > MAX_COINS {
                return Err(ProtocolError::Bits(bits, dimension.get()));
            }
            if stage.size == 0 {
                return Err(ProtocolError::Size(0, 1));
            }
            if stage.rounds == 0 {
                return Err(ProtocolError::Rounds(0));
            }
        }
        let rounds: u64 = stages.iter().map(|stage| u64::from(stage.rounds)).sum();
        if rounds >= u64::from(u32::MAX) {
            return Err(ProtocolError::Rounds(rounds));
        }
        if stages.windows(2).any(|pair| (pair[0].size, pair[0].law) == (pair[1].size, pair[1].law))
        {
            return Err(ProtocolError::Schedule(
                "has two equal neighbouring stages, must merge them",
            ));
        }
        let ends = stages.iter().scan(0, |end, stage| {
            *end += stage.rounds;
            Some(*end)
        });
        let ends = ends.collect();
        Ok(Self { stages, ends })
    }

    /// The stages in order.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Number of the last round.
    pub fn last_round(&self) -> u32 {
        *self.ends.last().expect(HAS_STAGE)
    }

    /// Reports that all rounds take together (T, when every user reports once).
    pub fn horizon(&self) -> u64 {
        self.stages.iter().map(|stage| u64::from(stage.rounds) * u64::from(stage.size)).sum()
    }

    /// The round with this number.
    pub fn round(&self, number: u32) -> Result<Round, ProtocolError> {
        match self.stages.get(self.ends.partition_point(|&end| end < number)) {
            Some(stage) if number > 0 => Ok(Round { number, size: stage.size, law: stage.law }),
            _ => Err(ProtocolError::Round { round: number, last: self.last_round() }),
        }
    }

    /// Smallest batch of the schedule.
    pub fn smallest_batch(&self) -> u32 {
        self.stages.iter().map(|stage| stage.size).min().expect(HAS_STAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_knows_its_stage() {
        let law = Law { bits: 1, flip: FlipProbability::new(1, 2).unwrap() };
        let stage = |rounds, size| Stage { rounds, size, law };
        let schedule = Schedule::new(
            vec![stage(2, 10), stage(1, 20), stage(3, 40)],
            Dimension::new(2).unwrap(),
        )
        .unwrap();
        let sizes: Vec<u32> = (1..=6).map(|j| schedule.round(j).unwrap().size).collect();
        assert_eq!(sizes, [10, 10, 20, 40, 40, 40]);
        assert_eq!(schedule.round(0), Err(ProtocolError::Round { round: 0, last: 6 }));
        assert_eq!(schedule.round(7), Err(ProtocolError::Round { round: 7, last: 6 }));
    }
}
