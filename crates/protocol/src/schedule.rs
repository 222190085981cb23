use serde::{Deserialize, Serialize};

use crate::{
    FlipProbability, Law, OutsideProbability, ProtocolError, Window,
    law::{Encoding, LawFields},
    wire,
};

const MAX_STAGES: usize = 10_000;
const HAS_STAGE: &str = "invariant: a schedule has at least one stage";

/// A run of equal batches. On the wire its law's fields stand beside its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StageFields", into = "StageFields")]
pub struct Stage {
    /// Batches in this stage.
    pub rounds: u32,
    /// Reports in each batch (l).
    pub size: u32,
    /// How long each batch is open, in milliseconds; none where batches close by count.
    pub window: Option<u32>,
    /// What their reports are made with.
    pub law: Law,
}

/// One batch. On the wire its law's fields stand beside its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RoundFields", into = "RoundFields")]
pub struct Round {
    /// Number of the round, from 1.
    pub number: u32,
    /// Reports in its batch (l).
    pub size: u32,
    /// How long its batch is open, in milliseconds; none where batches close by count.
    pub window: Option<u32>,
    /// What its reports are made with.
    pub law: Law,
}

/// A struct that is written with the fields of its law beside its own. Serde cannot both flatten a
/// law and refuse unknown fields, so every field of every law is listed, and those of other laws
/// must be left out.
macro_rules! beside_law {
    ($fields:ident, $name:literal, $whole:ident { $($own:ident),+ }) => {
        #[derive(Serialize, Deserialize)]
        #[serde(rename = $name, deny_unknown_fields)]
        struct $fields {
            $($own: u32,)+
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
            window: Option<u32>,
            encoding: Encoding,
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
            bits: Option<u32>,
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
            flip: Option<FlipProbability>,
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
            words: Option<u32>,
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
            chosen: Option<u32>,
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
            outside: Option<OutsideProbability>,
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
            moment_weight: Option<u32>,
        }

        impl TryFrom<$fields> for $whole {
            type Error = ProtocolError;
            fn try_from(fields: $fields) -> Result<Self, ProtocolError> {
                let $fields {
                    $($own,)+ window, encoding, bits, flip, words, chosen, outside, moment_weight
                } = fields;
                let fields = LawFields { bits, flip, words, chosen, outside, moment_weight };
                Ok(Self { $($own,)+ window, law: fields.law(encoding)? })
            }
        }

        impl From<$whole> for $fields {
            fn from($whole { $($own,)+ window, law }: $whole) -> Self {
                let (encoding, fields) = LawFields::of(law);
                let LawFields { bits, flip, words, chosen, outside, moment_weight } = fields;
                Self { $($own,)+ window, encoding, bits, flip, words, chosen, outside, moment_weight }
            }
        }
    };
}
beside_law!(StageFields, "Stage", Stage { rounds, size });
beside_law!(RoundFields, "Round", Round { number, size });

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
    /// Milliseconds from the opening of round 1 to the end of each stage; zero where batches close
    /// by count.
    elapsed: Vec<u64>,
}

impl Schedule {
    /// A schedule of `stages`, for reports of so many `coordinates`.
    pub fn new(stages: Vec<Stage>, coordinates: usize) -> Result<Self, ProtocolError> {
        if stages.is_empty() || stages.len() > MAX_STAGES {
            return Err(ProtocolError::Schedule("must have from 1 to 10000 stages"));
        }
        for stage in &stages {
            stage.law.check(coordinates)?;
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
        let equal = |a: &Stage, b: &Stage| Stage { rounds: b.rounds, ..*a } == *b;
        if stages.windows(2).any(|pair| equal(&pair[0], &pair[1])) {
            return Err(ProtocolError::Schedule(
                "has two equal neighbouring stages, must merge them",
            ));
        }
        let ends = stages.iter().scan(0, |end, stage| {
            *end += stage.rounds;
            Some(*end)
        });
        let ends = ends.collect();
        let elapsed = stages.iter().scan(0u64, |end, stage| {
            // At most 2^32 rounds of less than 2^32 milliseconds.
            *end += u64::from(stage.rounds) * u64::from(stage.window.unwrap_or(0));
            Some(*end)
        });
        let elapsed = elapsed.collect();
        Ok(Self { stages, ends, elapsed })
    }

    /// Milliseconds from the opening of round 1 to the closing of the last round; zero where
    /// batches close by count.
    pub fn duration(&self) -> u64 {
        *self.elapsed.last().expect(HAS_STAGE)
    }

    /// When a round opens and closes, in milliseconds from the opening of round 1; none where
    /// batches close by count.
    pub fn window(&self, number: u32) -> Result<Option<Window>, ProtocolError> {
        let round = self.round(number)?;
        let Some(length) = round.window.map(u64::from) else { return Ok(None) };
        let stage = self.ends.partition_point(|&end| end < number);
        // The end of the stage, less the rounds from this one to the stage's last.
        let closes = self.elapsed[stage] - u64::from(self.ends[stage] - number) * length;
        Ok(Some(Window { opens: closes - length, closes }))
    }

    /// The number of the round that is open at a time from the opening of round 1; none after the
    /// last. Batches must close by time.
    pub fn round_after(&self, milliseconds: u64) -> Option<u32> {
        let stage = self.elapsed.partition_point(|&end| end <= milliseconds);
        let length = u64::from(self.stages.get(stage)?.window?);
        let left = (self.elapsed[stage] - milliseconds - 1) / length;
        Some(self.ends[stage] - left as u32)
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
            Some(&Stage { size, window, law, .. }) if number > 0 => {
                Ok(Round { number, size, window, law })
            }
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
        let law = Law::bits(1, FlipProbability::new(1, 2).unwrap());
        let stage = |rounds, size| Stage { rounds, size, window: None, law };
        let schedule = Schedule::new(vec![stage(2, 10), stage(1, 20), stage(3, 40)], 5).unwrap();
        let sizes: Vec<u32> = (1..=6).map(|j| schedule.round(j).unwrap().size).collect();
        assert_eq!(sizes, [10, 10, 20, 40, 40, 40]);
        assert_eq!(schedule.round(0), Err(ProtocolError::Round { round: 0, last: 6 }));
        assert_eq!(schedule.round(7), Err(ProtocolError::Round { round: 7, last: 6 }));
    }

    #[test]
    fn windows_follow_each_other_without_gap() {
        let law = Law::bits(1, FlipProbability::new(1, 2).unwrap());
        let stage = |rounds, window| Stage { rounds, size: 10, window: Some(window), law };
        let stages = vec![stage(2, 100), stage(1, 50), stage(3, 1000)];
        let schedule = Schedule::new(stages, 5).unwrap();
        let windows: Vec<Window> =
            (1..=6).map(|number| schedule.window(number).unwrap().unwrap()).collect();
        let ends = [0, 100, 200, 250, 1250, 2250, 3250];
        for (window, pair) in windows.iter().zip(ends.windows(2)) {
            assert_eq!((window.opens, window.closes), (pair[0], pair[1]));
        }
        assert_eq!(schedule.duration(), 3250);
        for time in 0..3250 {
            let open = ends.iter().filter(|&&end| end <= time).count() as u32;
            assert_eq!(schedule.round_after(time), Some(open), "{time}");
        }
        assert_eq!(schedule.round_after(3250), None);
        assert!(schedule.window(7).is_err());
    }
}
