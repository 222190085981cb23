//! The search for the worst inputs: random starts, in and out of range, each climbed coordinate by
//! coordinate.

use rand_core::Rng;

/// Steps smaller than this end a climb.
const SMALLEST_STEP: f64 = 1e-4;

/// What a person has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Input {
    pub context: Vec<f64>,
    pub reward: f64,
}

/// Two inputs of one person, in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair([Input; 2]);

impl Input {
    pub fn new(context: Vec<f64>, reward: f64) -> Self {
        Self { context, reward }
    }

    /// `length` times the unit vector of an axis.
    pub fn axis(dimension: usize, axis: usize, length: f64, reward: f64) -> Self {
        let context = (0..dimension).map(|i| if i == axis { length } else { 0.0 }).collect();
        Self { context, reward }
    }

    fn random<R: Rng>(dimension: usize, wild: bool, rng: &mut R) -> Self {
        let mut draw = || uniform(rng) * 2.0 - 1.0;
        let mut context: Vec<f64> = (0..dimension).map(|_| draw()).collect();
        let norm = context.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9);
        // Lengths and rewards from a hundredth to a hundred times what is allowed.
        let [length, reward] =
            [draw(), draw()].map(|size| if wild { 100f64.powf(size) } else { 1.0 });
        context.iter_mut().for_each(|x| *x *= length / norm);
        let sign = if wild && draw() < 0.0 { -1.0 } else { 1.0 };
        Self { context, reward: sign * reward }
    }

    /// The nearest input in range.
    pub fn clipped(&self) -> Self {
        let norm = self.context.iter().map(|x| x * x).sum::<f64>().sqrt().max(1.0);
        let context = self.context.iter().map(|x| x / norm).collect();
        Self { context, reward: self.reward.clamp(0.0, 1.0) }
    }

    fn entry(&mut self, index: usize) -> &mut f64 {
        let last = self.context.len();
        if index < last { &mut self.context[index] } else { &mut self.reward }
    }
}

impl Pair {
    /// The first input, or the second.
    pub fn input(&self, second: bool) -> &Input {
        &self.0[usize::from(second)]
    }

    /// Something of both inputs.
    pub fn each<T>(&self, mut f: impl FnMut(&Input) -> T) -> [T; 2] {
        [f(&self.0[0]), f(&self.0[1])]
    }

    pub fn swapped(mut self) -> Self {
        self.0.swap(0, 1);
        self
    }

    fn clipped(&self) -> Self {
        Self(self.each(Input::clipped))
    }

    fn entry(&mut self, index: usize) -> &mut f64 {
        let entries = self.0[0].context.len() + 1;
        self.0[index / entries].entry(index % entries)
    }
}

/// Who is not there: the person is then replaced by a pad, a report of the zero vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Nobody,
    /// The person, in the first world.
    First,
    /// The person, in the second world.
    Second,
}

impl Absent {
    /// What the person reports in the first world, or in the second.
    pub fn victim(self, pair: &Pair, second: bool) -> Option<&Input> {
        let absent = if second { Self::Second } else { Self::First };
        (self != absent).then(|| pair.input(second))
    }

    /// The same pair, with the input of a pad for whoever is absent.
    pub fn padded(self, pair: &Pair) -> Pair {
        let pad = |input: &Input| Input::new(vec![0.0; input.context.len()], 0.0);
        let world = |second| {
            let there = self.victim(pair, second);
            there.map_or_else(|| pad(pair.input(second)), Clone::clone)
        };
        Pair([world(false), world(true)])
    }
}

/// Candidates for what all other people have: the encoded corners and the victim's own inputs.
pub(super) fn crowds(dimension: usize, victim: &Pair) -> Vec<Input> {
    let side = 1.0 / (dimension as f64).sqrt();
    vec![
        Input::axis(dimension, 0, 1.0, 1.0),
        Input::axis(dimension, 0, -1.0, 1.0),
        Input::new(vec![side; dimension], 1.0),
        Input::new(vec![-side; dimension], 1.0),
        Input::new(vec![0.0; dimension], 0.0),
        victim.input(false).clone(),
        victim.input(true).clone(),
    ]
}

/// The pair with the largest score that this many evaluations find.
pub(super) fn worst<R: Rng>(
    dimension: usize,
    evaluations: usize,
    known: &[Pair],
    rng: &mut R,
    mut score: impl FnMut(&Pair) -> f64,
) -> Pair {
    let mut left = evaluations;
    let mut known = known.iter().cloned();
    let mut random = |wild| Pair([0, 1].map(|_| Input::random(dimension, wild, rng)));
    let mut best = known.next().unwrap_or_else(|| random(false));
    let mut best_score = climb(&mut best, &mut left, &mut score);
    let mut wild = false;
    while left > 0 {
        let mut pair = known.next().unwrap_or_else(|| random(wild));
        wild = !wild;
        let found = climb(&mut pair, &mut left, &mut score);
        if found > best_score {
            (best, best_score) = (pair, found);
        }
    }
    // Where clipping makes it the same pair, say it with inputs in range.
    let clipped = best.clipped();
    if score(&clipped) >= best_score - 1e-9 { clipped } else { best }
}

/// Moves one number of the pair at a time, as long as it helps; the score it ends with.
fn climb(pair: &mut Pair, left: &mut usize, score: &mut impl FnMut(&Pair) -> f64) -> f64 {
    let entries = 2 * (pair.0[0].context.len() + 1);
    let mut value = score(pair);
    *left = left.saturating_sub(1);
    let mut step = 0.5;
    while step > SMALLEST_STEP && *left > 0 {
        let mut moved = false;
        for (index, sign) in (0..entries).flat_map(|index| [(index, 1.0), (index, -1.0)]) {
            let old = *pair.entry(index);
            *pair.entry(index) = old + sign * step;
            let found = score(pair);
            *left = left.saturating_sub(1);
            if found > value + 1e-12 {
                (value, moved) = (found, true);
            } else {
                *pair.entry(index) = old;
            }
        }
        if !moved {
            step *= 0.5;
        }
    }
    value
}

/// Uniform on [0, 1).
fn uniform<R: Rng>(rng: &mut R) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
