//! The schedule with the least predicted regret, by guesses.

use incrowd_bandit::report_variance;
use incrowd_privacy::local;
use incrowd_protocol::{
    Bits, Closes, FlipProbability, Keep, Law, Layout, Learner, Mechanism, MechanismConfig,
    PolicyConfig, Stage, TaskConfig,
};
use libm::{ceil, pow};

use crate::{
    BatchLimit, PlanError, PlanRequest, Request, SMALLEST_BATCH, Shape,
    budget::{Budget, SMALLEST_KEEP},
    regret::predicted_regret,
    sizes::{self, Sizes},
    timetable::{Arrivals, Batches},
};

/// Bits per coordinate that are tried: up to 7 all, then as many as fit into one more bit of the
/// count that a report sends.
const BITS: [u32; 16] = [1, 2, 3, 4, 5, 6, 7, 15, 31, 63, 127, 255, 511, 1023, 2047, 4095];
/// Each further bit of the counts that a report sends must lower the noise by this factor.
const WORTH_MORE_BITS: f64 = 0.99;
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

/// A law whose c is still being searched for. A [`FlipProbability`] would round c at every step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DraftLaw {
    pub bits: u32,
    pub keep: f64,
}

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
    pub regret: f64,
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

    /// Most bits per coordinate.
    pub fn most_bits(&self) -> u32 {
        self.stages.iter().map(|stage| stage.law.bits).max().expect(HAS_STAGE)
    }
}

/// The best draft, or the constraint that leaves none. Of drafts that are almost as good the one
/// with the largest batches, which hide more, is taken.
pub fn best(request: &Request, budget: &Budget) -> Result<Draft, PlanError> {
    let mut drafts = Vec::new();
    for batches in candidates(request) {
        drafts.extend(draft(request, budget, batches)?);
    }
    let least = drafts.iter().map(|draft| draft.regret).fold(f64::INFINITY, f64::min);
    let good = drafts.into_iter().filter(|draft| draft.regret <= ALMOST * least);
    match good.max_by_key(|draft| draft.stages[0].batches.size) {
        Some(draft) => Ok(draft),
        None => Err(infeasible(request, budget)?),
    }
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
            if config.shape != Shape::Fixed {
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

/// Bits and c for given batches; none if one is too small for any signal.
fn draft(
    request: &Request,
    budget: &Budget,
    batches: Vec<Batches>,
) -> Result<Option<Draft>, PlanError> {
    let mut stages: Vec<DraftStage> = Vec::new();
    for batches in batches {
        let law = match stages.last() {
            Some(last) if is_almost(last.batches, batches) => last.law,
            _ => best_law(request, budget, batches.size)?,
        };
        if law.keep < SMALLEST_KEEP {
            return Ok(None);
        }
        stages.push(DraftStage { batches, law });
    }
    Ok(Some(priced(request, stages)?))
}

/// Whether batches are those before and one report more: that changes nothing, and with the same
/// law late reports may count.
fn is_almost(before: Batches, batches: Batches) -> bool {
    batches.window.is_none() && batches.size == before.size + 1
}

fn priced(request: &Request, stages: Vec<DraftStage>) -> Result<Draft, PlanError> {
    let task = task(request, &stages)?;
    let regret = predicted_regret(&task, request.config().users_per_day)?;
    Ok(Draft { stages, regret })
}

/// The m and c with the least noise in a report.
fn best_law(request: &Request, budget: &Budget, size: u32) -> Result<DraftLaw, PlanError> {
    let mut best = DraftLaw { bits: 1, keep: 0.0 };
    let mut least = f64::INFINITY;
    let wanted = request.config().bits;
    let coordinates = request.units.dimension.coordinates();
    let free = BITS.into_iter().filter(|&bits| coordinates * bits as usize <= MAX_COINS);
    for bits in wanted.map_or_else(|| free.collect(), |bits| vec![bits]) {
        let keep = budget.guess_keep(size, bits)?;
        let noise = report_variance(bits, keep);
        let wider = f64::from(bits.ilog2() - best.bits.ilog2());
        if noise < pow(WORTH_MORE_BITS, wider) * least {
            (best, least) = (DraftLaw { bits, keep }, noise);
        }
    }
    Ok(best)
}

/// The same draft with every c solved for.
pub fn refine(request: &Request, budget: &Budget, draft: &Draft) -> Result<Draft, PlanError> {
    let mut stages = draft.stages.clone();
    for i in 0..stages.len() {
        let DraftStage { batches, law } = stages[i];
        stages[i].law.keep = if i > 0 && is_almost(stages[i - 1].batches, batches) {
            stages[i - 1].law.keep
        } else {
            budget.keep(batches.size, law.bits)?
        };
    }
    priced(request, stages)
}

/// The mechanism of a draft's stages.
pub fn mechanism(request: &Request, stages: &[DraftStage]) -> Result<Mechanism, PlanError> {
    let config = request.config();
    let stage = |&DraftStage { batches, law: DraftLaw { bits, keep } }: &DraftStage| {
        let Batches { rounds, size, window } = batches;
        let law = Law { bits, flip: FlipProbability::from_keep(keep)? };
        Ok(Stage { rounds, size, window, law })
    };
    let closes = match request.arrivals {
        Some(Arrivals { opens, .. }) => Closes::Time { opens },
        None => Closes::Count { grace: request.grace() },
    };
    let mechanism = MechanismConfig {
        dimension: config.dimension,
        context_bound: 1.0,
        schedule: stages.iter().map(stage).collect::<Result<_, PlanError>>()?,
        layout: Layout::Shared,
        closes,
        central_delta: config.delta,
        participations: config.participations,
        honest_fraction: config.honest_fraction,
    };
    Ok(mechanism.check()?)
}

/// The task: calibrated widths, and no batch below the smallest that was planned.
pub fn task(request: &Request, stages: &[DraftStage]) -> Result<TaskConfig, PlanError> {
    task_with(mechanism(request, stages)?, Learner::default())
}

pub fn task_with(mechanism: Mechanism, learner: Learner) -> Result<TaskConfig, PlanError> {
    let smallest_batch = mechanism.schedule().smallest_batch();
    let policy = PolicyConfig { smallest_batch, ..PolicyConfig::default() }.check()?;
    Ok(TaskConfig::new(mechanism, learner, policy)?)
}

fn infeasible(request: &Request, budget: &Budget) -> Result<PlanError, PlanError> {
    let config = request.config();
    let dimension = config.dimension;
    let bits = config.bits.unwrap_or(1);
    if let Some(epsilon) = config.local_epsilon.cap()
        && budget.local_keep(bits)? < SMALLEST_KEEP
    {
        let keep = SMALLEST_KEEP;
        let smallest =
            local::certify(request.units.dimension, Bits::new(bits)?, Keep::new(keep)?).epsilon;
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
        smallest: smallest_central(
            request,
            allowed,
            bits,
            budget.approx(allowed, bits, SMALLEST_KEEP)?,
        )?,
    })
}

/// A central epsilon that can be met with batches of `allowed`, not much above `guess`, with two
/// digits.
fn smallest_central(
    request: &Request,
    allowed: u32,
    bits: u32,
    guess: f64,
) -> Result<f64, PlanError> {
    let mut epsilon = guess;
    for _ in 0..40 {
        epsilon = two_digits_up(1.02 * epsilon);
        let config = PlanRequest { central_epsilon: Some(epsilon), ..request.config().clone() };
        let request = Request { config, ..request.clone() };
        if Budget::new(&request).keep(allowed, bits)? >= SMALLEST_KEEP {
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
