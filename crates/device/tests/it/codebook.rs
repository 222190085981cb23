//! The law of a codebook report: exactly, index by index (R9, R10), and as the decoded word.

use std::sync::Arc;

use crate::tape::Tape;
use incrowd_device::{Arm, CodebookRandomizer, Device};
use incrowd_protocol::{
    Closes, CodebookLaw, Law, Layout, Learner, Mechanism, MechanismConfig, OutsideProbability,
    Payload, Policy, STEPS, Stage, TaskConfig, Words,
};
use libm::{erfc, exp, sqrt};
use num_rational::BigRational;
use num_traits::{One, Zero};
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

fn law(words: u32, chosen: u32, outside: (u32, u32)) -> CodebookLaw {
    let outside = OutsideProbability::new(outside.0, outside.1).unwrap();
    CodebookLaw { words, chosen, outside, moment_weight: 128 }
}

fn mechanism(dimension: u32, rounds: u32, law: CodebookLaw) -> Mechanism {
    let law = Law::Codebook(law);
    MechanismConfig {
        dimension,
        context_bound: 1.0,
        schedule: vec![Stage { rounds, size: 1, window: None, law }],
        layout: Layout::Shared,
        closes: Closes::Count { grace: 0 },
        central_delta: 1e-6,
        participations: u32::MAX,
        honest_fraction: 1.0,
    }
    .check()
    .unwrap()
}

fn ratio(numerator: u32, denominator: u32) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

/// The index that the device sends when it draws this seed and then these 32-bit integers, all of
/// which it uses.
fn index(
    randomizer: &mut CodebookRandomizer,
    law: CodebookLaw,
    (x, r): (&[f64], f64),
    seed: [u8; 16],
    drawn: &[u32],
) -> u8 {
    let integers = drawn.iter().flat_map(|integer| integer.to_be_bytes());
    let bytes: Vec<u8> = seed.into_iter().chain(integers).collect();
    let (length, mut tape) = (bytes.len(), Tape::new(bytes));
    let (payload, _) = randomizer.randomize(law, x, r, &mut tape);
    assert_eq!(tape.used(), length, "every integer drawn is used");
    match payload {
        Payload::Word { seed: sent, index } if sent == seed => index,
        _ => panic!("a word of the seed"),
    }
}

/// The exact law of the index, given the seed. An integer that is drawn is uniform in the residues
/// of a denominator (see `integers_are_drawn_again_exactly_where_they_must`), so each pair of
/// residues is as likely as every other. The second integer takes all residues of k (N-k), a
/// multiple of both numbers of places: which of them counts is up to the device.
fn index_law(law: CodebookLaw, input: (&[f64], f64), seed: [u8; 16]) -> Vec<BigRational> {
    let mechanism = mechanism(2, 1, law);
    let mut randomizer = CodebookRandomizer::new(&mechanism);
    let (coins, places) = (law.outside.denominator(), law.chosen * (law.words - law.chosen));
    let mut chances = vec![BigRational::zero(); law.words as usize];
    for coin in 0..coins {
        for place in 0..places {
            let sent = index(&mut randomizer, law, input, seed, &[coin, place]);
            chances[usize::from(sent)] += ratio(1, coins * places);
        }
    }
    assert!(chances.iter().sum::<BigRational>().is_one());
    chances
}

/// Contexts and rewards of every kind: inside, at the border, clipped, invalid.
const INPUTS: [(&[f64], f64); 12] = [
    (&[0.0, 0.0], 0.0),
    (&[1.0, 0.0], 1.0),
    (&[-1.0, 0.0], 1.0),
    (&[0.0, 1.0], 1.0),
    (&[0.6, -0.8], 0.0),
    (&[0.6, -0.8], 1.0),
    (&[-0.3, 0.2], 0.5),
    (&[1e-300, -1e-9], 1.0),
    (&[3.0, -1e200], 7.0),
    (&[0.5, f64::NAN], 0.5),
    (&[0.5], f64::INFINITY),
    (&[-0.7, -0.7], -1.0),
];

/// exp(eps0) = (1-o)(N-k)/(o k).
fn largest_ratio(law: CodebookLaw) -> BigRational {
    let o = ratio(law.outside.numerator(), law.outside.denominator());
    (BigRational::one() - &o) / o * ratio(law.words - law.chosen, law.chosen)
}

/// Largest ratio of an index's chances over all pairs of inputs.
fn found_ratio(laws: &[Vec<BigRational>]) -> BigRational {
    let pairs = laws.iter().flat_map(|a| laws.iter().map(move |b| (a, b)));
    let ratios = pairs.flat_map(|(a, b)| a.iter().zip(b).map(|(p, q)| p / q));
    ratios.max().unwrap()
}

/// R9: for every seed, and all inputs, an index has one of two chances, and their ratio is exactly
/// exp(eps0). The seed itself does not depend on the input.
#[test]
fn r9_the_largest_ratio_is_exactly_that_of_the_local_epsilon() {
    for law in [law(2, 1, (1, 3)), law(5, 2, (1, 4)), law(6, 3, (2, 7)), law(8, 1, (1, 2))] {
        let o = ratio(law.outside.numerator(), law.outside.denominator());
        let inside = (BigRational::one() - &o) / ratio(law.chosen, 1);
        let outside = o / ratio(law.words - law.chosen, 1);
        let mut subsets = std::collections::HashSet::new();
        for seed in 0..20 {
            let laws = INPUTS.map(|input| index_law(law, input, [seed; 16]));
            for chances in &laws {
                let chosen: Vec<bool> = chances.iter().map(|chance| *chance == inside).collect();
                let number = chosen.iter().filter(|chosen| **chosen).count();
                assert_eq!(number, law.chosen as usize, "k words are picked");
                assert!(chances.iter().all(|chance| *chance == inside || *chance == outside));
                subsets.insert(chosen);
            }
            // Two words may be in the same order for all inputs.
            let differ = laws.iter().any(|chances| *chances != laws[0]);
            assert!(differ || law.words == 2, "inputs pick different words");
            let wanted = if differ { largest_ratio(law) } else { BigRational::one() };
            assert_eq!(found_ratio(&laws), wanted, "{law:?}");
        }
        assert!(subsets.len() > 1);
    }
}

proptest! {
    /// R9 for random laws, seeds and inputs: at most exp(eps0) always, and exactly exp(eps0) as
    /// soon as two inputs pick different words.
    #[test]
    fn r9_no_index_is_likelier_than_the_local_epsilon_says(
        words in 2u32..9, k in 1u32..5, share in 1u32..12, of in 1u32..13, seed in any::<[u8; 16]>(),
        a in ([-2.0..2.0f64, -2.0..2.0f64], -0.5..1.5f64), b in ([-2.0..2.0f64, -2.0..2.0f64], -0.5..1.5f64),
    ) {
        let k = k.min(words / 2);
        // In lowest terms, and below 1 - k/N.
        let Ok(outside) = OutsideProbability::new(share, of) else { return Ok(()) };
        prop_assume!(share * words < of * (words - k));
        let law = CodebookLaw { words, chosen: k, outside, moment_weight: 100 };
        let laws = [a, b].map(|(x, r)| index_law(law, (&x, r), seed));
        let found = found_ratio(&laws);
        prop_assert!(found == largest_ratio(law) || (laws[0] == laws[1] && found.is_one()));
    }

    /// R10: the coin is an integer comparison. With two words, inside and outside are told apart.
    #[test]
    fn r10_a_coin_is_the_residue_of_an_integer(numerator in 1u32..u32::MAX, denominator in 2u32.., uniform in any::<u32>()) {
        let divisor = gcd(numerator, denominator);
        let (numerator, denominator) = (numerator / divisor, denominator / divisor);
        prop_assume!(u64::from(numerator) * 2 < u64::from(denominator));
        let law = law(2, 1, (numerator, denominator));
        let whole = (1u64 << 32) / u64::from(denominator) * u64::from(denominator);
        let mut randomizer = CodebookRandomizer::new(&mechanism(2, 1, law));
        let input = INPUTS[5];
        let mut sent = |drawn: &[u32]| index(&mut randomizer, law, input, [7; 16], drawn);
        let (outside, inside) = (sent(&[0, 0]), sent(&[numerator, 0]));
        prop_assert_ne!(outside, inside);
        if u64::from(uniform) < whole {
            let wanted = if uniform % denominator < numerator { outside } else { inside };
            prop_assert_eq!(sent(&[uniform, 0]), wanted);
        } else {
            prop_assert_eq!(sent(&[uniform, 0, 0]), outside);
            prop_assert_eq!(sent(&[uniform, numerator, 0]), inside);
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The last integer that counts and the first that does not, for denominators that divide 2^32 and
/// others: so every residue has as many integers.
#[test]
fn integers_are_drawn_again_exactly_where_they_must() {
    for denominator in [3, 5, 7, 64, 1000, 1 << 30, (1 << 31) + 1, u32::MAX - 1, u32::MAX] {
        let law = law(2, 1, (1, denominator));
        let mut randomizer = CodebookRandomizer::new(&mechanism(2, 1, law));
        let mut sent = |drawn: &[u32]| index(&mut randomizer, law, INPUTS[5], [7; 16], drawn);
        let (outside, inside) = (sent(&[0, 0]), sent(&[1, 0]));
        let whole = (1u64 << 32) / u64::from(denominator) * u64::from(denominator);
        assert_eq!(sent(&[(whole - 1) as u32, 0]), inside, "of {denominator}: the last residue");
        let first = (whole - u64::from(denominator)) as u32;
        assert_eq!(sent(&[first, 0]), outside, "of {denominator}: residue 0 once more");
        for again in whole..(whole + 3).min(1 << 32) {
            assert_eq!(sent(&[again as u32, 0, 0]), outside, "{again} of {denominator}");
            assert_eq!(sent(&[again as u32, again as u32, 1, 0]), inside);
        }
    }
}

/// mu and the variance along z+, from the density of the k largest of N normals: N/k phi(y)
/// P(Bin(N-1, P(X > y)) <= k-1).
fn theory(law: CodebookLaw) -> (f64, f64) {
    let (n, k) = (f64::from(law.words), f64::from(law.chosen));
    let (mut mean, mut square) = (0.0, 0.0);
    for node in -900..=900 {
        let y = f64::from(node) / 100.0;
        let [above, below] = [y, -y].map(|y| erfc(y / sqrt(2.0)) / 2.0);
        let mut term = below.powf(n - 1.0);
        let mut among = 0.0;
        for i in 0..law.chosen {
            among += term;
            term *= (n - 1.0 - f64::from(i)) / f64::from(i + 1) * above / below.max(1e-300);
        }
        let weight = n / k * exp(-y * y / 2.0) / sqrt(std::f64::consts::TAU) * among / 100.0;
        mean += y * weight;
        square += y * y * weight;
    }
    let o = law.outside.value();
    let gain = (1.0 - o - o * k / (n - k)) * mean;
    let second = (1.0 - o) * square + o * (n - k * square) / (n - k);
    (gain, second - gain * gain)
}

/// Variance that rounding to 1/16 adds.
const ROUNDING: f64 = 1.0 / 3072.0;
/// A normal number is further off with probability 2.6e-12. At most 233 numbers are held against
/// it.
const DEVIATIONS: f64 = 7.0;
/// For the entries of the covariance, at most 26,796 numbers: 1.2e-15 each in the normal law, at
/// most 1e-14 with the skewness of a square at this n.
const COVARIANCE_DEVIATIONS: f64 = 8.0;

/// The words of so many reports that a device makes with `made`, all of the same input, as normals:
/// D + 1 entries each.
fn words(reports: u32, made: CodebookLaw, x: &[f64], r: f64) -> Vec<Vec<f64>> {
    let dimension = x.len() as u32;
    let mechanism = mechanism(dimension, reports, made);
    let entries = mechanism.coordinates() + 1;
    let task = TaskConfig::new(mechanism, Learner::default(), Policy::default()).unwrap();
    let rng = ChaCha20Rng::seed_from_u64(u64::from(dimension));
    let mut device = Device::simulated(Arc::new(task), rng);
    let word = |round| {
        let report = device.report(round, x, r).unwrap().report;
        let &Payload::Word { seed, index } = report.payload() else { panic!("a word") };
        let mut words = Words::new(&seed, entries);
        let mut sums = vec![0; entries];
        words.add(usize::from(index), &mut sums);
        sums.iter().map(|&sum| sum as f64 / f64::from(STEPS)).collect()
    };
    (1..=reports).map(word).collect()
}

/// What is wrong with words that should have the law of `stated`: mean mu z+, variance 1 across z+
/// and as the theory says along it, and that of rounding in every direction. The first of these
/// that fails, with how many standard deviations it is off.
fn rejection(stated: CodebookLaw, z: &[f64], words: &[Vec<f64>]) -> Option<(&'static str, f64)> {
    let (gain, variance) = theory(stated);
    let n = words.len() as f64;
    let along = |word: &Vec<f64>| word.iter().zip(z).map(|(g, z)| g * z).sum::<f64>() - gain;
    let off: Vec<f64> = words.iter().map(along).collect();
    let moment = |power| off.iter().map(|y| y.powi(power)).sum::<f64>() / n;
    let expected = variance + ROUNDING;
    let mean = moment(1) / sqrt(expected / n);
    if mean.abs() > DEVIATIONS {
        return Some(("mean along", mean));
    }
    // The deviation of a sample's variance, from the sample's fourth moment.
    let second = (moment(2) - expected) / sqrt((moment(4) - expected * expected) / n);
    if second.abs() > DEVIATIONS {
        return Some(("variance along", second));
    }
    let covariance = |i: usize, j: usize| {
        f64::from(u8::from(i == j)) * (1.0 + ROUNDING) + (variance - 1.0) * z[i] * z[j]
    };
    let mut means = vec![0.0; z.len()];
    let mut products: Vec<Vec<f64>> = (1..=z.len()).map(|length| vec![0.0; length]).collect();
    for word in words {
        let centred: Vec<f64> = word.iter().zip(z).map(|(g, z)| g - gain * z).collect();
        means.iter_mut().zip(&centred).for_each(|(mean, entry)| *mean += entry);
        for (row, entry) in products.iter_mut().zip(&centred) {
            row.iter_mut().zip(&centred).for_each(|(product, other)| *product += entry * other);
        }
    }
    for (j, mean) in means.iter().enumerate() {
        let mean = mean / sqrt(covariance(j, j) * n);
        if mean.abs() > DEVIATIONS {
            return Some(("mean of an entry", mean));
        }
    }
    for (i, row) in products.iter().enumerate() {
        for (j, product) in row.iter().enumerate() {
            let expected = covariance(i, j);
            let square = covariance(i, i) * covariance(j, j) + expected * expected;
            let off = (product / n - expected) / sqrt(square / n);
            if off.abs() > COVARIANCE_DEVIATIONS {
                return Some(("covariance", off));
            }
        }
    }
    None
}

/// Words that are wrong in one way each that the mean along z+ does not show, and what must show
/// it: 10 % more variance along z+; a mean of 0.1 across it; two directions across it that are
/// correlated by 0.2.
fn distorted(
    stated: CodebookLaw,
    z: &[f64],
    honest: &[Vec<f64>],
) -> [(&'static str, Vec<Vec<f64>>); 3] {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // The direction nearest to an axis that is orthogonal to others.
    let across = |axis: usize, others: &[&[f64]]| {
        let mut direction = vec![0.0; z.len()];
        direction[axis] = 1.0;
        for other in others {
            let part = dot(&direction, other);
            direction.iter_mut().zip(*other).for_each(|(entry, other)| *entry -= part * other);
        }
        let norm = sqrt(dot(&direction, &direction));
        direction.iter().map(|entry| entry / norm).collect::<Vec<f64>>()
    };
    let one = across(0, &[z]);
    let two = across(1, &[z, &one]);
    let gain = theory(stated).0;
    let moved = |by: &dyn Fn(&[f64]) -> f64, direction: &[f64]| {
        let word = |word: &Vec<f64>| {
            let by = by(word);
            word.iter().zip(direction).map(|(entry, direction)| entry + by * direction).collect()
        };
        honest.iter().map(word).collect::<Vec<Vec<f64>>>()
    };
    [
        ("variance along", moved(&|word| (sqrt(1.1) - 1.0) * (dot(word, z) - gain), z)),
        ("mean of an entry", moved(&|_| 0.1, &one)),
        ("covariance", moved(&|word| 0.2 * dot(word, &one), &two)),
    ]
}

/// R10, n = 20,000 reports or more, false alarm below 1e-9. Must catch a mean that is off by 0.065
/// standard deviations of an entry along z+ (nine deviations of the mean): k off by one, the chance
/// of other words off by 10 %, an index that is not randomized.
fn decoded_words_have_their_law(dimension: u32, reports: u32, stated: CodebookLaw) {
    let x: Vec<f64> = (0..dimension).map(|i| 0.9 - 0.13 * f64::from(i % 9)).collect();
    let norm = sqrt(x.iter().map(|x| x * x).sum::<f64>()) / 0.95;
    let x: Vec<f64> = x.iter().map(|x| x / norm).collect();
    let mechanism = mechanism(dimension, 1, stated);
    let mut randomizer = CodebookRandomizer::new(&mechanism);
    let (z, problem) = randomizer.statistic(stated, &x, 0.7);
    assert_eq!(problem, None);
    let z = z.to_vec();
    let square: f64 = z.iter().map(|z| z * z).sum();
    assert!((square - 1.0).abs() < 1e-12 && z.len() == mechanism.coordinates() + 1);
    // w r^2 |u|^2 + (1-w) |u|^4, and what is left.
    let left = 1.0 - (0.5 * 0.49 * 0.9025 + 0.5 * 0.9025 * 0.9025);
    assert!((z[z.len() - 1] * z[z.len() - 1] - left).abs() < 1e-12);

    let honest = words(reports, stated, &x, 0.7);
    assert_eq!(rejection(stated, &z, &honest), None, "d = {dimension}");
    for (statistic, broken) in distorted(stated, &z, &honest) {
        let found = rejection(stated, &z, &broken);
        println!("d = {dimension}, distorted: {found:?}");
        assert_eq!(found.map(|(failed, _)| failed), Some(statistic), "d = {dimension}");
    }
    let (numerator, denominator) = (stated.outside.numerator(), stated.outside.denominator());
    let outside = |numerator, denominator| {
        let divisor = gcd(numerator, denominator);
        OutsideProbability::new(numerator / divisor, denominator / divisor).unwrap()
    };
    let mutants = [
        ("k one more", CodebookLaw { chosen: stated.chosen + 1, ..stated }),
        ("k one less", CodebookLaw { chosen: stated.chosen - 1, ..stated }),
        (
            "other words 10 % more often",
            CodebookLaw { outside: outside(11 * numerator, 10 * denominator), ..stated },
        ),
        (
            "the best word always",
            CodebookLaw { chosen: 1, outside: outside(1, u32::MAX), ..stated },
        ),
    ];
    for (mutant, made) in mutants {
        let found = rejection(stated, &z, &words(reports, made, &x, 0.7));
        println!("d = {dimension}, {mutant}: {found:?}");
        assert!(found.is_some(), "d = {dimension}: {mutant}");
    }
}

#[test]
fn r10_decoded_words_have_their_law_d1() {
    decoded_words_have_their_law(1, 40_000, law(64, 2, (2, 5)));
}

#[test]
fn r10_decoded_words_have_their_law_d5() {
    decoded_words_have_their_law(5, 40_000, law(32, 3, (3, 7)));
}

#[test]
fn r10_decoded_words_have_their_law_d20() {
    decoded_words_have_their_law(20, 20_000, law(8, 2, (3, 7)));
}

/// What the central bounds need of statistics with slots (`docs/privacy-proofs.md`, section 11):
/// unit vectors, whose products are those of one long vector, so never below -w^2/(4(1-w)), and
/// never below 0 for people in different slots that share nothing.
#[test]
fn statistics_of_arms_with_slots_have_the_products_of_one_long_vector() {
    let made = law(16, 5, (1, 4));
    let weight = f64::from(made.moment_weight) / 256.0;
    for (layout, shared) in
        [(Layout::PerAction { slots: 3 }, 0), (Layout::Hybrid { slots: 3, shared: 2 }, 2)]
    {
        let config = MechanismConfig { layout, ..mechanism(3, 1, made).into() };
        let mut randomizer = CodebookRandomizer::new(&config.check().unwrap());
        let mut people = Vec::new();
        for slot in 0..3 {
            for (x, r) in [
                ([1.0, 0.0, 0.0], 1.0),
                ([-0.5, 0.75, 0.25], 1.0),
                ([0.5, -0.75, -0.25], 1.0),
                ([0.0, 0.6, 0.8], 0.5),
                ([0.0, -0.6, -0.8], 1.0),
                ([0.25, 0.125, 0.0], 0.0),
            ] {
                let arm = Arm { slot, features: &x };
                people.push((slot, x, r, randomizer.statistic(made, arm, r).0.to_vec()));
            }
        }
        let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut lowest = f64::INFINITY;
        for (a, x, r, one) in &people {
            assert!((inner(one, one) - 1.0).abs() < 1e-12);
            for (b, y, s, other) in &people {
                let (found, places) = (inner(one, other), one.len() - 1);
                let same = if a == b { inner(&x[..3 - shared], &y[..3 - shared]) } else { 0.0 };
                let t = same + inner(&x[3 - shared..], &y[3 - shared..]);
                let lift = one[places] * other[places];
                let wanted = weight * r * s * t + (1.0 - weight) * t * t + lift;
                assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
                assert!(found >= -weight * weight / (4.0 * (1.0 - weight)) - 1e-12);
                assert!(shared > 0 || a == b || found >= 0.0, "{found}");
                lowest = lowest.min(found);
            }
        }
        assert!(lowest < -0.05, "{lowest}");
    }
}
