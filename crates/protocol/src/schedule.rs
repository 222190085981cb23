use serde::{Deserialize, Serialize};

use crate::{FlipProbability, ProtocolError, coordinates};

/// Largest number of bits per coordinate.
pub const MAX_BITS: u32 = 4095;
const MAX_COINS: u64 = 1 << 24;
const MAX_STAGES: usize = 10_000;

/// A run of equal batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Batches in this stage.
    pub rounds: u32,
    /// Reports in each batch (l).
    pub size: u32,
    /// Bits per coordinate (m).
    pub bits: u32,
    /// Flip parameter (p).
    pub flip: FlipProbability,
}

impl Stage {
    fn same_batches(&self, other: &Self) -> bool {
        (self.size, self.bits, self.flip) == (other.size, other.bits, other.flip)
    }
}

/// What the reports of one round are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Number of the round, from 1.
    pub number: u32,
    /// Reports in its batch (l).
    pub size: u32,
    /// Bits per coordinate (m).
    pub bits: u32,
    /// Flip parameter (p).
    pub flip: FlipProbability,
}

impl Round {
    /// Whether reports of the two rounds have the same law, so that a late one may count in the other.
    pub fn same_law(&self, other: &Self) -> bool {
        (self.bits, self.flip) == (other.bits, other.flip)
    }
}

/// The public plan of all batches: one stage for the paper's fixed batches, several for growing ones.
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
    pub fn new(stages: Vec<Stage>, dimension: u32) -> Result<Self, ProtocolError> {
        if stages.is_empty() || stages.len() > MAX_STAGES {
            return Err(ProtocolError::Schedule("must have from 1 to 10000 stages"));
        }
        for stage in &stages {
            let coins = coordinates(dimension as usize) as u64 * u64::from(stage.bits);
            if stage.bits == 0 || stage.bits > MAX_BITS || coins > MAX_COINS {
                return Err(ProtocolError::Bits(stage.bits, dimension));
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
        if stages.windows(2).any(|pair| pair[0].same_batches(&pair[1])) {
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

    /// The stages of batches whose sizes start at `first` and grow by the factor `growth`, all with the same `bits` and `flip`,
    /// that together take exactly `horizon` reports; what would be left for a smaller last batch is added to the one before.
    ///
    /// Change the stages' `bits` and `flip` for a schedule that spends its amplification on accuracy.
    pub fn growing(
        first: u32,
        growth: f64,
        horizon: u64,
        bits: u32,
        flip: FlipProbability,
    ) -> Result<Vec<Stage>, ProtocolError> {
        if !(growth.is_finite() && growth >= 1.0) || horizon < u64::from(first) {
            return Err(ProtocolError::Growth(growth));
        }
        if first == 0 {
            return Err(ProtocolError::Size(0, 1));
        }
        let mut stages: Vec<Stage> = Vec::new();
        let mut wanted = f64::from(first);
        let mut left = horizon;
        while left > 0 {
            let size = wanted as u64;
            // Batches of this size that leave at least another one of it.
            let whole = if growth > 1.0 { 1 } else { left / size };
            let (rounds, size) =
                if left < 2 * size { (1, left) } else { (whole.min(left / size - 1), size) };
            left -= rounds * size;
            let size = u32::try_from(size).map_err(|_| ProtocolError::Growth(growth))?;
            let rounds = u32::try_from(rounds).map_err(|_| ProtocolError::Rounds(rounds))?;
            match stages.last_mut() {
                Some(last) if last.size == size => last.rounds = last.rounds.saturating_add(rounds),
                _ => stages.push(Stage { rounds, size, bits, flip }),
            }
            if stages.len() > MAX_STAGES {
                return Err(ProtocolError::Growth(growth));
            }
            // A factor too small to matter would take forever.
            let next = (wanted * growth).min(f64::from(u32::MAX));
            wanted = if growth > 1.0 { next.max(wanted + 1e-3) } else { wanted };
        }
        Ok(stages)
    }

    /// The stages in order.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Number of the last round.
    pub fn last_round(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Reports that all rounds take together (T, when every user reports once).
    pub fn horizon(&self) -> u64 {
        self.stages.iter().map(|stage| u64::from(stage.rounds) * u64::from(stage.size)).sum()
    }

    /// The round with this number.
    pub fn round(&self, number: u32) -> Result<Round, ProtocolError> {
        match self.stages.get(self.ends.partition_point(|&end| end < number)) {
            Some(stage) if number > 0 => {
                Ok(Round { number, size: stage.size, bits: stage.bits, flip: stage.flip })
            }
            _ => Err(ProtocolError::Round { round: number, last: self.last_round() }),
        }
    }

    /// Smallest batch of the schedule.
    pub fn smallest_batch(&self) -> u32 {
        self.stages.iter().map(|stage| stage.size).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half() -> FlipProbability {
        FlipProbability::new(1, 2).unwrap()
    }

    #[test]
    fn growing_batches_end_exactly_at_the_horizon() {
        for (first, growth, horizon) in [
            (300, 1.5, 100_000),
            (1000, 2.0, 1_000_000),
            (7, 1.0, 7),
            (10, 1.01, 95),
            (3, 1.0, 4_000_000_001),
            (5, 1.0 + 1e-12, 100_000),
        ] {
            let stages = Schedule::growing(first, growth, horizon, 1, half()).unwrap();
            let schedule = Schedule::new(stages, 5).unwrap();
            assert_eq!(schedule.horizon(), horizon);
            assert_eq!(schedule.smallest_batch(), first);
            assert!(schedule.stages().windows(2).all(|w| w[0].size <= w[1].size));
        }
        assert!(Schedule::growing(10, f64::NAN, 100, 1, half()).is_err());
        assert!(Schedule::growing(10, 0.5, 100, 1, half()).is_err());
        assert!(Schedule::growing(10, 2.0, 9, 1, half()).is_err());
    }

    #[test]
    fn a_round_knows_its_stage() {
        let stage = |rounds, size| Stage { rounds, size, bits: 1, flip: half() };
        let schedule = Schedule::new(vec![stage(2, 10), stage(1, 20), stage(3, 40)], 2).unwrap();
        let sizes: Vec<u32> = (1..=6).map(|j| schedule.round(j).unwrap().size).collect();
        assert_eq!(sizes, [10, 10, 20, 40, 40, 40]);
        assert_eq!(schedule.round(0), Err(ProtocolError::Round { round: 0, last: 6 }));
        assert_eq!(schedule.round(7), Err(ProtocolError::Round { round: 7, last: 6 }));
    }
}
