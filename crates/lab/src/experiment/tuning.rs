//! The tuning phase: which exploration is best on seeds that no result uses.

use super::{
    CellResult,
    runner::{Line, Runner},
};

/// Seeds for tuning begin here: far from every seed that counts.
const TUNING_SEEDS: u64 = 1 << 40;

impl Runner<'_> {
    /// Seeds of the tuning phase; none without tuning.
    pub fn tuning_seeds(&self) -> Vec<u64> {
        let config = self.experiment.config();
        let runs = config.tuning.as_ref().map_or(0, |tuning| tuning.runs);
        (0..u64::from(runs)).map(|i| config.seed.wrapping_add(TUNING_SEEDS + i)).collect()
    }

    /// What the tuning phase tries: every line that can be tuned, with every exploration.
    pub fn tried<'l>(&self, lines: &[Line<'l>]) -> Vec<Line<'l>> {
        let tuning = self.experiment.config().tuning.as_ref();
        let explorations = tuning.map_or(&[][..], |tuning| &tuning.explorations);
        let tunable = lines.iter().filter(|line| line.algorithm.is_tunable());
        let try_all = |line: &Line<'l>| {
            let line = *line;
            explorations.iter().map(move |&one| Line { exploration: Some(one), ..line })
        };
        tunable.flat_map(try_all).collect()
    }

    /// Puts each line with its best exploration behind its default; everything that was tried has
    /// its results.
    pub fn add_tuned<'l>(&self, lines: &mut Vec<Line<'l>>, tried: &[Line<'l>]) {
        let Some(tuning) = &self.experiment.config().tuning else { return };
        let seeds = self.tuning_seeds();
        let mut tried = tried.chunks(tuning.explorations.len());
        let defaults = std::mem::take(lines);
        for line in defaults {
            lines.push(line);
            let explorations = line.algorithm.is_tunable().then(|| tried.next()).flatten();
            let total = |line: &Line<'_>| -> f64 {
                seeds.iter().filter_map(|&seed| self.result(line, seed)).map(loss).sum()
            };
            let best = explorations.into_iter().flatten().map(|line| (line, total(line)));
            // The first of equal ones.
            let best = best.reduce(|best, next| if best.1 <= next.1 { best } else { next });
            lines.extend(best.map(|(&best, _)| Line { variant: "tuned", ..best }));
        }
    }
}

/// What tuning makes small.
fn loss(result: &CellResult) -> f64 {
    if result.knows_regret { result.summary.regret } else { -result.summary.reward }
}
