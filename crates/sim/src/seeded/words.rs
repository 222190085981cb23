use incrowd_device::{Arm, CodebookRandomizer};
use incrowd_privacy::numeric::special::normal_quantile;
use incrowd_protocol::{CLIP, CodebookLaw, Mechanism, STEPS};
use incrowd_shuffler::Accumulator;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Beta, Distribution};

use super::{directed::DirectedSums, uniform};

/// Variance of the rounding of one entry, in squared steps.
const ROUNDING: f64 = 1.0 / 12.0;

/// Sums of words of a batch, with the law of single reports.
///
/// The normal vector behind the word that a report sends has a known law along the person's
/// statistic z+ and is standard normal across it, independently; one that was picked blindly is
/// standard normal. Rounding adds a uniform variable to each entry of each word, independent of
/// everything else (`docs/privacy-proofs.md`, section 10): all but the last are added as normal
/// variables of the same variance, and the sum is rounded.
pub(super) struct WordSums {
    randomizer: CodebookRandomizer,
    coordinates: usize,
    /// None before the first report.
    sums: Option<DirectedSums>,
}

impl WordSums {
    pub fn new(mechanism: &Mechanism) -> Self {
        let coordinates = mechanism.coordinates();
        Self { randomizer: CodebookRandomizer::new(mechanism), coordinates, sums: None }
    }

    fn sums(&mut self) -> &mut DirectedSums {
        self.sums.get_or_insert_with(|| DirectedSums::new(self.coordinates))
    }

    /// Counts a report, and draws what it does not share with others.
    pub fn add(
        &mut self,
        law: CodebookLaw,
        sums: &mut Accumulator,
        arm: Arm<'_>,
        reward: f64,
        rng: &mut ChaCha8Rng,
    ) {
        sums.add(|_| {});
        let Some(score) = score(law, rng) else {
            self.sums().add_undirected(1);
            return;
        };
        let (statistic, _) = self.randomizer.statistic(law, arm, reward);
        let sums = self.sums.get_or_insert_with(|| DirectedSums::new(self.coordinates));
        sums.add(statistic, score, rng);
    }

    /// Draws what the reports counted in `sums` share.
    pub fn draw(&mut self, sums: &mut Accumulator, rng: &mut ChaCha8Rng) {
        if sums.count() > 0 {
            let drawn = self.take(sums.count(), rng);
            sums.add_drawn(&drawn);
        }
    }

    /// The sums of this many words that were picked blindly. Nothing else may be left to draw.
    pub fn pads(&mut self, number: u32, mut rng: ChaCha8Rng) -> Vec<i64> {
        self.sums().add_undirected(number);
        self.take(number, &mut rng)
    }

    /// The rounded sums of the words that were added, `number` in all.
    fn take(&mut self, number: u32, rng: &mut ChaCha8Rng) -> Vec<i64> {
        let (number, steps) = (f64::from(number), f64::from(STEPS));
        let rounding = (number - 1.0).max(0.0) * ROUNDING / (steps * steps);
        let limit = number * f64::from(CLIP);
        let sums = self.sums().take(rounding, rng);
        sums.iter().map(|sum| (steps * sum).round().clamp(-limit, limit) as i64).collect()
    }
}

/// The score of the word that a report sends; none if it was picked blindly, which any word is with
/// probability o N/(N - k).
fn score(law: CodebookLaw, rng: &mut ChaCha8Rng) -> Option<f64> {
    let CodebookLaw { words, chosen, outside, .. } = law;
    let blind = outside.value() * f64::from(words) / f64::from(words - chosen);
    if uniform(rng) < blind {
        return None;
    }
    // The j-th largest of N uniform variables is 1 - Beta(j, N + 1 - j).
    let rank = 1 + (uniform(rng) * f64::from(chosen)) as u32;
    let beta = Beta::new(f64::from(rank), f64::from(words + 1 - rank));
    let tail: f64 = beta.expect("invariant: ranks are positive").sample(rng);
    let tail = tail.clamp(1e-290, 1.0 - 1e-16);
    Some(if tail <= 0.5 { normal_quantile(tail) } else { -normal_quantile(1.0 - tail) })
}
