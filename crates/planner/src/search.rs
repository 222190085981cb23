//! The schedule with the least predicted regret, by guesses.

use incrowd_protocol::{
    Closes, Learner, LearnerConfig, Mechanism, MechanismConfig, PolicyConfig, Stage, TaskConfig,
    UpdateRule,
};
use libm::{ceil, pow};

use crate::{
    BatchLimit, PlanError, PlanRequest, Request, SMALLEST_BATCH, Shape,
    budget::{Budget, SMALLEST_KEEP},
    comparison,
    law::{DraftLaw, DraftWords},
    rank::rank,
    sizes::{self, Sizes},
    timetable::{Arrivals, Batches},
};

/// Bits per coordinate that are tried: up to 7 all, then as many as fit into one more bit of the
/// count that a report sends.
const BITS: [u32; 16] = [1, 2, 3, 4, 5, 6, 7, 15, 31, 63, 127, 255, 511, 1023, 2047, 4095];
/// Each further bit of the counts that a report sends, and each doubling of a codebook, must lower
/// the noise by this factor.
const WORTH_MORE: f64 = 0.99;
/// Words of a codebook that are tried: a device's work grows with them.
const WORDS: [u32; 3] = [64, 128, 256];
/// How many of 256 words the statistic picks; of fewer words the same share.
const CHOSEN: [u32; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 20, 26, 32, 44, 60, 80, 104, 128];
/// Shares of the moment that are tried, in 256ths.
const MOMENT_WEIGHTS: [u32; 4] = [128, 144, 160, 176];
/// Most kinds of batches in a schedule: each is certified by itself.
const MOST_STAGES: usize = 24;
/// The same for several reports per person: then kinds are also certified together, which takes
/// longer.
const MOST_STAGES_COMPARED: usize = 8;
/// Drafts whose predicted regret is within this factor of the least count as equally good.
const ALMOST: f64 = 1.005;

/// Most coins of a report.
const MAX_COINS: usize = 1 << 24;

const HAS_STAGE: &str = "invariant: a draft has at least one stage";

/// A stage with such a law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DraftStage {
    pub batches: Batches,
    pub law: DraftLaw,
}

/// A schedule with what it is predicted to cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub stages: Vec<DraftStage>,
    /// What earlier releases count for when the next one comes.
    pub discount: f64,
    /// See [`crate::rank`].
    pub rank: f64,
}

impl Draft {
    pub fn is_growing(&self) -> bool {
        let (smallest, largest) = self.batch_sizes();
        largest > 1 + smallest
    }

    /// Reports in the smallest and the largest batch.
    pub fn batch_sizes(&self) -> (u32, u32) {
        let sizes = || self.stages.iter().map(|stage| stage.batches.size);
        (sizes().min().expect(HAS_STAGE), sizes().max().expect(HAS_STAGE))
    }

    /// Most bits per coordinate; none if no stage has bits.
    pub fn most_bits(&self) -> Option<u32> {
        let bits = |stage: &DraftStage| match stage.law {
            DraftLaw::Bits { bits, .. } => Some(bits),
            DraftLaw::Words(_) => None,
        };
        self.stages.iter().filter_map(bits).max()
    }

    /// What a report of the last stage, which has most of the people, sends.
    pub fn report(&self) -> String {
        self.stages.last().expect(HAS_STAGE).law.words()
    }
}

/// The best draft, or the constraint that leaves none. Of drafts that are almost as good the one
/// with the largest batches, which hide more, is taken.
pub fn best(request: &Request, budget: &Budget) -> Result<Draft, PlanError> {
    let mut drafts = Vec::new();
    for batches in candidates(request) {
        let Some(stages) = draft(request, budget, batches)? else { continue };
        for &discount in discounts(request) {
            drafts.push(priced(request, stages.clone(), discount)?);
        }
    }
    let least = drafts.iter().map(|draft| draft.rank).fold(f64::INFINITY, f64::min);
    let good = drafts.into_iter().filter(|draft| draft.rank <= ALMOST * least);
    match good.max_by_key(|draft| draft.stages[0].batches.size) {
        Some(draft) => Ok(draft),
        None => Err(infeasible(request, budget)?),
    }
}

/// Discounts that are tried: 1 where nothing is forgotten.
fn discounts(request: &Request) -> &'static [f64] {
    const FORGETTING: [f64; 16] =
        [1.0, 0.99, 0.98, 0.96, 0.94, 0.92, 0.9, 0.87, 0.84, 0.8, 0.75, 0.7, 0.6, 0.5, 0.35, 0.2];
    if request.config().half_life.is_some() { &FORGETTING } else { &[1.0] }
}

fn candidates(request: &Request) -> Vec<Vec<Batches>> {
    let (horizon, largest) = (request.horizon, request.largest_batch);
    let config = request.config();
    let mut all: Vec<Sizes> = Vec::new();
    if let Some(size) = config.batch_size {
        all.extend(sizes::equal(size, horizon));
    } else {
        let smallest = request.arrivals.map_or(0.0, |arrivals| ceil(arrivals.least_expected()));
        let mut first = smallest.max(f64::from(SMALLEST_BATCH.min(largest)));
        // Where days are more alike than hours, rounds of a day need less room than shorter ones.
        let alike = request.arrivals.filter(|arrivals| arrivals.busiest_day < arrivals.peak);
        let day = alike.map(|arrivals| arrivals.users_per_day as u32);
        let day = day.filter(|&day| f64::from(day) > first && day < largest);
        while first <= f64::from(largest) {
            let size = first as u32;
            if config.shape != Shape::Growing {
                all.extend(sizes::equal_or_so(size, horizon));
            }
            if config.shape != Shape::Fixed && config.half_life.is_none() {
                for most in [Some(largest), day].into_iter().flatten() {
                    let growing = |&growth: &f64| sizes::growing(size, growth, most, horizon);
                    all.extend(sizes::GROWTHS.iter().filter_map(growing));
                }
            }
            first = ceil(first * sizes::FIRST_STEP);
        }
        all.extend(sizes::equal(largest, horizon));
        all.retain(|sizes| sizes.iter().all(|&(_, size)| size <= largest));
    }
    let several = config.participations > 1;
    let most_stages = if several { MOST_STAGES_COMPARED } else { MOST_STAGES };
    let batches = |sizes: Sizes| match &request.arrivals {
        Some(arrivals) => arrivals.timed(&sizes),
        None => Some(Batches::counted(&sizes)),
    };
    all.into_iter().filter_map(batches).filter(|batches| batches.len() <= most_stages).collect()
}

/// Laws for given batches; none if one is too small for any signal.
fn draft(
    request: &Request,
    budget: &Budget,
    batches: Vec<Batches>,
) -> Result<Option<Vec<DraftStage>>, PlanError> {
    let mut stages: Vec<DraftStage> = Vec::new();
    for batches in batches {
        let law = match stages.last() {
            Some(last) if is_almost(last.batches, batches) => last.law,
            _ => best_law(request, budget, batches.size)?,
        };
        if !law.is_useful() {
            return Ok(None);
        }
        stages.push(DraftStage { batches, law });
    }
    Ok(Some(stages))
}

/// Whether batches are those before and one report more: that changes nothing, and with the same
/// law late reports may count.
fn is_almost(before: Batches, batches: Batches) -> bool {
    batches.window.is_none() && batches.size == before.size + 1
}

fn priced(request: &Request, stages: Vec<DraftStage>, discount: f64) -> Result<Draft, PlanError> {
    let PlanRequest { users_per_day, half_life, comparison, .. } = *request.config();
    let task = task(request, &stages, discount)?;
    let rank = if comparison {
        comparison::half_width(&task, users_per_day)?
    } else {
        rank(&task, request.random_regret, users_per_day, half_life)?
    };
    Ok(Draft { stages, discount, rank })
}

/// The law with the least noise in a report.
pub fn best_law(request: &Request, budget: &Budget, size: u32) -> Result<DraftLaw, PlanError> {
    let bits = if request.allows_bits() { Some(best_bits(request, budget, size)?) } else { None };
    let words = request.allows_words().then(|| best_words(budget, size));
    let both = [bits, words].into_iter().flatten();
    let best = both.min_by(|a, b| a.noise().total_cmp(&b.noise()));
    Ok(best.expect("invariant: a request allows an encoding"))
}

/// Why the reports of the last stage, which has most of the people, are what they are; nothing
/// where there was no choice.
pub fn why(request: &Request, budget: &Budget, draft: &Draft) -> Result<Option<String>, PlanError> {
    let DraftStage { batches, law } = *draft.stages.last().expect(HAS_STAGE);
    let Some(cap) = request.config().local_epsilon.cap() else { return Ok(None) };
    Ok(match law {
        DraftLaw::Words(_) if request.allows_bits() => {
            let bits = best_bits(request, budget, batches.size)?;
            let factor = bits.noise() / law.noise();
            Some(format!(
                "a report is one word of a random codebook: with a local epsilon of at most {cap}, randomized bits would have {factor:.1} times the variance"
            ))
        }
        DraftLaw::Bits { .. } if request.allows_words() => {
            let factor = best_words(budget, batches.size).noise() / law.noise();
            Some(format!(
                "a report is randomized bits: a word of a codebook would have {factor:.1} times the variance"
            ))
        }
        _ => None,
    })
}

/// The m and c with the least noise.
fn best_bits(request: &Request, budget: &Budget, size: u32) -> Result<DraftLaw, PlanError> {
    let mut best = DraftLaw::Bits { bits: 1, keep: 0.0 };
    let (mut least, mut fewest) = (f64::INFINITY, 1u32);
    let wanted = request.config().bits;
    let coordinates = request.units.blocks.coordinates();
    let free = BITS.into_iter().filter(|&bits| coordinates * bits as usize <= MAX_COINS);
    for bits in wanted.map_or_else(|| free.collect(), |bits| vec![bits]) {
        let law = DraftLaw::Bits { bits, keep: budget.guess_keep(size, bits)? };
        let wider = f64::from(bits.ilog2() - fewest.ilog2());
        if law.noise() < pow(WORTH_MORE, wider) * least {
            (best, least, fewest) = (law, law.noise(), bits);
        }
    }
    Ok(best)
}

/// The N, k, w and p with the least noise.
fn best_words(budget: &Budget, size: u32) -> DraftLaw {
    let mut best: Option<(DraftLaw, f64)> = None;
    for words in WORDS {
        let mut of_size: Option<(DraftLaw, f64)> = None;
        let chosen = CHOSEN.into_iter().filter(|chosen| chosen * words % 256 == 0);
        for chosen in chosen.map(|chosen| chosen * words / 256) {
            for weight in MOMENT_WEIGHTS {
                let law = DraftLaw::Words(budget.guess_words(size, words, chosen, weight));
                if of_size.is_none_or(|(_, least)| law.noise() < least) {
                    of_size = Some((law, law.noise()));
                }
            }
        }
        match (best, of_size) {
            (Some((_, least)), Some((_, noise))) if noise >= WORTH_MORE * least => {}
            _ => best = of_size,
        }
    }
    best.expect("invariant: some words are tried").0
}

/// The same draft with every probability solved for.
pub fn refine(request: &Request, budget: &Budget, draft: &Draft) -> Result<Draft, PlanError> {
    let mut stages = draft.stages.clone();
    for i in 0..stages.len() {
        let DraftStage { batches, law } = stages[i];
        stages[i].law = match law {
            _ if i > 0 && is_almost(stages[i - 1].batches, batches) => stages[i - 1].law,
            law => solve(budget, batches.size, law)?,
        };
    }
    priced(request, stages, draft.discount)
}

/// The same law with its probability solved for.
fn solve(budget: &Budget, size: u32, law: DraftLaw) -> Result<DraftLaw, PlanError> {
    Ok(match law {
        DraftLaw::Bits { bits, .. } => DraftLaw::Bits { bits, keep: budget.keep(size, bits)? },
        DraftLaw::Words(words) => DraftLaw::Words(budget.solve_words(size, words)?),
    })
}

/// The mechanism of a draft's stages.
pub fn mechanism(request: &Request, stages: &[DraftStage]) -> Result<Mechanism, PlanError> {
    let config = request.config();
    let stage = |&DraftStage { batches, law }: &DraftStage| {
        let Batches { rounds, size, window } = batches;
        Ok(Stage { rounds, size, window, law: law.rounded()? })
    };
    let closes = match request.arrivals {
        Some(Arrivals { opens, .. }) => Closes::Time { opens },
        None => Closes::Count { grace: request.grace() },
    };
    let mechanism = MechanismConfig {
        dimension: config.dimension,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect::<Result<_, PlanError>>()?,
        layout: config.layout,
        closes,
        central_delta: config.delta,
        participations: config.participations,
        honest_fraction: config.honest_fraction,
    };
    Ok(mechanism.check()?)
}

/// The task: calibrated widths, and no batch below the smallest that was planned.
pub fn task(
    request: &Request,
    stages: &[DraftStage],
    discount: f64,
) -> Result<TaskConfig, PlanError> {
    let task = task_with(mechanism(request, stages)?, learner(discount)?)?;
    if request.config().comparison { comparison::named(task) } else { Ok(task) }
}

/// The usual learner; one that forgets publishes after every batch.
pub fn learner(discount: f64) -> Result<Learner, PlanError> {
    let usual = LearnerConfig::default();
    if discount >= 1.0 {
        return Ok(usual.check()?);
    }
    Ok(LearnerConfig { discount, update: UpdateRule::EveryBatch {}, ..usual }.check()?)
}

pub fn task_with(mechanism: Mechanism, learner: Learner) -> Result<TaskConfig, PlanError> {
    let smallest_batch = mechanism.schedule().smallest_batch();
    let policy = PolicyConfig { smallest_batch, ..PolicyConfig::default() }.check()?;
    Ok(TaskConfig::new(mechanism, learner, policy)?)
}

fn infeasible(request: &Request, budget: &Budget) -> Result<PlanError, PlanError> {
    let config = request.config();
    let dimension = config.dimension;
    let keep = SMALLEST_KEEP;
    let least = if request.allows_words() {
        let (words, chosen, moment_weight, blind) = (256, 128, 128, 1.0 - keep);
        DraftLaw::Words(DraftWords { words, chosen, moment_weight, blind })
    } else {
        DraftLaw::Bits { bits: config.bits.unwrap_or(1), keep }
    };
    let smallest = least.epsilon_local(request.units.blocks)?;
    if let Some(epsilon) = config.local_epsilon.cap().filter(|&epsilon| epsilon < smallest) {
        return Ok(PlanError::LocalTooSmall { epsilon, dimension, keep, smallest });
    }
    let expected = config.batch_size.unwrap_or(request.largest_batch);
    let limit = match (config.batch_size, config.latency_days) {
        (Some(size), _) => BatchLimit::Fixed(size),
        (None, Some(days)) if u64::from(expected) < request.horizon => BatchLimit::Latency(days),
        (None, None) if u64::from(expected) < request.horizon => BatchLimit::Window,
        _ => BatchLimit::Horizon(request.horizon),
    };
    let timed = request.arrivals.and_then(|arrivals| arrivals.timed(&vec![(1, expected)]));
    let allowed = timed.map_or(expected, |batches| batches[0].size);
    Ok(PlanError::CentralTooSmall {
        epsilon: config.central_epsilon.unwrap_or(f64::INFINITY),
        dimension,
        needed: budget.smallest_useful_batch(),
        limit,
        allowed,
        smallest: smallest_central(request, allowed, budget.approx(allowed, least)?)?,
    })
}

/// A central epsilon that can be met with batches of `allowed`, not much above `guess`, with two
/// digits.
fn smallest_central(request: &Request, allowed: u32, guess: f64) -> Result<f64, PlanError> {
    let mut epsilon = guess;
    for _ in 0..40 {
        epsilon = two_digits_up(1.02 * epsilon);
        let config = PlanRequest { central_epsilon: Some(epsilon), ..request.config().clone() };
        let request = Request { config, ..request.clone() };
        let budget = Budget::new(&request);
        if solve(&budget, allowed, best_law(&request, &budget, allowed)?)?.is_useful() {
            break;
        }
    }
    Ok(epsilon)
}

/// Rounded up to two digits.
fn two_digits_up(value: f64) -> f64 {
    let unit = libm::pow(10.0, libm::floor(libm::log10(value)) - 1.0);
    if unit > 0.0 { libm::ceil(value / unit) * unit } else { value }
}
