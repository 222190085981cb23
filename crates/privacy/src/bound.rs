use serde::{Deserialize, Serialize};

/// Which argument a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BoundName {
    /// The paper's Prop. 1: every bit at its worst.
    PaperProposition1,
    /// L1 diameter of the encoded ball, m = 1.
    L1Diameter,
    /// L1 diameter, m = 1, with the second and third order of the likelihood.
    L1DiameterRefined,
    /// L1 diameter with a chord of the log-likelihood, every m.
    L1DiameterChord,
    /// The exact ratio of a codebook report, whatever rule picks the words.
    CodebookRatio,
    /// The central guarantee is at least the local one.
    Local,
    /// The sums are no easier to tell apart than two Gaussians at a distance (mu).
    Gaussian,
    /// Renyi divergence of the sums against the worst other users.
    RenyiWorstOthers,
    /// Renyi divergence given the number of blank bits.
    RenyiBlanket,
    /// Batches of different kinds, each compared with two Gaussians or with randomized response.
    Mixed,
    /// Codebook reports as a multiset of words, given the number of blind ones.
    CodebookBlanket,
    /// The sum of codebook reports: the blind words are Gaussian noise.
    CodebookSum,
    /// Feldman, McMillan, Talwar 2021, numeric form, for any local randomizer.
    Clones,
    /// The paper's Prop. 3, without a change; not a certificate.
    PaperProposition3,
}

/// An upper bound on an epsilon and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Which argument.
    pub bound: BoundName,
    /// The bound, rounded up.
    pub epsilon: f64,
}

impl Bound {
    /// The smallest of some bounds; all are valid, so this one is.
    pub fn smallest(bounds: impl IntoIterator<Item = Self>) -> Option<Self> {
        bounds.into_iter().min_by(|a, b| a.epsilon.total_cmp(&b.epsilon))
    }
}
