use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    Delta, Dimension, HonestFraction, Law, Participations, ProtocolError, Round, Schedule, Stage,
    UnitError, coordinates, hex32::hex32,
};

/// The unchecked form of a [`Mechanism`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanismConfig {
    /// Dimension of the contexts (d), 1 to 1000.
    pub dimension: u32,
    /// Largest Euclidean norm of a context (L), 1e-20 to 1e20.
    pub context_bound: f64,
    /// The public plan of all batches.
    pub schedule: Vec<Stage>,
    /// Rounds a report may be late, 0 to 1000.
    pub grace: u32,
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
        let schedule = Schedule::new(self.schedule, dimension)?;
        if self.grace > 1000 {
            return Err(ProtocolError::Grace(self.grace));
        }
        let named = |name| move |error: UnitError| error.named(name);
        let mut mechanism = Mechanism {
            dimension,
            context_bound: self.context_bound,
            schedule,
            grace: self.grace,
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

/// Everything a privacy guarantee depends on. Its [`hash`](Mechanism::hash) is what a certificate
/// and a task id are about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MechanismConfig", into = "MechanismConfig")]
pub struct Mechanism {
    dimension: Dimension,
    context_bound: f64,
    schedule: Schedule,
    grace: u32,
    central_delta: Delta,
    participations: Participations,
    honest_fraction: HonestFraction,
    hash: MechanismHash,
}

impl Mechanism {
    /// Dimension of the contexts (d).
    pub fn dimension(&self) -> usize {
        self.dimension.get() as usize
    }

    /// Dimension of the contexts (d) as a unit.
    pub fn dimension_unit(&self) -> Dimension {
        self.dimension
    }

    /// Coordinates of a report (D).
    pub fn coordinates(&self) -> usize {
        coordinates(self.dimension())
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

    /// Rounds a report may be late.
    pub fn grace(&self) -> u32 {
        self.grace
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
        bytes.extend(self.grace.to_be_bytes());
        bytes.extend(self.central_delta.get().to_be_bytes());
        bytes.extend(self.participations.get().to_be_bytes());
        bytes.extend(self.honest_fraction.get().to_be_bytes());
        bytes.extend((self.schedule.stages().len() as u32).to_be_bytes());
        for stage in self.schedule.stages() {
            let Law { bits, flip } = stage.law;
            for word in [stage.rounds, stage.size, bits, flip.numerator(), flip.denominator()] {
                bytes.extend(word.to_be_bytes());
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
            schedule: mechanism.schedule.stages().to_vec(),
            grace: mechanism.grace,
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
