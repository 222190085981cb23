//! The exact law of a report, enumerated in rationals, against the paper's encoder and randomizer
//! (R9, R10).

use crate::tape::Tape;
use incrowd_device::{Arm, BitsRandomizer};
use incrowd_protocol::{
    Closes, FlipProbability, Law, Layout, Mechanism, MechanismConfig, Round, Stage,
};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use proptest::prelude::*;

fn ratio(numerator: i64, denominator: i64) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

/// The exact value of a float.
fn exact(value: f64) -> BigRational {
    BigRational::from_float(value).unwrap()
}

fn mechanism(dimension: u32, bits: u32, flip: (u32, u32)) -> Mechanism {
    with_layout(dimension, bits, flip, Layout::Shared)
}

fn with_layout(dimension: u32, bits: u32, flip: (u32, u32), layout: Layout) -> Mechanism {
    let flip = FlipProbability::new(flip.0, flip.1).unwrap();
    MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: vec![Stage { rounds: 1, size: 1, window: None, law: Law::bits(bits, flip) }],
        layout,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    }
    .check()
    .unwrap()
}

/// Law of each coordinate's count, from the device's own thresholds.
fn device_law<'a>(mechanism: &Mechanism, x: impl Into<Arm<'a>>, r: f64) -> Vec<Vec<BigRational>> {
    let mut randomizer = BitsRandomizer::new(mechanism);
    let round = mechanism.round(1).unwrap();
    let (thresholds, _) = randomizer.thresholds(round.law.as_bits().unwrap(), x, r);
    thresholds
        .chunks(round.law.as_bits().unwrap().bits as usize)
        .map(|coins| {
            let chance = |&t: &u32| BigRational::new(t.into(), BigInt::from(1u64 << 32));
            coins.iter().map(chance).fold(vec![BigRational::one()], |law, one| convolve(&law, &one))
        })
        .collect()
}

/// Law of a count plus one more coin.
fn convolve(law: &[BigRational], one: &BigRational) -> Vec<BigRational> {
    let zero = BigRational::one() - one;
    (0..=law.len())
        .map(|k| {
            let stays = law.get(k).map_or_else(BigRational::zero, |p| p * &zero);
            let grows = k.checked_sub(1).map_or_else(BigRational::zero, |j| &law[j] * one);
            stays + grows
        })
        .collect()
}

/// Garcelon et al. 2021, Algorithms 2 and 3 to the letter: mu = ceil(y m), bit mu is Ber(m y - mu +
/// 1), then each bit is kept with probability 1-p and replaced by a fair coin with probability p.
fn paper_law(round: &Round, values: &[BigRational]) -> Vec<Vec<BigRational>> {
    let m = i64::from(round.law.as_bits().unwrap().bits);
    let p = ratio(
        round.law.as_bits().unwrap().flip.numerator().into(),
        round.law.as_bits().unwrap().flip.denominator().into(),
    );
    let randomized = |bit: bool| {
        let kept = if bit { BigRational::one() - &p } else { BigRational::zero() };
        kept + &p / ratio(2, 1)
    };
    let law_of_code = |ones: i64| {
        (1..=m).fold(vec![BigRational::one()], |law, k| convolve(&law, &randomized(k <= ones)))
    };
    values
        .iter()
        .map(|v| {
            let y = v / ratio(2, 1) + ratio(1, 2);
            let scaled = &y * ratio(m, 1);
            let mu = scaled.ceil();
            let partial = &scaled - &mu + BigRational::one();
            let mu: i64 = mu.to_integer().try_into().unwrap();
            if mu == 0 {
                return law_of_code(0);
            }
            let (with, without) = (law_of_code(mu), law_of_code(mu - 1));
            let mix = |(a, b): (&BigRational, &BigRational)| {
                a * &partial + b * (BigRational::one() - &partial)
            };
            with.iter().zip(&without).map(mix).collect()
        })
        .collect()
}

fn values(x: &[f64], r: f64) -> Vec<BigRational> {
    let x: Vec<BigRational> = x.iter().map(|&x| exact(x)).collect();
    let r = exact(r);
    let mut values: Vec<BigRational> = x.iter().map(|x| x * &r).collect();
    for i in 0..x.len() {
        values.extend((0..=i).map(|k| &x[i] * &x[k]));
    }
    values
}

/// Probability of every report: the product over coordinates.
fn joint(law: &[Vec<BigRational>]) -> Vec<BigRational> {
    law.iter().fold(vec![BigRational::one()], |joint, coordinate| {
        joint.iter().flat_map(|p| coordinate.iter().map(move |q| p * q)).collect()
    })
}

const DYADIC: [(&[f64], f64); 8] = [
    (&[1.0], 1.0),
    (&[-1.0], 0.5),
    (&[0.625], 0.75),
    (&[0.0], 0.0),
    (&[0.5, -0.75], 1.0),
    (&[-0.125, 0.25], 0.375),
    (&[0.0, 1.0], 0.25),
    (&[0.75, 0.5], 0.0),
];

#[test]
fn every_report_of_a_dyadic_input_has_exactly_the_papers_probability() {
    for bits in 1..=3 {
        for flip in [(1, 2), (1, 4), (7, 8)] {
            for (x, r) in DYADIC {
                let mechanism = mechanism(x.len() as u32, bits, flip);
                let found = joint(&device_law(&mechanism, x, r));
                let wanted = joint(&paper_law(&mechanism.round(1).unwrap(), &values(x, r)));
                assert_eq!(found, wanted, "m={bits} p={flip:?} x={x:?} r={r}");
                assert!(found.iter().sum::<BigRational>().is_one());
            }
        }
    }
}

/// 0.3 is no multiple of 2^-32, so here the thresholds are rounded.
#[test]
fn a_probability_is_rounded_by_less_than_2_to_the_minus_30() {
    let mechanism = mechanism(1, 1, (1, 4));
    assert!(furthest(&mechanism, &[0.3], 1.0) < ratio(1, 1 << 30));
}

/// Largest difference between a count's probability and the paper's.
fn furthest(mechanism: &Mechanism, x: &[f64], r: f64) -> BigRational {
    let found = device_law(mechanism, x, r);
    let wanted = paper_law(&mechanism.round(1).unwrap(), &values(x, r));
    let pairs = found.iter().zip(&wanted).flat_map(|(a, b)| a.iter().zip(b));
    pairs.map(|(a, b)| (a - b).abs()).max().unwrap()
}

/// E[(2 count/m - 1)/c] for each coordinate.
fn debiased_means(mechanism: &Mechanism, x: &[f64], r: f64) -> Vec<BigRational> {
    let round = mechanism.round(1).unwrap();
    let (n, d) = (
        i64::from(round.law.as_bits().unwrap().flip.numerator()),
        i64::from(round.law.as_bits().unwrap().flip.denominator()),
    );
    let c = ratio(d - n, d);
    let mean = |law: &Vec<BigRational>| -> BigRational {
        law.iter().enumerate().map(|(k, p)| p * ratio(k as i64, 1)).sum()
    };
    let debias = |law| {
        (mean(law) * ratio(2, i64::from(round.law.as_bits().unwrap().bits)) - BigRational::one())
            / &c
    };
    device_law(mechanism, x, r).iter().map(debias).collect()
}

#[test]
fn the_debiased_mean_of_a_dyadic_input_is_the_input() {
    for bits in 1..=3 {
        for (x, r) in DYADIC {
            let mechanism = mechanism(x.len() as u32, bits, (1, 4));
            assert_eq!(debiased_means(&mechanism, x, r), values(x, r));
        }
    }
}

fn input() -> impl Strategy<Value = (Vec<f64>, f64)> {
    (1usize..=2).prop_flat_map(|d| (prop::collection::vec(-0.7..0.7f64, d), 0.0..=1.0f64))
}

proptest! {
    /// Coins are off by less than 2^-31 each, so a count's probability by less than m times that
    /// (the total variation of m coins).
    #[test]
    fn every_probability_is_within_the_stated_quantisation((x, r) in input(), bits in 1u32..=3, kept in 1u32..997) {
        let mechanism = mechanism(x.len() as u32, bits, (997 - kept, 997));
        prop_assert!(furthest(&mechanism, &x, r) < ratio(i64::from(bits), 1 << 31));
    }

    /// Within 2^-30/c of the input, for any input and flip probability.
    #[test]
    fn the_debiased_mean_is_within_the_stated_quantisation((x, r) in input(), bits in 1u32..=3, kept in 1u32..997) {
        let mechanism = mechanism(x.len() as u32, bits, (997 - kept, 997));
        let bound = ratio(1, 1 << 30) / ratio(kept.into(), 997);
        let means = debiased_means(&mechanism, &x, r);
        for (mean, value) in means.iter().zip(values(&x, r)) {
            prop_assert!((mean - value).abs() < bound);
        }
    }

    /// R9: the largest probability ratio of two inputs is at most ((1+c)/(1-c))^(m D), exactly, for
    /// all reports.
    #[test]
    fn no_report_is_much_likelier_under_one_input(
        (x, r) in input(), other in prop::collection::vec(-1e3..1e3f64, 2), s in -2.0..2.0f64, bits in 1u32..=3, kept in 1u32..997,
    ) {
        let d = x.len();
        let mechanism = mechanism(d as u32, bits, (997 - kept, 997));
        let one = ratio(997 + i64::from(kept), 997 - i64::from(kept));
        let bound = num_traits::pow(one, bits as usize * mechanism.coordinates());
        let (a, b) = (device_law(&mechanism, &x, r), device_law(&mechanism, &other[..d], s));
        let largest = |a: &[Vec<BigRational>], b: &[Vec<BigRational>]| -> BigRational {
            a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(p, q)| p / q).max().unwrap()).product()
        };
        prop_assert!(largest(&a, &b) <= bound);
        prop_assert!(largest(&b, &a) <= bound);
    }
}

/// A coordinate that is not randomized has no bounded ratio: some count is likely under one input
/// and all but impossible under another.
#[test]
fn no_count_tells_two_inputs_apart_for_sure() {
    let mechanism = mechanism(1, 2, (1, 2));
    let law = |x| device_law(&mechanism, &[x], 1.0);
    let (a, b) = (law(1.0), law(0.1));
    let sure = a
        .iter()
        .zip(&b)
        .any(|(a, b)| a.iter().zip(b).any(|(p, q)| p > &ratio(1, 2) && q < &ratio(1, 1 << 30)));
    assert!(!sure);
}

proptest! {
    /// R10: a coin is 1 exactly when the 32-bit integer made of its bytes is below the threshold,
    /// at the boundary too.
    #[test]
    fn a_coin_is_an_integer_comparison(x in -1.0..1.0f64, r in 0.0..1.0f64, offsets in prop::array::uniform2(-300i64..300), words in any::<[u32; 2]>(), near in any::<[bool; 2]>()) {
        let mechanism = mechanism(1, 1, (3, 7));
        prop_assert_eq!(wrong_coins(&mechanism, x, r, offsets, words, near), 0);
    }
}

/// Coins of a report that are not U < T, for U near the threshold or anywhere.
fn wrong_coins(
    mechanism: &Mechanism,
    x: f64,
    r: f64,
    offsets: [i64; 2],
    words: [u32; 2],
    near: [bool; 2],
) -> usize {
    let round = mechanism.round(1).unwrap();
    let mut randomizer = BitsRandomizer::new(mechanism);
    let thresholds = randomizer.thresholds(round.law.as_bits().unwrap(), &[x], r).0;
    let uniform: Vec<u32> = (0..2)
        .map(|i| if near[i] { (i64::from(thresholds[i]) + offsets[i]) as u32 } else { words[i] })
        .collect();
    let tied = |i: &usize| uniform[*i] >> 24 == thresholds[*i] >> 24;
    let mut bytes: Vec<u8> = uniform.iter().map(|u| (u >> 24) as u8).collect();
    bytes.extend((0..2).filter(tied).flat_map(|i| uniform[i].to_be_bytes()[1..].to_vec()));
    let (used, mut tape) = (bytes.len(), Tape::new(bytes));
    let (counts, _) = randomizer.randomize(round.law.as_bits().unwrap(), &[x], r, &mut tape);
    let wrong = (0..2).filter(|&i| (counts[i] == 1) != (uniform[i] < thresholds[i])).count();
    wrong + usize::from(tape.used() != used)
}

/// Both numbers are one below their threshold, so their first bytes are tied with it.
#[test]
fn a_tied_coin_is_decided_by_the_rest_of_its_number() {
    let mechanism = mechanism(1, 1, (3, 7));
    let wrong = wrong_coins(&mechanism, 0.3, 0.5, [-1, -1], [0, 0], [true, true]);
    assert_eq!(wrong, 0);
}

/// What `docs/privacy-proofs.md`, section 11, says of one report of d features in one of several
/// slots, for m = 1 and without rounding: c (2 sqrt(d) + d + 1) + 2 (-ln(1-c) - c).
fn local_epsilon(d: f64, c: f64) -> f64 {
    c * (2.0 * d.sqrt() + d + 1.0) + 2.0 * (-(-c).ln_1p() - c)
}

/// The exact largest ratio of the device's own laws over pairs of arms of a grid, in one slot and in
/// two, is below the stated one for slots, and above what is true of one slot.
#[test]
fn r9_arms_of_different_slots_are_told_apart_by_at_most_the_stated_epsilon() {
    let ratio = |p: &BigRational, q: &BigRational| (p / q).to_f64().unwrap();
    for (dimension, flip) in [(1, (1, 2)), (2, (4, 5)), (2, (1, 2))] {
        let mechanism = with_layout(dimension, 1, flip, Layout::PerAction { slots: 2 });
        let axis = [-1.0, -0.5, 0.0, 0.5, 1.0];
        let mut laws = Vec::new();
        for slot in 0..2 {
            for x in &axis {
                for y in &axis[..if dimension == 1 { 1 } else { 5 }] {
                    // Shortened to the ball by the device.
                    let features = &[*x, *y][..dimension as usize];
                    for r in [0.0, 1.0] {
                        laws.push((slot, device_law(&mechanism, Arm { slot, features }, r)));
                    }
                }
            }
        }
        let mut worst = [0f64; 2];
        for (a, one) in &laws {
            for (b, other) in &laws {
                let of_one = |(p, q): (&Vec<BigRational>, &Vec<BigRational>)| {
                    p.iter().zip(q).map(|(p, q)| ratio(p, q)).fold(0.0, f64::max).ln()
                };
                let total: f64 = one.iter().zip(other).map(of_one).sum();
                let kind = usize::from(a != b);
                worst[kind] = worst[kind].max(total);
            }
        }
        let c = 1.0 - f64::from(flip.0) / f64::from(flip.1);
        let stated = local_epsilon(f64::from(dimension), c);
        println!(
            "d={dimension} c={c}: same slot {:.4}, two {:.4} of {stated:.4}",
            worst[0], worst[1]
        );
        assert!(worst[1] <= stated && worst[1] > 0.9 * stated, "{worst:?} {stated}");
        assert!(worst[0] < worst[1], "{worst:?}");
    }
}
