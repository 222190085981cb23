//! The coins of many bits, which are tossed in runs, against docs/formats.md read coin by coin.

use std::iter;

use crate::tape::Tape;
use incrowd_device::BitsRandomizer;
use incrowd_protocol::{Closes, FlipProbability, Law, Layout, Mechanism, MechanismConfig, Stage};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_core::Rng;

/// Flip probabilities: exact and rounded c, c as near to 0 and to 1 as there is.
const FLIPS: [(u32, u32); 7] = [
    (1, 2),
    (53, 100),
    (1, 3),
    (1, u32::MAX),
    (u32::MAX - 1, u32::MAX),
    (1, 1 << 31),
    ((1 << 31) - 1, 1 << 31),
];

/// d = 1: the values of a context x and a reward r are r x and x x.
fn mechanism(bits: u32, flip: (u32, u32)) -> Mechanism {
    let flip = FlipProbability::new(flip.0, flip.1).unwrap();
    MechanismConfig {
        dimension: 1,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 1, size: 1, window: None, law: Law::bits(bits, flip) }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    }
    .check()
    .unwrap()
}

/// T of every coin of one value.
fn plain_thresholds(value: f64, bits: u32, (p, of): (u32, u32)) -> impl Iterator<Item = u32> {
    let (m, two_31) = (f64::from(bits), (1u64 << 31) as f64);
    let c = f64::from(of - p) / f64::from(of);
    let limit = (u64::from(of - p) << 31) / u64::from(of);
    (0..bits).map(move |q| {
        let tau = m * value + (m - 1.0 - 2.0 * f64::from(q));
        let size = (c * tau.abs()).min(limit as f64 / two_31);
        let steps = (((3.0 + size) - 3.0) * two_31).floor() as i64;
        ((1 << 31) + if tau < 0.0 { -steps } else { steps }) as u32
    })
}

/// Counts of coordinates with these thresholds, one coin after the other.
fn plain_counts<R: Rng>(thresholds: &[u32], bits: u32, rng: &mut R) -> Vec<u16> {
    let mut bytes = vec![0; thresholds.len()];
    rng.fill_bytes(&mut bytes);
    let mut coin = |(&threshold, &byte): (&u32, &u8)| {
        let mut uniform = [byte, 0, 0, 0];
        if byte == (threshold >> 24) as u8 {
            rng.fill_bytes(&mut uniform[1..]);
        }
        u16::from(u32::from_be_bytes(uniform) < threshold)
    };
    let coins: Vec<u16> = thresholds.iter().zip(&bytes).map(&mut coin).collect();
    coins.chunks(bits as usize).map(|coins| coins.iter().sum()).collect()
}

/// Both values' thresholds.
fn both(x: f64, r: f64, bits: u32, flip: (u32, u32)) -> Vec<u32> {
    [r * x, x * x].into_iter().flat_map(|value| plain_thresholds(value, bits, flip)).collect()
}

/// Values where the code changes from one coin to the next, and their neighbours.
fn edges(bits: u32) -> impl Iterator<Item = f64> {
    let m = f64::from(bits);
    let step = |k: u32| (2.0 * f64::from(k) - m) / m;
    let grid = [0, 1, bits / 3, bits / 2, bits - 1, bits].map(step).into_iter();
    let near = |value: f64| {
        let up = iter::successors(Some(value), |value| Some(value.next_up())).take(3);
        up.chain(iter::successors(Some(value.next_down()), |value| Some(value.next_down())).take(2))
    };
    grid.flat_map(near)
        .chain([0.0, -0.0, 1e-300, -1e-300, 1e-17, -1e-17, 0.3, -0.7])
        .filter(|value| value.abs() <= 1.0)
}

#[test]
fn every_threshold_is_the_stated_one_for_any_number_of_bits() {
    for bits in 1..=4095u32 {
        // All flip probabilities where m is small or special, else one after the other.
        let all = bits <= 64 || bits.is_power_of_two() || bits == 4095;
        let flips = (0..FLIPS.len()).filter(|&i| all || i == bits as usize % FLIPS.len());
        for flip in flips.map(|i| FLIPS[i]) {
            let mechanism = mechanism(bits, flip);
            let round = mechanism.round(1).unwrap();
            let mut randomizer = BitsRandomizer::new(&mechanism);
            for x in edges(bits) {
                let (found, problem) =
                    randomizer.thresholds(round.law.as_bits().unwrap(), &[x], 1.0);
                assert_eq!(problem, None);
                assert_eq!(found, both(x, 1.0, bits, flip), "m={bits} p={flip:?} x={x:e}");
            }
        }
    }
}

fn bits() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..=40, 1u32..=4095]
}

proptest! {
    /// The same counts from the same bytes, and as many bytes used.
    #[test]
    fn counts_are_those_of_single_coins(
        x in -1.0..=1.0f64, r in 0.0..=1.0f64, bits in bits(), flip in 0..FLIPS.len(), seed: u64,
    ) {
        let mechanism = mechanism(bits, FLIPS[flip]);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut same = rng.clone();
        let mut randomizer = BitsRandomizer::new(&mechanism);
        let (counts, _) = randomizer.randomize(mechanism.round(1).unwrap().law.as_bits().unwrap(), &[x], r, &mut rng);
        let thresholds = both(x, r, bits, FLIPS[flip]);
        prop_assert_eq!(counts, plain_counts(&thresholds, bits, &mut same));
        prop_assert_eq!(rng.next_u64(), same.next_u64());
    }

    /// The same where most coins are tied.
    #[test]
    fn ties_are_decided_in_the_order_of_the_coins(
        x in -1.0..=1.0f64, r in 0.0..=1.0f64, bits in bits(), flip in 0..FLIPS.len(), seed: u64,
    ) {
        let mechanism = mechanism(bits, FLIPS[flip]);
        let thresholds = both(x, r, bits, FLIPS[flip]);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let bytes: Vec<u8> = (0..4 * thresholds.len())
            .map(|_| match rng.next_u32() % 4 {
                0 => rng.next_u32() as u8,
                _ => (thresholds[rng.next_u32() as usize % thresholds.len()] >> 24) as u8,
            })
            .collect();
        let (mut tape, mut same) = (Tape::new(bytes.clone()), Tape::new(bytes));
        let mut randomizer = BitsRandomizer::new(&mechanism);
        let (counts, _) = randomizer.randomize(mechanism.round(1).unwrap().law.as_bits().unwrap(), &[x], r, &mut tape);
        prop_assert_eq!(counts, plain_counts(&thresholds, bits, &mut same));
        prop_assert_eq!(tape.used(), same.used());
    }

    /// What the simulator tosses together and what it does not are the coins of a report.
    #[test]
    fn a_split_report_has_the_same_thresholds(
        x in -1.0..=1.0f64, r in 0.0..=1.0f64, bits in bits(), flip in 0..FLIPS.len(), seed: u64,
    ) {
        let mechanism = mechanism(bits, FLIPS[flip]);
        let round = mechanism.round(1).unwrap();
        let mut randomizer = BitsRandomizer::new(&mechanism);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // What other calls leave behind does not matter.
        randomizer.randomize(round.law.as_bits().unwrap(), &[x], r, &mut rng);
        let mut same = rng.clone();
        let mut ones = [7; 2];
        let (counts, _) = randomizer.split(round.law.as_bits().unwrap(), &[x], r, &mut ones, &mut rng);
        let counts = counts.to_vec();
        let ([high, low], mut between) = (BitsRandomizer::ends(round.law.as_bits().unwrap()), Vec::new());
        let thresholds = both(x, r, bits, FLIPS[flip]);
        for (coins, ones) in thresholds.chunks(bits as usize).zip(ones) {
            let ones = ones as usize - 7;
            prop_assert!(coins[..ones].iter().all(|&coin| coin == high));
            prop_assert!(coins[ones + 1..].iter().all(|&coin| coin == low));
            between.push(coins[ones]);
        }
        prop_assert_eq!(counts, plain_counts(&between, 1, &mut same));
        prop_assert_eq!(rng.next_u64(), same.next_u64());
    }
}
