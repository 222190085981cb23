//! Pads add to the sums what a device's own report of x = 0 and r = 0 does, in law (R9, R10, R26).

use incrowd_device::{BitsRandomizer, CodebookRandomizer, pads, simulated_pads};
use incrowd_protocol::{
    CLIP, Closes, CodebookLaw, FlipProbability, Law, Layout, Mechanism, MechanismConfig,
    OutsideProbability, Payload, Round, STEPS, Stage,
};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

/// Beyond this many standard deviations one normal number is with probability 2.6e-12; the tests
/// here look at fewer than 200, and their sums are far in the normal regime.
const DEVIATIONS: f64 = 7.0;

fn mechanism(bits: u32, flip: (u32, u32)) -> (Mechanism, Round) {
    of_law(Law::bits(bits, FlipProbability::new(flip.0, flip.1).unwrap()))
}

fn of_law(law: Law) -> (Mechanism, Round) {
    let config = MechanismConfig {
        dimension: 3,
        context_bound: 1.0,
        layout: Layout::Shared,
        schedule: vec![Stage { rounds: 2, size: 50, window: Some(1000), law }],
        closes: Closes::Time { opens: 0 },
        central_delta: 1e-6,
        participations: 1,
        honest_fraction: 1.0,
    };
    let mechanism = config.check().unwrap();
    let round = mechanism.round(1).unwrap();
    (mechanism, round)
}

/// Mean and variance of the coordinates of `draws` draws.
fn moments(draws: u32, mut draw: impl FnMut() -> Vec<i64>) -> (f64, f64, f64) {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for _ in 0..draws {
        for value in draw() {
            let value = value as f64;
            n += 1.0;
            sum += value;
            squares += value * value;
        }
    }
    let mean = sum / n;
    (n, mean, squares / n - mean * mean)
}

/// Both are sums of independent coins: the estimate of a variance s^2 from n numbers has the
/// deviation s^2 sqrt(2/n), up to a kurtosis that is negative for such sums.
fn like_a_report_of_zero(bits: u32, flip: (u32, u32), number: u32) {
    let (mechanism, round) = mechanism(bits, flip);
    let c = f64::from(flip.1 - flip.0) / f64::from(flip.1);
    let tilted = f64::from(bits / 2 * 2);
    // Coins of P(1) = (1 +- c)/2, and one fair coin for odd m.
    let one = (tilted * (1.0 - c * c) + f64::from(bits % 2)) / 4.0;
    let (mean, variance) = (f64::from(number * bits) / 2.0, f64::from(number) * one);
    let mut rng = ChaCha20Rng::seed_from_u64(u64::from(bits));
    let of_pads = moments(3000, || simulated_pads(&mechanism, &round, number, &mut rng));
    let mut randomizer = BitsRandomizer::new(&mechanism);
    let of_reports = moments(3000, || {
        let mut sums = vec![0; mechanism.coordinates()];
        for _ in 0..number {
            let (counts, problem) =
                randomizer.randomize(round.law.as_bits().unwrap(), &[0.0; 3], 0.0, &mut rng);
            assert_eq!(problem, None);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += i64::from(*count));
        }
        sums
    });
    for (what, (n, found_mean, found_variance)) in [("pads", of_pads), ("reports", of_reports)] {
        let off = (found_mean - mean) / (variance / n).sqrt();
        assert!(off.abs() < DEVIATIONS, "{what}, m = {bits}: mean {found_mean}, not {mean}");
        let off = (found_variance / variance - 1.0) / (2.0 / n).sqrt();
        assert!(
            off.abs() < DEVIATIONS,
            "{what}, m = {bits}: variance {found_variance}, not {variance}"
        );
    }
}

#[test]
fn r26_pads_have_the_law_of_a_report_of_zero_m1() {
    like_a_report_of_zero(1, (1, 2), 5);
}

#[test]
fn r26_pads_have_the_law_of_a_report_of_zero_m2() {
    like_a_report_of_zero(2, (1, 5), 5);
}

#[test]
fn r26_pads_have_the_law_of_a_report_of_zero_m3() {
    like_a_report_of_zero(3, (1, 5), 5);
}

#[test]
fn r26_pads_have_the_law_of_a_report_of_zero_m256() {
    like_a_report_of_zero(256, (2, 3), 3);
}

/// One pad is one report: its whole distribution, not only its moments. 60,000 counts of each kind
/// in m + 1 classes; a class of probability q is off by more than 7 deviations with probability
/// below 1e-11 where 60,000 q > 100.
#[test]
fn r26_one_pad_is_distributed_as_one_report_of_zero() {
    for bits in [1, 2, 3] {
        let (mechanism, round) = mechanism(bits, (1, 5));
        let mut rng = ChaCha20Rng::seed_from_u64(1000 + u64::from(bits));
        let mut randomizer = BitsRandomizer::new(&mechanism);
        let classes = bits as usize + 1;
        let mut found = [vec![0u32; classes], vec![0u32; classes]];
        let draws = 60_000 / mechanism.coordinates() as u32;
        for _ in 0..draws {
            for sum in simulated_pads(&mechanism, &round, 1, &mut rng) {
                found[0][sum as usize] += 1;
            }
            for count in
                randomizer.randomize(round.law.as_bits().unwrap(), &[0.0; 3], 0.0, &mut rng).0
            {
                found[1][usize::from(*count)] += 1;
            }
        }
        for (class, (pads, reports)) in found[0].iter().zip(&found[1]).enumerate() {
            let off = (f64::from(*pads) - f64::from(*reports)) / f64::from(pads + reports).sqrt();
            assert!(off.abs() < DEVIATIONS, "m = {bits}: {pads} and {reports} have {class} ones");
        }
    }
}

#[test]
fn pads_of_the_operating_system_are_sums_of_as_many_reports() {
    let (mechanism, round) = mechanism(2, (1, 5));
    assert_eq!(pads(&mechanism, &round, 0).unwrap(), vec![0; mechanism.coordinates()]);
    let [one, other] = [(); 2].map(|()| pads(&mechanism, &round, 1_000_000).unwrap());
    assert_eq!(one.len(), mechanism.coordinates());
    assert_ne!(one, other, "fresh coins at every call");
    // Deviation 600: two million coins of variance 0.09.
    assert!(one.iter().all(|sum| sum.abs_diff(1_000_000) < 4_200), "{one:?}");
}

fn codebook() -> (CodebookLaw, Mechanism, Round) {
    let outside = OutsideProbability::new(1, 4).unwrap();
    let law = CodebookLaw { words: 16, chosen: 5, outside, moment_weight: 128 };
    let (mechanism, round) = of_law(Law::Codebook(law));
    (law, mechanism, round)
}

/// How far mean and variance of sums of `number` words are from what blind words have: 0, and 256 +
/// 1/12 for each word. In standard deviations.
fn off_from_blind(number: u32, (n, mean, variance): (f64, f64, f64)) -> (f64, f64) {
    let step = f64::from(STEPS);
    let expected = f64::from(number) * (step * step + 1.0 / 12.0);
    (mean / (expected / n).sqrt(), (variance / expected - 1.0) / (2.0 / n).sqrt())
}

/// n = 27,000 sums: a mean off by 0.05, or a variance off by 7 %, of a sum's standard deviation or
/// variance is caught; false alarm below 1e-11. A report of x = 0 and r = 0 ranks words by the
/// entry that no sum has, so its word is as good as picked blindly.
#[test]
fn r26_pads_of_a_codebook_have_mean_zero_and_the_variance_of_blind_words() {
    let (law, mechanism, round) = codebook();
    let mut rng = ChaCha20Rng::seed_from_u64(26);
    let mut draw = |number| moments(3000, || simulated_pads(&mechanism, &round, number, &mut rng));
    let (of_pads, one_less, twice) = (draw(5), draw(4), draw(1));
    let mut rng = ChaCha20Rng::seed_from_u64(27);
    let mut randomizer = CodebookRandomizer::new(&mechanism);
    let mut report = |x: &[f64; 3], reward: f64, sums: &mut [i64]| {
        let (payload, problem) = randomizer.randomize(law, x, reward, &mut rng);
        assert!(problem.is_none() && matches!(payload, Payload::Word { .. }));
        payload.add_to(sums);
    };
    let mut reports = |x: [f64; 3], reward: f64| {
        moments(3000, || {
            let mut sums = vec![0; mechanism.coordinates()];
            (0..5).for_each(|_| report(&x, reward, &mut sums));
            sums
        })
    };
    let (of_zero, of_one) = (reports([0.0; 3], 0.0), reports([1.0, 0.0, 0.0], 1.0));
    for (what, found) in [("pads", of_pads), ("reports of zero", of_zero)] {
        let (mean, variance) = off_from_blind(5, found);
        assert!(mean.abs() < DEVIATIONS && variance.abs() < DEVIATIONS, "{what}: {found:?}");
    }
    // One pad too few; one word five times instead of five words; reports that say something.
    assert!(off_from_blind(5, one_less).1 < -DEVIATIONS);
    let (n, mean, variance) = twice;
    assert!(off_from_blind(5, (n, 5.0 * mean, 25.0 * variance)).1 > DEVIATIONS);
    assert!(off_from_blind(5, of_one).0 > DEVIATIONS);
}

#[test]
fn pads_of_a_codebook_from_the_operating_system_are_sums_of_as_many_words() {
    let (_, mechanism, round) = codebook();
    assert_eq!(pads(&mechanism, &round, 0).unwrap(), vec![0; mechanism.coordinates()]);
    let one = pads(&mechanism, &round, 1).unwrap();
    assert!(one.len() == 9 && one.iter().all(|sum| sum.abs() <= i64::from(CLIP)));
    let [many, other] = [(); 2].map(|()| pads(&mechanism, &round, 10_000).unwrap());
    assert_ne!(many, other, "fresh words at every call");
    // Deviation 1600.
    assert!(many.iter().all(|sum| sum.abs() < 7 * 1600), "{many:?}");
}
