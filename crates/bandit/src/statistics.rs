use incrowd_protocol::{
    BatchSums, BitsLaw, Blocks, CoordinateKind, Law, Mechanism, MechanismHash, Round, STEPS,
    check_actions, triangle,
};
use serde::{Deserialize, Serialize};

use crate::{
    algebra,
    codebook::WordMoments,
    estimate::{Factor, plus_ridge},
};

/// What the bandit remembers: debiased sums in natural units, and how far it has come. It can be
/// written down and resumed, bit for bit (with `serde_json`, switch on its feature
/// `float_roundtrip`: by default it may read a float one bit off).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Statistics {
    pub(crate) mechanism: MechanismHash,
    /// Last absorbed round, 0 at the start.
    pub(crate) round: u32,
    /// Estimates of the sums of r x and of x x', in the order of a report's coordinates.
    pub(crate) sums: Vec<f64>,
    /// Models published so far.
    pub(crate) models: u32,
    /// ln det V of the last model that was learned.
    pub(crate) published_log_det: Option<f64>,
    /// What the slots stood for, from the start; none where all features are shared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) assignments: Vec<Assignment>,
}

/// Statistics as they are read: `moment` and `gram` in place of `sums` are an older form.
#[derive(Deserialize)]
#[serde(rename = "Statistics", deny_unknown_fields)]
struct Written {
    mechanism: MechanismHash,
    round: u32,
    #[serde(default)]
    sums: Option<Vec<f64>>,
    #[serde(default)]
    moment: Option<Vec<f64>>,
    #[serde(default)]
    gram: Option<Vec<f64>>,
    models: u32,
    #[serde(deserialize_with = "Option::deserialize")]
    published_log_det: Option<f64>,
    #[serde(default)]
    assignments: Vec<Assignment>,
}

impl TryFrom<Written> for Statistics {
    type Error = &'static str;
    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { mechanism, round, sums, moment, gram, models, .. } = written;
        let sums = match (sums, moment, gram) {
            (Some(sums), None, None) => sums,
            (None, Some(moment), Some(gram)) => [moment, gram].concat(),
            _ => return Err("statistics must have sums"),
        };
        let Written { published_log_det, assignments, .. } = written;
        Ok(Self { mechanism, round, sums, models, published_log_det, assignments })
    }
}

/// What the slots stand for after a round, until the next assignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The last round before it.
    pub round: u32,
    /// The action of each slot.
    pub actions: Vec<Option<String>>,
}

impl Assignment {
    fn has_names(&self) -> bool {
        check_actions(self.actions.iter().flatten().map(String::as_str)).is_ok()
    }
}

impl Statistics {
    /// Before the first release.
    pub fn new(mechanism: &Mechanism, actions: Vec<Option<String>>) -> Self {
        let first = (!actions.is_empty()).then_some(Assignment { round: 0, actions });
        Self {
            mechanism: mechanism.hash(),
            round: 0,
            sums: vec![0.0; mechanism.coordinates()],
            models: 0,
            published_log_det: None,
            assignments: first.into_iter().collect(),
        }
    }

    /// Last absorbed round, 0 at the start.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Models published so far: the version of the newest one.
    pub fn models(&self) -> u32 {
        self.models
    }

    /// Estimates of the sums of r x and of x x', in the order of a report's coordinates.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// What the slots stood for, from the start.
    pub fn assignments(&self) -> &[Assignment] {
        &self.assignments
    }

    /// The action of each slot now.
    pub fn actions(&self) -> &[Option<String>] {
        self.assignments.last().map_or(&[], |last| &last.actions)
    }

    /// The last round before a slot stood for what it does now.
    pub(crate) fn since(&self, slot: usize) -> u32 {
        let Some(now) = self.actions().get(slot) else { return 0 };
        let same = |assignment: &&Assignment| assignment.actions[slot] == *now;
        self.assignments.iter().rev().take_while(same).last().map_or(0, |first| first.round)
    }

    /// Whether a slot has stood for an action.
    pub(crate) fn was_used(&self, slot: usize) -> bool {
        self.assignments.iter().any(|assignment| assignment.actions[slot].is_some())
    }

    pub(crate) fn fits(&self, mechanism: &Mechanism) -> bool {
        let blocks = mechanism.blocks();
        let rounds = |pair: &[Assignment]| pair[0].round <= pair[1].round;
        self.mechanism == mechanism.hash()
            && self.round <= mechanism.schedule().last_round()
            && u64::from(self.models) <= u64::from(self.round) + 1 + self.assignments.len() as u64
            // A model that only names actions has no determinant.
            && match self.published_log_det {
                None => self.models == 0 || blocks.slots() > 0,
                Some(log_det) => self.models > 0 && log_det.is_finite(),
            }
            && self.sums.len() == blocks.coordinates()
            && self.sums.iter().all(|value| value.is_finite())
            && (blocks.slots() == 0) == self.assignments.is_empty()
            && self.assignments.iter().all(|a| a.actions.len() == blocks.slots())
            && self.assignments.iter().all(Assignment::has_names)
            && self.assignments.first().is_none_or(|first| first.round == 0)
            && self.assignments.windows(2).all(rounds)
            && self.assignments.last().is_none_or(|last| last.round <= self.round)
    }

    /// Adds a release that has been checked: an unbiased estimate of the sum of v over the batch.
    /// What was there before counts for `discount` of itself.
    ///
    /// # Reference
    /// Garcelon et al. 2021, Algorithm 1, step (b): Z/(m(1-p)) - l/(2(1-p)), times 2L or 2L^2.
    pub(crate) fn add(
        &mut self,
        mechanism: &Mechanism,
        round: &Round,
        sums: &BatchSums,
        discount: f64,
    ) {
        if discount < 1.0 {
            self.sums.iter_mut().for_each(|entry| *entry *= discount);
        }
        let estimates = estimates(mechanism, round, sums.sums());
        let natural = in_natural_units(mechanism, estimates.into_iter());
        self.sums.iter_mut().zip(natural).for_each(|(entry, estimate)| *entry += estimate);
        self.round = round.number;
    }

    /// Forgets the sums of a slot, as [`forget_slot`] with at least this ridge: what is left of the
    /// slot's own matrix is that of one person or more.
    pub(crate) fn clear(&mut self, mechanism: &Mechanism, slot: usize, ridge: Option<f64>) {
        let (blocks, bound) = (mechanism.blocks(), mechanism.context_bound());
        let ridge = ridge.map(|ridge| {
            let (q, start) = (blocks.own(), blocks.slot_start(slot));
            let gram = &self.sums[start + q..][..triangle(q)];
            ridge.max(bound * bound - algebra::smallest_eigenvalue(gram, q))
        });
        forget_slot(blocks, &mut self.sums, slot, ridge);
    }
}

/// Forgets the sums of a slot. With a ridge, what its people said about shared features stays, but
/// without the share of their rewards that the slot's own features explain: with A the Gram matrix
/// of those, B their products with the shared ones, m their moment and `ridge` that of the joint
/// estimate, the Gram matrix of the shared features loses B (A + ridge)^-1 B' and their moment
/// B (A + ridge)^-1 m. With this ridge all other parameters have the same estimates as before.
pub(crate) fn forget_slot(blocks: Blocks, sums: &mut [f64], slot: usize, ridge: Option<f64>) {
    let (q, s, start) = (blocks.own(), blocks.shared(), blocks.slot_start(slot));
    let (shared, slots) = sums.split_at_mut(blocks.shared_coordinates());
    let first = start - shared.len();
    let own = &mut slots[first..first + blocks.slot_coordinates()];
    if let Some(ridge) = ridge.filter(|_| s > 0) {
        let (moment, rest) = own.split_at(q);
        let (gram, cross) = rest.split_at(triangle(q));
        if let Some(factor) = Factor::of(&plus_ridge(gram, q, ridge), q) {
            let explained: Vec<Vec<f64>> =
                cross.chunks_exact(q).map(|row| algebra::solve(&factor.inverse, row)).collect();
            let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            for (i, row) in explained.iter().enumerate() {
                shared[i] -= product(row, moment);
                for (j, other) in cross.chunks_exact(q).take(i + 1).enumerate() {
                    shared[s + triangle(i) + j] -= product(row, other);
                }
            }
        }
    }
    own.fill(0.0);
}

/// Values for L = 1, in the order of a report, times L or L^2.
pub(crate) fn in_natural_units(
    mechanism: &Mechanism,
    values: impl Iterator<Item = f64>,
) -> impl Iterator<Item = f64> {
    let bound = mechanism.context_bound();
    mechanism.blocks().kinds().into_iter().zip(values).map(move |(kind, value)| match kind {
        CoordinateKind::Moment => bound * value,
        CoordinateKind::Square | CoordinateKind::Product => bound * bound * value,
    })
}

/// What the sums of a batch say about the sum of v: with bits (2 sum/m - l)/c, with a codebook
/// sum/(16 mu) over the scale of the coordinate.
fn estimates(mechanism: &Mechanism, round: &Round, sums: &[i64]) -> Vec<f64> {
    match round.law {
        Law::Bits(BitsLaw { bits, flip }) => {
            let (l, m, keep) = (f64::from(round.size), f64::from(bits), flip.keep());
            sums.iter().map(|&sum| (2.0 * sum as f64 / m - l) / keep).collect()
        }
        Law::Codebook(law) => {
            let unit = f64::from(STEPS) * WordMoments::of(law).gain;
            let scales = law.scales(mechanism.blocks());
            sums.iter().zip(scales).map(|(&sum, scale)| sum as f64 / (unit * scale)).collect()
        }
    }
}
