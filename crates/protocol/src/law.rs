use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Bits, Blocks, CLIP, CoordinateKind, FlipProbability, OutsideProbability, ProtocolError,
};

const MAX_COINS: u64 = 1 << 24;

/// How the reports of a round are randomized.
///
/// # Privacy
/// A late report counts in another round only if that round has the same law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "encoding", rename_all = "kebab-case")]
pub enum Law {
    /// Every coordinate as randomized bits: the paper's encoding.
    Bits(BitsLaw),
    /// One word of a random codebook: less noise where single reports must be private.
    Codebook(CodebookLaw),
}

/// Randomized bits.
///
/// # Reference
/// Garcelon et al. 2021, Algorithms 2 and 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BitsLaw {
    /// Bits per coordinate (m), 1 to 4095.
    pub bits: u32,
    /// Flip parameter (p).
    pub flip: FlipProbability,
}

/// One word out of N that a secret seed expands to: mostly one of the k that point most in the
/// direction of the person's statistic, otherwise one of the others.
///
/// # Privacy
/// Whatever rule picks the k words, one report is ln((1-o)(N-k)/(o k))-locally differentially
/// private, o = `outside`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CodebookLaw {
    /// Words of a codebook (N), 2 to 256.
    pub words: u32,
    /// Words that the statistic picks (k), 1 to N/2.
    pub chosen: u32,
    /// Chance that the word sent is none of those (1 - p), below 1 - k/N.
    pub outside: OutsideProbability,
    /// Share of the squared norm of the statistic that the moment may have (w), in 256ths, 1 to
    /// 255.
    pub moment_weight: u32,
}

impl Law {
    /// The law of `bits` bits per coordinate, flipped with probability `flip`.
    pub const fn bits(bits: u32, flip: FlipProbability) -> Self {
        Self::Bits(BitsLaw { bits, flip })
    }

    /// The law of bits, if it is one.
    pub const fn as_bits(self) -> Option<BitsLaw> {
        match self {
            Self::Bits(law) => Some(law),
            Self::Codebook(_) => None,
        }
    }

    /// Whether this is a law for reports of so many `coordinates`.
    pub(crate) fn check(self, coordinates: usize) -> Result<(), ProtocolError> {
        match self {
            Self::Bits(BitsLaw { bits, .. }) => {
                let coins = coordinates as u64 * u64::from(bits);
                if Bits::new(bits).is_err() || coins > MAX_COINS {
                    return Err(ProtocolError::Bits(bits, coordinates));
                }
                Ok(())
            }
            Self::Codebook(law) => law.check(),
        }
    }

    /// Smallest and largest value that one report adds to a released sum.
    pub fn range(self) -> (i64, i64) {
        match self {
            Self::Bits(BitsLaw { bits, .. }) => (0, i64::from(bits)),
            Self::Codebook(_) => (-i64::from(CLIP), i64::from(CLIP)),
        }
    }

    /// What the mechanism's hash says of the law: the number of the encoding and its parameters.
    pub(crate) fn numbers(self) -> Vec<u32> {
        match self {
            Self::Bits(BitsLaw { bits, flip }) => {
                vec![1, bits, flip.numerator(), flip.denominator()]
            }
            Self::Codebook(CodebookLaw { words, chosen, outside, moment_weight }) => {
                let outside = [outside.numerator(), outside.denominator()];
                vec![2, words, chosen, outside[0], outside[1], moment_weight]
            }
        }
    }
}

impl Law {
    /// What a report has, without the probability that it is noise.
    pub fn report(self) -> String {
        match self {
            Self::Bits(BitsLaw { bits: 1, .. }) => "1 bit".to_owned(),
            Self::Bits(BitsLaw { bits, .. }) => format!("{bits} bits"),
            Self::Codebook(CodebookLaw { words, chosen, .. }) => {
                format!("{chosen} of {words} words")
            }
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report();
        match self {
            Self::Bits(law) => write!(f, "{report}, flip {:.6}", law.flip.value()),
            Self::Codebook(law) => write!(f, "{report}, outside {:.6}", law.outside.value()),
        }
    }
}

impl CodebookLaw {
    /// What the coordinates of a report are multiplied with to become the statistic
    /// z = (sqrt(w) r u, sqrt(1-w) svec(u u')): its Euclidean norm is at most 1.
    pub fn scales(self, blocks: Blocks) -> Vec<f64> {
        let scale = |kind| self.scale(kind);
        blocks.kinds().into_iter().map(scale).collect()
    }

    fn scale(self, kind: CoordinateKind) -> f64 {
        let weight = f64::from(self.moment_weight) / 256.0;
        match kind {
            CoordinateKind::Moment => weight.sqrt(),
            CoordinateKind::Square => (1.0 - weight).sqrt(),
            CoordinateKind::Product => (2.0 * (1.0 - weight)).sqrt(),
        }
    }

    fn check(self) -> Result<(), ProtocolError> {
        let Self { words, chosen, outside, moment_weight } = self;
        if !(2..=256).contains(&words) {
            return Err(ProtocolError::Words(words));
        }
        if chosen == 0 || chosen > words / 2 {
            return Err(ProtocolError::Chosen(chosen, words / 2));
        }
        // o < (N-k)/N in integers: at it a report says nothing and cannot be decoded, beyond it the
        // chosen words would be avoided.
        let [o, of] = [outside.numerator(), outside.denominator()].map(u64::from);
        if o * u64::from(words) >= of * u64::from(words - chosen) {
            return Err(ProtocolError::OutsideTooLarge { outside, chosen, words });
        }
        if !(1..=255).contains(&moment_weight) {
            return Err(ProtocolError::MomentWeight(moment_weight));
        }
        Ok(())
    }
}

/// The kind of a law on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Encoding {
    Bits,
    Codebook,
}

/// The fields of every law as they are written.
#[derive(Default)]
pub(crate) struct LawFields {
    pub bits: Option<u32>,
    pub flip: Option<FlipProbability>,
    pub words: Option<u32>,
    pub chosen: Option<u32>,
    pub outside: Option<OutsideProbability>,
    pub moment_weight: Option<u32>,
}

impl LawFields {
    pub fn of(law: Law) -> (Encoding, Self) {
        match law {
            Law::Bits(BitsLaw { bits, flip }) => {
                let fields = Self { bits: Some(bits), flip: Some(flip), ..Self::default() };
                (Encoding::Bits, fields)
            }
            Law::Codebook(CodebookLaw { words, chosen, outside, moment_weight }) => {
                let fields = Self {
                    words: Some(words),
                    chosen: Some(chosen),
                    outside: Some(outside),
                    moment_weight: Some(moment_weight),
                    ..Self::default()
                };
                (Encoding::Codebook, fields)
            }
        }
    }

    pub fn law(self, encoding: Encoding) -> Result<Law, ProtocolError> {
        let Self { bits, flip, words, chosen, outside, moment_weight } = self;
        match (encoding, (bits, flip), (words, chosen, outside, moment_weight)) {
            (Encoding::Bits, (Some(bits), Some(flip)), (None, None, None, None)) => {
                Ok(Law::bits(bits, flip))
            }
            (
                Encoding::Codebook,
                (None, None),
                (Some(words), Some(chosen), Some(outside), Some(moment_weight)),
            ) => Ok(Law::Codebook(CodebookLaw { words, chosen, outside, moment_weight })),
            (Encoding::Bits, ..) => Err(ProtocolError::Encoding("bits", "bits and flip")),
            (Encoding::Codebook, ..) => {
                Err(ProtocolError::Encoding("codebook", "words, chosen, outside and moment_weight"))
            }
        }
    }
}
