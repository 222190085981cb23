use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    Blocks, Closes, Delta, Dimension, HonestFraction, Layout, OpenRound, Participations,
    ProtocolError, Round, Schedule, Stage, UnitError, Window,
    closes::{ClosesBy, LATEST},
    hex32::hex32,
    layout::LayoutName,
    wire,
};

/// The unchecked form of a [`Mechanism`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MechanismFields", into = "MechanismFields")]
pub struct MechanismConfig {
    /// Features of an arm (d), 1 to 1000.
    pub dimension: u32,
    /// Largest Euclidean norm of a context (L), 1e-20 to 1e20.
    pub context_bound: f64,
    /// Which parameters the model has, and so which coordinates a report has.
    pub layout: Layout,
    /// The public plan of all batches.
    pub schedule: Vec<Stage>,
    /// What closes a batch.
    pub closes: Closes,
    /// Delta of the central guarantee, above 0 and below 1.
    pub central_delta: f64,
    /// Reports one device may send in the life of the task (k), at least 1.
    pub participations: u32,
    /// Share of every batch that is surely not the adversary's (h), above 0 and at most 1.
    pub honest_fraction: f64,
}

impl MechanismConfig {
    /// The valid mechanism, or the first rule that is violated.
    pub fn check(self) -> Result<Mechanism, ProtocolError> {
        let dimension = Dimension::new(self.dimension)?;
        if !(self.context_bound >= 1e-20 && self.context_bound <= 1e20) {
            return Err(ProtocolError::ContextBound(self.context_bound));
        }
        let blocks = Blocks::new(dimension, self.layout)?;
        let schedule = Schedule::new(self.schedule, blocks.coordinates())?;
        check_times(self.closes, &schedule)?;
        let named = |name| move |error: UnitError| error.named(name);
        let mut mechanism = Mechanism {
            dimension,
            context_bound: self.context_bound,
            layout: self.layout,
            blocks,
            schedule,
            closes: self.closes,
            central_delta: Delta::new(self.central_delta).map_err(named("central_delta"))?,
            participations: Participations::new(self.participations)?,
            honest_fraction: HonestFraction::new(self.honest_fraction)
                .map_err(named("honest_fraction"))?,
            hash: MechanismHash([0; 32]),
        };
        mechanism.hash = mechanism.digest();
        Ok(mechanism)
    }
}

/// Whether windows and times are there exactly where batches close by time, and in range.
fn check_times(closes: Closes, schedule: &Schedule) -> Result<(), ProtocolError> {
    match closes {
        Closes::Count { grace } => {
            if grace > 1000 {
                return Err(ProtocolError::Grace(grace));
            }
            if schedule.stages().iter().any(|stage| stage.window.is_some()) {
                return Err(ProtocolError::Window("must be left out where batches close by count"));
            }
        }
        Closes::Time { opens } => {
            if schedule.stages().iter().any(|stage| stage.window.unwrap_or(0) < 10) {
                return Err(ProtocolError::Window(
                    "must be from 10 to 4294967295 milliseconds where batches close by time",
                ));
            }
            if opens.checked_add(schedule.duration()).is_none_or(|end| end > LATEST) {
                return Err(ProtocolError::Opens(opens));
            }
        }
    }
    Ok(())
}

/// A [`MechanismConfig`] as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Mechanism", deny_unknown_fields)]
struct MechanismFields {
    dimension: u32,
    context_bound: f64,
    layout: LayoutName,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
    slots: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "wire::given")]
    shared: Option<u32>,
    closes: ClosesBy,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "wire::optional_integer")]
    opens: Option<u64>,
    grace: u32,
    central_delta: f64,
    participations: u32,
    honest_fraction: f64,
    /// Last, because TOML writes tables after plain values.
    schedule: Vec<Stage>,
}

impl TryFrom<MechanismFields> for MechanismConfig {
    type Error = ProtocolError;
    fn try_from(fields: MechanismFields) -> Result<Self, ProtocolError> {
        let closes = match (fields.closes, fields.opens, fields.grace) {
            (ClosesBy::Count, None, grace) => Closes::Count { grace },
            (ClosesBy::Time, Some(opens), 0) => Closes::Time { opens },
            (ClosesBy::Count, Some(opens), _) => return Err(ProtocolError::Opens(opens)),
            (ClosesBy::Time, None, _) => return Err(ProtocolError::NoOpens),
            (ClosesBy::Time, Some(_), grace) => return Err(ProtocolError::Grace(grace)),
        };
        Ok(Self {
            dimension: fields.dimension,
            context_bound: fields.context_bound,
            layout: fields.layout.with(fields.slots, fields.shared)?,
            schedule: fields.schedule,
            closes,
            central_delta: fields.central_delta,
            participations: fields.participations,
            honest_fraction: fields.honest_fraction,
        })
    }
}

impl From<MechanismConfig> for MechanismFields {
    fn from(config: MechanismConfig) -> Self {
        let (closes, opens, grace) = match config.closes {
            Closes::Count { grace } => (ClosesBy::Count, None, grace),
            Closes::Time { opens } => (ClosesBy::Time, Some(opens), 0),
        };
        let (layout, slots, shared) = LayoutName::of(config.layout);
        Self {
            dimension: config.dimension,
            context_bound: config.context_bound,
            layout,
            slots,
            shared,
            closes,
            opens,
            grace,
            central_delta: config.central_delta,
            participations: config.participations,
            honest_fraction: config.honest_fraction,
            schedule: config.schedule,
        }
    }
}

/// Everything a privacy guarantee depends on. Its [`hash`](Mechanism::hash) is what a certificate
/// and a task id are about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MechanismConfig", into = "MechanismConfig")]
pub struct Mechanism {
    dimension: Dimension,
    context_bound: f64,
    layout: Layout,
    blocks: Blocks,
    schedule: Schedule,
    closes: Closes,
    central_delta: Delta,
    participations: Participations,
    honest_fraction: HonestFraction,
    hash: MechanismHash,
}

impl Mechanism {
    /// Features of an arm (d).
    pub fn dimension(&self) -> usize {
        self.dimension.get() as usize
    }

    /// Coordinates of a report (D).
    pub fn coordinates(&self) -> usize {
        self.blocks.coordinates()
    }

    /// Largest Euclidean norm of a context (L).
    pub fn context_bound(&self) -> f64 {
        self.context_bound
    }

    /// The public plan of all batches.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The round with this number.
    pub fn round(&self, number: u32) -> Result<Round, ProtocolError> {
        self.schedule.round(number)
    }

    /// Which parameters the model has.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The sizes of the layout.
    pub fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// What closes a batch.
    pub fn closes(&self) -> Closes {
        self.closes
    }

    /// Rounds a report may be late: none where batches close by time.
    pub fn grace(&self) -> u32 {
        match self.closes {
            Closes::Count { grace } => grace,
            Closes::Time { .. } => 0,
        }
    }

    /// When a round opens and closes, in milliseconds since 1970; none where batches close by
    /// count.
    pub fn window(&self, round: u32) -> Result<Option<Window>, ProtocolError> {
        let window = self.schedule.window(round)?;
        let Closes::Time { opens } = self.closes else { return Ok(None) };
        Ok(window
            .map(|window| Window { opens: opens + window.opens, closes: opens + window.closes }))
    }

    /// The round that is open at a time, in milliseconds since 1970; none where batches close by
    /// count.
    pub fn round_at(&self, milliseconds: u64) -> Option<OpenRound> {
        let Closes::Time { opens } = self.closes else { return None };
        let Some(elapsed) = milliseconds.checked_sub(opens) else {
            return Some(OpenRound::NotYet);
        };
        Some(self.schedule.round_after(elapsed).map_or(OpenRound::Over, OpenRound::Open))
    }

    /// Delta of the central guarantee.
    pub fn central_delta(&self) -> Delta {
        self.central_delta
    }

    /// Reports one device may send in the life of the task (k).
    pub fn participations(&self) -> Participations {
        self.participations
    }

    /// Share of every batch that is surely not the adversary's (h).
    pub fn honest_fraction(&self) -> HonestFraction {
        self.honest_fraction
    }

    /// SHA-256 over the canonical bytes of `docs/formats.md`.
    pub fn hash(&self) -> MechanismHash {
        self.hash
    }

    fn digest(&self) -> MechanismHash {
        let mut bytes = b"incrowd/mechanism/v1\0".to_vec();
        bytes.extend(self.dimension.get().to_be_bytes());
        bytes.extend(self.context_bound.to_be_bytes());
        for number in self.layout.numbers() {
            bytes.extend(number.to_be_bytes());
        }
        let (closes, opens) = match self.closes {
            Closes::Count { .. } => (0u32, 0u64),
            Closes::Time { opens } => (1, opens),
        };
        bytes.extend(closes.to_be_bytes());
        bytes.extend(opens.to_be_bytes());
        bytes.extend(self.grace().to_be_bytes());
        bytes.extend(self.central_delta.get().to_be_bytes());
        bytes.extend(self.participations.get().to_be_bytes());
        bytes.extend(self.honest_fraction.get().to_be_bytes());
        bytes.extend((self.schedule.stages().len() as u32).to_be_bytes());
        for stage in self.schedule.stages() {
            let own = [stage.rounds, stage.size, stage.window.unwrap_or(0)];
            for number in own.into_iter().chain(stage.law.numbers()) {
                bytes.extend(number.to_be_bytes());
            }
        }
        MechanismHash::of(bytes)
    }
}

impl TryFrom<MechanismConfig> for Mechanism {
    type Error = ProtocolError;
    fn try_from(config: MechanismConfig) -> Result<Self, ProtocolError> {
        config.check()
    }
}

impl From<Mechanism> for MechanismConfig {
    fn from(mechanism: Mechanism) -> Self {
        Self {
            dimension: mechanism.dimension.get(),
            context_bound: mechanism.context_bound,
            layout: mechanism.layout,
            schedule: mechanism.schedule.stages().to_vec(),
            closes: mechanism.closes,
            central_delta: mechanism.central_delta.get(),
            participations: mechanism.participations.get(),
            honest_fraction: mechanism.honest_fraction.get(),
        }
    }
}

/// Identity of a mechanism: equal hashes mean equal privacy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MechanismHash([u8; 32]);
hex32!(MechanismHash, "a mechanism hash");

impl MechanismHash {
    /// SHA-256 of the canonical bytes of a mechanism, which start with a tag of their kind.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The eight bytes that a report carries.
    pub fn prefix(&self) -> &[u8] {
        &self.0[..8]
    }
}
