use incrowd_protocol::{Law, Mechanism, Payload};
use rand_core::Rng;

use crate::{Arm, InputProblem, bits::BitsRandomizer, codebook::CodebookRandomizer};

/// Arm and reward to what one report says, for the rounds of one mechanism.
///
/// # Privacy
/// The payload is `epsilon_local`-differentially private for every arm and reward, whatever
/// their values; see `docs/privacy-proofs.md`. Fresh randomness is used at every call: sending two
/// results for one person's data costs privacy twice.
pub struct Randomizer {
    bits: BitsRandomizer,
    /// None where no stage of the mechanism has words: a new device then allocates nothing for them.
    codebook: Option<CodebookRandomizer>,
}

impl Randomizer {
    /// A randomizer for this mechanism.
    pub fn new(mechanism: &Mechanism) -> Self {
        let has_words = mechanism.schedule().stages().iter().any(|s| s.law.as_bits().is_none());
        Self {
            bits: BitsRandomizer::new(mechanism),
            codebook: has_words.then(|| CodebookRandomizer::new(mechanism)),
        }
    }

    /// The payload for an arm and its reward, brought into their range first, and what was wrong
    /// with them. The law must be one of the mechanism's.
    pub fn randomize<R: Rng + ?Sized>(
        &mut self,
        law: Law,
        arm: Arm<'_>,
        reward: f64,
        rng: &mut R,
    ) -> (Payload, Option<InputProblem>) {
        match law {
            Law::Bits(law) => {
                let (counts, problem) = self.bits.randomize(law, arm, reward, rng);
                (Payload::Counts(counts.to_vec()), problem)
            }
            Law::Codebook(law) => {
                let codebook = self.codebook.as_mut();
                let codebook = codebook.expect("invariant: the mechanism has a stage of words");
                codebook.randomize(law, arm, reward, rng)
            }
        }
    }
}
