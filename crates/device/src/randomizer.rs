use incrowd_protocol::{Law, Mechanism, Payload};
use rand_core::Rng;

use crate::{InputProblem, bits::BitsRandomizer, codebook::CodebookRandomizer};

/// Context and reward to what one report says, for the rounds of one mechanism.
///
/// # Privacy
/// The payload is `epsilon_local`-differentially private for every context and reward, whatever
/// their values; see `docs/privacy-proofs.md`. Fresh randomness is used at every call: sending two
/// results for one person's data costs privacy twice.
pub struct Randomizer {
    bits: BitsRandomizer,
    codebook: CodebookRandomizer,
}

impl Randomizer {
    /// A randomizer for this mechanism.
    pub fn new(mechanism: &Mechanism) -> Self {
        Self { bits: BitsRandomizer::new(mechanism), codebook: CodebookRandomizer::new(mechanism) }
    }

    /// The payload for `context` and `reward`, brought into their range first, and what was wrong
    /// with them.
    pub fn randomize<R: Rng + ?Sized>(
        &mut self,
        law: Law,
        context: &[f64],
        reward: f64,
        rng: &mut R,
    ) -> (Payload, Option<InputProblem>) {
        match law {
            Law::Bits(law) => {
                let (counts, problem) = self.bits.randomize(law, context, reward, rng);
                (Payload::Counts(counts.to_vec()), problem)
            }
            Law::Codebook(law) => self.codebook.randomize(law, context, reward, rng),
        }
    }
}
