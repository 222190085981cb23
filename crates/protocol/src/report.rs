use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{BitsLaw, CodebookLaw, Law, Mechanism, MechanismHash, ProtocolError, Words, parse_hex};

const VERSION: u8 = 1;
const HEADER: usize = 29;
/// Seed and index.
const WORD: usize = 17;

/// Random name of a report: a retry carries the same one, and it counts once. As text it has 32
/// lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReportId(pub [u8; 16]);

impl fmt::Display for ReportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for ReportId {
    type Err = ProtocolError;
    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        parse_hex(text).map(Self).ok_or(ProtocolError::ReportId)
    }
}

impl TryFrom<String> for ReportId {
    type Error = ProtocolError;
    fn try_from(text: String) -> Result<Self, ProtocolError> {
        text.parse()
    }
}

impl From<ReportId> for String {
    fn from(id: ReportId) -> Self {
        id.to_string()
    }
}

/// What a report says, randomized with the law of its round.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// For each of the D coordinates, how many of its m coins are 1.
    Counts(Vec<u16>),
    /// A word of the codebook that the seed expands to.
    Word {
        /// Secret until the shuffler has counted the report.
        seed: [u8; 16],
        /// Which word.
        index: u8,
    },
}

impl From<Vec<u16>> for Payload {
    fn from(counts: Vec<u16>) -> Self {
        Self::Counts(counts)
    }
}

impl Payload {
    /// The counts of a report of bits.
    pub fn counts(&self) -> Option<&[u16]> {
        match self {
            Self::Counts(counts) => Some(counts),
            Self::Word { .. } => None,
        }
    }

    /// Adds what the report says to the sums of its batch, one for each of the D coordinates.
    pub fn add_to(&self, sums: &mut [i64]) {
        match self {
            Self::Counts(counts) => add_counts(counts, sums),
            Self::Word { seed, index } => {
                Words::new(seed, sums.len() + 1).add(usize::from(*index), sums);
            }
        }
    }
}

/// Adds the counts of one report of bits to the sums of its batch.
pub fn add_counts(counts: &[u16], sums: &mut [i64]) {
    sums.iter_mut().zip(counts).for_each(|(sum, &count)| *sum += i64::from(count));
}

/// One device's randomized answer.
///
/// # Privacy
/// A report is what adversary (a), on the wire, sees of a person; its length is the same for every
/// content. It carries no time, address or user name. Printing it for debugging shows no content.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    mechanism: MechanismHash,
    round: u32,
    id: ReportId,
    payload: Payload,
}

impl Report {
    /// A report for a round of the mechanism.
    pub fn new(
        mechanism: &Mechanism,
        round: u32,
        id: ReportId,
        payload: impl Into<Payload>,
    ) -> Result<Self, ProtocolError> {
        let payload = payload.into();
        match (mechanism.round(round)?.law, &payload) {
            (Law::Bits(BitsLaw { bits, .. }), Payload::Counts(counts)) => {
                let (found, needed) = (counts.len(), mechanism.coordinates());
                if found != needed {
                    return Err(ProtocolError::Length { what: "counts", found, needed });
                }
                if let Some(coordinate) = counts.iter().position(|&count| u32::from(count) > bits) {
                    return Err(ProtocolError::Count { coordinate, bits });
                }
            }
            (Law::Codebook(law), &Payload::Word { index, .. }) => check_index(index, law)?,
            _ => return Err(ProtocolError::Payload(round)),
        }
        Ok(Self { mechanism: mechanism.hash(), round, id, payload })
    }

    /// The mechanism this report was made with.
    pub fn mechanism(&self) -> MechanismHash {
        self.mechanism
    }

    /// The round this report was made for.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The report's random name.
    pub fn id(&self) -> ReportId {
        self.id
    }

    /// What it says.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Bytes of every encoded report of a round with this law.
    pub fn encoded_len(mechanism: &Mechanism, law: Law) -> usize {
        HEADER
            + match law {
                Law::Bits(BitsLaw { bits, .. }) => {
                    (mechanism.coordinates() * count_width(bits) as usize).div_ceil(8)
                }
                Law::Codebook(_) => WORD,
            }
    }

    /// The bytes on the wire. The report must be of this mechanism.
    pub fn encode(&self, mechanism: &Mechanism) -> Result<Vec<u8>, ProtocolError> {
        if self.mechanism != mechanism.hash() {
            return Err(ProtocolError::Task);
        }
        let law = mechanism.round(self.round)?.law;
        let mut bytes = Vec::with_capacity(Self::encoded_len(mechanism, law));
        bytes.push(VERSION);
        bytes.extend_from_slice(mechanism.hash().prefix());
        bytes.extend_from_slice(&self.round.to_be_bytes());
        bytes.extend_from_slice(&self.id.0);
        match (&self.payload, law) {
            (Payload::Counts(counts), Law::Bits(BitsLaw { bits, .. })) => {
                pack(counts, bits, &mut bytes);
            }
            (Payload::Word { seed, index }, _) => {
                bytes.extend_from_slice(seed);
                bytes.push(*index);
            }
            _ => return Err(ProtocolError::Payload(self.round)),
        }
        Ok(bytes)
    }

    /// The report that `bytes` are, if they are one of this mechanism.
    pub fn decode(bytes: &[u8], mechanism: &Mechanism) -> Result<Self, ProtocolError> {
        let found = bytes.len();
        let Some((header, payload)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(ProtocolError::Short { found, needed: HEADER });
        };
        if header[0] != VERSION {
            return Err(ProtocolError::Version(header[0]));
        }
        if header[1..9] != *mechanism.hash().prefix() {
            return Err(ProtocolError::Task);
        }
        let round = u32::from_be_bytes([header[9], header[10], header[11], header[12]]);
        let law = mechanism.round(round)?.law;
        let needed = Self::encoded_len(mechanism, law);
        if found < needed {
            return Err(ProtocolError::Short { found, needed });
        }
        if found > needed {
            return Err(ProtocolError::Long { found, needed });
        }
        let mut id = [0; 16];
        id.copy_from_slice(&header[13..]);
        let payload = match law {
            Law::Bits(BitsLaw { bits, .. }) => {
                Payload::Counts(unpack(payload, mechanism.coordinates(), bits)?)
            }
            Law::Codebook(law) => {
                let mut seed = [0; 16];
                seed.copy_from_slice(&payload[..16]);
                let index = payload[16];
                check_index(index, law)?;
                Payload::Word { seed, index }
            }
        };
        Ok(Self { mechanism: mechanism.hash(), round, id: ReportId(id), payload })
    }
}

/// Whether a codebook has this word.
fn check_index(index: u8, law: CodebookLaw) -> Result<(), ProtocolError> {
    if u32::from(index) < law.words {
        return Ok(());
    }
    Err(ProtocolError::WordIndex { index, words: law.words })
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("round", &self.round).finish_non_exhaustive()
    }
}

/// ceil(log2(bits + 1)): how many bits a count in 0..=bits takes.
const fn count_width(bits: u32) -> u32 {
    u32::BITS - bits.leading_zeros()
}

fn pack(counts: &[u16], bits: u32, bytes: &mut Vec<u8>) {
    let width = count_width(bits);
    let (mut buffer, mut filled) = (0u32, 0);
    for &count in counts {
        buffer |= u32::from(count) << filled;
        filled += width;
        while filled >= 8 {
            bytes.push(buffer as u8);
            buffer >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        bytes.push(buffer as u8);
    }
}

fn unpack(payload: &[u8], coordinates: usize, bits: u32) -> Result<Vec<u16>, ProtocolError> {
    let width = count_width(bits);
    let mask = (1u32 << width) - 1;
    let mut bytes = payload.iter();
    let (mut buffer, mut filled) = (0u32, 0);
    let mut counts = vec![0u16; coordinates];
    for (coordinate, slot) in counts.iter_mut().enumerate() {
        while filled < width {
            buffer |= u32::from(*bytes.next().unwrap_or(&0)) << filled;
            filled += 8;
        }
        let count = buffer & mask;
        if count > bits {
            return Err(ProtocolError::Count { coordinate, bits });
        }
        *slot = count as u16;
        buffer >>= width;
        filled -= width;
    }
    if buffer != 0 {
        return Err(ProtocolError::Padding);
    }
    Ok(counts)
}
