//! One report as a word of a random codebook. `docs/privacy-proofs.md`, section 10.

use incrowd_protocol::{Blocks, CodebookLaw, Mechanism, Payload, Words};
use libm::sqrt;
use rand_core::Rng;

use crate::{Arm, InputProblem, normal::Normal, values::Values};

/// Arm and reward to one word out of a codebook. It keeps its buffers, so that a report
/// allocates nothing.
///
/// # Privacy
/// The seed is drawn before anything is looked at, and never again. Whatever the scores are, the
/// index is exactly uniform among the k words picked with probability 1 - o and exactly uniform
/// among the others otherwise: no float decides a coin, and the local epsilon does not depend on
/// how words are ranked.
pub struct CodebookRandomizer {
    blocks: Blocks,
    values: Values,
    /// z+: the statistic, and what makes it a unit vector.
    statistic: Vec<f64>,
    /// What each of its entries is scaled with.
    scales: Option<(CodebookLaw, Vec<f64>)>,
    /// Places of its entries that are not zero, with the entries.
    entries: Vec<(usize, f64)>,
    /// Bits of the entries of one word.
    bits: Vec<u32>,
    scores: Vec<(f64, u8)>,
}

impl CodebookRandomizer {
    /// A randomizer for this mechanism.
    pub fn new(mechanism: &Mechanism) -> Self {
        let coordinates = mechanism.coordinates();
        Self {
            blocks: mechanism.blocks(),
            values: Values::new(mechanism),
            statistic: vec![0.0; coordinates + 1],
            scales: None,
            entries: Vec::new(),
            bits: Vec::new(),
            scores: Vec::new(),
        }
    }

    /// The word for an arm and its reward, brought into their range first, and what was wrong with
    /// them.
    pub fn randomize<'a, R: Rng + ?Sized>(
        &mut self,
        law: CodebookLaw,
        arm: impl Into<Arm<'a>>,
        reward: f64,
        rng: &mut R,
    ) -> (Payload, Option<InputProblem>) {
        let mut seed = [0; 16];
        rng.fill_bytes(&mut seed);
        let problem = self.encode(law, arm.into(), reward);
        self.rank(law, &seed);
        let CodebookLaw { words, chosen, outside, .. } = law;
        let is_outside = below(outside.denominator(), rng) < outside.numerator();
        let (picked, others) = self.scores.split_at_mut(chosen as usize);
        let (from, place) = if is_outside {
            (others, below(words - chosen, rng))
        } else {
            (picked, below(chosen, rng))
        };
        from.sort_unstable_by_key(|&(_, word)| word);
        (Payload::Word { seed, index: from[place as usize].1 }, problem)
    }

    /// The statistic z+ of an arm and a reward. For tests and the simulator.
    #[cfg(feature = "simulation")]
    pub fn statistic<'a>(
        &mut self,
        law: CodebookLaw,
        arm: impl Into<Arm<'a>>,
        reward: f64,
    ) -> (&[f64], Option<InputProblem>) {
        let problem = self.encode(law, arm.into(), reward);
        (&self.statistic, problem)
    }

    /// Sets z+ = (sqrt(w) r u, sqrt(1-w) svec(u u'), sqrt(1 - |z|^2)), svec with its off-diagonal
    /// entries times sqrt(2): |z|^2 = w r^2 |u|^2 + (1-w) |u|^4 <= 1.
    fn encode(&mut self, law: CodebookLaw, arm: Arm<'_>, reward: f64) -> Option<InputProblem> {
        let problem = self.values.set(arm, reward);
        if self.scales.as_ref().is_none_or(|(known, _)| *known != law) {
            self.scales = Some((law, law.scales(self.blocks)));
        }
        let scales = self.scales.iter().flat_map(|(_, scales)| scales);
        let values = self.values.all();
        let (statistic, lift) = self.statistic.split_at_mut(values.len());
        let mut square = 0.0;
        for ((entry, value), scale) in statistic.iter_mut().zip(values).zip(scales) {
            *entry = scale * value;
            square += *entry * *entry;
        }
        lift[0] = if square < 1.0 { sqrt(1.0 - square) } else { 0.0 };
        problem
    }

    /// Scores all words and puts the k with the largest scores first; of equal ones those with the
    /// smaller index.
    fn rank(&mut self, law: CodebookLaw, seed: &[u8; 16]) {
        let (mut words, normal) = (Words::new(seed, self.statistic.len()), Normal::new());
        self.bits.resize(words.stride(), 0);
        self.entries.clear();
        let entries = self.statistic.iter().copied().enumerate();
        self.entries.extend(entries.filter(|(_, z)| *z != 0.0));
        self.scores.clear();
        for word in 0..law.words as usize {
            words.draw(&mut self.bits);
            let term =
                |&(entry, z): &(usize, f64)| z * normal.of(self.bits[entry], &words, word, entry);
            self.scores.push((self.entries.iter().map(term).sum(), word as u8));
        }
        let order = |a: &(f64, u8), b: &(f64, u8)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        self.scores.select_nth_unstable_by(law.chosen as usize - 1, order);
    }
}

/// A uniform integer below `limit`: 32 bits, drawn again while they are beyond the last whole
/// multiple of it.
fn below<R: Rng + ?Sized>(limit: u32, rng: &mut R) -> u32 {
    let whole = (1u64 << 32) / u64::from(limit) * u64::from(limit);
    loop {
        let mut bytes = [0; 4];
        rng.fill_bytes(&mut bytes);
        let uniform = u32::from_be_bytes(bytes);
        if u64::from(uniform) < whole {
            return uniform % limit;
        }
    }
}
